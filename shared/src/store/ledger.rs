//! The facts, and the rows they fold into. Rows travel as one JSON text per statement: the database's own column list
//! says which field goes where.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use diesel::sql_types::{SmallInt, Text, Timestamptz, Uuid as SqlUuid};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Bind, Sql, StoreError};
use crate::domain::{Environment, EventId, Fact, FactDetail, Ledger, RecordedFact, Subject, SubjectKind, Time};
use crate::providers::Provider;

/// A subject within one account at one provider.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubjectKey {
    pub provider: &'static str,
    pub account_key: String,
    pub environment: Environment,
    pub subject: Subject,
}

impl SubjectKey {
    /// The key as the tables hold it; none for a provider or kind that this version does not know.
    pub(super) fn read(provider: &str, account_key: &str, kind: &str, id: &str) -> Option<Self> {
        let provider: Provider = provider.parse().ok()?;
        let sandbox = account_key.ends_with(":sandbox");
        Some(SubjectKey {
            provider: provider.as_str(),
            account_key: account_key.to_owned(),
            environment: if sandbox { Environment::Sandbox } else { Environment::Production },
            subject: Subject { kind: SubjectKind::parse(kind)?, id: id.to_owned() },
        })
    }
}

/// Takes whole accounts for this transaction, before any of their subjects: together with others, or alone.
///
/// What users own may move to others, and such a fact touches subscriptions that it does not name. So whoever folds
/// subscriptions holds the account together with others, and whoever moves users holds it alone.
pub fn lock_accounts(
    connection: &mut PgConnection,
    shared: &[&SubjectKey],
    alone: &[&SubjectKey],
) -> Result<(), StoreError> {
    const LOCK: &str = "
        SELECT count(CASE WHEN alone THEN pg_advisory_xact_lock(lock)::text ELSE pg_advisory_xact_lock_shared(lock)::text END)
          FROM (SELECT lock, lock = ANY($1) AS alone FROM unnest($2) AS lock) AS locks";
    let lock = |key: &&SubjectKey| number(&[key.provider, &key.account_key, "account"]);
    let all = sorted_locks(shared.iter().chain(alone).map(lock));
    let alone = sorted_locks(alone.iter().map(lock));
    if !all.is_empty() {
        Sql::new(LOCK, &[Bind::BigInts(&alone), Bind::BigInts(&all)]).run(connection)?;
    }
    Ok(())
}

/// Takes the subjects for this transaction, in an order all workers share. Other workers wait, and then see our facts.
pub fn lock_subjects<'a>(
    connection: &mut PgConnection,
    subjects: impl IntoIterator<Item = &'a SubjectKey>,
) -> Result<(), StoreError> {
    let locks = sorted_locks(
        subjects
            .into_iter()
            .map(|key| number(&[key.provider, &key.account_key, key.subject.kind.as_str(), &key.subject.id])),
    );
    const LOCK: &str = "SELECT count(pg_advisory_xact_lock(lock)) FROM unnest($1) AS lock";
    Sql::new(LOCK, &[Bind::BigInts(&locks)]).run(connection)?;
    Ok(())
}

fn sorted_locks(locks: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut locks: Vec<i64> = locks.collect();
    locks.sort_unstable();
    locks.dedup();
    locks
}

/// The number that stands for a name in PostgreSQL's table of advisory locks.
fn number(name: &[&str]) -> i64 {
    let mut hash = Sha256::new();
    for part in name {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().first_chunk::<8>().map_or(0, |bytes| i64::from_be_bytes(*bytes))
}

#[derive(Serialize)]
struct FactRow<'a> {
    provider: &'a str,
    provider_account_id: &'a str,
    subject_kind: &'a str,
    subject_id: &'a str,
    event_id: EventId,
    ordinal: i16,
    external_event_id: &'a str,
    occurred_at: Time,
    fact: &'a FactDetail,
}

