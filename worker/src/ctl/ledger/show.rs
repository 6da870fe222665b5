use std::collections::HashMap;

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value};
use shared::domain::{Effect, Explained, FactDetail, Money, RecordedFact, SubjectKind, Time, explain};
use shared::providers::Provider;
use shared::store::{self, EventName, PgConnection, StoreError, SubjectKey};
use uuid::Uuid;

use super::Table;
use crate::ctl::Context;
use crate::ctl::error::{CtlError, Exit};
use crate::ctl::output::{fields, optional, section, time};

#[derive(Debug, Args)]
pub(in crate::ctl) struct Show {
    kind: Kind,
    /// The provider's id; of a payment, also that of one of its refunds or disputes
    id: String,
    /// Only of this provider
    #[arg(long)]
    provider: Option<Provider>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    #[value(alias = "refund", alias = "dispute")]
    Payment,
    Subscription,
}

/// A subject with its rows and all that was ever told of it.
#[derive(Serialize)]
struct Report {
    provider: &'static str,
    provider_account_id: String,
    environment: &'static str,
    subject_kind: &'static str,
    subject_id: String,
    payments: Vec<Map<String, Value>>,
    refunds: Vec<Map<String, Value>>,
    disputes: Vec<Map<String, Value>>,
    subscriptions: Vec<Map<String, Value>>,
    timeline: Vec<Entry>,
}

/// A fact in its place, with its event.
#[derive(Serialize)]
struct Entry {
    occurred_at: Time,
    received_at: Time,
    /// `applied`, `no_change`, `stale` or `refused`.
    effect: &'static str,
    /// Why it was refused, or why a person has to look although it was applied.
    reason: Option<&'static str>,
    event_id: Uuid,
    external_event_id: String,
    event_type: Option<String>,
    origin: Option<String>,
    fact: FactDetail,
}

impl Show {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let mut connection = context.connection()?;
        let kind = match self.kind {
            Kind::Payment => SubjectKind::Payment,
            Kind::Subscription => SubjectKind::Subscription,
        };
        let provider = self.provider.map(Provider::as_str);
        let subjects = store::known_subjects(&mut connection, kind, &self.id, provider)?;
        if subjects.is_empty() {
            return Err(CtlError::NoSubject(format!("{} {}", kind.as_str(), self.id)));
        }
        let reports = subjects.iter().map(|key| {
            store::in_keyed_snapshot(&mut connection, |connection| Report::about(connection, key))
                .map_err(CtlError::from)
        });
        let reports: Vec<Report> = reports.collect::<Result<_, CtlError>>()?;
        context.print("ledger.show", &reports, |reports| {
            reports.iter().map(Report::text).collect::<Vec<_>>().join("\n\n")
        })?;
        Ok(Exit::Done)
    }
}

impl Report {
    fn about(connection: &mut PgConnection, key: &SubjectKey) -> Result<Self, StoreError> {
        let mut rows = |table: Table| store::rows_of_subject(connection, table.stored(), key);
        Ok(Report {
            provider: key.provider,
            provider_account_id: key.account_key.clone(),
            environment: key.environment.as_str(),
            subject_kind: key.subject.kind.as_str(),
            subject_id: key.subject.id.clone(),
            payments: rows(Table::Payments)?,
            refunds: rows(Table::Refunds)?,
            disputes: rows(Table::Disputes)?,
            subscriptions: rows(Table::Subscriptions)?,
            timeline: timeline(connection, key)?,
        })
    }

    fn rows(&self, table: Table) -> &[Map<String, Value>] {
        match table {
            Table::Payments => &self.payments,
            Table::Refunds => &self.refunds,
            Table::Disputes => &self.disputes,
            Table::Subscriptions => &self.subscriptions,
        }
    }

    fn text(&self) -> String {
        let header = fields(&[
            ("subject", Some(format!("{} {}", self.subject_kind, self.subject_id))),
            ("account", Some(format!("{} / {}", self.provider, self.provider_account_id))),
            ("environment", Some(self.environment.to_owned())),
        ]);
        let told = Table::ALL.into_iter().filter(|table| !self.rows(*table).is_empty());
        let rows: Vec<String> = told
            .map(|table| format!("\n\n{}\n{}", table.stored().name().to_uppercase(), table.print(self.rows(table))))
            .collect();
        let timeline = section(
            "TIMELINE",
            &["OCCURRED", "WHAT", "AMOUNTS", "EFFECT", "EVENT ID", "TYPE", "RECEIVED", "ID"],
            &self.timeline,
            Entry::cells,
        );
        format!("{header}{}{timeline}", rows.concat())
    }
}

