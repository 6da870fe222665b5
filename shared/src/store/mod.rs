//! PostgreSQL: the only room with diesel.
//!
//! One file per noun, plain SQL inside, functions named after what they do. Batches are the normal case: functions take
//! slices, and one event is a batch of one.

mod audit;
mod books;
mod dead_letters;
mod endpoints;
mod error;
mod events;
mod health;
mod intake;
mod ledger;
mod ledger_rows;
mod migrations;
mod orphans;
mod outbox;
mod partitions;
mod pool;
mod quarantine;
mod rebuild;
mod refusals;
mod settlement;
mod sql;

pub use diesel::PgConnection;

pub use audit::{Audit, AuditRow, audit_of, list_audit, record_audit};
pub use books::{Books, Finding, Waits, books, inspect_laws, take_time, waits};
pub use dead_letters::{DeadLetter, NewDeadLetter, bury, discard, find_dead_letter, list_dead_letters, redrive};
pub use endpoints::{
    EndpointRow, EndpointStoreError, KeyRow, NewEndpoint, add_endpoint, add_key, list_endpoints, list_keys,
    load_key_ring, revision,
};
pub use error::StoreError;
pub use events::{
    AttemptRow, EventRow, Loaded, Suspect, find_event, list_attempts, list_events, load_for_processing, mark_suspect,
};
pub use health::{Backlog, backlog, rescue_stranded};
pub use intake::{AcceptEvent, Accepted, accept};
pub use ledger::{
    StoredFact, SubjectKey, insert_facts, load_facts, load_transfers, lock_accounts, lock_subjects, stored_facts,
    subscriptions_of_users, upsert_ledgers,
};
pub use ledger_rows::{
    EventName, FactRow, LedgerTable, facts_of, known_subjects, ledger_rows, names_of_events, rows_of_subject,
};
pub use migrations::{MigrationError, migrate_down, migrate_up, pending_migrations};
pub use orphans::quarantine_orphans;
pub use outbox::{ClaimedDispatch, OutboxStatus, claim_due, delete_published, outbox_status, postpone};
pub use partitions::{ensure_partitions, weeks_ahead};
pub use pool::{Connection, Pool, PoolError, connect, get, in_keyed_snapshot, in_snapshot, in_transaction};
pub use quarantine::{
    Closing, Delivery, NewDecision, NewQuarantine, QuarantineKind, QuarantineRow, close_quarantine, decide_quarantine,
    find_delivery, find_quarantine, list_quarantine, open_quarantine, quarantine_of, retry_quarantined,
    settle_contradictions,
};
pub use rebuild::{
    Candidate, RowDifference, Unfounded, begin_rebuild, compare_rows, count_settled, delete_facts, delete_rows,
    drop_candidates, events_naming, facts_after, facts_of_events, note_candidates, noted_candidates, resettle,
    settled_events, settled_events_among, subject_everywhere, unfounded_rows,
};
pub use refusals::{CountKey, NewRefusal, record_refusals};
pub use settlement::{Ending, FailedAttempt, Settled, settle_events};
pub use sql::{Bind, Sql};
