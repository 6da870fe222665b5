//! What the ledger is folded from, for people who have to decide about it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};
use shared::domain::{
    Effect, Environment, Explained, FactDetail, Ledger, Money, RecordedFact, Subject, SubjectKind, SubscriptionStep,
    Time, explain, fold, reason_in_words,
};
use shared::providers::Provider;
use shared::store::{self, PgConnection, QuarantineRow, StoreError, SubjectKey};

use super::super::error::CtlError;

/// A subject with all its facts.
pub(super) struct Told {
    pub key: SubjectKey,
    pub facts: Vec<RecordedFact>,
    pub transfers: Vec<RecordedFact>,
}

/// A fact in its place, and what it did.
#[derive(Debug, Clone, Serialize)]
pub(super) struct FactLine {
    pub occurred_at: Time,
    pub event_id: String,
    pub kind: &'static str,
    pub what: String,
    /// `applied`, `no change`, `stale` or `refused`.
    pub effect: &'static str,
    /// Why it is refused, or why a person has to look since then.
    pub reason: Option<&'static str>,
}

/// A value of a ledger row that becomes another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    pub row: String,
    pub column: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// The key of the account that an entry is about, with `subject` in it.
pub(super) fn key_of(entry: &QuarantineRow, subject: Subject) -> Result<SubjectKey, CtlError> {
    let provider: Provider = entry.provider.parse().map_err(|_| CtlError::UnknownProvider(entry.provider.clone()))?;
    let is_sandbox = entry.environment.as_deref() == Some(Environment::Sandbox.as_str());
    Ok(SubjectKey {
        provider: provider.as_str(),
        account_key: entry.provider_account_id.clone(),
        environment: if is_sandbox { Environment::Sandbox } else { Environment::Production },
        subject,
    })
}

impl Told {
    /// The subject of a contradiction. None where the entry is about an event.
    pub fn of_entry(connection: &mut PgConnection, entry: &QuarantineRow) -> Result<Option<Self>, CtlError> {
        let (Some(kind), Some(id)) = (&entry.subject_kind, &entry.subject_id) else { return Ok(None) };
        let Some(kind) = SubjectKind::parse(kind) else { return Ok(None) };
        let key = key_of(entry, Subject { kind, id: id.clone() })?;
        Ok(Some(Told::of(connection, key)?))
    }

    pub fn of(connection: &mut PgConnection, key: SubjectKey) -> Result<Self, StoreError> {
        let facts = store::load_facts(connection, &[&key])?.remove(&key).unwrap_or_default();
        let transfers = store::load_transfers(connection, [(&key, &facts)])?;
        let transfers = transfers.into_iter().map(|(_, recorded)| recorded).collect();
        Ok(Told { key, facts, transfers })
    }

    pub fn fold(&self) -> Ledger {
        fold(&self.key.subject, &self.facts, &self.transfers)
    }

    /// The facts in the order in which they are folded, and what each did.
    pub fn lines(&self) -> Vec<FactLine> {
        explain(&self.key.subject, &self.facts, &self.transfers).iter().map(FactLine::of).collect()
    }

    /// What further facts would change.
    pub fn changes(&self, further: &[RecordedFact]) -> (Vec<Change>, Ledger) {
        let facts = [self.facts.as_slice(), further].concat();
        let after = fold(&self.key.subject, &facts, &self.transfers);
        (changes(&self.fold(), &after), after)
    }
}

impl FactLine {
    fn of(explained: &Explained<'_>) -> Self {
        let recorded = explained.recorded;
        let (effect, reason) = match explained.effect {
            Effect::Applied => ("applied", explained.review),
            Effect::NoChange => ("no change", explained.review),
            Effect::Stale => ("stale", explained.review),
            Effect::Refused(reason) => ("refused", Some(reason)),
        };
        FactLine {
            occurred_at: recorded.fact.occurred_at,
            event_id: recorded.external_event_id.clone(),
            kind: recorded.fact.detail.kind(),
            what: what(&recorded.fact.detail),
            effect,
            reason,
        }
    }

    /// What it did, in words.
    pub fn words(&self) -> String {
        match self.reason.map(|reason| reason_in_words(reason).unwrap_or(reason)) {
            Some(words) => format!("{}: {words}", self.effect),
            None => self.effect.to_owned(),
        }
    }
}

/// What a fact says, in few words.
fn what(detail: &FactDetail) -> String {
    let with = |word: String, money: Option<Money>| match money {
        Some(money) => format!("{word} {} {}", money.amount(), money.currency()),
        None => word,
    };
    match detail {
        FactDetail::Payment(fact) => with(word(&fact.step), fact.captured.or(fact.amount)),
        FactDetail::Refund(fact) => with(format!("{} {}", fact.refund_id, word(&fact.status)), Some(fact.amount)),
        FactDetail::Dispute(fact) => with(format!("{} {}", fact.dispute_id, word(&fact.status)), Some(fact.amount)),
        FactDetail::Subscription(fact) => match fact.step {
            SubscriptionStep::Stands(status) => word(&status),
            SubscriptionStep::Bought(status) => format!("bought, {}", word(&status)),
            SubscriptionStep::Noted => "noted".to_owned(),
            SubscriptionStep::PaymentFailed => "payment failed".to_owned(),
            SubscriptionStep::Paid => "paid".to_owned(),
            SubscriptionStep::Extended => "extended".to_owned(),
            SubscriptionStep::RanOut => "ran out".to_owned(),
        },
        FactDetail::Transfer(fact) => format!("moves to {}", fact.to),
        FactDetail::Decision(fact) => format!("{} {} of {}", word(&fact.verdict), fact.reason, fact.about),
    }
}

/// A value of one word, as the tables write it.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    }
}

/// How the rows of two folds differ, column by column.
fn changes(before: &Ledger, after: &Ledger) -> Vec<Change> {
    let (before, after) = (rows(before), rows(after));
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let empty = Map::new();
    let mut changes = Vec::new();
    for name in names {
        let (before, after) = (before.get(name).unwrap_or(&empty), after.get(name).unwrap_or(&empty));
        let columns: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for column in columns.into_iter().filter(|column| before.get(*column) != after.get(*column)) {
            let (row, column_name) = (name.clone(), column.clone());
            let (before, after) = (cell(before.get(column)), cell(after.get(column)));
            changes.push(Change { row, column: column_name, before, after });
        }
    }
    changes
}

/// The rows of a fold by what people call them. Which event a row was changed by says nothing about what changes.
fn rows(ledger: &Ledger) -> BTreeMap<String, Map<String, Value>> {
    fn columns(row: &impl Serialize) -> Map<String, Value> {
        match serde_json::to_value(row) {
            Ok(Value::Object(mut columns)) => {
                columns.remove("webhook_event_id");
                columns
            }
            Ok(_) | Err(_) => Map::new(),
        }
    }
    let payments = ledger.payment.iter().map(|row| (format!("payment {}", row.payment_id), columns(row)));
    let refunds = ledger.refunds.iter().map(|row| (format!("refund {}", row.refund_id), columns(row)));
    let disputes = ledger.disputes.iter().map(|row| (format!("dispute {}", row.dispute_id), columns(row)));
    let subscriptions = ledger.subscriptions.iter();
    let subscriptions =
        subscriptions.map(|row| (format!("subscription {} {}", row.subscription_id, row.product_id), columns(row)));
    payments.chain(refunds).chain(disputes).chain(subscriptions).collect()
}

fn cell(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
