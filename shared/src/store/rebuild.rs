//! What a rebuild of the ledger reads and writes: settled events, the facts and rows that are there, and a list of
//! subjects to look at, which lives as long as the session.

use diesel::connection::SimpleConnection;
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Text, Uuid as SqlUuid};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};
use serde::Serialize;
use uuid::Uuid;

use super::ledger::{Row, SubjectColumns, json};
use super::ledger_rows::ACCOUNTS;
use super::{Bind, LedgerTable, Loaded, Sql, StoreError, StoredFact, SubjectKey};
use crate::domain::{Ledger, Subject, SubjectKind};

/// Prepares a session for the list of subjects to look at. Its statements may take their time.
pub fn begin_rebuild(connection: &mut PgConnection) -> Result<(), StoreError> {
    const PREPARE: &str = "
        SET statement_timeout = '10min';
        CREATE TEMP TABLE rebuild_subjects (
            provider            text NOT NULL,
            provider_account_id text NOT NULL,
            subject_kind        text NOT NULL,
            subject_id          text NOT NULL,
            -- An event that speaks of the subject, besides those that its facts name.
            event_id            uuid NOT NULL,
            PRIMARY KEY (subject_kind, provider, provider_account_id, subject_id, event_id))";
    Ok(connection.batch_execute(PREPARE)?)
}

/// Events of which the ledger is made: those that were settled and not given up. What waits for a person has no say yet.
const SETTLED: &str = "i.status IN ('processed', 'ignored')";

const EVENT: &str = "
    i.id, i.provider, i.provider_account_id, i.environment, i.event_id, i.event_type, i.origin, i.lane, i.status,
    i.attempt_count, i.failure_count, i.occurred_at, i.received_at";

/// Finds the body of each event by its key, in the one partition that can hold it.
const BODY: &str = "
    LEFT JOIN LATERAL (SELECT body FROM webhook.raw_events r
                        WHERE r.id = i.id AND r.received_at = i.received_at OFFSET 0) AS r ON true";

/// The next settled events after `after`, in the order of their ids.
pub fn settled_events(
    connection: &mut PgConnection,
    after: Uuid,
    providers: &[&str],
    limit: i64,
) -> Result<Vec<Loaded>, StoreError> {
    let text = format!(
        "SELECT i.*, r.body
           FROM (SELECT {EVENT} FROM webhook.inbox i
                  WHERE i.id > $1 AND i.provider = ANY($2) AND {SETTLED} ORDER BY i.id LIMIT $3) AS i {BODY}
          ORDER BY i.id"
    );
    let binds = [Bind::Uuid(after), Bind::Texts(providers), Bind::BigInt(limit)];
    Ok(Sql::new(&text, &binds).load(connection)?)
}

