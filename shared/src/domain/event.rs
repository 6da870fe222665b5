use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, SubsecRound, Utc};
use serde::{Deserialize, Serialize};
use uuid::{NoContext, Timestamp, Uuid};

/// An instant in UTC. Everything we store is UTC.
pub type Time = DateTime<Utc>;

/// Our own id of one received request: a UUIDv7 whose first 48 bits are the millisecond of receipt.
///
/// The raw store is partitioned by that millisecond, so an id alone leads to its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventId(Uuid);

impl EventId {
    /// A new id for something received at `now`. The sub-millisecond part of `now` is not kept.
    pub fn at(now: Time) -> Self {
        let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
        EventId(Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, now.timestamp_subsec_nanos())))
    }

    /// An id before those of everything received at `time` or later, to the millisecond.
    pub fn before(time: Time) -> Self {
        let millisecond = u128::try_from(time.timestamp_millis()).unwrap_or(0);
        EventId(Uuid::from_u128(millisecond << 80))
    }

    /// The millisecond of receipt that the id carries.
    pub fn received_at(self) -> Time {
        let (seconds, nanos) = self.0.get_timestamp().map_or((0, 0), |t| t.to_unix());
        i64::try_from(seconds)
            .ok()
            .and_then(|s| DateTime::from_timestamp(s, nanos))
            .unwrap_or_default()
            .trunc_subsecs(3)
    }

    pub fn uuid(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for EventId {
    fn from(id: Uuid) -> Self {
        EventId(id)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for EventId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::from_str(text).map(EventId)
    }
}

/// Real money or play money. The two never share a row: a sandbox event's account carries a suffix of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Environment {
    Production,
    Sandbox,
}

impl Environment {
    pub fn as_str(self) -> &'static str {
        match self {
            Environment::Production => "production",
            Environment::Sandbox => "sandbox",
        }
    }

    /// Reads what [`Environment::as_str`] writes; the database holds nothing else.
    pub fn stored(text: &str) -> Self {
        if text == Environment::Sandbox.as_str() { Environment::Sandbox } else { Environment::Production }
    }

    /// The account key under which events and ledger rows of this environment are kept: `acct_1` or `acct_1:sandbox`.
    pub fn account_key(self, account: &str) -> String {
        match self {
            Environment::Production => account.to_owned(),
            Environment::Sandbox => format!("{account}:sandbox"),
        }
    }
}

/// Which queue an event takes: separate targets for lag, and recovery never starves new payments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    Payments,
    Subscriptions,
    Other,
    Redrive,
}

impl Lane {
    pub const ALL: [Lane; 4] = [Lane::Payments, Lane::Subscriptions, Lane::Other, Lane::Redrive];

    pub fn as_str(self) -> &'static str {
        match self {
            Lane::Payments => "payments",
            Lane::Subscriptions => "subscriptions",
            Lane::Other => "other",
            Lane::Redrive => "redrive",
        }
    }
}

/// The text is none of `payments`, `subscriptions`, `other`, `redrive`.
#[derive(Debug, thiserror::Error)]
#[error("unknown lane (known: payments, subscriptions, other, redrive)")]
pub struct UnknownLane;

impl FromStr for Lane {
    type Err = UnknownLane;

    fn from_str(text: &str) -> Result<Self, UnknownLane> {
        Lane::ALL.into_iter().find(|lane| lane.as_str() == text).ok_or(UnknownLane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_carries_the_millisecond_of_receipt() {
        let now = DateTime::from_timestamp(1_767_225_600, 123_456_789).unwrap();
        assert_eq!(EventId::at(now).received_at(), DateTime::from_timestamp(1_767_225_600, 123_000_000).unwrap());
    }

    #[test]
    fn ids_before_a_time_lie_between_those_of_its_millisecond_and_of_the_one_before() {
        let now = DateTime::from_timestamp(1_767_225_600, 123_456_789).unwrap();
        assert!(EventId::before(now) < EventId::at(now));
        assert!(EventId::before(now) > EventId::at(now - chrono::TimeDelta::milliseconds(1)));
    }

    #[test]
    fn sandbox_events_live_under_an_account_key_of_their_own() {
        assert_eq!(Environment::Production.account_key("acct_1"), "acct_1");
        assert_eq!(Environment::Sandbox.account_key("acct_1"), "acct_1:sandbox");
    }
}
