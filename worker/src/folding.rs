//! How subjects are locked and folded together, for whoever does it: the projector event by event, the rebuild from scratch.

use std::collections::{BTreeMap, BTreeSet};

use shared::domain::{FactDetail, Ledger, RecordedFact, Subject, SubjectKind, fold};
use shared::store::{self, NewQuarantine, PgConnection, StoreError, SubjectKey};
use uuid::Uuid;

/// Locks the subjects for this transaction, with the accounts whose subscriptions or users are among them. Returns the
/// subscriptions of users that are among them, which are locked too.
pub(crate) fn lock(
    connection: &mut PgConnection,
    named: &BTreeSet<SubjectKey>,
) -> Result<BTreeSet<SubjectKey>, StoreError> {
    let of_kind = |kind| named.iter().filter(|key| key.subject.kind == kind).collect::<Vec<_>>();
    let (subscriptions, users) = (of_kind(SubjectKind::Subscription), of_kind(SubjectKind::User));
    store::lock_accounts(connection, &subscriptions, &users)?;
    let mut moved = BTreeSet::new();
    for user in users {
        moved.extend(store::subscriptions_of_users(connection, user, &[&user.subject.id])?);
    }
    store::lock_subjects(connection, named.union(&moved))?;
    Ok(moved)
}

/// Folds each subject from all its facts, and from the stored facts that move its users.
///
/// `corrected` are facts of users that hold instead of the stored ones.
pub(crate) fn fold_all<'a, 'f>(
    connection: &mut PgConnection,
    facts: impl Iterator<Item = (&'a SubjectKey, &'f Vec<RecordedFact>)> + Clone,
    corrected: &BTreeMap<SubjectKey, Vec<RecordedFact>>,
) -> Result<Vec<(&'a SubjectKey, Ledger)>, StoreError> {
    let mut seeds: Vec<(&SubjectKey, &Vec<RecordedFact>)> = facts.clone().collect();
    seeds.extend(corrected);
    let stored = store::load_transfers(connection, seeds)?;
    let mut transfers: BTreeMap<&SubjectKey, Vec<&RecordedFact>> = BTreeMap::new();
    for (user, recorded) in stored.iter().filter(|(user, _)| !corrected.contains_key(user)) {
        transfers.entry(user).or_default().push(recorded);
    }
    transfers.extend(corrected.iter().map(|(user, facts)| (user, facts.iter().collect())));
    Ok(facts.map(|(key, facts)| (key, fold(&key.subject, facts, &moves_of(key, facts, &transfers)))).collect())
}

/// The transfers of the users that the facts name, followed from user to user.
fn moves_of(
    key: &SubjectKey,
    facts: &[RecordedFact],
    transfers: &BTreeMap<&SubjectKey, Vec<&RecordedFact>>,
) -> Vec<RecordedFact> {
    if key.subject.kind != SubjectKind::Subscription || transfers.is_empty() {
        return Vec::new();
    }
    let mut moves: Vec<RecordedFact> = Vec::new();
    let mut asked = BTreeSet::new();
    let mut asking: Vec<String> = facts.iter().filter_map(user_after).collect();
    while let Some(user) = asking.pop() {
        let key = SubjectKey { subject: Subject::user(&user), ..key.clone() };
        if asked.insert(user) {
            let found = transfers.get(&key).into_iter().flatten().copied();
            asking.extend(found.clone().filter_map(user_after));
            moves.extend(found.cloned());
        }
    }
    moves
}

/// The user that is named as the owner.
fn user_after(recorded: &RecordedFact) -> Option<String> {
    match &recorded.fact.detail {
        FactDetail::Subscription(fact) => fact.app_user_id.clone(),
        FactDetail::Transfer(fact) => Some(fact.to.clone()),
        FactDetail::Payment(_) | FactDetail::Refund(_) | FactDetail::Dispute(_) | FactDetail::Decision(_) => None,
    }
}

/// The quarantine entries of facts that contradict each other.
pub(crate) fn contradictions<'a>(
    ledgers: impl IntoIterator<Item = (&'a SubjectKey, &'a Ledger)>,
) -> impl Iterator<Item = NewQuarantine> {
    ledgers.into_iter().flat_map(|(key, ledger)| ledger.reviews.iter().map(move |review| (key, review))).map(
        |(key, review)| NewQuarantine {
            id: Uuid::now_v7(),
            reason: review.reason,
            provider: key.provider.to_owned(),
            provider_account_id: key.account_key.clone(),
            event_id: review.event_id.uuid(),
            subject_kind: Some(key.subject.kind.as_str()),
            subject_id: Some(key.subject.id.clone()),
            detail: String::new(),
        },
    )
}