/// Records facts. Those that are known already are left as they are.
pub fn insert_facts(connection: &mut PgConnection, facts: &[&(SubjectKey, RecordedFact)]) -> Result<(), StoreError> {
    const INSERT: &str = "
        INSERT INTO ledger_facts SELECT * FROM json_populate_recordset(NULL::ledger_facts, $1::json) ON CONFLICT DO NOTHING";
    let rows = facts.iter().map(|(key, recorded)| FactRow {
        provider: key.provider,
        provider_account_id: &key.account_key,
        subject_kind: key.subject.kind.as_str(),
        subject_id: &key.subject.id,
        event_id: recorded.event_id,
        ordinal: recorded.ordinal,
        external_event_id: &recorded.external_event_id,
        occurred_at: recorded.fact.occurred_at,
        fact: &recorded.fact.detail,
    });
    let json = json(&rows.collect::<Vec<_>>())?;
    Sql::new(INSERT, &[Bind::Text(&json)]).run(connection)?;
    Ok(())
}

/// A fact as it is stored.
#[derive(Debug, Clone, QueryableByName)]
pub struct StoredFact {
    #[diesel(sql_type = Text)]
    provider: String,
    #[diesel(sql_type = Text)]
    provider_account_id: String,
    #[diesel(sql_type = Text)]
    subject_kind: String,
    #[diesel(sql_type = Text)]
    subject_id: String,
    #[diesel(sql_type = SqlUuid)]
    pub event_id: Uuid,
    #[diesel(sql_type = SmallInt)]
    pub ordinal: i16,
    #[diesel(sql_type = Text)]
    external_event_id: String,
    #[diesel(sql_type = Timestamptz)]
    occurred_at: Time,
    #[diesel(sql_type = Text)]
    fact: String,
}

/// All facts of the given subjects, as they are stored.
pub fn stored_facts(connection: &mut PgConnection, subjects: &[&SubjectKey]) -> Result<Vec<StoredFact>, StoreError> {
    // OFFSET 0 keeps the subquery one: each subject's facts are found by the index, however few the planner thinks there are.
    const LOAD: &str = "
        SELECT f.provider, f.provider_account_id, f.subject_kind, f.subject_id, f.event_id, f.ordinal, f.external_event_id,
               f.occurred_at, f.fact::text AS fact
          FROM unnest($1, $2, $3, $4) AS wanted (provider, account, kind, id)
         CROSS JOIN LATERAL (SELECT * FROM ledger_facts AS f
                              WHERE f.provider = wanted.provider AND f.provider_account_id = wanted.account
                                AND f.subject_kind = wanted.kind AND f.subject_id = wanted.id
                             OFFSET 0) AS f";
    let columns = SubjectColumns::of(subjects);
    Ok(Sql::new(LOAD, &columns.binds()).load(connection)?)
}

/// Subjects, column by column, as `unnest` wants them.
pub(super) struct SubjectColumns<'a>([Vec<&'a str>; 4]);

impl<'a> SubjectColumns<'a> {
    pub fn of(subjects: &[&'a SubjectKey]) -> Self {
        SubjectColumns([
            subjects.iter().map(|key| key.provider).collect(),
            subjects.iter().map(|key| key.account_key.as_str()).collect(),
            subjects.iter().map(|key| key.subject.kind.as_str()).collect(),
            subjects.iter().map(|key| key.subject.id.as_str()).collect(),
        ])
    }

    /// Provider, account, kind and id.
    pub fn binds(&self) -> [Bind<'_>; 4] {
        self.0.each_ref().map(|column| Bind::Texts(column))
    }
}

/// All facts of the given subjects. Subjects without facts are left out.
pub fn load_facts<'a>(
    connection: &mut PgConnection,
    subjects: &[&'a SubjectKey],
) -> Result<BTreeMap<&'a SubjectKey, Vec<RecordedFact>>, StoreError> {
    let rows = stored_facts(connection, subjects)?;
    let by_name: HashMap<(&str, &str, &str, &str), &'a SubjectKey> = subjects
        .iter()
        .map(|key| ((key.provider, key.account_key.as_str(), key.subject.kind.as_str(), key.subject.id.as_str()), *key))
        .collect();
    let mut facts: BTreeMap<&SubjectKey, Vec<RecordedFact>> = BTreeMap::new();
    for row in rows {
        let name = (
            row.provider.as_str(),
            row.provider_account_id.as_str(),
            row.subject_kind.as_str(),
            row.subject_id.as_str(),
        );
        let Some(key) = by_name.get(&name) else { continue };
        facts.entry(key).or_default().push(row.recorded(&key.subject)?);
    }
    Ok(facts)
}

