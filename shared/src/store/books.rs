//! Whether the books balance: the sums, and what must be true of every row.

use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};

use super::{Sql, StoreError};

/// How many there are of everything that has to add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub struct Books {
    /// Requests, as the ingress counted them by how they ended.
    #[diesel(sql_type = BigInt)]
    pub received: i64,
    #[diesel(sql_type = BigInt)]
    pub counted_accepted: i64,
    #[diesel(sql_type = BigInt)]
    pub counted_replayed: i64,
    #[diesel(sql_type = BigInt)]
    pub counted_rejected: i64,
    #[diesel(sql_type = BigInt)]
    pub counted_quarantined: i64,
    /// The rows that accepted, replayed and quarantined requests left behind.
    #[diesel(sql_type = BigInt)]
    pub accepted: i64,
    #[diesel(sql_type = BigInt)]
    pub replayed: i64,
    #[diesel(sql_type = BigInt)]
    pub mismatched: i64,
    /// Events, and what became of them.
    #[diesel(sql_type = BigInt)]
    pub events: i64,
    #[diesel(sql_type = BigInt)]
    pub in_flight: i64,
    #[diesel(sql_type = BigInt)]
    pub retrying: i64,
    #[diesel(sql_type = BigInt)]
    pub processed: i64,
    #[diesel(sql_type = BigInt)]
    pub ignored: i64,
    #[diesel(sql_type = BigInt)]
    pub quarantined: i64,
    #[diesel(sql_type = BigInt)]
    pub dead: i64,
}

/// Adds everything up.
pub fn books(connection: &mut PgConnection) -> Result<Books, StoreError> {
    const ADD_UP: &str = "
        SELECT *
          FROM (SELECT coalesce(sum(requests), 0)::bigint AS received,
                       coalesce(sum(requests) FILTER (WHERE outcome = 'accepted'), 0)::bigint AS counted_accepted,
                       coalesce(sum(requests) FILTER (WHERE outcome = 'replayed'), 0)::bigint AS counted_replayed,
                       coalesce(sum(requests) FILTER (WHERE outcome = 'rejected'), 0)::bigint AS counted_rejected,
                       coalesce(sum(requests) FILTER (WHERE outcome = 'quarantined'), 0)::bigint AS counted_quarantined
                  FROM webhook.intake_counts) AS counted,
               (SELECT count(*) AS replayed FROM webhook.replays) AS repeated,
               (SELECT coalesce(sum(seen_count), 0)::bigint AS mismatched
                  FROM webhook.quarantine WHERE reason = 'payload_mismatch') AS differing,
               (SELECT count(*) AS events,
                       count(*) FILTER (WHERE origin = 'provider') AS accepted,
                       count(*) FILTER (WHERE status = 'accepted') AS in_flight,
                       count(*) FILTER (WHERE status = 'retrying') AS retrying,
                       count(*) FILTER (WHERE status = 'processed') AS processed,
                       count(*) FILTER (WHERE status = 'ignored') AS ignored,
                       count(*) FILTER (WHERE status = 'quarantined') AS quarantined,
                       count(*) FILTER (WHERE status = 'dead') AS dead
                  FROM webhook.inbox) AS kept";
    Ok(Sql::new(ADD_UP, &[]).get_result(connection)?)
}

/// For how long the oldest of each kind waits, in seconds. None waits where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub struct Waits {
    /// An event that is not settled although its time has come.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub event: Option<i64>,
    /// An outbox row that is due.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub outbox: Option<i64>,
    /// An open dead letter.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub dead_letter: Option<i64>,
    /// An open entry of the quarantine.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub quarantine: Option<i64>,
    /// Outbox rows that the broker refused or could not route at least once.
    #[diesel(sql_type = BigInt)]
    pub failing: i64,
}