/// Those of the events that are settled.
pub fn settled_events_among(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Loaded>, StoreError> {
    let text =
        format!("SELECT {EVENT}, r.body FROM webhook.inbox i {BODY} WHERE i.id = ANY($1) AND {SETTLED} ORDER BY i.id");
    Ok(Sql::new(&text, &[Bind::Uuids(ids)]).load(connection)?)
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// How many settled events there are after `after`.
pub fn count_settled(connection: &mut PgConnection, after: Uuid, providers: &[&str]) -> Result<u64, StoreError> {
    let text =
        format!("SELECT count(*) AS count FROM webhook.inbox i WHERE i.id > $1 AND i.provider = ANY($2) AND {SETTLED}");
    let found: Count = Sql::new(&text, &[Bind::Uuid(after), Bind::Texts(providers)]).get_result(connection)?;
    Ok(u64::try_from(found.count).unwrap_or(0))
}

#[derive(QueryableByName)]
struct EventIdRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
}

/// The events of an account whose search keys name one of the objects or users, and what people decided about those.
pub fn events_naming(
    connection: &mut PgConnection,
    account: &SubjectKey,
    objects: &[&str],
    users: &[&str],
) -> Result<Vec<Uuid>, StoreError> {
    const FIND: &str = "
        WITH asked AS (SELECT $1 AS provider, $2 AS account, $3 AS objects, $4 AS users),
             named AS (
            SELECT r.id FROM asked, webhook.raw_events r
             WHERE r.provider = asked.provider AND r.provider_account_id = asked.account
               AND (r.transaction_id = ANY(asked.objects) OR r.original_transaction_id = ANY(asked.objects)
                    OR r.app_user_id = ANY(asked.users)))
        SELECT id FROM named
        UNION
        SELECT q.decision_event_id FROM asked, webhook.quarantine q
         WHERE q.provider = asked.provider AND q.provider_account_id = asked.account AND q.decision_event_id IS NOT NULL
           AND (q.subject_id = ANY(asked.objects) OR q.event_id IN (SELECT id FROM named))";
    let names =
        [Bind::Text(account.provider), Bind::Text(&account.account_key), Bind::Texts(objects), Bind::Texts(users)];
    let found: Vec<EventIdRow> = Sql::new(FIND, &names).load(connection)?;
    Ok(found.into_iter().map(|row| row.id).collect())
}

const FACT: &str = "
    f.provider, f.provider_account_id, f.subject_kind, f.subject_id, f.event_id, f.ordinal, f.external_event_id,
    f.occurred_at, f.fact::text AS fact";

/// The facts of the events after `after`, up to and with `last`.
pub fn facts_of_events(
    connection: &mut PgConnection,
    after: Uuid,
    last: Uuid,
    providers: &[&str],
) -> Result<Vec<StoredFact>, StoreError> {
    let text = format!(
        "SELECT {FACT} FROM ledger_facts f WHERE f.event_id > $1 AND f.event_id <= $2 AND f.provider = ANY($3)"
    );
    let binds = [Bind::Uuid(after), Bind::Uuid(last), Bind::Texts(providers)];
    Ok(Sql::new(&text, &binds).load(connection)?)
}

/// The next facts of a provider, in the order of their subjects, after those of the subject `after`.
pub fn facts_after(
    connection: &mut PgConnection,
    provider: &str,
    after: Option<&SubjectKey>,
    limit: i64,
) -> Result<Vec<StoredFact>, StoreError> {
    let text = format!(
        "SELECT {FACT} FROM ledger_facts f
          WHERE f.provider = $1 AND (f.provider_account_id, f.subject_kind, f.subject_id) > ($2, $3, $4)
          ORDER BY f.provider_account_id, f.subject_kind, f.subject_id LIMIT $5"
    );
    let (account, kind, id) =
        after.map_or(("", "", ""), |key| (&key.account_key, key.subject.kind.as_str(), &key.subject.id));
    let binds = [Bind::Text(provider), Bind::Text(account), Bind::Text(kind), Bind::Text(id), Bind::BigInt(limit)];
    Ok(Sql::new(&text, &binds).load(connection)?)
}

impl LedgerTable {
    /// The rows that the folds amount to, as one JSON text.
    fn folded(self, ledgers: &[(&SubjectKey, Ledger)]) -> Result<String, StoreError> {
        match self {
            LedgerTable::Payments => folded(ledgers, |ledger| ledger.payment.as_slice()),
            LedgerTable::Refunds => folded(ledgers, |ledger| &ledger.refunds),
            LedgerTable::Disputes => folded(ledgers, |ledger| &ledger.disputes),
            LedgerTable::Subscriptions => folded(ledgers, |ledger| &ledger.subscriptions),
        }
    }

    /// What is folded without its payment is no row where it is known together with its payment, too.
    fn linked_stands(self) -> String {
        let stands = |own: &str| {
            format!(
                "AND NOT (r.environment IS NOT NULL AND r.payment_id IS NULL
                          AND EXISTS (SELECT 1 FROM {} k
                                       WHERE k.provider = r.provider AND k.provider_account_id = r.provider_account_id
                                         AND k.{own} = r.{own} AND k.payment_id IS NOT NULL))",
                self.name()
            )
        };
        match self {
            LedgerTable::Refunds => stands("refund_id"),
            LedgerTable::Disputes => stands("dispute_id"),
            LedgerTable::Payments | LedgerTable::Subscriptions => String::new(),
        }
    }

    fn compare(self) -> String {
        let ([live_kind, live_id], [kind, id]) = (self.subject("l"), self.subject("r"));
        let (name, key, row) = (self.name(), self.table().key.join(", "), self.key("t"));
        format!(
            "WITH subjects AS (SELECT * FROM unnest($1, $2, $3, $4) AS s (provider, account, kind, id)),
                  live AS ({}),
                  rebuilt AS (SELECT * FROM json_populate_recordset(NULL::{name}, $5::json))
             SELECT t.provider, t.provider_account_id, t.subject_kind, t.subject_id, concat_ws('/', {row}) AS name, t.live, t.rebuilt
               FROM (SELECT provider, provider_account_id, {key}, to_json(l)::text AS live, to_json(r)::text AS rebuilt,
                            CASE WHEN r.environment IS NULL THEN {live_kind} ELSE {kind} END AS subject_kind,
                            CASE WHEN r.environment IS NULL THEN {live_id} ELSE {id} END AS subject_id
                       FROM live l FULL JOIN rebuilt r USING (provider, provider_account_id, {key})
                      WHERE ROW(l.*) IS DISTINCT FROM ROW(r.*) {}) AS t",
            self.rows_of_subjects(),
            self.linked_stands(),
        )
    }
}

