use chrono::TimeDelta;
use diesel::PgConnection;

use super::{Bind, Sql, StoreError};
use crate::domain::Time;

/// Refunds older than this were looked at before.
const LOOK_BACK_DAYS: i64 = 30;

/// The reason of entries about payments that only refunds tell of. No fold gives it.
pub(super) const UNKNOWN_PAYMENT: &str = "unknown_payment";

/// Opens a quarantine entry for every payment that refunds name and nobody has told us of, when the refund was done before
/// `waited_since`. Money went out of an account of ours: that is for a person to explain.
///
/// A refund may well come before its payment, so there is a wait; when the payment comes after all, folding it closes the
/// entry.
pub fn quarantine_orphans(connection: &mut PgConnection, now: Time, waited_since: Time) -> Result<usize, StoreError> {
    const OPEN: &str = "
        WITH input AS (SELECT $1 AS opened_at, $2 AS reason),
        orphans AS (
            SELECT DISTINCT ON (r.provider, r.provider_account_id, r.payment_id)
                   r.provider, r.provider_account_id, r.payment_id, r.webhook_event_id
              FROM refunds r
             WHERE r.status = 'succeeded' AND r.refunded_at BETWEEN $3 AND $4 AND r.payment_id IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM payments p
                                WHERE p.provider = r.provider AND p.provider_account_id = r.provider_account_id
                                  AND p.payment_id = r.payment_id)
             ORDER BY r.provider, r.provider_account_id, r.payment_id, r.refunded_at
        )
        INSERT INTO webhook.quarantine (id, reason, provider, provider_account_id, event_id, subject_kind, subject_id, detail,
                                        opened_at)
        SELECT gen_random_uuid(), reason, provider, provider_account_id, webhook_event_id, 'payment', payment_id,
               'a refund was done, and no event told of the payment', opened_at
          FROM orphans, input
        ON CONFLICT DO NOTHING";
    let oldest = waited_since - TimeDelta::days(LOOK_BACK_DAYS);
    let binds = [Bind::Time(now), Bind::Text(UNKNOWN_PAYMENT), Bind::Time(oldest), Bind::Time(waited_since)];
    Ok(Sql::new(OPEN, &binds).run(connection)?)
}
