use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};
use serde::Serialize;
use uuid::Uuid;

use super::{Bind, Sql, StoreError};
use crate::domain::Time;

/// An outbox row that the caller may publish now.
#[derive(Debug, Clone, QueryableByName)]
pub struct ClaimedDispatch {
    #[diesel(sql_type = SqlUuid)]
    pub id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    pub event_id: Uuid,
    #[diesel(sql_type = Text)]
    pub lane: String,
}

/// Claims up to `limit` rows that are due and that nobody is publishing, for `claim_seconds`.
///
/// No lock outlives the statement: a slow broker never holds a transaction open, and a claim that is not followed by a
/// delete runs out by itself. Nor does it wait for the disk: a claim that a crash undoes is as good as one that ran out.
pub fn claim_due(
    connection: &mut PgConnection,
    limit: i64,
    claim_seconds: i32,
) -> Result<Vec<ClaimedDispatch>, StoreError> {
    // An array is made once. A joined subquery may be run once for every row of the table, and would claim anew each time.
    const CLAIM: &str = "
        UPDATE webhook.outbox SET claimed_until = now() + $1 * interval '1 second'
          FROM (SELECT set_config('synchronous_commit', 'off', true)) AS without_waiting
         WHERE id = ANY (ARRAY (SELECT id FROM webhook.outbox
                                 WHERE due_at <= now() AND (claimed_until IS NULL OR claimed_until < now())
                                 ORDER BY due_at
                                 LIMIT $2
                                   FOR UPDATE SKIP LOCKED))
        RETURNING id, event_id, lane";
    Ok(Sql::new(CLAIM, &[Bind::Int(claim_seconds), Bind::BigInt(limit)]).load(connection)?)
}

/// Deletes rows that the broker confirmed.
///
/// The commit does not wait for the disk, which the commits of new events need more: a deletion that a crash undoes lets
/// the row be published once more, and a worker tells doubles apart.
pub fn delete_published(connection: &mut PgConnection, ids: &[Uuid]) -> Result<(), StoreError> {
    const DELETE: &str = "
        DELETE FROM webhook.outbox USING (SELECT set_config('synchronous_commit', 'off', true)) AS without_waiting
         WHERE id = ANY($1)";
    Sql::new(DELETE, &[Bind::Uuids(ids)]).run(connection)?;
    Ok(())
}

/// Lets rows rest that the broker refused or could not route, longer after each failure, up to a minute.
pub fn postpone(connection: &mut PgConnection, ids: &[Uuid]) -> Result<(), StoreError> {
    const POSTPONE: &str = "
        UPDATE webhook.outbox
           SET publish_failures = publish_failures + 1,
               claimed_until = now() + least(60, power(2, least(publish_failures, 6))) * interval '1 second'
         WHERE id = ANY($1)";
    Sql::new(POSTPONE, &[Bind::Uuids(ids)]).run(connection)?;
    Ok(())
}

/// What one lane of the outbox holds.
#[derive(Debug, Clone, QueryableByName, Serialize)]
pub struct OutboxStatus {
    #[diesel(sql_type = Text)]
    pub lane: String,
    /// Rows that are due and not yet confirmed.
    #[diesel(sql_type = BigInt)]
    pub pending: i64,
    /// Rows whose time has not come: retries that wait.
    #[diesel(sql_type = BigInt)]
    pub scheduled: i64,
    /// Rows that the broker refused or could not route at least once.
    #[diesel(sql_type = BigInt)]
    pub failing: i64,
    /// Since when the oldest due row waits.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub oldest_due_at: Option<Time>,
}

/// Every lane of the outbox, empty ones included.
pub fn outbox_status(connection: &mut PgConnection) -> Result<Vec<OutboxStatus>, StoreError> {
    const STATUS: &str = "
        SELECT lane, count(o.id) FILTER (WHERE o.due_at <= now()) AS pending,
               count(o.id) FILTER (WHERE o.due_at > now()) AS scheduled,
               count(o.id) FILTER (WHERE o.publish_failures > 0) AS failing,
               min(o.due_at) FILTER (WHERE o.due_at <= now()) AS oldest_due_at
          FROM unnest(ARRAY['payments', 'subscriptions', 'other', 'redrive']) WITH ORDINALITY AS lanes (lane, position)
          LEFT JOIN webhook.outbox o USING (lane)
         GROUP BY lane, position
         ORDER BY position";
    Ok(Sql::new(STATUS, &[]).load(connection)?)
}