impl StoredFact {
    /// Its subject; none where another version wrote it, for a provider or of a kind that this one does not know.
    pub fn key(&self) -> Option<SubjectKey> {
        SubjectKey::read(&self.provider, &self.provider_account_id, &self.subject_kind, &self.subject_id)
    }

    /// Whether it says the same, about the same subject, as a fact that was derived again.
    pub fn says(&self, key: &SubjectKey, recorded: &RecordedFact) -> bool {
        let is_named_alike = self.provider == key.provider
            && self.provider_account_id == key.account_key
            && self.subject_kind == key.subject.kind.as_str()
            && self.subject_id == key.subject.id
            && self.event_id == recorded.event_id.uuid()
            && self.ordinal == recorded.ordinal
            && self.external_event_id == recorded.external_event_id
            && self.occurred_at == recorded.fact.occurred_at;
        is_named_alike && self.holds(&recorded.fact.detail)
    }

    /// The text is nearly always the same to the byte; reading it takes longer.
    fn holds(&self, detail: &FactDetail) -> bool {
        serde_json::to_string(detail).is_ok_and(|json| json == self.fact)
            || serde_json::from_str::<FactDetail>(&self.fact).is_ok_and(|stored| stored == *detail)
    }

    /// How a fact that was derived again would be stored.
    pub fn of(key: &SubjectKey, recorded: &RecordedFact) -> Self {
        StoredFact {
            provider: key.provider.to_owned(),
            provider_account_id: key.account_key.clone(),
            subject_kind: key.subject.kind.as_str().to_owned(),
            subject_id: key.subject.id.clone(),
            event_id: recorded.event_id.uuid(),
            ordinal: recorded.ordinal,
            external_event_id: recorded.external_event_id.clone(),
            occurred_at: recorded.fact.occurred_at,
            fact: serde_json::to_string(&recorded.fact.detail).unwrap_or_default(),
        }
    }

    /// What it says, as one JSON object.
    pub fn as_json(&self) -> String {
        let mut says: BTreeMap<&str, &RawValue> = serde_json::from_str(&self.fact).unwrap_or_default();
        let own = serde_json::to_string(&(&self.external_event_id, self.occurred_at)).unwrap_or_default();
        if let Ok((external_event_id, occurred_at)) = serde_json::from_str(&own) {
            says.extend([("external_event_id", external_event_id), ("occurred_at", occurred_at)]);
        }
        serde_json::to_string(&says).unwrap_or_default()
    }

    /// # Errors
    /// [`StoreError::Refused`] when it does not read: it was changed by hand or by a newer version.
    pub fn recorded(&self, subject: &Subject) -> Result<RecordedFact, StoreError> {
        let detail: FactDetail = serde_json::from_str(&self.fact).map_err(|_| StoreError::Refused)?;
        Ok(RecordedFact {
            fact: Fact { subject: subject.clone(), occurred_at: self.occurred_at, detail },
            event_id: EventId::from(self.event_id),
            external_event_id: self.external_event_id.clone(),
            ordinal: self.ordinal,
        })
    }
}

#[derive(QueryableByName)]
struct SubscriptionId {
    #[diesel(sql_type = Text)]
    id: String,
}

/// The subscriptions that `users` own, or are named in, within the account of `account`.
pub fn subscriptions_of_users(
    connection: &mut PgConnection,
    account: &SubjectKey,
    users: &[&str],
) -> Result<Vec<SubjectKey>, StoreError> {
    const FIND: &str = "
        WITH asked AS (SELECT $1 AS provider, $2 AS account, $3 AS users)
        SELECT DISTINCT f.subject_id AS id FROM ledger_facts f, asked
         WHERE f.provider = asked.provider AND f.provider_account_id = asked.account
           AND f.subject_kind = 'subscription' AND f.fact ->> 'app_user_id' = ANY(asked.users)
        UNION
        SELECT s.subscription_id FROM subscription_states s, asked
         WHERE s.provider = asked.provider AND s.provider_account_id = asked.account
           AND s.app_user_id = ANY(asked.users)";
    let binds = [Bind::Text(account.provider), Bind::Text(&account.account_key), Bind::Texts(users)];
    let found: Vec<SubscriptionId> = Sql::new(FIND, &binds).load(connection)?;
    let key = |row: SubscriptionId| SubjectKey { subject: Subject::subscription(row.id), ..account.clone() };
    Ok(found.into_iter().map(key).collect())
}

