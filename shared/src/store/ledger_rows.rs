//! The ledger as people look at it.

use diesel::sql_types::{SmallInt, Text, Timestamptz, Uuid as SqlUuid};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::ledger::{DISPUTES, PAYMENTS, REFUNDS, SUBSCRIPTIONS, SubjectColumns, Table};
use super::{Bind, Sql, StoreError, SubjectKey};
use crate::domain::{SubjectKind, Time};

/// One of the tables that the business reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerTable {
    Payments,
    Refunds,
    Disputes,
    Subscriptions,
}

impl LedgerTable {
    pub fn name(self) -> &'static str {
        match self {
            LedgerTable::Payments => "payments",
            LedgerTable::Refunds => "refunds",
            LedgerTable::Disputes => "disputes",
            LedgerTable::Subscriptions => "subscription_states",
        }
    }

    /// An expression over the alias `t`: the row with all columns, the amounts as exact decimal text.
    fn as_json(self) -> String {
        let amounts: Vec<String> =
            self.amounts().iter().map(|column| format!(", '{column}', t.{column}::text")).collect();
        format!("(to_jsonb(t) || jsonb_build_object('provider', t.provider{}))::text", amounts.concat())
    }

    /// Exact numbers, which JSON would make inexact.
    fn amounts(self) -> &'static [&'static str] {
        match self {
            LedgerTable::Payments => &["amount", "captured_amount", "refunded_amount", "disputed_amount"],
            LedgerTable::Refunds | LedgerTable::Disputes => &["amount"],
            LedgerTable::Subscriptions => &[],
        }
    }
}

impl LedgerTable {
    /// In the order in which people read them.
    pub const ALL: [LedgerTable; 4] =
        [LedgerTable::Payments, LedgerTable::Refunds, LedgerTable::Disputes, LedgerTable::Subscriptions];

    pub(super) fn table(self) -> &'static Table {
        match self {
            LedgerTable::Payments => &PAYMENTS,
            LedgerTable::Refunds => &REFUNDS,
            LedgerTable::Disputes => &DISPUTES,
            LedgerTable::Subscriptions => &SUBSCRIPTIONS,
        }
    }

    /// The columns of the key besides the account, with the alias before each.
    pub(super) fn key(self, alias: &str) -> String {
        self.table().key.iter().map(|column| format!("{alias}.{column}")).collect::<Vec<_>>().join(", ")
    }

    /// The kind and the id of the subject that a row belongs to.
    pub(super) fn subject(self, alias: &str) -> [String; 2] {
        let linked = |own: &str| {
            [
                format!("CASE WHEN {alias}.payment_id IS NULL THEN 'unlinked' ELSE 'payment' END"),
                format!("coalesce({alias}.payment_id, {alias}.{own})"),
            ]
        };
        match self {
            LedgerTable::Payments => ["'payment'".to_owned(), format!("{alias}.payment_id")],
            LedgerTable::Refunds => linked("refund_id"),
            LedgerTable::Disputes => linked("dispute_id"),
            LedgerTable::Subscriptions => ["'subscription'".to_owned(), format!("{alias}.subscription_id")],
        }
    }

    /// The rows of `subjects`, each found by an index.
    pub(super) fn rows_of_subjects(self) -> String {
        let of = |kind: &str, condition: &str| {
            format!(
                "SELECT t.* FROM subjects s
                  CROSS JOIN LATERAL (SELECT * FROM {} t
                                       WHERE t.provider = s.provider AND t.provider_account_id = s.account
                                         AND {condition} OFFSET 0) AS t
                  WHERE s.kind = '{kind}'",
                self.name()
            )
        };
        let linked = |own: &str| {
            let unlinked = format!("t.{own} = s.id AND t.payment_id IS NULL");
            format!("{} UNION ALL {}", of("payment", "t.payment_id = s.id"), of("unlinked", &unlinked))
        };
        match self {
            LedgerTable::Payments => of("payment", "t.payment_id = s.id"),
            LedgerTable::Refunds => linked("refund_id"),
            LedgerTable::Disputes => linked("dispute_id"),
            LedgerTable::Subscriptions => of("subscription", "t.subscription_id = s.id"),
        }
    }
}

#[derive(QueryableByName)]
struct JsonRow {
    #[diesel(sql_type = Text)]
    row: String,
}

/// The rows that changed last, the latest first, of one provider where given. Each has all columns by their names, the
/// amounts as exact decimal text.
pub fn ledger_rows(
    connection: &mut PgConnection,
    table: LedgerTable,
    provider: Option<&str>,
    limit: i64,
) -> Result<Vec<Map<String, Value>>, StoreError> {
    let text = format!(
        "SELECT {} AS row FROM {} t WHERE t.provider = coalesce($1, t.provider) ORDER BY t.webhook_event_id DESC LIMIT $2",
        table.as_json(),
        table.name()
    );
    let rows: Vec<JsonRow> = Sql::new(&text, &[Bind::OptionalText(provider), Bind::BigInt(limit)]).load(connection)?;
    rows.iter().map(JsonRow::read).collect()
}

impl JsonRow {
    fn read(&self) -> Result<Map<String, Value>, StoreError> {
        serde_json::from_str(&self.row).map_err(|_| StoreError::Refused)
    }
}

/// The rows of one subject in a table, in the form of [`ledger_rows`].
pub fn rows_of_subject(
    connection: &mut PgConnection,
    table: LedgerTable,
    subject: &SubjectKey,
) -> Result<Vec<Map<String, Value>>, StoreError> {
    let text = format!(
        "WITH subjects AS (SELECT * FROM unnest($1, $2, $3, $4) AS s (provider, account, kind, id))
         SELECT {} AS row FROM ({}) AS t ORDER BY {}",
        table.as_json(),
        table.rows_of_subjects(),
        table.key("t")
    );
    let rows: Vec<JsonRow> = Sql::new(&text, &SubjectColumns::of(&[subject]).binds()).load(connection)?;
    rows.iter().map(JsonRow::read).collect()
}

