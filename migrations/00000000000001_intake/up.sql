-- The intake: what was received, exactly as it came, and what is still to be published.

CREATE SCHEMA webhook;

-- Refuses changes to append-only tables, whoever asks.
CREATE FUNCTION webhook.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;

-- The millisecond of receipt inside a UUIDv7. It selects the partition that an event id lives in.
CREATE FUNCTION webhook.id_time(id uuid) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN 'epoch'::timestamptz
        + ('x' || lpad(left(replace(id::text, '-', ''), 12), 16, '0'))::bit(64)::bigint * interval '1 millisecond';

-- Endpoints: one account at one provider, and the secrets that sign for it.

CREATE TABLE webhook.endpoints (
    id                uuid PRIMARY KEY,
    provider          text NOT NULL,
    slug              text NOT NULL CHECK (slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    account           text NOT NULL CHECK (account <> '' AND account NOT LIKE '%:sandbox'),
    other_accounts    text[] NOT NULL DEFAULT '{}',
    environment       text NOT NULL CHECK (environment IN ('production', 'sandbox')),
    active            boolean NOT NULL DEFAULT true,
    tolerance_seconds integer CHECK (tolerance_seconds > 0),
    mismatch_status   smallint NOT NULL DEFAULT 409 CHECK (mismatch_status IN (200, 409)),
    created_at        timestamptz NOT NULL DEFAULT now(),
    UNIQUE (provider, slug)
);

CREATE TABLE webhook.endpoint_keys (
    id           uuid PRIMARY KEY,
    endpoint_id  uuid NOT NULL REFERENCES webhook.endpoints (id),
    version      integer NOT NULL CHECK (version > 0),
    secret       bytea NOT NULL,
    fingerprint  text NOT NULL,
    active_from  timestamptz NOT NULL DEFAULT now(),
    active_until timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    UNIQUE (endpoint_id, version),
    CHECK (active_until > active_from)
);

-- One row that changes with every change of an endpoint or key: the ingress looks at it to know when to read them again.
CREATE TABLE webhook.endpoints_revision (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    revision bigint NOT NULL DEFAULT 1
);
INSERT INTO webhook.endpoints_revision DEFAULT VALUES;

CREATE FUNCTION webhook.bump_endpoints_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE webhook.endpoints_revision SET revision = revision + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER bump_revision AFTER INSERT OR UPDATE OR DELETE ON webhook.endpoints
    FOR EACH STATEMENT EXECUTE FUNCTION webhook.bump_endpoints_revision();
CREATE TRIGGER bump_revision AFTER INSERT OR UPDATE OR DELETE ON webhook.endpoint_keys
    FOR EACH STATEMENT EXECUTE FUNCTION webhook.bump_endpoints_revision();

-- The inbox: one row per accepted event. Not partitioned: a unique key on a partitioned table would have to contain
-- received_at, and would let the same event in twice around midnight.

CREATE TABLE webhook.inbox (
    id                  uuid PRIMARY KEY,
    endpoint_id         uuid NOT NULL,
    provider            text NOT NULL,
    provider_account_id text NOT NULL,
    environment         text NOT NULL,
    event_id            text NOT NULL,
    event_type          text NOT NULL,
    api_version         text,
    origin              text NOT NULL DEFAULT 'provider',
    lane                text NOT NULL,
    occurred_at         timestamptz,
    received_at         timestamptz NOT NULL,
    payload_hash        bytea NOT NULL,
    status              text NOT NULL DEFAULT 'accepted',
    -- Attempts in all, and failures since the event was accepted or last redriven.
    attempt_count       integer NOT NULL DEFAULT 0,
    failure_count       integer NOT NULL DEFAULT 0,
    -- How often the broker gave the event up because a worker died with it.
    suspect_count       integer NOT NULL DEFAULT 0,
    next_attempt_at     timestamptz,
    last_error_code     text,
    last_error_message  text,
    processed_at        timestamptz,
    replay_count        bigint NOT NULL DEFAULT 0,
    CONSTRAINT inbox_dedup UNIQUE (provider, provider_account_id, event_id),
    CONSTRAINT inbox_event_id_length CHECK (octet_length(event_id) BETWEEN 1 AND 255),
    CONSTRAINT inbox_origin CHECK (origin IN ('provider', 'requery', 'operator', 'reconcile')),
    CONSTRAINT inbox_lane CHECK (lane IN ('payments', 'subscriptions', 'other')),
    CONSTRAINT inbox_status CHECK (status IN ('accepted', 'retrying', 'processed', 'ignored', 'quarantined', 'dead')),
    CONSTRAINT inbox_environment CHECK (
        environment = CASE WHEN provider_account_id LIKE '%:sandbox' THEN 'sandbox' ELSE 'production' END),
    CONSTRAINT inbox_done_has_time CHECK ((status IN ('processed', 'ignored')) = (processed_at IS NOT NULL)),
    CONSTRAINT inbox_retrying_has_time CHECK ((status = 'retrying') = (next_attempt_at IS NOT NULL)),
    CONSTRAINT inbox_stopped_has_reason CHECK (status NOT IN ('quarantined', 'dead') OR last_error_code IS NOT NULL),
    CONSTRAINT inbox_counts CHECK (attempt_count >= 0 AND failure_count >= 0 AND suspect_count >= 0 AND replay_count >= 0)
) WITH (fillfactor = 85);

-- What is still to be done, oldest first. Small: a row leaves it when its event is settled.
CREATE INDEX inbox_unsettled ON webhook.inbox (received_at) WHERE status IN ('accepted', 'retrying');

-- The raw store: the bytes as they came. Append-only, partitioned by week, dropped only by partition.

CREATE TABLE webhook.raw_events (
    id                      uuid NOT NULL,
    received_at             timestamptz NOT NULL,
    endpoint_id             uuid NOT NULL,
    provider                text NOT NULL,
    provider_account_id     text NOT NULL,
    environment             text NOT NULL CHECK (environment IN ('production', 'sandbox')),
    event_id                text NOT NULL,
    event_type              text NOT NULL,
    api_version             text,
    origin                  text NOT NULL CHECK (origin IN ('provider', 'requery', 'operator', 'reconcile')),
    occurred_at             timestamptz,
    app_user_id             text,
    transaction_id          text,
    original_transaction_id text,
    product_id              text,
    store                   text,
    signature               text,
    auth_method             text NOT NULL,
    auth_state              text NOT NULL CHECK (auth_state IN ('verified', 'unsigned_by_contract')),
    key_version             integer,
    body_sha256             bytea NOT NULL CHECK (octet_length(body_sha256) = 32),
    payload_hash            bytea NOT NULL CHECK (octet_length(payload_hash) = 32),
    body_bytes              integer NOT NULL,
    body                    bytea NOT NULL,
    PRIMARY KEY (id, received_at)
) PARTITION BY RANGE (received_at);

-- Bodies are compressed before they are sealed; ciphertext does not compress again.
ALTER TABLE webhook.raw_events ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE INDEX raw_events_app_user ON webhook.raw_events (app_user_id) WHERE app_user_id IS NOT NULL;
CREATE INDEX raw_events_transaction ON webhook.raw_events (transaction_id) WHERE transaction_id IS NOT NULL;
CREATE INDEX raw_events_original_transaction ON webhook.raw_events (original_transaction_id)
    WHERE original_transaction_id IS NOT NULL;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON webhook.raw_events
    FOR EACH ROW EXECUTE FUNCTION webhook.refuse_change();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON webhook.raw_events
    FOR EACH STATEMENT EXECUTE FUNCTION webhook.refuse_change();

-- Creates the partition that holds `at`, unless it is there. Weeks begin on Monday, 00:00 UTC, whatever the session's
-- time zone. Attaching a finished table does not wait for readers or writers of the other partitions.
CREATE FUNCTION webhook.ensure_raw_partition(at timestamptz) RETURNS text
    LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    week_start timestamptz := date_trunc('week', at);
    week_end   timestamptz := date_trunc('week', at) + interval '7 days';
    partition  text := 'raw_events_' || to_char(week_start, 'IYYY"w"IW');
BEGIN
    IF to_regclass('webhook.' || partition) IS NOT NULL THEN
        RETURN partition;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('webhook.ensure_raw_partition', 0));
    IF to_regclass('webhook.' || partition) IS NOT NULL THEN
        RETURN partition;
    END IF;
    EXECUTE format('CREATE TABLE webhook.%I (LIKE webhook.raw_events INCLUDING ALL, CHECK (received_at >= %L AND received_at < %L))',
        partition, week_start, week_end);
    EXECUTE format('ALTER TABLE webhook.raw_events ATTACH PARTITION webhook.%I FOR VALUES FROM (%L) TO (%L)',
        partition, week_start, week_end);
    -- Statement triggers are not inherited: without its own, a partition could be truncated by name.
    EXECUTE format('CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON webhook.%I FOR EACH STATEMENT EXECUTE FUNCTION webhook.refuse_change()',
        partition);
    RETURN partition;
