use serde::Serialize;
use shared::domain::reason_in_words;
use shared::store::{self, AuditRow, Delivery, PgConnection, QuarantineKind, QuarantineRow};

use super::super::Context;
use super::super::error::{CtlError, Exit};
use super::super::output::{fields, optional, section, time};
use super::subject::{FactLine, Told};
use super::{about, find};

/// An entry with all that a person needs to decide about it.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    entry: QuarantineRow,
    /// What the reason means.
    meaning: Option<&'static str>,
    /// The deliveries of the event that are in the raw store, the accepted one first.
    deliveries: Vec<Delivery>,
    /// The facts of the subject, in the order in which they are folded.
    facts: Vec<FactLine>,
    history: Vec<AuditRow>,
}

pub(super) fn show(context: &Context, id: &str) -> Result<Exit, CtlError> {
    let mut connection = context.connection()?;
    let entry = find(&mut connection, id)?;
    let report = Report::about(&mut connection, entry)?;
    context.print("quarantine.show", &[report], |reports| reports.iter().map(Report::text).collect())?;
    Ok(Exit::Done)
}

impl Report {
    fn about(connection: &mut PgConnection, entry: QuarantineRow) -> Result<Self, CtlError> {
        let mut deliveries = Vec::new();
        for id in [Some(entry.event_id), entry.raw_event_id].into_iter().flatten() {
            deliveries.extend(store::find_delivery(connection, id)?);
        }
        let facts = Told::of_entry(connection, &entry)?.map(|told| told.lines()).unwrap_or_default();
        let history = store::audit_of(connection, &entry.id.to_string())?;
        Ok(Report { meaning: reason_in_words(&entry.reason), deliveries, facts, history, entry })
    }

    fn text(&self) -> String {
        let deliveries = section(
            "DELIVERIES",
            &["ID", "RECEIVED", "TYPE", "BYTES", "SHA256", "KEY VERSION"],
            &self.deliveries,
            |delivery| {
                vec![
                    delivery.id.to_string(),
                    time(delivery.received_at),
                    delivery.event_type.clone(),
                    delivery.body_bytes.to_string(),
                    delivery.body_sha256.get(..12).unwrap_or_default().to_owned(),
                    optional(delivery.key_version),
                ]
            },
        );
        let facts = section("FACTS", &["OCCURRED", "EVENT", "KIND", "WHAT", "EFFECT"], &self.facts, |fact| {
            vec![time(fact.occurred_at), fact.event_id.clone(), fact.kind.to_owned(), fact.what.clone(), fact.words()]
        });
        let history = section("HISTORY", &["AT", "ACTOR", "ACTION", "REASON"], &self.history, |row| {
            vec![time(row.at), row.actor.clone(), row.action.clone(), row.reason.clone()]
        });
        format!("{}{deliveries}{facts}{history}{}", self.header(), self.next())
    }

    fn header(&self) -> String {
        let entry = &self.entry;
        let event =
            [Some(entry.provider.as_str()), Some(&entry.provider_account_id), entry.external_event_id.as_deref()];
        let closed = entry.closed_at.map(|at| {
            let (by, why) = (entry.closed_by.as_deref(), entry.closed_reason.as_deref());
            format!("{} by {}: {}", time(at), by.unwrap_or_default(), why.unwrap_or_default())
        });
        fields(&[
            ("id", Some(entry.id.to_string())),
            ("state", Some(entry.status.clone())),
            ("reason", Some(entry.reason.clone())),
            ("meaning", self.meaning.map(str::to_owned)),
            ("detail", Some(entry.detail.clone()).filter(|detail| !detail.is_empty())),
            ("about", Some(about(entry))),
            ("event", Some(event.into_iter().flatten().collect::<Vec<_>>().join(" / "))),
            ("event id", Some(entry.event_id.to_string())),
            ("event type", entry.event_type.clone()),
            ("event status", entry.event_status.clone()),
            ("seen", Some(entry.seen_count.to_string())),
            ("opened", Some(time(entry.opened_at))),
            ("closed", closed),
            ("decision", entry.decision_event_id.map(|id| id.to_string())),
        ])
    }

    fn next(&self) -> String {
        if self.entry.status != "open" {
            return String::new();
        }
        let id = self.entry.id;
        let release = |how: &str| format!("webhookctl quarantine release {id} --as {how} --reason '…'");
        let reject = format!("webhookctl quarantine reject {id} --reason '…'");
        let steps = match self.entry.kind() {
            QuarantineKind::Mismatch => {
                let diff = format!("webhookctl quarantine diff {id} --reason '…'");
                [diff, release("keep-first"), release("apply-second")].join("\n      ")
            }
            QuarantineKind::Contradiction => [release("accept"), reject].join("\n      "),
            QuarantineKind::UnknownPayment => release("accept"),
            QuarantineKind::Held => [release("retry"), reject].join("\n      "),
        };
        format!("\n\nNEXT  {steps}")
    }
}
