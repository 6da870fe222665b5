//! Compares two payloads field by field. Numbers are compared and shown by their own digits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// What stands for a value that is not shown.
pub(super) const MASK: &str = "██";
/// The longest text that is shown, in bytes.
const SHOWN_TEXT_BYTES: usize = 64;

/// A field that one of two payloads has, or both.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Field {
    /// The JSON pointer (RFC 6901) of the field. A key that is given again has its number behind it, as `/id#2`.
    pub path: String,
    /// What it says in the first payload, as JSON; none where it is not there, or masked.
    pub first: Option<String>,
    pub second: Option<String>,
    /// `=`, `added`, `removed`, or what changed.
    pub note: &'static str,
    /// Whether the values are kept from view.
    pub masked: bool,
}

impl Field {
    pub fn differs(&self) -> bool {
        self.note != EQUAL
    }
}

const EQUAL: &str = "=";

/// The bytes are not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotJson;

/// All fields of two payloads, in the order of their paths.
pub(super) fn compare(first: &[u8], second: &[u8]) -> Result<Vec<Field>, NotJson> {
    let (first, second) = (leaves(first)?, leaves(second)?);
    let paths: std::collections::BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    Ok(paths.into_iter().map(|path| field(path, first.get(path), second.get(path))).collect())
}

fn field(path: &str, first: Option<&Leaf>, second: Option<&Leaf>) -> Field {
    let note = match (first, second) {
        (Some(first), Some(second)) if first == second => EQUAL,
        (Some(Leaf::Number(_)), Some(Leaf::Number(_))) => "number changed",
        (Some(Leaf::Text(_)), Some(Leaf::Text(_))) => "text changed",
        (Some(_), Some(_)) => "changed",
        (None, _) => "added",
        (_, None) => "removed",
    };
    let masked = [first, second].into_iter().flatten().any(|leaf| !leaf.is_harmless(path));
    let shown = |leaf: Option<&Leaf>| leaf.filter(|_| !masked).map(Leaf::to_string);
    Field { path: path.to_owned(), first: shown(first), second: shown(second), note, masked }
}

/// A value that holds no others.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leaf {
    /// The digits as they are written.
    Number(String),
    Text(String),
    /// `true`, `false`, `null`, `{}` or `[]`.
    Word(&'static str),
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Leaf::Number(digits) => f.write_str(digits),
            Leaf::Text(text) => f.write_str(&serde_json::Value::from(text.as_str()).to_string()),
            Leaf::Word(word) => f.write_str(word),
        }
    }
}

impl Leaf {
    /// Whether anybody may see the value: it tells of states, money and times, never of people.
    fn is_harmless(&self, path: &str) -> bool {
        let is_index = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
        let name = path.rsplit('/').find(|part| !is_index(part)).unwrap_or_default();
        let name = name.split('#').next().unwrap_or_default();
        match self {
            Leaf::Word(_) => true,
            Leaf::Number(_) => is_amount(name) || is_time(name),
            Leaf::Text(text) => {
                (is_kind(name) || is_amount(name) || is_currency(name) || is_time(name)) && looks_like_a_code(text)
            }
        }
    }
}

fn is_kind(name: &str) -> bool {
    const NAMES: [&str; 7] = ["status", "type", "object", "event", "state", "environment", "mode"];
    NAMES.contains(&name) || ["_status", "_type", "Status", "Type"].iter().any(|end| name.ends_with(end))
}

fn is_amount(name: &str) -> bool {
    const NAMES: [&str; 7] = ["price", "total", "subtotal", "fee", "net", "tax", "quantity"];
    NAMES.contains(&name) || name.starts_with("amount") || ["_amount", "Amount"].iter().any(|end| name.ends_with(end))
}

fn is_currency(name: &str) -> bool {
    name == "currency" || ["_currency", "Currency"].iter().any(|end| name.ends_with(end))
}

fn is_time(name: &str) -> bool {
    const NAMES: [&str; 3] = ["created", "timestamp", "date"];
    const ENDS: [&str; 8] = ["_at", "At", "_ms", "_date", "Date", "_start", "_end", "_timestamp"];
    NAMES.contains(&name) || ENDS.iter().any(|end| name.ends_with(end))
}

/// Codes, numbers and times have no blanks and no at signs.
fn looks_like_a_code(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:+".contains(&byte);
    !text.is_empty() && text.len() <= SHOWN_TEXT_BYTES && text.bytes().all(fits)
}

fn leaves(body: &[u8]) -> Result<BTreeMap<String, Leaf>, NotJson> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let root: &RawValue = serde_json::from_slice(body).map_err(|_| NotJson)?;
    let mut leaves = BTreeMap::new();
    collect(root, String::new(), &mut leaves)?;
    Ok(leaves)
}

