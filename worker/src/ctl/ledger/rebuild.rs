use std::str::FromStr;
use std::sync::Arc;

use chrono::{NaiveDate, NaiveTime};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use shared::domain::{Subject, SubjectKind, Time};
use shared::providers::Provider;
use shared::service::SealingSettings;
use shared::store::Audit;

use crate::ctl::Context;
use crate::ctl::error::{CtlError, Exit};
use crate::ctl::output::{optional, table};
use crate::ctl::reason::Reason;
use crate::rebuild::{ColumnDifference, Difference, Findings, Rebuild as Work, RebuildError, Scope, What};

#[derive(Debug, Args)]
pub(in crate::ctl) struct Rebuild {
    /// Only subjects that events received since then speak of: 2026-11-30 or 2026-11-30T08:00:00Z
    #[arg(long)]
    since: Option<Since>,
    /// Only events and rows of this provider
    #[arg(long)]
    provider: Option<Provider>,
    /// Only this one, as payment:ID, subscription:ID, unlinked:ID or user:ID; reads the events whose search keys name it
    #[arg(long, conflicts_with = "since")]
    subject: Option<SubjectName>,
    /// Most differences to show; all are counted
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    /// Write what the events say to the ledger
    #[arg(long, requires = "confirm_count", requires = "reason")]
    apply: bool,
    /// How many subjects differ, as told by a run without --apply; any other number is refused
    #[arg(long, value_name = "SUBJECTS", requires = "apply")]
    confirm_count: Option<u64>,
    /// Why, for whoever reads the audit log
    #[arg(long, requires = "apply")]
    reason: Option<Reason>,
    #[command(flatten)]
    sealing: SealingSettings,
}

/// A time, or the beginning of a day, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Since(Time);

/// The text is no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a day such as 2026-11-30, or a time such as 2026-11-30T08:00:00Z")]
struct NoTime;

impl FromStr for Since {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Self, NoTime> {
        let day = text.parse::<NaiveDate>().map(|day| day.and_time(NaiveTime::MIN).and_utc());
        text.parse::<Time>().or(day).map(Since).map_err(|_| NoTime)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SubjectName(Subject);

/// The text names no subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected payment:ID, subscription:ID, unlinked:ID or user:ID, such as payment:pi_1")]
struct NoSubjectName;

impl FromStr for SubjectName {
    type Err = NoSubjectName;

    fn from_str(text: &str) -> Result<Self, NoSubjectName> {
        let (kind, id) = text.split_once(':').filter(|(_, id)| !id.is_empty()).ok_or(NoSubjectName)?;
        let kind = SubjectKind::parse(kind).ok_or(NoSubjectName)?;
        Ok(SubjectName(Subject { kind, id: id.to_owned() }))
    }
}

/// What a rebuild came to.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    findings: Findings,
    /// How many subjects were repaired; null unless that was asked for.
    repaired_subjects: Option<u64>,
}

impl Rebuild {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let actor = if self.apply { context.actor()? } else { String::new() };
        let sealer = Arc::new(self.sealing.sealer()?);
        let subject = self.subject.map(|name| name.0);
        let named = subject.as_ref().map(|subject| format!("{} {}", subject.kind.as_str(), subject.id));
        let scope = Scope { provider: self.provider, since: self.since.map(|since| since.0), subject };
        let failed = |error| match error {
            RebuildError::Store(error) => CtlError::Store(error),
            RebuildError::UnknownSubject => CtlError::NoSubject(named.clone().unwrap_or_default()),
            RebuildError::Stopped => CtlError::RebuildStopped,
        };
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let mut work = Work::begin(context.pool(3)?, sealer, scope, limit).map_err(&failed)?;
        let findings = find(&mut work).map_err(&failed)?;
        let repaired_subjects = match (self.confirm_count, &self.reason) {
            (Some(confirmed), Some(reason)) => {
                let found = findings.differing_subjects;
                if confirmed != found {
                    return Err(CtlError::CountDiffers { confirmed, found });
                }
                Some(work.apply(Audit { actor: &actor, reason: reason.as_str() }).map_err(&failed)?)
            }
            _ => None,
        };
        let is_done = findings.is_clean() || repaired_subjects.is_some();
        context.print("ledger.rebuild", &[Report { findings, repaired_subjects }], |reports| {
            reports.iter().map(Report::text).collect()
        })?;
        Ok(if is_done { Exit::Done } else { Exit::Finding })
    }
}