/// Asks the database, by its own clock.
pub fn waits(connection: &mut PgConnection) -> Result<Waits, StoreError> {
    const ASK: &str = "
        SELECT extract(epoch FROM now() - (
                   SELECT min(greatest(received_at, next_attempt_at)) FROM webhook.inbox
                    WHERE status IN ('accepted', 'retrying') AND coalesce(next_attempt_at <= now(), true)))::bigint AS event,
               extract(epoch FROM now() - (SELECT min(due_at) FROM webhook.outbox WHERE due_at <= now()))::bigint AS outbox,
               extract(epoch FROM now() - (SELECT min(last_failed_at) FROM webhook.dead_letters
                                            WHERE status = 'open'))::bigint AS dead_letter,
               extract(epoch FROM now() - (SELECT min(opened_at) FROM webhook.quarantine
                                            WHERE status = 'open'))::bigint AS quarantine,
               (SELECT count(*) FROM webhook.outbox WHERE publish_failures > 0) AS failing";
    Ok(Sql::new(ASK, &[]).get_result(connection)?)
}

/// Something that is true of every row, as long as nothing was lost and nobody changed the tables by hand.
struct Law {
    name: &'static str,
    says: &'static str,
    /// Selects, as `id`, whatever breaks it.
    offenders: &'static str,
}

