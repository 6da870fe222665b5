-- The ledger: every fact ever derived, and the rows that the facts fold into. All amounts are exact, in major units.
--
-- docs/LEDGER.md names the queries that the indexes serve. A column that most updates change is in no index, not even in
-- the condition of one: PostgreSQL would have to write an entry into every index of the table at each update.

CREATE TABLE ledger_facts (
    provider            text NOT NULL,
    provider_account_id text NOT NULL,
    subject_kind        text NOT NULL CHECK (subject_kind IN ('payment', 'unlinked', 'subscription', 'user')),
    subject_id          text NOT NULL CHECK (subject_id <> ''),
    event_id            uuid NOT NULL,
    -- The position of the fact among those of its event.
    ordinal             smallint NOT NULL CHECK (ordinal >= 0),
    external_event_id   text NOT NULL,
    occurred_at         timestamptz NOT NULL,
    -- What happened; "kind" inside names it.
    fact                json NOT NULL,
    PRIMARY KEY (provider, provider_account_id, subject_kind, subject_id, event_id, ordinal)
);
CREATE INDEX ledger_facts_event ON ledger_facts (event_id);
-- Which subscriptions name a user: asked when a user's purchases move to another.
CREATE INDEX ledger_facts_user ON ledger_facts (provider, provider_account_id, (fact ->> 'app_user_id'))
    WHERE subject_kind = 'subscription';
-- When attempts failed, which the row of a payment does not say. Facts never change, so this costs failures alone.
CREATE INDEX ledger_facts_failed ON ledger_facts (occurred_at)
    WHERE subject_kind = 'payment' AND fact ->> 'step' = 'failed';