END $$;

-- Creates the partitions of the current and the next weeks.
CREATE FUNCTION webhook.ensure_raw_partitions(weeks_ahead integer) RETURNS void LANGUAGE sql AS $$
    SELECT webhook.ensure_raw_partition(now() + week * interval '7 days') FROM generate_series(0, weeks_ahead) AS week;
$$;
SELECT webhook.ensure_raw_partitions(8);

-- The outbox: what is to be published. A row is deleted when the broker confirmed it.

CREATE TABLE webhook.outbox (
    id               uuid PRIMARY KEY,
    event_id         uuid NOT NULL,
    lane             text NOT NULL CHECK (lane IN ('payments', 'subscriptions', 'other', 'redrive')),
    kind             text NOT NULL CHECK (kind IN ('first', 'retry', 'redrive', 'rescue')),
    due_at           timestamptz NOT NULL,
    -- Whoever is publishing the row holds it until then; afterwards anyone may.
    claimed_until    timestamptz,
    publish_failures integer NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX outbox_due ON webhook.outbox (due_at);

-- Deliveries of events we already had, with the same content.

CREATE TABLE webhook.replays (
    id          uuid PRIMARY KEY,
    event_id    uuid NOT NULL,
    received_at timestamptz NOT NULL,
    endpoint_id uuid NOT NULL,
    key_version integer,
    body_sha256 bytea NOT NULL
);
CREATE INDEX replays_event ON webhook.replays (event_id);

-- Requests that were refused: a bounded sample. The exact numbers are in intake_counts.

CREATE TABLE webhook.refusals (
    id               uuid PRIMARY KEY,
    received_at      timestamptz NOT NULL,
    provider         text NOT NULL,
    endpoint_id      uuid,
    reason           text NOT NULL,
    http_status      smallint NOT NULL,
    -- What the request said of itself. Nobody vouches for it.
    claimed_event_id text CHECK (octet_length(claimed_event_id) <= 255),
    body_sha256      bytea NOT NULL,
    body_bytes       integer NOT NULL,
    body_prefix      bytea NOT NULL
);
CREATE INDEX refusals_recent ON webhook.refusals (received_at DESC);

-- How every received request ended, per minute. Each writer counts in rows of its own, so that writers never wait for
-- each other; the counts of accepted, replayed and quarantined requests commit together with their rows.

CREATE TABLE webhook.intake_counts (
    minute      timestamptz NOT NULL,
    endpoint_id uuid NOT NULL,
    writer      uuid NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('accepted', 'replayed', 'quarantined', 'rejected')),
    reason      text NOT NULL DEFAULT '',
    requests    bigint NOT NULL CHECK (requests > 0),
    PRIMARY KEY (minute, endpoint_id, writer, outcome, reason)
) WITH (fillfactor = 50);

