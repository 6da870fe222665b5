use std::collections::{BTreeMap, BTreeSet};

use chrono::Utc;
use shared::sealing::Sealer;
use shared::store::{self, Audit, Candidate, PgConnection, StoreError, SubjectKey};

use super::derivation::Derivation;
use crate::folding::{contradictions, fold_all, lock};

/// Brings a batch of subjects to what their events say, together with the subscriptions of users among them.
pub(super) fn repair(
    connection: &mut PgConnection,
    sealer: &Sealer,
    batch: &[Candidate],
    audit: Audit<'_>,
) -> Result<u64, StoreError> {
    let named: BTreeSet<SubjectKey> = batch.iter().map(|subject| subject.key.clone()).collect();
    let moved = lock(connection, &named)?;
    let owned = moved.difference(&named).map(|key| Candidate { key: key.clone(), events: Vec::new() });
    let all: Vec<Candidate> = batch.iter().cloned().chain(owned).collect();

    let derivation = Derivation::of(connection, sealer, &all)?;
    store::delete_facts(connection, &derivation.wrong.iter().map(|(_, fact)| fact).collect::<Vec<_>>())?;
    store::insert_facts(connection, &derivation.missing.iter().collect::<Vec<_>>())?;
    let ledgers = fold_all(connection, derivation.facts.iter(), &BTreeMap::new())?;
    let rows = store::compare_rows(connection, &ledgers)?;
    let differing = derivation.differing(&rows);
    if differing.is_empty() {
        return Ok(0);
    }
    store::delete_rows(connection, &rows.iter().filter(|row| row.rebuilt.is_none()).collect::<Vec<_>>())?;
    store::upsert_ledgers(connection, &ledgers)?;
    store::resettle(connection, &derivation.telling, true)?;
    store::resettle(connection, &derivation.silent, false)?;
    let questions: Vec<_> = contradictions(ledgers.iter().map(|(key, ledger)| (*key, ledger))).collect();
    let folded: Vec<&SubjectKey> = ledgers.iter().map(|(key, _)| *key).collect();
    store::settle_contradictions(connection, Utc::now(), &folded, &questions)?;
    let names = differing.iter().map(|key| format!("{}:{}", key.subject.kind.as_str(), key.subject.id));
    store::record_audit(connection, audit, "ledger.rebuild", &names.collect::<Vec<_>>().join(" "))?;
    Ok(u64::try_from(differing.len()).unwrap_or(0))
}