/// The facts that move what the users of these facts own or are given, followed from user to user.
pub fn load_transfers<'a>(
    connection: &mut PgConnection,
    facts: impl IntoIterator<Item = (&'a SubjectKey, &'a Vec<RecordedFact>)>,
) -> Result<Vec<(SubjectKey, RecordedFact)>, StoreError> {
    let mut asking: BTreeSet<SubjectKey> = BTreeSet::new();
    for (key, facts) in facts {
        let users = facts.iter().filter_map(|recorded| match &recorded.fact.detail {
            FactDetail::Subscription(fact) => fact.app_user_id.clone(),
            FactDetail::Transfer(fact) => Some(fact.to.clone()),
            FactDetail::Payment(_) | FactDetail::Refund(_) | FactDetail::Dispute(_) | FactDetail::Decision(_) => None,
        });
        asking.extend(users.map(|user| SubjectKey { subject: Subject::user(user), ..key.clone() }));
    }
    let (mut asked, mut transfers) = (BTreeSet::new(), Vec::new());
    while !asking.is_empty() {
        let found = load_facts(connection, &asking.iter().collect::<Vec<_>>())?;
        let found: Vec<(SubjectKey, RecordedFact)> =
            found.into_iter().flat_map(|(key, facts)| facts.into_iter().map(|fact| (key.clone(), fact))).collect();
        asked.append(&mut asking);
        for (key, recorded) in &found {
            if let FactDetail::Transfer(transfer) = &recorded.fact.detail {
                asking.insert(SubjectKey { subject: Subject::user(&transfer.to), ..key.clone() });
            }
        }
        asking.retain(|key| !asked.contains(key));
        transfers.extend(found);
    }
    Ok(transfers)
}

/// A ledger table: what identifies a row, and what a fold may change.
pub(super) struct Table {
    pub name: &'static str,
    pub key: &'static [&'static str],
    changing: &'static [&'static str],
    /// When an existing row may be changed.
    guard: &'static str,
}

/// A refund or dispute whose events name its payment only sometimes is folded twice, once without its payment. What is
/// known together with the payment stands, whichever came first.
const LINKED_STANDS: &str = "AND (t.payment_id IS NULL OR excluded.payment_id IS NOT NULL)";

pub(super) const PAYMENTS: Table = Table {
    name: "payments",
    key: &["payment_id"],
    changing: &[
        "status",
        "currency",
        "amount",
        "captured_amount",
        "refunded_amount",
        "disputed_amount",
        "dispute_status",
        "charge_id",
        "app_user_id",
        "product_id",
        "subscription_id",
        "store",
        "failure_code",
        "authorized_at",
        "paid_at",
        "canceled_at",
        "webhook_event_id",
        "needs_review",
        "review_reason",
    ],
    guard: "",
};
pub(super) const REFUNDS: Table = Table {
    name: "refunds",
    key: &["refund_id"],
    changing: &[
        "payment_id",
        "charge_id",
        "status",
        "currency",
        "amount",
        "reason",
        "failure_code",
        "requested_at",
        "refunded_at",
        "failed_at",
        "webhook_event_id",
        "needs_review",
        "review_reason",
    ],
    guard: LINKED_STANDS,
};
pub(super) const DISPUTES: Table = Table {
    name: "disputes",
    key: &["dispute_id"],
    changing: &[
        "payment_id",
        "charge_id",
        "status",
        "currency",
        "amount",
        "reason",
        "opened_at",
        "funds_withdrawn_at",
        "funds_reinstated_at",
        "closed_at",
        "webhook_event_id",
        "needs_review",
        "review_reason",
    ],
    guard: LINKED_STANDS,
};
pub(super) const SUBSCRIPTIONS: Table = Table {
    name: "subscription_states",
    key: &["app_user_id", "product_id", "store", "subscription_id"],
    changing: &[
        "status",
        "quantity",
        "started_at",
        "renewed_at",
        "expires_at",
        "trial_ends_at",
        "cancelled_at",
        "cancel_reason",
        "billing_issue_at",
        "webhook_event_id",
        "needs_review",
        "review_reason",
    ],
    guard: "",
};