CREATE TABLE payments (
    provider            text NOT NULL,
    provider_account_id text NOT NULL,
    environment         text NOT NULL,
    payment_id          text NOT NULL CHECK (payment_id <> ''),
    status              text NOT NULL CHECK (status IN ('pending', 'authorized', 'paid', 'partially_refunded', 'refunded',
                                                        'failed', 'canceled', 'expired')),
    currency            text CHECK (currency ~ '^[A-Z]{3}$'),
    amount              numeric CHECK (amount >= 0),
    captured_amount     numeric NOT NULL CHECK (captured_amount >= 0),
    refunded_amount     numeric NOT NULL CHECK (refunded_amount >= 0),
    disputed_amount     numeric NOT NULL CHECK (disputed_amount >= 0),
    dispute_status      text CHECK (dispute_status IN ('inquiry', 'inquiry_closed', 'prevented', 'open', 'under_review', 'won', 'lost')),
    charge_id           text,
    app_user_id         text,
    product_id          text,
    subscription_id     text,
    store               text,
    failure_code        text,
    authorized_at       timestamptz,
    paid_at             timestamptz,
    canceled_at         timestamptz,
    webhook_event_id    uuid NOT NULL,
    needs_review        boolean NOT NULL,
    review_reason       text,
    PRIMARY KEY (provider, provider_account_id, payment_id),
    CONSTRAINT payments_environment CHECK (
        environment = CASE WHEN provider_account_id LIKE '%:sandbox' THEN 'sandbox' ELSE 'production' END),
    CONSTRAINT payments_paid_has_time CHECK (status NOT IN ('paid', 'partially_refunded', 'refunded') OR paid_at IS NOT NULL),
    CONSTRAINT payments_money_has_currency CHECK (currency IS NOT NULL OR (amount IS NULL AND captured_amount = 0)),
    CONSTRAINT payments_review_has_reason CHECK (needs_review = (review_reason IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX payments_app_user ON payments (app_user_id) WHERE app_user_id IS NOT NULL;
CREATE INDEX payments_paid ON payments (paid_at) WHERE paid_at IS NOT NULL;
CREATE INDEX payments_review ON payments (review_reason) WHERE needs_review;

CREATE TABLE refunds (
    provider            text NOT NULL,
    provider_account_id text NOT NULL,
    environment         text NOT NULL,
    refund_id           text NOT NULL CHECK (refund_id <> ''),
    payment_id          text CHECK (payment_id <> ''),
    charge_id           text,
    status              text NOT NULL CHECK (status IN ('pending', 'succeeded', 'failed', 'canceled', 'reversed')),
    currency            text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    amount              numeric NOT NULL CHECK (amount >= 0),
    reason              text,
    failure_code        text,
    requested_at        timestamptz NOT NULL,
    refunded_at         timestamptz,
    failed_at           timestamptz,
    webhook_event_id    uuid NOT NULL,
    needs_review        boolean NOT NULL,
    review_reason       text,
    PRIMARY KEY (provider, provider_account_id, refund_id),
    CONSTRAINT refunds_environment CHECK (
        environment = CASE WHEN provider_account_id LIKE '%:sandbox' THEN 'sandbox' ELSE 'production' END),
    CONSTRAINT refunds_done_has_time CHECK ((status = 'succeeded') = (refunded_at IS NOT NULL)),
    CONSTRAINT refunds_failed_has_time CHECK ((status IN ('failed', 'canceled', 'reversed')) = (failed_at IS NOT NULL)),
    CONSTRAINT refunds_review_has_reason CHECK (needs_review = (review_reason IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX refunds_payment ON refunds (provider, provider_account_id, payment_id);
CREATE INDEX refunds_refunded ON refunds (refunded_at) WHERE refunded_at IS NOT NULL;
CREATE INDEX refunds_review ON refunds (review_reason) WHERE needs_review;

CREATE TABLE disputes (
    provider            text NOT NULL,
    provider_account_id text NOT NULL,
    environment         text NOT NULL,
    dispute_id          text NOT NULL CHECK (dispute_id <> ''),
    payment_id          text CHECK (payment_id <> ''),
    charge_id           text,
    status              text NOT NULL CHECK (status IN ('inquiry', 'inquiry_closed', 'prevented', 'open', 'under_review', 'won', 'lost')),
    currency            text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    amount              numeric NOT NULL CHECK (amount >= 0),
    reason              text,
    opened_at           timestamptz NOT NULL,
    funds_withdrawn_at  timestamptz,
    funds_reinstated_at timestamptz,
    closed_at           timestamptz,
    webhook_event_id    uuid NOT NULL,
    needs_review        boolean NOT NULL,
    review_reason       text,
    PRIMARY KEY (provider, provider_account_id, dispute_id),
    CONSTRAINT disputes_environment CHECK (
        environment = CASE WHEN provider_account_id LIKE '%:sandbox' THEN 'sandbox' ELSE 'production' END),
    CONSTRAINT disputes_closed_has_time CHECK (
        (status IN ('inquiry_closed', 'prevented', 'won', 'lost')) = (closed_at IS NOT NULL)),
    CONSTRAINT disputes_review_has_reason CHECK (needs_review = (review_reason IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX disputes_payment ON disputes (provider, provider_account_id, payment_id);
CREATE INDEX disputes_open ON disputes (opened_at) WHERE closed_at IS NULL;
CREATE INDEX disputes_review ON disputes (review_reason) WHERE needs_review;

CREATE TABLE subscription_states (
    provider            text NOT NULL,
    provider_account_id text NOT NULL,
    environment         text NOT NULL,
    app_user_id         text NOT NULL CHECK (app_user_id <> ''),
    product_id          text NOT NULL CHECK (product_id <> ''),
    store               text NOT NULL,
    -- '' where the provider has no subscription id.
    subscription_id     text NOT NULL,
    status              text NOT NULL CHECK (status IN ('incomplete', 'trialing', 'active', 'in_grace', 'past_due', 'paused',
                                                        'canceled', 'expired', 'revoked')),
    quantity            bigint NOT NULL CHECK (quantity >= 0),
    started_at          timestamptz,
    renewed_at          timestamptz,
    expires_at          timestamptz,
    trial_ends_at       timestamptz,
    cancelled_at        timestamptz,
    cancel_reason       text,
    billing_issue_at    timestamptz,
    webhook_event_id    uuid NOT NULL,
    needs_review        boolean NOT NULL,
    review_reason       text,
    -- The user comes first: the key also answers what a user has, at whatever provider.
    PRIMARY KEY (app_user_id, provider, provider_account_id, product_id, store, subscription_id),
    CONSTRAINT subscription_states_environment CHECK (
        environment = CASE WHEN provider_account_id LIKE '%:sandbox' THEN 'sandbox' ELSE 'production' END),
    CONSTRAINT subscription_states_review_has_reason CHECK (needs_review = (review_reason IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX subscription_states_subscription ON subscription_states (provider, provider_account_id, subscription_id);
CREATE INDEX subscription_states_product ON subscription_states (product_id);
-- A renewal moves the end, and pays for this index although its row is not in it; the other events of a period do not.
CREATE INDEX subscription_states_ending ON subscription_states (expires_at)
    WHERE status IN ('canceled', 'expired', 'revoked');
CREATE INDEX subscription_states_review ON subscription_states (review_reason) WHERE needs_review;

-- The light history of subscriptions: every fact, in the order in which facts are folded.
CREATE VIEW subscription_event_log AS
    SELECT f.provider, f.provider_account_id,
           CASE WHEN f.provider_account_id LIKE '%:sandbox' THEN 'sandbox' ELSE 'production' END AS environment,
           f.fact ->> 'app_user_id' AS app_user_id, item ->> 'product_id' AS product_id, f.subject_id AS subscription_id,
           i.event_type, f.fact ->> 'step' AS step, f.fact ->> 'status' AS status,
           f.occurred_at AS at, f.event_id AS webhook_event_id
      FROM ledger_facts f
      LEFT JOIN webhook.inbox i ON i.id = f.event_id
      LEFT JOIN LATERAL json_array_elements(f.fact -> 'items') AS item ON true
     WHERE f.subject_kind = 'subscription';