fn timeline(connection: &mut PgConnection, key: &SubjectKey) -> Result<Vec<Entry>, StoreError> {
    let facts = store::load_facts(connection, &[key])?.remove(key).unwrap_or_default();
    let transfers: Vec<RecordedFact> =
        store::load_transfers(connection, [(key, &facts)])?.into_iter().map(|(_, recorded)| recorded).collect();
    let explained = explain(&key.subject, &facts, &transfers);
    let ids: Vec<Uuid> = explained.iter().map(|explained| explained.recorded.event_id.uuid()).collect();
    let names = store::names_of_events(connection, &ids)?;
    let names: HashMap<Uuid, EventName> = names.into_iter().map(|name| (name.id, name)).collect();
    Ok(explained.iter().map(|explained| Entry::of(explained, &names)).collect())
}

impl Entry {
    fn of(explained: &Explained<'_>, names: &HashMap<Uuid, EventName>) -> Self {
        let recorded = explained.recorded;
        let name = names.get(&recorded.event_id.uuid());
        let (effect, reason) = match explained.effect {
            Effect::Applied => ("applied", explained.review),
            Effect::NoChange => ("no_change", None),
            Effect::Stale => ("stale", None),
            Effect::Refused(reason) => ("refused", Some(reason)),
        };
        Entry {
            occurred_at: recorded.fact.occurred_at,
            received_at: recorded.event_id.received_at(),
            effect,
            reason,
            event_id: recorded.event_id.uuid(),
            external_event_id: recorded.external_event_id.clone(),
            event_type: name.map(|name| name.event_type.clone()),
            origin: name.map(|name| name.origin.clone()),
            fact: recorded.fact.detail.clone(),
        }
    }

    fn cells(&self) -> Vec<String> {
        let effect = self.effect.replace('_', " ");
        vec![
            time(self.occurred_at),
            what(&self.fact),
            amounts(&self.fact),
            self.reason.map_or(effect.clone(), |reason| format!("{effect}: {reason}")),
            self.external_event_id.clone(),
            optional(self.event_type.as_deref()),
            time(self.received_at),
            self.event_id.to_string(),
        ]
    }
}

fn what(fact: &FactDetail) -> String {
    match fact {
        FactDetail::Payment(fact) => format!("payment {}", word(&fact.step)),
        FactDetail::Refund(fact) => format!("refund {} {}", fact.refund_id, word(&fact.status)),
        FactDetail::Dispute(fact) => {
            let funds = fact.funds.map(|funds| format!(", funds {}", word(&funds)));
            format!("dispute {} {}{}", fact.dispute_id, word(&fact.status), funds.unwrap_or_default())
        }
        FactDetail::Subscription(fact) => format!("subscription {}", word(&fact.step)),
        FactDetail::Transfer(fact) => format!("moved to {}", fact.to),
        FactDetail::Decision(fact) => format!("decision: {} {} of {}", word(&fact.verdict), fact.reason, fact.about),
    }
}

/// What a value is called in the tables: a word, or a step and the status that it leads to.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(parts) => {
            ["step", "status"].iter().filter_map(|part| parts.get(part)?.as_str()).collect::<Vec<_>>().join(" ")
        }
        Err(_) => String::new(),
    }
}

fn amounts(fact: &FactDetail) -> String {
    let named: Vec<(&str, Option<Money>)> = match fact {
        FactDetail::Payment(fact) => {
            vec![("", fact.amount), ("captured ", fact.captured), ("refunded ", fact.refunded)]
        }
        FactDetail::Refund(fact) => vec![("", Some(fact.amount))],
        FactDetail::Dispute(fact) => vec![("", Some(fact.amount))],
        FactDetail::Subscription(_) | FactDetail::Transfer(_) | FactDetail::Decision(_) => Vec::new(),
    };
    let stated = named
        .iter()
        .filter_map(|(name, money)| money.map(|money| format!("{name}{} {}", money.amount(), money.currency().code())));
    let stated = stated.collect::<Vec<_>>().join(", ");
    optional(Some(stated).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use shared::domain::{PaymentFact, PaymentStep, SubscriptionFact, SubscriptionStatus, SubscriptionStep};

    use super::*;

    #[test]
    fn a_fact_is_told_in_words_and_exact_amounts() {
        let usd = |minor: &str| Money::from_minor_digits(minor, 2, "USD".parse().unwrap()).unwrap();
        let fact = PaymentFact {
            amount: Some(usd("1099")),
            captured: Some(usd("1000")),
            ..PaymentFact::new(PaymentStep::Captured)
        };
        let fact = FactDetail::Payment(fact);
        assert_eq!((what(&fact), amounts(&fact)), ("payment captured".into(), "10.99 USD, captured 10 USD".into()));
        let stands = SubscriptionFact::new(SubscriptionStep::Stands(SubscriptionStatus::PastDue));
        let fact = FactDetail::Subscription(stands);
        assert_eq!((what(&fact), amounts(&fact)), ("subscription stands past_due".into(), "-".into()));
    }
}
