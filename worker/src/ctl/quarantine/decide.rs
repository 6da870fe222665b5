use std::collections::{BTreeMap, BTreeSet};

use chrono::Utc;
use clap::{Args, ValueEnum};
use serde::Serialize;
use shared::decision::{Contradiction, Decision, Ruling, SecondDelivery};
use shared::domain::{EventId, RecordedFact, Subject, Time, Verdict, events_in_question, reason_in_words};
use shared::providers::{Provider, StoredEvent};
use shared::sealing::Column;
use shared::service::SealingSettings;
use shared::store::{self, Audit, Closing, NewDecision, PgConnection, QuarantineKind, QuarantineRow};
use zeroize::Zeroizing;

use super::super::Context;
use super::super::error::{CtlError, Exit};
use super::super::output::{optional, section};
use super::super::reason::Reason;
use super::diff::{both_deliveries, open};
use super::find;
use super::subject::{Change, Told, key_of};

#[derive(Debug, Args)]
pub(in super::super) struct Release {
    #[command(flatten)]
    act: Act,
    /// What it is released as
    #[arg(long = "as", value_enum)]
    verb: Verb,
}

#[derive(Debug, Args)]
pub(in super::super) struct Act {
    /// The entry's id, or its event's: ours or the provider's
    id: String,
    /// Why, for whoever reads the audit log
    #[arg(long)]
    reason: Reason,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    sealing: SealingSettings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Verb {
    /// Of two deliveries that differ, the first one was right: nothing changes
    KeepFirst,
    /// Of two deliveries that differ, the second one is projected too, and has the last word
    ApplySecond,
    /// The refused fact of a contradiction is applied after all; a refund without a payment is explained
    Accept,
    /// The event that could not be understood goes down the one road again
    Retry,
}

/// What a person decided about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    KeepFirst,
    ApplySecond,
    Accept,
    Dismiss,
    /// The refund is right, whatever the payment was.
    Explained,
    Retry,
    LeaveOut,
}

/// What was decided, and what comes of it.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    entry: QuarantineRow,
    dry_run: bool,
    #[serde(flatten)]
    foreseen: Foreseen,
    #[serde(skip)]
    says: String,
}

/// What a decision does to the ledger, as far as facts are known.
#[derive(Default, Serialize)]
struct Foreseen {
    /// The values of rows that change.
    changes: Vec<Change>,
    /// The reasons for which a person has to look after that.
    questions: BTreeSet<&'static str>,
}

impl Release {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let verb = self.verb;
        self.act.run(context, "quarantine.release", |kind| match (kind, verb) {
            (QuarantineKind::Mismatch, Verb::KeepFirst) => Some(Choice::KeepFirst),
            (QuarantineKind::Mismatch, Verb::ApplySecond) => Some(Choice::ApplySecond),
            (QuarantineKind::Contradiction, Verb::Accept) => Some(Choice::Accept),
            (QuarantineKind::UnknownPayment, Verb::Accept) => Some(Choice::Explained),
            (QuarantineKind::Held, Verb::Retry) => Some(Choice::Retry),
            (QuarantineKind::Mismatch, Verb::Accept | Verb::Retry)
            | (
                QuarantineKind::Contradiction | QuarantineKind::UnknownPayment,
                Verb::KeepFirst | Verb::ApplySecond | Verb::Retry,
            )
            | (QuarantineKind::Held, Verb::KeepFirst | Verb::ApplySecond | Verb::Accept) => None,
        })
    }
}

impl Act {
    pub fn reject(self, context: &Context) -> Result<Exit, CtlError> {
        self.run(context, "quarantine.reject", |kind| match kind {
            QuarantineKind::Mismatch | QuarantineKind::UnknownPayment => None,
            QuarantineKind::Contradiction => Some(Choice::Dismiss),
            QuarantineKind::Held => Some(Choice::LeaveOut),
        })
    }

    fn run(
        self,
        context: &Context,
        name: &str,
        choice: impl FnOnce(QuarantineKind) -> Option<Choice>,
    ) -> Result<Exit, CtlError> {
        let mut connection = context.connection()?;
        let entry = find(&mut connection, &self.id)?;
        let id = entry.id.to_string();
        let choice = choice(entry.kind()).ok_or_else(|| CtlError::WrongVerb { id, verbs: fitting(entry.kind()) })?;
        if entry.status != "open" {
            return Err(CtlError::EntryClosed { id: entry.id.to_string(), status: entry.status });
        }
        let actor = context.actor()?;
        let audit = Audit { actor: &actor, reason: self.reason.as_str() };
        let report = Deciding { act: &self, audit, entry: &entry }.decide(&mut connection, choice)?;
        context.print(name, &[report], |reports| reports.iter().map(Report::text).collect())?;
        Ok(Exit::Done)
    }
}

