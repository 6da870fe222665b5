use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use shared::domain::{EventId, RecordedFact};
use shared::store::{RowDifference, StoredFact, SubjectKey};

/// The columns of one side, each with its value as the database writes it.
type Columns = BTreeMap<String, Box<RawValue>>;

/// A row or fact that is not what the raw events amount to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub provider: &'static str,
    pub provider_account_id: String,
    /// `payment`, `unlinked`, `subscription` or `user`.
    pub subject_kind: &'static str,
    pub subject_id: String,
    pub table: &'static str,
    /// What identifies the row within its account; of a fact, our id of its event and its position there.
    pub row: String,
    pub what: What,
    pub columns: Vec<ColumnDifference>,
}

/// How a row differs from what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Missing,
    /// It is there, and nothing founds it.
    Extra,
    Changed,
}

/// A column with its value as it is, and as it should be. None stands for NULL, and for a row that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnDifference {
    pub name: String,
    pub live: Option<String>,
    pub rebuilt: Option<String>,
}

impl What {
    pub fn as_str(self) -> &'static str {
        match self {
            What::Missing => "missing",
            What::Extra => "extra",
            What::Changed => "changed",
        }
    }
}

impl Difference {
    pub(super) fn of_row(row: &RowDifference) -> Self {
        let (live, rebuilt) = (row.live.as_deref().map(read), row.rebuilt.as_deref().map(read));
        Difference::between(&row.key, row.table.name(), row.name.clone(), live, rebuilt)
    }

    /// Of a stored fact that should not be, or be otherwise, and of one that should be.
    pub(super) fn of_fact(key: &SubjectKey, stored: Option<&StoredFact>, derived: Option<&RecordedFact>) -> Self {
        let event = stored.map(|fact| (EventId::from(fact.event_id), fact.ordinal));
        let event = event.or(derived.map(|recorded| (recorded.event_id, recorded.ordinal)));
        let row = event.map_or_else(String::new, |(id, ordinal)| format!("{id}/{ordinal}"));
        let live = stored.map(|fact| read(&fact.as_json()));
        let rebuilt = derived.map(|recorded| read(&StoredFact::of(key, recorded).as_json()));
        Difference::between(key, "ledger_facts", row, live, rebuilt)
    }

    fn between(
        key: &SubjectKey,
        table: &'static str,
        row: String,
        live: Option<Columns>,
        rebuilt: Option<Columns>,
    ) -> Self {
        let what = match (&live, &rebuilt) {
            (None, _) => What::Missing,
            (Some(_), None) => What::Extra,
            (Some(_), Some(_)) => What::Changed,
        };
        Difference {
            provider: key.provider,
            provider_account_id: key.account_key.clone(),
            subject_kind: key.subject.kind.as_str(),
            subject_id: key.subject.id.clone(),
            table,
            row,
            what,
            columns: columns(&live.unwrap_or_default(), &rebuilt.unwrap_or_default()),
        }
    }
}

fn read(json: &str) -> Columns {
    serde_json::from_str(json).unwrap_or_default()
}

fn columns(live: &Columns, rebuilt: &Columns) -> Vec<ColumnDifference> {
    let mut names: Vec<&String> = live.keys().chain(rebuilt.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let both = names.into_iter().map(|name| ColumnDifference {
        name: name.clone(),
        live: live.get(name).and_then(|value| text(value)),
        rebuilt: rebuilt.get(name).and_then(|value| text(value)),
    });
    both.filter(|column| column.live != column.rebuilt).collect()
}

/// A value to its last digit, text without its quotes, NULL as nothing.
fn text(value: &RawValue) -> Option<String> {
    match value.get() {
        "null" => None,
        json => Some(serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_differ_to_the_last_digit_and_null_is_nothing() {
        let live = read(r#"{"amount": 90071992547409.93, "status": "paid", "store": null, "quantity": 1}"#);
        let rebuilt = read(r#"{"amount": 90071992547409.94, "status": "paid", "store": "stripe", "quantity": 1}"#);
        let expected = |name: &str, live: Option<&str>, rebuilt: &str| ColumnDifference {
            name: name.to_owned(),
            live: live.map(str::to_owned),
            rebuilt: Some(rebuilt.to_owned()),
        };
        let amount = expected("amount", Some("90071992547409.93"), "90071992547409.94");
        assert_eq!(columns(&live, &rebuilt), [amount, expected("store", None, "stripe")]);
    }
}