-- What a person has to look at before it may touch the ledger.

CREATE TABLE webhook.quarantine (
    id                  uuid PRIMARY KEY,
    reason              text NOT NULL,
    provider            text NOT NULL,
    provider_account_id text NOT NULL,
    -- The accepted event it is about.
    event_id            uuid NOT NULL,
    -- The later, different delivery of the same event, and how often it came.
    raw_event_id        uuid,
    payload_hash        bytea,
    seen_count          bigint NOT NULL DEFAULT 1 CHECK (seen_count > 0),
    -- What it is about, where the contradiction is between facts of one subject.
    subject_kind        text,
    subject_id          text,
    detail              text NOT NULL DEFAULT '',
    status              text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'released', 'rejected')),
    opened_at           timestamptz NOT NULL DEFAULT now(),
    closed_at           timestamptz,
    closed_by           text,
    closed_reason       text,
    CHECK ((reason = 'payload_mismatch') = (raw_event_id IS NOT NULL AND payload_hash IS NOT NULL)),
    CHECK ((subject_kind IS NULL) = (subject_id IS NULL)),
    CHECK ((status = 'open') = (closed_at IS NULL)),
    CHECK (status = 'open' OR (closed_by <> '' AND length(closed_reason) >= 8))
);
CREATE UNIQUE INDEX quarantine_mismatch ON webhook.quarantine (event_id, payload_hash) WHERE reason = 'payload_mismatch';
CREATE UNIQUE INDEX quarantine_subject ON webhook.quarantine (provider, provider_account_id, subject_kind, subject_id, reason)
    WHERE subject_id IS NOT NULL;
CREATE UNIQUE INDEX quarantine_event ON webhook.quarantine (event_id, reason)
    WHERE subject_id IS NULL AND reason <> 'payload_mismatch';
CREATE INDEX quarantine_open ON webhook.quarantine (opened_at) WHERE status = 'open';