impl Table {
    /// Writes rows that are new or differ, and returns the identity of each row it wrote.
    fn upsert(&self) -> String {
        let Table { name, key, changing, guard } = self;
        let key = key.join(", ");
        let assignments: Vec<String> = changing.iter().map(|column| format!("{column} = excluded.{column}")).collect();
        let differs: Vec<String> = changing.iter().map(|column| format!("t.{column}")).collect();
        let excluded: Vec<String> = changing.iter().map(|column| format!("excluded.{column}")).collect();
        format!(
            "INSERT INTO {name} AS t SELECT * FROM json_populate_recordset(NULL::{name}, $1::json)
             ON CONFLICT (provider, provider_account_id, {key}) DO UPDATE SET {}
             WHERE ({}) IS DISTINCT FROM ({}) {guard}
             RETURNING provider, provider_account_id, {} AS id",
            assignments.join(", "),
            differs.join(", "),
            excluded.join(", "),
            self.key.last().unwrap_or(&""),
        )
    }
}

static UPSERT_PAYMENTS: LazyLock<String> = LazyLock::new(|| PAYMENTS.upsert());
static UPSERT_REFUNDS: LazyLock<String> = LazyLock::new(|| REFUNDS.upsert());
static UPSERT_DISPUTES: LazyLock<String> = LazyLock::new(|| DISPUTES.upsert());
static UPSERT_SUBSCRIPTIONS: LazyLock<String> = LazyLock::new(|| SUBSCRIPTIONS.upsert());

/// A ledger row with the account it belongs to.
#[derive(Serialize)]
pub(super) struct Row<'a, T> {
    provider: &'static str,
    provider_account_id: &'a str,
    environment: Environment,
    #[serde(flatten)]
    row: &'a T,
}

impl<'a, T> Row<'a, T> {
    pub fn of(key: &'a SubjectKey, row: &'a T) -> Self {
        Row { provider: key.provider, provider_account_id: &key.account_key, environment: key.environment, row }
    }
}

#[derive(QueryableByName)]
struct Written {
    #[diesel(sql_type = Text)]
    provider: String,
    #[diesel(sql_type = Text)]
    provider_account_id: String,
    #[diesel(sql_type = Text)]
    id: String,
}

/// Brings the ledger tables to what the folds say and returns the subjects of which a row changed.
pub fn upsert_ledgers<'a>(
    connection: &mut PgConnection,
    ledgers: &[(&'a SubjectKey, Ledger)],
) -> Result<Vec<&'a SubjectKey>, StoreError> {
    let mut changed = Vec::new();
    let payments = rows(ledgers, |ledger| ledger.payment.as_slice(), |payment| &payment.payment_id);
    changed.extend(write(connection, &UPSERT_PAYMENTS, payments)?);
    let refunds = linked_first(rows(ledgers, |ledger| &ledger.refunds, |refund| &refund.refund_id));
    changed.extend(write(connection, &UPSERT_REFUNDS, refunds)?);
    let disputes = linked_first(rows(ledgers, |ledger| &ledger.disputes, |dispute| &dispute.dispute_id));
    changed.extend(write(connection, &UPSERT_DISPUTES, disputes)?);
    remove_superseded_subscriptions(connection, ledgers)?;
    let subscriptions = rows(ledgers, |ledger| &ledger.subscriptions, |subscription| &subscription.subscription_id);
    changed.extend(write(connection, &UPSERT_SUBSCRIPTIONS, subscriptions)?);
    Ok(changed)
}

/// One row to write: its subject, the id that `RETURNING` names it by, and its content.
struct Writing<'a, 'l, T> {
    key: &'a SubjectKey,
    id: &'l str,
    row: &'l T,
}