/// Shows how far it is on a terminal, and nothing in a pipe.
fn find(work: &mut Work) -> Result<Findings, RebuildError> {
    const STYLE: &str = "{bar:40} {human_pos} of {human_len} events, {per_sec}, {eta} to go";
    let bar = ProgressBar::new(0);
    if bar.is_hidden() {
        return work.find(&|_| {});
    }
    bar.set_length(work.count_events()?);
    bar.set_style(ProgressStyle::with_template(STYLE).unwrap_or_else(|_| ProgressStyle::default_bar()));
    let findings = work.find(&|events| bar.set_position(events));
    bar.finish_and_clear();
    findings
}

impl Report {
    fn text(&self) -> String {
        let findings = &self.findings;
        let mut parts = Vec::new();
        if !findings.differences.is_empty() {
            parts.push(table(&HEADINGS, &findings.differences, cells));
        }
        if let Some(hidden) = findings.hidden_differences() {
            parts.push(format!("and {hidden} more; --limit shows more of them"));
        }
        parts.extend(findings.kept.iter().map(|kept| {
            format!("{} events tell nothing any more ({}); the facts that they have are kept", kept.events, kept.code)
        }));
        parts.push(self.verdict());
        let Findings { events, facts, seconds, events_per_second, .. } = findings;
        parts.push(format!("{events} events with {facts} facts in {seconds:.1} s ({events_per_second:.0} events/s)"));
        parts.join("\n\n")
    }

    fn verdict(&self) -> String {
        let Findings { differing_subjects, differing_rows, .. } = &self.findings;
        match (self.repaired_subjects, differing_subjects) {
            (Some(repaired), _) => format!("{repaired} subjects repaired: the ledger is what the events say"),
            (None, 0) => "no differences: the ledger is what the events say".to_owned(),
            (None, _) => format!(
                "{differing_subjects} subjects differ, in {differing_rows} rows and facts\n                 NEXT  the same command with --apply --confirm-count {differing_subjects} --reason '…' writes what the events say"
            ),
        }
    }
}

const HEADINGS: [&str; 6] = ["PROVIDER", "SUBJECT", "TABLE", "ROW", "WHAT", "LIVE -> REBUILT"];

fn cells(difference: &Difference) -> Vec<String> {
    let shown = difference.columns.iter().filter(|column| difference.what == What::Changed || is_telling(&column.name));
    vec![
        format!("{} / {}", difference.provider, difference.provider_account_id),
        format!("{} {}", difference.subject_kind, difference.subject_id),
        difference.table.to_owned(),
        difference.row.clone(),
        difference.what.as_str().to_owned(),
        shown.map(change).collect::<Vec<_>>().join(", "),
    ]
}

/// What tells a row from another one, where a whole row is missing or extra.
fn is_telling(column: &str) -> bool {
    matches!(column, "kind" | "step" | "status" | "currency" | "external_event_id") || column.ends_with("amount")
}

fn change(column: &ColumnDifference) -> String {
    let (live, rebuilt) = (optional(column.live.as_deref()), optional(column.rebuilt.as_deref()));
    format!("{} {live} -> {rebuilt}", column.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_day_or_a_time() {
        let day: Since = "2026-11-30".parse().unwrap();
        assert_eq!(day, "2026-11-30T00:00:00Z".parse().unwrap());
        assert_eq!(day, "2026-11-30T09:00:00+09:00".parse().unwrap());
        for odd in ["", "yesterday", "2026-13-01", "2026-11-30T08:00:00"] {
            assert_eq!(odd.parse::<Since>(), Err(NoTime), "{odd:?}");
        }
    }

    #[test]
    fn a_subject_is_named_by_its_kind_and_id() {
        assert_eq!("payment:pi_1".parse(), Ok(SubjectName(Subject::payment("pi_1"))));
        assert_eq!("subscription:a:b".parse(), Ok(SubjectName(Subject::subscription("a:b"))));
        for odd in ["", "pi_1", "payment:", "refund:re_1"] {
            assert_eq!(odd.parse::<SubjectName>(), Err(NoSubjectName), "{odd:?}");
        }
    }
}