fn folded<'a, T: Serialize + 'a>(
    ledgers: &'a [(&SubjectKey, Ledger)],
    rows: impl Fn(&'a Ledger) -> &'a [T],
) -> Result<String, StoreError> {
    let rows = ledgers.iter().flat_map(|(key, ledger)| rows(ledger).iter().map(|row| Row::of(key, row)));
    json(&rows.collect::<Vec<_>>())
}

#[derive(QueryableByName)]
struct Compared {
    #[diesel(sql_type = Text)]
    provider: String,
    #[diesel(sql_type = Text)]
    provider_account_id: String,
    #[diesel(sql_type = Text)]
    subject_kind: String,
    #[diesel(sql_type = Text)]
    subject_id: String,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    live: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    rebuilt: Option<String>,
}

/// A row that is not what the facts of its subject amount to. At least one side is there.
#[derive(Debug, Clone)]
pub struct RowDifference {
    pub key: SubjectKey,
    pub table: LedgerTable,
    /// What identifies the row within its account.
    pub name: String,
    /// As it is, and as it should be: one JSON object each, with all columns.
    pub live: Option<String>,
    pub rebuilt: Option<String>,
}

/// Holds what the folds amount to against all rows of their subjects. What is equal is left out.
pub fn compare_rows(
    connection: &mut PgConnection,
    ledgers: &[(&SubjectKey, Ledger)],
) -> Result<Vec<RowDifference>, StoreError> {
    let keys: Vec<&SubjectKey> = ledgers.iter().map(|(key, _)| *key).collect();
    let subjects = SubjectColumns::of(&keys);
    let mut differences = Vec::new();
    for table in LedgerTable::ALL {
        let folded = table.folded(ledgers)?;
        let [provider, account, kind, id] = subjects.binds();
        let text = table.compare();
        let found: Vec<Compared> =
            Sql::new(&text, &[provider, account, kind, id, Bind::Text(&folded)]).load(connection)?;
        differences.extend(found.into_iter().filter_map(|found| {
            let Compared { provider, provider_account_id, subject_kind, subject_id, name, live, rebuilt } = found;
            let key = SubjectKey::read(&provider, &provider_account_id, &subject_kind, &subject_id)?;
            Some(RowDifference { key, table, name, live, rebuilt })
        }));
    }
    Ok(differences)
}

#[derive(QueryableByName)]
struct Scanned {
    #[diesel(sql_type = Text)]
    provider_account_id: String,
    #[diesel(sql_type = Text)]
    subject_kind: String,
    #[diesel(sql_type = Text)]
    subject_id: String,
    #[diesel(sql_type = Array<Text>)]
    place: Vec<String>,
    #[diesel(sql_type = Bool)]
    is_unfounded: bool,
    #[diesel(sql_type = Bool)]
    is_end: bool,
}

/// One page of a table, looked through for rows without facts.
#[derive(Debug, Clone, Default)]
pub struct Unfounded {
    /// The subjects of rows of which no fact tells.
    pub subjects: Vec<SubjectKey>,
    /// Where the next page begins; none after the last one.
    pub next: Option<Vec<String>>,
}

/// Looks through the next `limit` rows of a provider, in the order of their keys, beginning after `after`.
pub fn unfounded_rows(
    connection: &mut PgConnection,
    table: LedgerTable,
    provider: &'static str,
    after: &[String],
    limit: i64,
) -> Result<Unfounded, StoreError> {
    let [kind, id] = table.subject("t");
    let (name, key) = (table.name(), table.key("t"));
    let places: Vec<String> = (0..=table.table().key.len()).map(|index| format!("${}", index + 3)).collect();
    let text = format!(
        "SELECT p.provider_account_id, p.subject_kind, p.subject_id, p.place, p.is_unfounded, p.is_end
           FROM (SELECT t.*, row_number() OVER (ORDER BY t.place) = $1 AS is_end,
                        NOT EXISTS (SELECT 1 FROM ledger_facts f
                                     WHERE f.provider = t.provider AND f.provider_account_id = t.provider_account_id
                                       AND f.subject_kind = t.subject_kind AND f.subject_id = t.subject_id) AS is_unfounded
                   FROM (SELECT t.provider, t.provider_account_id, {kind} AS subject_kind, {id} AS subject_id,
                                ARRAY[t.provider_account_id, {key}] AS place
                           FROM {name} t
                          WHERE t.provider = $2 AND (t.provider_account_id, {key}) > ({})
                          ORDER BY t.provider_account_id, {key} LIMIT ${}) AS t) AS p
          WHERE p.is_unfounded OR p.is_end",
        places.join(", "),
        places.len() + 3,
    );
    let mut binds = vec![Bind::BigInt(limit), Bind::Text(provider)];
    binds.extend((0..places.len()).map(|index| Bind::Text(after.get(index).map_or("", String::as_str))));
    binds.push(Bind::BigInt(limit));
    let rows: Vec<Scanned> = Sql::new(&text, &binds).load(connection)?;
    let is_unfounded = |row: &&Scanned| row.is_unfounded;
    let key = |row: &Scanned| SubjectKey::read(provider, &row.provider_account_id, &row.subject_kind, &row.subject_id);
    Ok(Unfounded {
        subjects: rows.iter().filter(is_unfounded).filter_map(key).collect(),
        next: rows.into_iter().find(|row| row.is_end).map(|row| row.place),
    })
}

/// A subject to look at, with events that speak of it besides those that its facts name.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub key: SubjectKey,
    pub events: Vec<Uuid>,
}