fn rows<'a, 'l, T>(
    ledgers: &'l [(&'a SubjectKey, Ledger)],
    rows: impl Fn(&'l Ledger) -> &'l [T],
    id: impl Fn(&'l T) -> &'l str,
) -> Vec<Writing<'a, 'l, T>> {
    ledgers.iter().flat_map(|(key, ledger)| rows(ledger).iter().map(|row| Writing { key, id: id(row), row })).collect()
}

/// Leaves one row of those that a batch folded both with and without their payment.
fn linked_first<'a, 'l, T>(mut rows: Vec<Writing<'a, 'l, T>>) -> Vec<Writing<'a, 'l, T>> {
    let is_unlinked = |writing: &Writing<'_, '_, T>| writing.key.subject.kind == SubjectKind::Unlinked;
    let linked: HashSet<(&str, &str, &str)> = rows
        .iter()
        .filter(|writing| !is_unlinked(writing))
        .map(|writing| (writing.key.provider, writing.key.account_key.as_str(), writing.id))
        .collect();
    rows.retain(|writing| {
        !is_unlinked(writing) || !linked.contains(&(writing.key.provider, writing.key.account_key.as_str(), writing.id))
    });
    rows
}

fn write<'a, T: Serialize>(
    connection: &mut PgConnection,
    upsert: &str,
    rows: Vec<Writing<'a, '_, T>>,
) -> Result<Vec<&'a SubjectKey>, StoreError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let json = json(&rows.iter().map(|w| Row::of(w.key, w.row)).collect::<Vec<_>>())?;
    let written: Vec<Written> = Sql::new(upsert, &[Bind::Text(&json)]).load(connection)?;
    let by_id: HashMap<(&str, &str, &str), &SubjectKey> =
        rows.iter().map(|w| ((w.key.provider, w.key.account_key.as_str(), w.id), w.key)).collect();
    let subject =
        |row: &Written| by_id.get(&(row.provider.as_str(), row.provider_account_id.as_str(), row.id.as_str())).copied();
    Ok(written.iter().filter_map(subject).collect())
}

/// A subscription's rows are keyed by its user, product and store. When a later fold names another user, the row under
/// the earlier name goes: what remains must not depend on the order in which the events came.
fn remove_superseded_subscriptions(
    connection: &mut PgConnection,
    ledgers: &[(&SubjectKey, Ledger)],
) -> Result<(), StoreError> {
    const REMOVE: &str = "
        WITH folded AS (SELECT * FROM unnest($1, $2, $3) AS t (provider, account, subscription_id)),
             kept AS (SELECT * FROM json_populate_recordset(NULL::subscription_states, $4::json))
        DELETE FROM subscription_states s USING folded f
         WHERE s.provider = f.provider AND s.provider_account_id = f.account AND s.subscription_id = f.subscription_id
           AND NOT EXISTS (SELECT 1 FROM kept k
                            WHERE k.provider = s.provider AND k.provider_account_id = s.provider_account_id
                              AND k.subscription_id = s.subscription_id AND k.app_user_id = s.app_user_id
                              AND k.product_id = s.product_id AND k.store = s.store)";
    let folded: Vec<&(&SubjectKey, Ledger)> =
        ledgers.iter().filter(|(key, _)| key.subject.kind == SubjectKind::Subscription).collect();
    if folded.is_empty() {
        return Ok(());
    }
    let providers: Vec<&str> = folded.iter().map(|(key, _)| key.provider).collect();
    let accounts: Vec<&str> = folded.iter().map(|(key, _)| key.account_key.as_str()).collect();
    let ids: Vec<&str> = folded.iter().map(|(key, _)| key.subject.id.as_str()).collect();
    let kept = rows(ledgers, |ledger| &ledger.subscriptions, |subscription| &subscription.subscription_id);
    let json = json(&kept.iter().map(|w| Row::of(w.key, w.row)).collect::<Vec<_>>())?;
    let binds = [Bind::Texts(&providers), Bind::Texts(&accounts), Bind::Texts(&ids), Bind::Text(&json)];
    Sql::new(REMOVE, &binds).run(connection)?;
    Ok(())
}

pub(super) fn json<T: Serialize>(rows: &[T]) -> Result<String, StoreError> {
    serde_json::to_string(rows).map_err(|_| StoreError::Refused)
}