/// What was stored was accepted, so it is not nested deeper than serde_json allows.
fn collect(value: &RawValue, path: String, leaves: &mut BTreeMap<String, Leaf>) -> Result<(), NotJson> {
    let text = value.get();
    let leaf = match text.as_bytes().first() {
        Some(b'{') => {
            let Fields(fields) = serde_json::from_str(text).map_err(|_| NotJson)?;
            if !fields.is_empty() {
                return collect_fields(&fields, &path, leaves);
            }
            Leaf::Word("{}")
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| NotJson)?;
            if !items.is_empty() {
                return items
                    .iter()
                    .enumerate()
                    .try_for_each(|(index, item)| collect(item, format!("{path}/{index}"), leaves));
            }
            Leaf::Word("[]")
        }
        Some(b'"') => Leaf::Text(serde_json::from_str(text).map_err(|_| NotJson)?),
        Some(b't') => Leaf::Word("true"),
        Some(b'f') => Leaf::Word("false"),
        Some(b'n') => Leaf::Word("null"),
        _ => Leaf::Number(text.to_owned()),
    };
    leaves.insert(path, leaf);
    Ok(())
}

fn collect_fields(
    fields: &[(Cow<'_, str>, &RawValue)],
    path: &str,
    leaves: &mut BTreeMap<String, Leaf>,
) -> Result<(), NotJson> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for (key, value) in fields {
        let time = times.entry(key.as_ref()).and_modify(|times| *times += 1).or_insert(1);
        let name = key.replace('~', "~0").replace('/', "~1");
        let again = if *time > 1 { format!("#{time}") } else { String::new() };
        collect(value, format!("{path}/{name}{again}"), leaves)?;
    }
    Ok(())
}

/// The fields of an object, a key that is given twice included.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                #[derive(serde::Deserialize)]
                struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
                let mut fields = Vec::new();
                while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                    fields.push((key, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(first: &str, second: &str) -> Vec<String> {
        let line = |field: Field| {
            let side =
                |value: Option<String>| value.unwrap_or_else(|| if field.masked { MASK } else { "-" }.to_owned());
            format!("{} {} {} {}", field.path, side(field.first.clone()), side(field.second.clone()), field.note)
        };
        compare(first.as_bytes(), second.as_bytes()).unwrap().into_iter().map(line).collect()
    }

    #[test]
    fn numbers_are_compared_by_their_own_digits() {
        let first = r#"{"amount":12345678901234567890123,"amount_due":0.1000,"fee":1e2}"#;
        let second = r#"{"amount":12345678901234567890124,"amount_due":0.1,"fee":1e2}"#;
        let expected = [
            "/amount 12345678901234567890123 12345678901234567890124 number changed",
            "/amount_due 0.1000 0.1 number changed",
            "/fee 1e2 1e2 =",
        ];
        assert_eq!(lines(first, second), expected);
    }

    #[test]
    fn what_tells_of_people_is_masked_and_its_difference_is_not() {
        let first =
            r#"{"customer":{"email":"a@x.org","name":"Ann","vip":true},"status":"DONE","phone":123,"type":"Ann Lee"}"#;
        let second =
            r#"{"customer":{"email":"b@x.org","name":"Ann","vip":false},"status":"DONE","phone":124,"type":"card"}"#;
        let expected = [
            "/customer/email ██ ██ text changed",
            "/customer/name ██ ██ =",
            "/customer/vip true false changed",
            "/phone ██ ██ number changed",
            "/status \"DONE\" \"DONE\" =",
            "/type ██ ██ text changed",
        ];
        assert_eq!(lines(first, second), expected);
        let fields = compare(first.as_bytes(), second.as_bytes()).unwrap();
        assert!(!format!("{fields:?}").contains("x.org"), "what is masked is not there at all");
    }

    #[test]
    fn fields_come_and_go_and_change_their_kind() {
        let first = r#"{"a":{"status":"x"},"list":[{"amount":1},{"amount":2}],"type":"card","when_at":1}"#;
        let second = r#"{"a":{},"list":[{"amount":1}],"type":null,"when_at":"2026-01-01T00:00:00Z","b/c":true}"#;
        let expected = [
            "/a - {} added",
            "/a/status \"x\" - removed",
            "/b~1c - true added",
            "/list/0/amount 1 1 =",
            "/list/1/amount 2 - removed",
            "/type \"card\" null changed",
            "/when_at 1 \"2026-01-01T00:00:00Z\" changed",
        ];
        assert_eq!(lines(first, second), expected);
    }

    #[test]
    fn how_it_is_written_does_not_matter_and_a_key_given_twice_does() {
        assert_eq!(lines("{\"status\":\"A\", \"x\":true}", r#"{"x":true,"status":"\u0041"}"#).len(), 2);
        assert!(
            compare(b"{\"status\":\"A\"}", r#"{"status":"\u0041"}"#.as_bytes()).unwrap().iter().all(|f| !f.differs())
        );
        let twice = lines(r#"{"amount":1}"#, r#"{"amount":1,"amount":2}"#);
        assert_eq!(twice, ["/amount 1 1 =", "/amount#2 - 2 added"]);
        assert_eq!(compare(b"<xml/>", b"{}"), Err(NotJson));
    }
}
