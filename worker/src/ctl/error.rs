use std::io;
use std::process::ExitCode;

use shared::decision::DecisionError;
use shared::providers::SecretError;
use shared::providers::sample::UnknownSample;
use shared::sealing::{OpenError, SealError};
use shared::service::SettingError;
use shared::store::{EndpointStoreError, MigrationError, StoreError};

/// What the process tells its caller. The numbers are a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    Done,
    Failed,
    Usage,
    NotFound,
    /// A guard said no; nothing was changed.
    Refused,
    /// The database, the broker or the ingress does not answer.
    Unreachable,
    /// Something is there that should be looked at.
    Finding,
    /// The doctor found something that must not be.
    DoctorFailed,
}

impl Exit {
    pub fn number(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NotFound => 3,
            Exit::Refused => 5,
            Exit::Unreachable => 7,
            Exit::Finding => 8,
            Exit::DoctorFailed => 9,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.number())
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum CtlError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("nobody to name in the audit log; say who you are with --actor")]
    NoActor,
    #[error("{file} cannot be read ({kind})")]
    SecretFile { file: String, kind: io::ErrorKind },
    #[error("{file} holds more than a secret: it is longer than 4096 bytes")]
    SecretTooLong { file: String },
    #[error("{0}")]
    Secret(#[from] SecretError),
    #[error("{0}")]
    Sample(#[from] UnknownSample),
    #[error("events of type {0} carry no amount, so there is no other one to send")]
    NoAmount(String),
    #[error("no event {0}, neither by our id nor by the provider's; webhookctl events list shows the latest")]
    NoEvent(String),
    #[error("no {0} in the ledger or among the events; ids are the provider's, and --provider narrows where to look")]
    NoSubject(String),
    #[error(
        "{found} subjects differ, not {confirmed}; nothing was changed. Look at them with the same command without --apply"
    )]
    CountDiffers { confirmed: u64, found: u64 },
    #[error("a part of the rebuild stopped before its end; what is above says why")]
    RebuildStopped,
    #[error("no dead letter {0}, neither by its id nor by its event's; webhookctl dlq list shows those there are")]
    NoDeadLetter(String),
    #[error("dead letter {id} is {status}, not open; nothing was changed")]
    NotOpen { id: String, status: String },
    #[error("dead letter {0} names no event that we have, so there is nothing to replay; discard it with a reason")]
    NothingToReplay(String),
    #[error(
        "event {id} is {status}, not dead, although its dead letter is open; webhookctl doctor shows what else does not agree"
    )]
    NotDead { id: String, status: String },
    #[error(
        "no quarantine entry {0}, neither by its id nor by its event's; webhookctl quarantine list shows those there are"
    )]
    NoQuarantine(String),
    #[error("{count} quarantine entries are about {id}; webhookctl quarantine list --all shows the id of each")]
    SeveralEntries { id: String, count: usize },
    #[error("quarantine entry {id} cannot be closed like that: {verbs}")]
    WrongVerb { id: String, verbs: &'static str },
    #[error("quarantine entry {id} is {status}, not open; nothing was changed")]
    EntryClosed { id: String, status: String },
    #[error("quarantine entry {0} is not about two deliveries; webhookctl quarantine show {0} tells what it is about")]
    NotAMismatch(String),
    #[error(
        "event {id} is {status}, not quarantined, although its entry is open; webhookctl doctor shows what else does not agree"
    )]
    NotQuarantined { id: String, status: String },
    #[error("the contradiction of quarantine entry {0} is gone; the next event of its subject closes it")]
    NothingInQuestion(String),
    #[error(
        "the bytes of delivery {0} are not in the raw store any more; restore their partition from the archive first"
    )]
    DeliveryArchived(String),
    #[error("the bytes of delivery {id} do not open: {error}")]
    BodyUnreadable { id: String, error: OpenError },
    #[error("a delivery of quarantine entry {0} is not JSON, so its fields cannot be compared")]
    NotJson(String),
    #[error("the second delivery cannot be applied: {0}; nothing was changed")]
    Decision(DecisionError),
    #[error("{0}")]
    Seal(SealError),
    #[error("this version does not know the provider {0}")]
    UnknownProvider(String),
    #[error(
        "the database holds events, and migrating down deletes all of them; --delete-all-data says that this is meant"
    )]
    HoldsData,
    #[error("no active key for endpoint {0}; webhookctl keys add {0} adds one")]
    NoActiveKey(String),
    #[error("{url} does not answer ({why}); is the ingress running there?")]
    IngressSilent { url: String, why: &'static str },
    #[error("{count} of the answers are not the expected ones{hint}")]
    UnexpectedAnswers { count: usize, hint: &'static str },
    #[error("event {id} is still {status} after {seconds} s; webhookctl events show {id} tells more")]
    StillWaiting { id: String, status: String, seconds: u64 },
    #[error("{0} migrations are pending; run webhookctl migrate")]
    SchemaBehind(usize),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Endpoint(EndpointStoreError),
    #[error("{0}")]
    Migration(MigrationError),
    #[error("the operating system refuses a timer or a socket ({0})")]
    System(io::ErrorKind),
    #[error("the output cannot be written ({0})")]
    Output(io::ErrorKind),
}

impl CtlError {
    pub fn exit(&self) -> Exit {
        match self {
            CtlError::Setting(_)
            | CtlError::NoActor
            | CtlError::SecretFile { .. }
            | CtlError::SecretTooLong { .. }
            | CtlError::Secret(_)
            | CtlError::Sample(_)
            | CtlError::NoAmount(_) => Exit::Usage,
            CtlError::NoEvent(_)
            | CtlError::NoSubject(_)
            | CtlError::NoDeadLetter(_)
            | CtlError::NoQuarantine(_)
            | CtlError::Endpoint(EndpointStoreError::NotFound(_)) => Exit::NotFound,
            CtlError::NotOpen { .. }
            | CtlError::CountDiffers { .. }
            | CtlError::NotDead { .. }
            | CtlError::NothingToReplay(_)
            | CtlError::SeveralEntries { .. }
            | CtlError::WrongVerb { .. }
            | CtlError::EntryClosed { .. }
            | CtlError::NotAMismatch(_)
            | CtlError::NotQuarantined { .. }
            | CtlError::NothingInQuestion(_)
            | CtlError::DeliveryArchived(_)
            | CtlError::Decision(_)
            | CtlError::HoldsData => Exit::Refused,
            CtlError::Store(StoreError::Unavailable) | CtlError::IngressSilent { .. } => Exit::Unreachable,
            CtlError::NoActiveKey(_)
            | CtlError::UnexpectedAnswers { .. }
            | CtlError::StillWaiting { .. }
            | CtlError::SchemaBehind(_)
            | CtlError::BodyUnreadable { .. }
            | CtlError::NotJson(_)
            | CtlError::Seal(_)
            | CtlError::UnknownProvider(_)
            | CtlError::RebuildStopped
            | CtlError::Store(_)
            | CtlError::Endpoint(_)
            | CtlError::Migration(_)
            | CtlError::System(_)
            | CtlError::Output(_) => Exit::Failed,
        }
    }

    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            CtlError::Setting(_) => "setting",
            CtlError::NoActor => "no_actor",
            CtlError::SecretFile { .. } => "secret_file",
            CtlError::SecretTooLong { .. } | CtlError::Secret(_) => "secret",
            CtlError::Sample(_) => "unknown_sample",
            CtlError::NoAmount(_) => "no_amount",
            CtlError::NoEvent(_) | CtlError::NoSubject(_) | CtlError::NoDeadLetter(_) | CtlError::NoQuarantine(_) => {
                "not_found"
            }
            CtlError::NotOpen { .. } | CtlError::EntryClosed { .. } => "not_open",
            CtlError::SeveralEntries { .. } => "ambiguous",
            CtlError::WrongVerb { .. } => "wrong_verb",
            CtlError::NotAMismatch(_) => "not_a_mismatch",
            CtlError::NotQuarantined { .. } => "not_quarantined",
            CtlError::NothingInQuestion(_) => "nothing_in_question",
            CtlError::DeliveryArchived(_) => "archived",
            CtlError::BodyUnreadable { .. } => "body_unreadable",
            CtlError::NotJson(_) => "bad_json",
            CtlError::Decision(_) => "cannot_be_applied",
            CtlError::Seal(_) => "seal",
            CtlError::UnknownProvider(_) => "unknown_provider",
            CtlError::CountDiffers { .. } => "count_differs",
            CtlError::RebuildStopped => "rebuild_stopped",
            CtlError::NotDead { .. } => "not_dead",
            CtlError::NothingToReplay(_) => "nothing_to_replay",
            CtlError::HoldsData => "holds_data",
            CtlError::NoActiveKey(_) => "no_active_key",
            CtlError::IngressSilent { .. } => "ingress_unreachable",
            CtlError::UnexpectedAnswers { .. } => "unexpected_answer",
            CtlError::StillWaiting { .. } => "timeout",
            CtlError::SchemaBehind(_) => "schema_behind",
            CtlError::Store(error) => error.code(),
            CtlError::Endpoint(EndpointStoreError::NotFound(_)) => "not_found",
            CtlError::Endpoint(EndpointStoreError::Exists(_)) => "exists",
            CtlError::Endpoint(_) => "secret_unreadable",
            CtlError::Migration(_) => "migration_failed",
            CtlError::System(_) => "system",
            CtlError::Output(_) => "output",
        }
    }
}