/// What can be done about an entry.
fn fitting(kind: QuarantineKind) -> &'static str {
    match kind {
        QuarantineKind::Mismatch => {
            "it is about two deliveries that differ: release it --as keep-first or --as apply-second"
        }
        QuarantineKind::Contradiction => {
            "it is about facts that contradict each other: release it --as accept, or reject it"
        }
        QuarantineKind::UnknownPayment => {
            "it is about a refund whose payment is unknown: release it --as accept once that is explained"
        }
        QuarantineKind::Held => "it is about an event that cannot be understood: release it --as retry, or reject it",
    }
}

/// A person about to decide.
struct Deciding<'a> {
    act: &'a Act,
    audit: Audit<'a>,
    entry: &'a QuarantineRow,
}

impl Deciding<'_> {
    fn decide(&self, connection: &mut PgConnection, choice: Choice) -> Result<Report, CtlError> {
        match choice {
            Choice::KeepFirst => {
                self.close(connection, Closing::Released, "the first delivery counts, as before; nothing changes")
            }
            Choice::Explained => self.close(
                connection,
                Closing::Released,
                "the refund stands as it is, without a payment; nothing changes",
            ),
            Choice::LeaveOut => {
                let says = "the event stays quarantined for good, and out of the ledger";
                self.close(connection, Closing::Rejected, says)
            }
            Choice::Retry => self.retry(connection),
            Choice::Accept => {
                let ruling = self.contradiction(connection, Verdict::Accept)?;
                self.rule(connection, Closing::Released, ruling)
            }
            Choice::Dismiss => {
                let ruling = self.contradiction(connection, Verdict::Dismiss)?;
                self.rule(connection, Closing::Rejected, ruling)
            }
            Choice::ApplySecond => {
                let ruling = self.second_delivery(connection)?;
                self.rule(connection, Closing::Released, ruling)
            }
        }
    }

    fn close(&self, connection: &mut PgConnection, closing: Closing, says: &str) -> Result<Report, CtlError> {
        let done =
            self.act.dry_run || store::close_quarantine(connection, self.audit, Utc::now(), self.entry.id, closing)?;
        self.report(connection, done, says.to_owned(), Foreseen::default())
    }

    fn retry(&self, connection: &mut PgConnection) -> Result<Report, CtlError> {
        let event = self.entry.event_id;
        if self.entry.event_status.as_deref() != Some("quarantined") {
            let status = self.entry.event_status.clone().unwrap_or_default();
            return Err(CtlError::NotQuarantined { id: event.to_string(), status });
        }
        let done = self.act.dry_run || store::retry_quarantined(connection, self.audit, Utc::now(), self.entry.id)?;
        let says = format!(
            "event {event} goes down the road again, through the lane redrive.\n\
             When it still cannot be understood, the entry is opened again.\n\
             Follow it: webhookctl events wait {event} --status processed,ignored,quarantined"
        );
        self.report(connection, done, says, Foreseen::default())
    }

    /// What the entry asks, answered.
    fn contradiction(&self, connection: &mut PgConnection, verdict: Verdict) -> Result<Ruling, CtlError> {
        let gone = || CtlError::NothingInQuestion(self.entry.id.to_string());
        let told = Told::of_entry(connection, self.entry)?.ok_or_else(gone)?;
        let about = events_in_question(&told.key.subject, &told.facts, &told.transfers, &self.entry.reason);
        if about.is_empty() {
            return Err(gone());
        }
        Ok(Ruling::Contradiction(Contradiction {
            subject_kind: told.key.subject.kind.as_str().to_owned(),
            subject_id: told.key.subject.id.clone(),
            reason: self.entry.reason.clone(),
            about,
            verdict,
        }))
    }

    /// The second delivery, copied. Its payload is read for that, and who reads it is recorded first.
    fn second_delivery(&self, connection: &mut PgConnection) -> Result<Ruling, CtlError> {
        let sealer = self.act.sealing.sealer()?;
        let (_, second) = both_deliveries(connection, self.entry)?;
        store::record_audit(connection, self.audit, "quarantine.read", &self.entry.id.to_string())?;
        let body = open(&sealer, &second)?;
        let about = self.entry.external_event_id.clone().unwrap_or_default();
        Ok(Ruling::ApplySecond(SecondDelivery::new(about, second.event_type, second.occurred_at, &body)))
    }

    /// Closes the entry by a decision that the ledger learns of.
    fn rule(&self, connection: &mut PgConnection, closing: Closing, ruling: Ruling) -> Result<Report, CtlError> {
        let sealer = self.act.sealing.sealer()?;
        let (now, entry) = (Utc::now(), self.entry);
        let id = EventId::at(now);
        let (decided_by, why) = (self.audit.actor.to_owned(), self.audit.reason.to_owned());
        let decision = Decision { quarantine_id: entry.id, decided_by, why, ruling };
        let body = decision.to_body();
        // As a worker will do it. A decision that it could not project would only come back.
        let facts = facts_of(entry, id, now, &decision)?;
        let foreseen = foresee(connection, entry, &facts)?;
        let done = self.act.dry_run || {
            let sealed = sealer.seal(Column::RawBody, id.uuid(), &body).map_err(CtlError::Seal)?;
            let new = NewDecision::new(id, &body, sealed);
            store::decide_quarantine(connection, self.audit, now, entry.id, closing, &new)?
        };
        let says =
            format!("the decision is event {id}, on its way into the ledger.\nFollow it: webhookctl events wait {id}");
        self.report(connection, done, says, foreseen)
    }

    fn report(
        &self,
        connection: &mut PgConnection,
        done: bool,
        says: String,
        foreseen: Foreseen,
    ) -> Result<Report, CtlError> {
        let entry = find(connection, &self.entry.id.to_string())?;
        if !done {
            // Somebody, or a later event, was quicker.
            return Err(CtlError::EntryClosed { id: entry.id.to_string(), status: entry.status });
        }
        Ok(Report { entry, dry_run: self.act.dry_run, foreseen, says })
    }
}