/// All accounts that ever sent an event, as `accounts`. Jumps from one to the next along the index, however many events
/// lie between them. `$1` is the provider, or NULL.
pub(super) const ACCOUNTS: &str = "
    WITH RECURSIVE every_account AS (
        (SELECT provider, provider_account_id FROM webhook.inbox ORDER BY 1, 2 LIMIT 1)
        UNION ALL
        SELECT next.* FROM every_account a
         CROSS JOIN LATERAL (SELECT provider, provider_account_id FROM webhook.inbox i
                              WHERE (i.provider, i.provider_account_id) > (a.provider, a.provider_account_id)
                              ORDER BY 1, 2 LIMIT 1) AS next),
    accounts AS (SELECT * FROM every_account WHERE provider = coalesce($1, provider))";

#[derive(QueryableByName)]
struct KnownSubject {
    #[diesel(sql_type = Text)]
    provider: String,
    #[diesel(sql_type = Text)]
    provider_account_id: String,
    #[diesel(sql_type = Text)]
    subject_kind: String,
    #[diesel(sql_type = Text)]
    subject_id: String,
}

/// The subjects that the ledger knows by `id` in any account, of one provider where given: a payment by its own id or that
/// of a refund or dispute, what names no payment by its own id, a subscription by its own id.
pub fn known_subjects(
    connection: &mut PgConnection,
    kind: SubjectKind,
    id: &str,
    provider: Option<&str>,
) -> Result<Vec<SubjectKey>, StoreError> {
    let (kinds, tables): (&[&str], &[(LedgerTable, &str)]) = match kind {
        SubjectKind::Payment | SubjectKind::Unlinked => (
            &["payment", "unlinked"],
            &[
                (LedgerTable::Payments, "payment_id"),
                (LedgerTable::Refunds, "refund_id"),
                (LedgerTable::Disputes, "dispute_id"),
            ],
        ),
        SubjectKind::Subscription => (&["subscription"], &[(LedgerTable::Subscriptions, "subscription_id")]),
        SubjectKind::User => (&["user"], &[]),
    };
    let arms = tables.iter().map(|(table, own)| {
        let [kind, id] = table.subject("t");
        format!(
            "UNION SELECT t.provider, t.provider_account_id, {kind}, {id} FROM asked, {} t
              WHERE t.provider = asked.provider AND t.provider_account_id = asked.provider_account_id AND t.{own} = asked.id",
            table.name()
        )
    });
    let text = format!(
        "{ACCOUNTS}, asked AS (SELECT provider, provider_account_id, $2 AS id, $3 AS kinds FROM accounts)
         SELECT f.provider, f.provider_account_id, f.subject_kind, f.subject_id FROM asked, ledger_facts f
          WHERE f.provider = asked.provider AND f.provider_account_id = asked.provider_account_id
            AND f.subject_kind = ANY(asked.kinds) AND f.subject_id = asked.id
         {} ORDER BY 1, 2, 3, 4",
        arms.collect::<Vec<_>>().join(" ")
    );
    let binds = [Bind::OptionalText(provider), Bind::Text(id), Bind::Texts(kinds)];
    let found: Vec<KnownSubject> = Sql::new(&text, &binds).load(connection)?;
    let key = |row: &KnownSubject| {
        SubjectKey::read(&row.provider, &row.provider_account_id, &row.subject_kind, &row.subject_id)
    };
    Ok(found.iter().filter_map(key).collect())
}

/// What an event was called.
#[derive(Debug, Clone, QueryableByName)]
pub struct EventName {
    #[diesel(sql_type = SqlUuid)]
    pub id: Uuid,
    #[diesel(sql_type = Text)]
    pub event_type: String,
    #[diesel(sql_type = Text)]
    pub origin: String,
}

/// What the events were called. Unknown ones are left out.
pub fn names_of_events(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<EventName>, StoreError> {
    const LIST: &str = "SELECT id, event_type, origin FROM webhook.inbox WHERE id = ANY($1)";
    Ok(Sql::new(LIST, &[Bind::Uuids(ids)]).load(connection)?)
}

/// What an event said, and about what.
#[derive(Debug, Clone, QueryableByName, Serialize)]
pub struct FactRow {
    #[diesel(sql_type = SmallInt)]
    pub ordinal: i16,
    #[diesel(sql_type = Text)]
    pub subject_kind: String,
    #[diesel(sql_type = Text)]
    pub subject_id: String,
    /// `payment`, `refund`, `dispute` or `subscription`.
    #[diesel(sql_type = Text)]
    pub kind: String,
    /// What happened to it: a step, or else a status.
    #[diesel(sql_type = Text)]
    pub what: String,
    #[diesel(sql_type = Timestamptz)]
    pub occurred_at: Time,
}

/// The facts of an event, in the order in which it states them. None unless it is processed.
pub fn facts_of(connection: &mut PgConnection, event: Uuid) -> Result<Vec<FactRow>, StoreError> {
    const LIST: &str = "
        SELECT ordinal, subject_kind, subject_id, fact ->> 'kind' AS kind,
               concat_ws(' ', fact ->> 'step', fact ->> 'status') AS what, occurred_at
          FROM ledger_facts WHERE event_id = $1 ORDER BY ordinal, subject_kind, subject_id";
    Ok(Sql::new(LIST, &[Bind::Uuid(event)]).load(connection)?)
}