impl From<EndpointStoreError> for CtlError {
    fn from(error: EndpointStoreError) -> Self {
        match error {
            EndpointStoreError::Store(error) => CtlError::Store(error),
            other => CtlError::Endpoint(other),
        }
    }
}

impl From<MigrationError> for CtlError {
    fn from(error: MigrationError) -> Self {
        match error {
            MigrationError::Store(error) => CtlError::Store(error),
            MigrationError::Failed => CtlError::Migration(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_can_tell_apart_what_went_wrong() {
        let number = |error: CtlError| error.exit().number();
        assert_eq!(number(StoreError::Contended.into()), 1);
        assert_eq!(number(SecretError::Empty.into()), 2);
        assert_eq!(number(SettingError::new("DATABASE_URL", "is not set").into()), 2);
        assert_eq!(number(CtlError::NoEvent("evt_1".into())), 3);
        assert_eq!(number(EndpointStoreError::NotFound("stripe/x".into()).into()), 3);
        assert_eq!(number(CtlError::NotOpen { id: "1".into(), status: "resolved".into() }), 5);
        assert_eq!(number(CtlError::NoSubject("payment pi_1".into())), 3);
        assert_eq!(number(CtlError::CountDiffers { confirmed: 1, found: 2 }), 5);
        assert_eq!(number(StoreError::Unavailable.into()), 7);
        assert_eq!(number(EndpointStoreError::Store(StoreError::Unavailable).into()), 7);
        assert_eq!(number(MigrationError::Store(StoreError::Unavailable).into()), 7);
        assert_eq!([Exit::Done, Exit::Finding, Exit::DoctorFailed].map(Exit::number), [0, 8, 9]);
    }
}