#[derive(Serialize)]
struct CandidateRow<'a> {
    provider: &'a str,
    provider_account_id: &'a str,
    subject_kind: &'a str,
    subject_id: &'a str,
    event_id: Uuid,
}

/// Notes subjects to look at in this session.
pub fn note_candidates(connection: &mut PgConnection, candidates: &[Candidate]) -> Result<(), StoreError> {
    const INSERT: &str = "
        INSERT INTO rebuild_subjects SELECT * FROM json_populate_recordset(NULL::rebuild_subjects, $1::json)
        ON CONFLICT DO NOTHING";
    // The nil id stands for no event, so that a subject without one has a row, too.
    let rows = candidates.iter().flat_map(|Candidate { key, events }| {
        events.iter().copied().chain([Uuid::nil()]).map(move |event_id| CandidateRow {
            provider: key.provider,
            provider_account_id: &key.account_key,
            subject_kind: key.subject.kind.as_str(),
            subject_id: &key.subject.id,
            event_id,
        })
    });
    Sql::new(INSERT, &[Bind::Text(&json(&rows.collect::<Vec<_>>())?)]).run(connection)?;
    Ok(())
}

#[derive(QueryableByName)]
struct StoredCandidate {
    #[diesel(sql_type = Text)]
    provider: String,
    #[diesel(sql_type = Text)]
    provider_account_id: String,
    #[diesel(sql_type = Text)]
    subject_id: String,
    #[diesel(sql_type = Array<SqlUuid>)]
    events: Vec<Uuid>,
}

/// The next subjects of a kind that were noted, after the subject `after`.
pub fn noted_candidates(
    connection: &mut PgConnection,
    kind: SubjectKind,
    after: Option<&SubjectKey>,
    limit: i64,
) -> Result<Vec<Candidate>, StoreError> {
    const LIST: &str = "
        SELECT provider, provider_account_id, subject_id, array_agg(event_id) AS events FROM rebuild_subjects
         WHERE subject_kind = $1 AND (provider, provider_account_id, subject_id) > ($2, $3, $4)
         GROUP BY provider, provider_account_id, subject_id
         ORDER BY provider, provider_account_id, subject_id LIMIT $5";
    let (provider, account, id) = after.map_or(("", "", ""), |key| (key.provider, &key.account_key, &key.subject.id));
    let binds =
        [Bind::Text(kind.as_str()), Bind::Text(provider), Bind::Text(account), Bind::Text(id), Bind::BigInt(limit)];
    let found: Vec<StoredCandidate> = Sql::new(LIST, &binds).load(connection)?;
    let candidate = |row: StoredCandidate| {
        let key = SubjectKey::read(&row.provider, &row.provider_account_id, kind.as_str(), &row.subject_id)?;
        Some(Candidate { key, events: row.events.into_iter().filter(|id| !id.is_nil()).collect() })
    };
    Ok(found.into_iter().filter_map(candidate).collect())
}

