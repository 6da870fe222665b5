use serde::{Deserialize, Serialize};

use super::{FactDetail, RecordedFact, SubjectKind, Time};

/// A fact about a user: from `occurred_at` on, what they own belongs to another. The subject is the user it moves from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferFact {
    pub to: String,
}

impl TransferFact {
    pub(super) const RANK: i16 = 60;
}

/// Who owns what `user` owned at `since`, after all transfers that follow. `transfers` is in order.
pub(super) fn owner(user: &str, since: Time, transfers: &[&RecordedFact]) -> String {
    let mut owner = user;
    for recorded in transfers {
        let FactDetail::Transfer(transfer) = &recorded.fact.detail else { continue };
        let subject = &recorded.fact.subject;
        if subject.kind == SubjectKind::User && subject.id == owner && recorded.fact.occurred_at >= since {
            owner = &transfer.to;
        }
    }
    owner.to_owned()
}
