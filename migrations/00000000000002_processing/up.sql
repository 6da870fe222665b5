-- What happened to events after they were accepted.

-- Every failed attempt, appended and never changed.
CREATE TABLE webhook.attempts (
    event_id      uuid NOT NULL,
    attempt       integer NOT NULL CHECK (attempt > 0),
    at            timestamptz NOT NULL,
    lane          text NOT NULL,
    worker        text NOT NULL,
    class         text NOT NULL CHECK (class IN ('transient', 'permanent', 'quarantined', 'crash')),
    error_code    text NOT NULL,
    error_message text NOT NULL,
    fate          text NOT NULL CHECK (fate IN ('retry', 'dead', 'quarantined')),
    PRIMARY KEY (event_id, attempt)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON webhook.attempts
    FOR EACH ROW EXECUTE FUNCTION webhook.refuse_change();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON webhook.attempts
    FOR EACH STATEMENT EXECUTE FUNCTION webhook.refuse_change();

-- Events that were given up, until a person redrives or discards them. Never deleted.
CREATE TABLE webhook.dead_letters (
    id                  uuid PRIMARY KEY,
    -- NULL when the message named no event that we know.
    event_id            uuid UNIQUE,
    provider            text NOT NULL DEFAULT '',
    provider_account_id text NOT NULL DEFAULT '',
    external_event_id   text NOT NULL DEFAULT '',
    event_type          text NOT NULL DEFAULT '',
    lane                text NOT NULL,
    source              text NOT NULL CHECK (source IN ('worker', 'broker')),
    error_code          text NOT NULL,
    error_message       text NOT NULL,
    -- Groups dead letters of one cause: a hash of code and event type, never of the message text.
    fingerprint         text NOT NULL,
    worker_version      text NOT NULL,
    redrives            integer NOT NULL DEFAULT 0,
    first_failed_at     timestamptz NOT NULL,
    last_failed_at      timestamptz NOT NULL,
    status              text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'replaying', 'resolved', 'discarded')),
    closed_at           timestamptz,
    closed_by           text,
    closed_reason       text,
    CHECK (last_failed_at >= first_failed_at),
    CHECK ((status IN ('resolved', 'discarded')) = (closed_at IS NOT NULL)),
    CHECK (status <> 'discarded' OR (closed_by <> '' AND length(closed_reason) >= 8))
);
CREATE INDEX dead_letters_open ON webhook.dead_letters (fingerprint, last_failed_at) WHERE status = 'open';

-- Who did what, and why.
CREATE TABLE webhook.audit_log (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT now(),
    actor  text NOT NULL CHECK (actor <> ''),
    action text NOT NULL,
    target text NOT NULL,
    reason text NOT NULL CHECK (length(reason) >= 8)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON webhook.audit_log
    FOR EACH ROW EXECUTE FUNCTION webhook.refuse_change();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON webhook.audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION webhook.refuse_change();

-- A body as JSON, where it is stored in plain (development) and is storable as jsonb; else NULL.
CREATE FUNCTION webhook.plain_json(body bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF get_byte(substring(body FROM 1 FOR 1), 0) <> 0 THEN
        RETURN NULL;
    END IF;
    RETURN convert_from(substring(body FROM 2), 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- The classic single-table view of everything that was received.
CREATE VIEW webhook.events AS
    SELECT i.id, i.provider AS source, i.event_id AS external_event_id, i.event_type, r.signature,
           coalesce(r.auth_state = 'verified', true) AS signature_valid, webhook.plain_json(r.body) AS payload, i.received_at,
           i.processed_at,
           CASE WHEN i.status IN ('processed', 'ignored') THEN 'success'
                WHEN i.status IN ('dead', 'quarantined') THEN 'failed' END AS processing_result,
           i.last_error_code AS processing_error, i.received_at AS created_at
      FROM webhook.inbox i
      LEFT JOIN webhook.raw_events r ON r.id = i.id AND r.received_at = i.received_at
    UNION ALL
    SELECT p.id, i.provider, i.event_id, i.event_type, NULL, true, NULL, p.received_at, p.received_at, 'duplicate', NULL,
           p.received_at
      FROM webhook.replays p
      JOIN webhook.inbox i ON i.id = p.event_id
    UNION ALL
    SELECT f.id, f.provider, coalesce(f.claimed_event_id, ''), NULL, NULL, f.reason NOT IN ('signature', 'timestamp'), NULL,
           f.received_at, f.received_at, 'rejected', f.reason, f.received_at
      FROM webhook.refusals f;
