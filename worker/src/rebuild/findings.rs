use std::time::Duration;

use serde::Serialize;
use shared::store::RowDifference;

use super::Difference;
use super::derivation::Derivation;

/// What a rebuild found.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    /// The events that were read, and the facts they state.
    pub events: u64,
    pub facts: u64,
    pub seconds: f64,
    pub events_per_second: f64,
    /// How many subjects differ, and in how many rows and facts.
    pub differing_subjects: u64,
    pub differing_rows: u64,
    /// The first of the differences.
    pub differences: Vec<Difference>,
    /// Events from which no facts can be derived any more. The facts they have are kept.
    pub kept: Vec<Kept>,
}

/// Events whose facts are kept as they are, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// A stable code: that of a dead letter or of a quarantined event. `body_archived` is nobody's fault.
    pub code: &'static str,
    pub events: u64,
}

impl Findings {
    /// Whether somebody has to look.
    pub fn is_clean(&self) -> bool {
        self.differing_subjects == 0 && self.kept.iter().all(|kept| kept.code == "body_archived")
    }

    /// How many differences are counted, but not told.
    pub fn hidden_differences(&self) -> Option<u64> {
        let told = u64::try_from(self.differences.len()).unwrap_or(u64::MAX);
        self.differing_rows.checked_sub(told).filter(|hidden| *hidden > 0)
    }

    pub(super) fn take(&mut self, limit: usize, subjects: usize, derivation: &Derivation, rows: &[RowDifference]) {
        let facts = derivation.differences();
        let differences: Vec<Difference> = rows.iter().map(Difference::of_row).chain(facts).collect();
        self.differing_subjects += u64::try_from(subjects).unwrap_or(0);
        self.differing_rows += u64::try_from(differences.len()).unwrap_or(0);
        let room = limit.saturating_sub(self.differences.len());
        self.differences.extend(differences.into_iter().take(room));
    }

    pub(super) fn take_time(&mut self, elapsed: Duration) {
        self.seconds = elapsed.as_secs_f64();
        let events = u32::try_from(self.events).map_or(f64::from(u32::MAX), f64::from);
        self.events_per_second = events / self.seconds.max(f64::EPSILON);
    }
}