/// What a decision tells the ledger.
fn facts_of(
    entry: &QuarantineRow,
    event_id: EventId,
    now: Time,
    decision: &Decision,
) -> Result<Vec<RecordedFact>, CtlError> {
    let provider: Provider = entry.provider.parse().map_err(|_| CtlError::UnknownProvider(entry.provider.clone()))?;
    let event = StoredEvent {
        provider,
        account_key: entry.provider_account_id.clone(),
        external_event_id: Decision::external_id(event_id),
        event_type: Decision::EVENT_TYPE.to_owned(),
        occurred_at: Some(now),
        received_at: event_id.received_at(),
        event_id,
        body: Zeroizing::new(Vec::new()),
    };
    let facts = decision.facts(&event).map_err(CtlError::Decision)?;
    let recorded = |(fact, ordinal)| {
        let external_event_id = event.external_event_id.clone();
        RecordedFact { fact, event_id, external_event_id, ordinal }
    };
    Ok(facts.into_iter().zip(0..).map(recorded).collect())
}

/// Folds the subjects of the new facts with and without them.
fn foresee(connection: &mut PgConnection, entry: &QuarantineRow, facts: &[RecordedFact]) -> Result<Foreseen, CtlError> {
    let mut by_subject: BTreeMap<&Subject, Vec<RecordedFact>> = BTreeMap::new();
    for recorded in facts {
        by_subject.entry(&recorded.fact.subject).or_default().push(recorded.clone());
    }
    let mut foreseen = Foreseen::default();
    for (subject, facts) in by_subject {
        let told = Told::of(connection, key_of(entry, subject.clone())?)?;
        let (changes, after) = told.changes(&facts);
        foreseen.changes.extend(changes);
        foreseen.questions.extend(after.reviews.iter().map(|review| review.reason));
    }
    Ok(foreseen)
}

impl Report {
    fn text(&self) -> String {
        let head = if self.dry_run {
            format!("nothing was changed; this is what quarantine entry {} would come to", self.entry.id)
        } else {
            format!("quarantine entry {} is {}: {}", self.entry.id, self.entry.status, self.says)
        };
        let changes = section("CHANGES", &["ROW", "COLUMN", "BEFORE", "AFTER"], &self.foreseen.changes, |change| {
            let (before, after) = (optional(change.before.as_deref()), optional(change.after.as_deref()));
            vec![change.row.clone(), change.column.clone(), before, after]
        });
        let questions: Vec<&str> = self.foreseen.questions.iter().copied().collect();
        let questions = section("STILL IN QUESTION", &["REASON", "MEANING"], &questions, |reason| {
            vec![(*reason).to_owned(), reason_in_words(reason).unwrap_or_default().to_owned()]
        });
        format!("{head}{changes}{questions}")
    }
}
