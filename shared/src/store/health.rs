use diesel::sql_types::{BigInt, Nullable, Timestamptz};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};

use super::{Bind, Sql, StoreError};
use crate::domain::Time;

/// What is waiting, for gauges.
#[derive(Debug, Clone, QueryableByName)]
pub struct Backlog {
    /// Since when the oldest event that is not settled waits.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub oldest_unprocessed_at: Option<Time>,
    #[diesel(sql_type = BigInt)]
    pub dead_letters_open: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub oldest_dead_letter_at: Option<Time>,
    #[diesel(sql_type = BigInt)]
    pub quarantine_open: i64,
}

/// Asks what is waiting. Every part of it is answered from a small partial index.
pub fn backlog(connection: &mut PgConnection) -> Result<Backlog, StoreError> {
    const ASK: &str = "
        SELECT (SELECT min(received_at) FROM webhook.inbox WHERE status IN ('accepted', 'retrying')) AS oldest_unprocessed_at,
               (SELECT count(*) FROM webhook.dead_letters WHERE status = 'open') AS dead_letters_open,
               (SELECT min(last_failed_at) FROM webhook.dead_letters WHERE status = 'open') AS oldest_dead_letter_at,
               (SELECT count(*) FROM webhook.quarantine WHERE status = 'open') AS quarantine_open";
    Ok(Sql::new(ASK, &[]).get_result(connection)?)
}

/// Puts events back into the outbox that nobody is working on: unsettled since before `stale_since`, and not in the outbox.
///
/// Only a broker that lost confirmed messages leaves such events behind. A worker that meets one twice does no harm.
pub fn rescue_stranded(connection: &mut PgConnection, stale_since: Time, limit: i64) -> Result<usize, StoreError> {
    const RESCUE: &str = "
        INSERT INTO webhook.outbox (id, event_id, lane, kind, due_at)
        SELECT gen_random_uuid(), i.id, i.lane, 'rescue', now()
          FROM webhook.inbox i
         WHERE i.status IN ('accepted', 'retrying') AND i.received_at < $1
           AND coalesce(i.next_attempt_at < $2, true)
           AND NOT EXISTS (SELECT 1 FROM webhook.outbox o WHERE o.event_id = i.id)
         LIMIT $3";
    let binds = [Bind::Time(stale_since), Bind::Time(stale_since), Bind::BigInt(limit)];
    Ok(Sql::new(RESCUE, &binds).run(connection)?)
}