/// The name of the partition that holds a time of receipt is the one that `webhook.ensure_raw_partition` gives it. What
/// was received in a week whose partition is archived and dropped is not missing.
const LAWS: [Law; 10] = [
    Law {
        name: "raw store",
        says: "every event and every mismatch has its bytes",
        offenders: "
            SELECT bare.id
              FROM (SELECT i.id, i.received_at FROM webhook.inbox i
                      LEFT JOIN webhook.raw_events r ON r.id = i.id AND r.received_at = i.received_at
                     WHERE r.id IS NULL OR r.payload_hash <> i.payload_hash
                     UNION ALL
                    SELECT q.event_id, webhook.id_time(q.raw_event_id) FROM webhook.quarantine q
                     WHERE q.reason = 'payload_mismatch'
                       AND NOT EXISTS (SELECT 1 FROM webhook.raw_events r
                                        WHERE r.id = q.raw_event_id AND r.received_at = webhook.id_time(q.raw_event_id))
                    OFFSET 0) AS bare
             WHERE to_regclass('webhook.raw_events_' || to_char(bare.received_at AT TIME ZONE 'UTC', 'IYYY\"w\"IW')) IS NOT NULL",
    },
    Law {
        name: "raw owners",
        says: "all bytes belong to an event or a mismatch",
        offenders: "
            SELECT r.id FROM webhook.raw_events r
             WHERE NOT EXISTS (SELECT 1 FROM webhook.inbox i WHERE i.id = r.id)
               AND NOT EXISTS (SELECT 1 FROM webhook.quarantine q WHERE q.raw_event_id = r.id)",
    },
    Law {
        name: "replays",
        says: "every event counts the replays it had",
        offenders: "
            SELECT coalesce(i.id, p.event_id) AS id
              FROM webhook.inbox i
              FULL JOIN (SELECT event_id, count(*) AS times FROM webhook.replays GROUP BY 1) AS p ON p.event_id = i.id
             WHERE i.replay_count IS DISTINCT FROM coalesce(p.times, 0)",
    },
    Law {
        name: "attempts",
        says: "every failed attempt is in the history",
        offenders: "
            SELECT coalesce(i.id, a.event_id) AS id
              FROM webhook.inbox i
              FULL JOIN (SELECT event_id, count(*) AS failed FROM webhook.attempts GROUP BY 1) AS a ON a.event_id = i.id
             WHERE i.attempt_count IS DISTINCT FROM
                   coalesce(a.failed, 0) + CASE WHEN i.status IN ('processed', 'ignored') THEN 1 ELSE 0 END",
    },
    Law {
        name: "retries",
        says: "every retry that is to come is in the outbox, and the outbox names events only",
        offenders: "
            SELECT i.id FROM webhook.inbox i
             WHERE i.status = 'retrying' AND i.next_attempt_at > now()
               AND NOT EXISTS (SELECT 1 FROM webhook.outbox o WHERE o.event_id = i.id)
             UNION ALL
            SELECT o.event_id FROM webhook.outbox o
             WHERE NOT EXISTS (SELECT 1 FROM webhook.inbox i WHERE i.id = o.event_id)",
    },
    Law {
        name: "dead letters",
        says: "dead events, and no others, have a dead letter that is open or discarded",
        offenders: "
            SELECT i.id FROM webhook.inbox i LEFT JOIN webhook.dead_letters d ON d.event_id = i.id
             WHERE (i.status = 'dead') <> coalesce(d.status IN ('open', 'discarded'), false)
                OR (d.status = 'replaying' AND i.status NOT IN ('accepted', 'retrying'))",
    },
    Law {
        name: "quarantine",
        says: "every quarantined event has its entry, and every entry its event",
        offenders: "
            SELECT i.id FROM webhook.inbox i
             WHERE i.status = 'quarantined'
               AND NOT EXISTS (SELECT 1 FROM webhook.quarantine q
                                WHERE q.event_id = i.id AND q.reason = i.last_error_code)
             UNION ALL
            SELECT q.event_id FROM webhook.quarantine q
             WHERE NOT EXISTS (SELECT 1 FROM webhook.inbox i WHERE i.id = q.event_id)",
    },
    Law {
        name: "facts",
        says: "processed events, and no others, have facts",
        offenders: "
            SELECT coalesce(i.id, f.event_id) AS id
              FROM webhook.inbox i
              FULL JOIN (SELECT DISTINCT event_id FROM ledger_facts) AS f ON f.event_id = i.id
             WHERE (i.status IS NOT DISTINCT FROM 'processed') <> (f.event_id IS NOT NULL) OR i.id IS NULL",
    },
    Law {
        name: "ledger rows",
        says: "every ledger row was last changed by a processed event",
        offenders: "
            SELECT l.webhook_event_id AS id
              FROM (SELECT webhook_event_id FROM payments UNION SELECT webhook_event_id FROM refunds
                     UNION SELECT webhook_event_id FROM disputes
                     UNION SELECT webhook_event_id FROM subscription_states) AS l
             WHERE NOT EXISTS (SELECT 1 FROM webhook.inbox i WHERE i.id = l.webhook_event_id AND i.status = 'processed')",
    },
    Law {
        name: "reviews",
        says: "what needs review is in quarantine, where somebody is asked or has just decided",
        offenders: "
            SELECT l.webhook_event_id AS id
              FROM (SELECT provider, provider_account_id, 'payment' AS kind, payment_id AS subject, review_reason, webhook_event_id
                      FROM payments WHERE needs_review
                     UNION ALL
                    SELECT provider, provider_account_id, 'subscription', subscription_id, review_reason, webhook_event_id
                      FROM subscription_states WHERE needs_review) AS l
             WHERE NOT EXISTS (SELECT 1 FROM webhook.quarantine q
                                WHERE q.provider = l.provider AND q.provider_account_id = l.provider_account_id
                                  AND q.subject_kind = l.kind AND q.subject_id = l.subject AND q.reason = l.review_reason
                                  AND (q.status = 'open'
                                       OR q.decision_event_id IN (SELECT i.id FROM webhook.inbox i WHERE i.status <> 'processed')))",
    },
];

/// How a law was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub law: &'static str,
    pub says: &'static str,
    /// How many rows break it.
    pub offenders: i64,
    /// One of them, by the id of its event.
    pub example: Option<String>,
}

#[derive(QueryableByName)]
struct Offenders {
    #[diesel(sql_type = BigInt)]
    count: i64,
    #[diesel(sql_type = Nullable<Text>)]
    example: Option<String>,
}

/// Holds every row against every law. Reads the whole tables.
pub fn inspect_laws(connection: &mut PgConnection) -> Result<Vec<Finding>, StoreError> {
    let inspect = |law: &Law| {
        let text = format!("SELECT count(*) AS count, min(id::text) AS example FROM ({}) AS offenders", law.offenders);
        let found: Offenders = Sql::new(&text, &[]).get_result(connection)?;
        Ok(Finding { law: law.name, says: law.says, offenders: found.count, example: found.example })
    };
    LAWS.iter().map(inspect).collect()
}

/// Lets the statements of this transaction take their time: they read whole tables.
pub fn take_time(connection: &mut PgConnection) -> Result<(), StoreError> {
    Sql::new("SET LOCAL statement_timeout = '10min'", &[]).run(connection)?;
    Ok(())
}