/// Takes subjects off the list.
pub fn drop_candidates(connection: &mut PgConnection, subjects: &[&SubjectKey]) -> Result<(), StoreError> {
    const DROP: &str = "
        DELETE FROM rebuild_subjects
         WHERE (provider, provider_account_id, subject_kind, subject_id) IN (SELECT * FROM unnest($1, $2, $3, $4))";
    let columns = SubjectColumns::of(subjects);
    Sql::new(DROP, &columns.binds()).run(connection)?;
    Ok(())
}

#[derive(QueryableByName)]
struct AccountRow {
    #[diesel(sql_type = Text)]
    provider: String,
    #[diesel(sql_type = Text)]
    provider_account_id: String,
}

/// The subject `subject` in every account that ever sent an event, of one provider where given.
pub fn subject_everywhere(
    connection: &mut PgConnection,
    subject: &Subject,
    provider: Option<&str>,
) -> Result<Vec<SubjectKey>, StoreError> {
    let text = format!("{ACCOUNTS} SELECT provider, provider_account_id FROM accounts");
    let accounts: Vec<AccountRow> = Sql::new(&text, &[Bind::OptionalText(provider)]).load(connection)?;
    let key =
        |row: AccountRow| SubjectKey::read(&row.provider, &row.provider_account_id, subject.kind.as_str(), &subject.id);
    Ok(accounts.into_iter().filter_map(key).collect())
}

/// Deletes facts that no event states.
pub fn delete_facts(connection: &mut PgConnection, facts: &[&StoredFact]) -> Result<(), StoreError> {
    const DELETE: &str = "
        DELETE FROM ledger_facts f
         USING unnest($1, $2, $3, $4, $5, $6) AS gone (provider, account, kind, id, event_id, ordinal)
         WHERE f.provider = gone.provider AND f.provider_account_id = gone.account AND f.subject_kind = gone.kind
           AND f.subject_id = gone.id AND f.event_id = gone.event_id AND f.ordinal = gone.ordinal";
    let keys: Vec<SubjectKey> = facts.iter().filter_map(|fact| fact.key()).collect();
    let columns = SubjectColumns::of(&keys.iter().collect::<Vec<_>>());
    let events: Vec<Uuid> = facts.iter().map(|fact| fact.event_id).collect();
    let ordinals: Vec<i16> = facts.iter().map(|fact| fact.ordinal).collect();
    let [provider, account, kind, id] = columns.binds();
    let binds = [provider, account, kind, id, Bind::Uuids(&events), Bind::SmallInts(&ordinals)];
    Sql::new(DELETE, &binds).run(connection)?;
    Ok(())
}

/// Deletes rows that no fact founds.
pub fn delete_rows(connection: &mut PgConnection, extra: &[&RowDifference]) -> Result<(), StoreError> {
    for table in LedgerTable::ALL {
        let rows: Vec<&str> =
            extra.iter().filter(|row| row.table == table).filter_map(|row| row.live.as_deref()).collect();
        let (name, gone, live) = (table.name(), table.key("gone"), table.key("t"));
        let text = format!(
            "DELETE FROM {name} t USING json_populate_recordset(NULL::{name}, $1::json) AS gone
              WHERE (t.provider, t.provider_account_id, {live}) = (gone.provider, gone.provider_account_id, {gone})"
        );
        if !rows.is_empty() {
            Sql::new(&text, &[Bind::Text(&format!("[{}]", rows.join(",")))]).run(connection)?;
        }
    }
    Ok(())
}

/// Settles events by what they say now: those with facts are processed, those without are ignored.
pub fn resettle(connection: &mut PgConnection, events: &[Uuid], has_facts: bool) -> Result<(), StoreError> {
    const UPDATE: &str = "
        UPDATE webhook.inbox SET status = $1 WHERE id = ANY($2) AND status = $3";
    let (now, before) = if has_facts { ("processed", "ignored") } else { ("ignored", "processed") };
    Sql::new(UPDATE, &[Bind::Text(now), Bind::Uuids(events), Bind::Text(before)]).run(connection)?;
    Ok(())
}
