use std::time::Duration;

/// What processing an event came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its facts changed the ledger.
    Applied,
    /// Its facts were known, or changed nothing.
    Noop,
    /// Its facts are older than what the ledger already knows.
    Stale,
    /// It carries no facts for the ledger.
    Ignored,
    /// Its payload cannot be turned into facts without guessing; a person has to look. The reason is a stable code.
    Held(&'static str),
}

/// Who is to blame for a failure, which decides what becomes of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Our database or broker is away. Nobody's attempt.
    Unavailable,
    /// A conflict or a hiccup that another attempt may pass.
    Transient,
    /// No further attempt can help.
    Permanent,
}

/// Why processing failed. `message` is written by us and carries no payload text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    pub class: Class,
    /// A stable code for metrics, groups of dead letters and people.
    pub code: &'static str,
    pub message: String,
}

/// The fate of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// Done: acknowledge it.
    Ack,
    /// Our outage: wait and take it again. Spends no attempt.
    PauseAndRequeue,
    /// Try again through the outbox after this long.
    RetryAfter(Duration),
    /// Give up and make it a dead letter, for this reason.
    Bury(&'static str),
}

/// How often and how fast failed events are tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included.
    pub attempts: u32,
    /// The wait after the first failure; it doubles after each further one.
    pub first_delay: Duration,
    pub longest_delay: Duration,
}

impl Outcome {
    /// What the outcome is called in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Applied => "applied",
            Outcome::Noop => "noop",
            Outcome::Stale => "stale",
            Outcome::Ignored => "ignored",
            Outcome::Held(_) => "held",
        }
    }
}

impl Default for RetryPolicy {
    /// Eight attempts over about half an hour: 5 s, 10 s, 20 s … 5 min 20 s, 10 min.
    fn default() -> Self {
        RetryPolicy { attempts: 8, first_delay: Duration::from_secs(5), longest_delay: Duration::from_secs(600) }
    }
}

/// Decides what becomes of a message.
///
/// `failures_so_far` counts the failures recorded before this one. `jitter` is in `0.0..1.0` and spreads the delay over
/// three quarters to five quarters of its length, so that events which failed together do not come back together.
pub fn settle(
    result: &Result<Outcome, Failure>,
    failures_so_far: u32,
    policy: &RetryPolicy,
    jitter: f64,
) -> Settlement {
    let failure = match result {
        Ok(_) => return Settlement::Ack,
        Err(failure) => failure,
    };
    match failure.class {
        Class::Unavailable => Settlement::PauseAndRequeue,
        Class::Permanent => Settlement::Bury(failure.code),
        Class::Transient if failures_so_far.saturating_add(1) >= policy.attempts => Settlement::Bury(failure.code),
        Class::Transient => {
            let doubled = policy.first_delay.saturating_mul(2u32.saturating_pow(failures_so_far.min(16)));
            Settlement::RetryAfter(doubled.min(policy.longest_delay).mul_f64(0.75 + jitter.clamp(0.0, 1.0) / 2.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(class: Class) -> Result<Outcome, Failure> {
        Err(Failure { class, code: "code", message: String::new() })
    }

    #[test]
    fn an_outage_spends_no_attempt_however_long_it_lasts() {
        let policy = RetryPolicy::default();
        assert_eq!(settle(&failed(Class::Unavailable), 1_000, &policy, 0.0), Settlement::PauseAndRequeue);
    }

    #[test]
    fn transient_failures_wait_longer_each_time_and_end_as_a_dead_letter() {
        let policy = RetryPolicy::default();
        let fate = |failures| settle(&failed(Class::Transient), failures, &policy, 0.5);
        assert_eq!(fate(0), Settlement::RetryAfter(Duration::from_secs(5)));
        assert_eq!(fate(1), Settlement::RetryAfter(Duration::from_secs(10)));
        assert_eq!(fate(6), Settlement::RetryAfter(Duration::from_secs(320)));
        assert_eq!(fate(7), Settlement::Bury("code"));
        assert_eq!(fate(u32::MAX), Settlement::Bury("code"));
    }

    #[test]
    fn permanent_failures_are_buried_at_once() {
        assert_eq!(settle(&failed(Class::Permanent), 0, &RetryPolicy::default(), 0.9), Settlement::Bury("code"));
    }

    #[test]
    fn every_outcome_acknowledges() {
        for outcome in [Outcome::Applied, Outcome::Noop, Outcome::Stale, Outcome::Ignored, Outcome::Held("x")] {
            assert_eq!(settle(&Ok(outcome), 3, &RetryPolicy::default(), 0.0), Settlement::Ack);
        }
    }
}
