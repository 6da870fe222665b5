use std::collections::BTreeSet;

use shared::domain::{FactDetail, Ledger, Subject, SubjectKind};
use shared::sealing::Sealer;
use shared::store::{self, Candidate, PgConnection, StoreError, SubjectKey};
use uuid::Uuid;

use super::scan::Tally;
use crate::decode::decode;

/// Finds one subject in every account, with the events that seem to speak of it. Accounts that know nothing of it are
/// left out.
pub(super) fn find(
    connection: &mut PgConnection,
    sealer: &Sealer,
    subject: &Subject,
    provider: Option<&str>,
    tally: &mut Tally,
) -> Result<Vec<Candidate>, StoreError> {
    let mut found = Vec::new();
    for key in store::subject_everywhere(connection, subject, provider)? {
        let events = events_of(connection, sealer, &key, tally)?;
        if !events.is_empty() || is_in_ledger(connection, &key)? {
            found.push(Candidate { key, events });
        }
    }
    Ok(found)
}

fn is_in_ledger(connection: &mut PgConnection, key: &SubjectKey) -> Result<bool, StoreError> {
    let has_facts = !store::stored_facts(connection, &[key])?.is_empty();
    Ok(has_facts || !store::compare_rows(connection, &[(key, Ledger::default())])?.is_empty())
}

/// The events that state facts of the subject. Its charges and users lead to more of them, such as an invoice that names
/// the payment somewhere inside.
fn events_of(
    connection: &mut PgConnection,
    sealer: &Sealer,
    key: &SubjectKey,
    tally: &mut Tally,
) -> Result<Vec<Uuid>, StoreError> {
    let mut names = Names::of(&key.subject);
    let (mut read, mut telling) = (BTreeSet::new(), Vec::new());
    loop {
        let named = names.events(connection, key)?;
        let new: Vec<Uuid> = named.into_iter().filter(|id| read.insert(*id)).collect();
        if new.is_empty() {
            return Ok(telling);
        }
        for event in store::settled_events_among(connection, &new)? {
            let facts = tally.take(decode(&event, sealer)).unwrap_or_default();
            let own: Vec<_> = facts.iter().filter(|(other, _)| other == key).collect();
            own.iter().for_each(|(_, recorded)| names.learn(&recorded.fact.detail));
            telling.extend((!own.is_empty()).then_some(event.id));
        }
    }
}

/// The names by which events are looked for.
struct Names {
    objects: BTreeSet<String>,
    users: BTreeSet<String>,
}

impl Names {
    fn of(subject: &Subject) -> Self {
        let (mut objects, mut users) = (BTreeSet::new(), BTreeSet::new());
        match subject.kind {
            SubjectKind::User => users.insert(subject.id.clone()),
            SubjectKind::Payment | SubjectKind::Unlinked | SubjectKind::Subscription => {
                objects.insert(subject.id.clone())
            }
        };
        Names { objects, users }
    }

    fn events(&self, connection: &mut PgConnection, account: &SubjectKey) -> Result<Vec<Uuid>, StoreError> {
        let objects: Vec<&str> = self.objects.iter().map(String::as_str).collect();
        let users: Vec<&str> = self.users.iter().map(String::as_str).collect();
        store::events_naming(connection, account, &objects, &users)
    }

    fn learn(&mut self, fact: &FactDetail) {
        match fact {
            FactDetail::Payment(fact) => {
                self.objects.extend(fact.charge_id.clone());
                self.users.extend(fact.app_user_id.clone());
            }
            FactDetail::Refund(fact) => self.objects.extend(fact.charge_id.clone()),
            FactDetail::Dispute(fact) => self.objects.extend(fact.charge_id.clone()),
            FactDetail::Subscription(fact) => self.users.extend(fact.app_user_id.clone()),
            FactDetail::Transfer(_) | FactDetail::Decision(_) => {}
        }
    }
}
