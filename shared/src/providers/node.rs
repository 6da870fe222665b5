//! Reading payloads field by field, so that an error can name the very field, and only fields that are read matter.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::FactError;
use super::envelope;
use crate::domain::{Currency, Money, Time};

/// The longest text taken from a payload, in bytes.
const MAX_TEXT_BYTES: usize = 255;
/// 9999-12-31T23:59:59Z: providers write it for "for ever"; anything beyond is another unit.
const LAST_SECOND: i64 = 253_402_300_799;
/// 2000-01-01T00:00:00Z in milliseconds, before there was anything to subscribe to: a lesser count is in another unit.
const FIRST_MILLISECOND: i64 = 946_684_800_000;

/// A JSON object, its fields unread. An absent field and a `null` are the same.
pub(super) struct Node<'a> {
    pointer: String,
    fields: Fields<'a>,
}

struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Node<'a> {
    /// The top level of a body.
    pub(super) fn root(body: &'a [u8]) -> Result<Self, FactError> {
        let error = || FactError { code: "bad_json", pointer: String::new() };
        let text = envelope::text_of(body).map_err(|_| error())?;
        Node::parse(text, String::new()).ok_or_else(error)
    }

    fn parse(text: &'a str, pointer: String) -> Option<Self> {
        Some(Node { pointer, fields: serde_json::from_str(text).ok()? })
    }

    pub(super) fn error(&self, code: &'static str, key: &str) -> FactError {
        FactError { code, pointer: format!("{}/{key}", self.pointer) }
    }

    fn raw(&self, key: &str) -> Result<Option<&'a RawValue>, FactError> {
        let mut values = self.fields.0.iter().filter(|(name, _)| name == key).map(|(_, raw)| *raw);
        let value = values.next().filter(|raw| raw.get() != "null");
        if values.next().is_some() { Err(self.error("duplicate_key", key)) } else { Ok(value) }
    }

    /// Whether the field is written at all, be it as `null`.
    pub(super) fn names(&self, key: &str) -> bool {
        self.fields.0.iter().any(|(name, _)| name == key)
    }

    pub(super) fn has(&self, key: &str) -> Result<bool, FactError> {
        Ok(self.raw(key)?.is_some())
    }

    fn read<T: Deserialize<'a>>(&self, key: &str) -> Result<Option<T>, FactError> {
        let Some(raw) = self.raw(key)? else { return Ok(None) };
        serde_json::from_str(raw.get()).map(Some).map_err(|_| self.error("bad_json", key))
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<Node<'a>>, FactError> {
        let Some(raw) = self.raw(key)? else { return Ok(None) };
        let node = Node::parse(raw.get(), format!("{}/{key}", self.pointer));
        node.map(Some).ok_or_else(|| self.error("bad_json", key))
    }

    /// An array of objects; absent means empty.
    pub(super) fn list(&self, key: &str) -> Result<Vec<Node<'a>>, FactError> {
        let items: Vec<&'a RawValue> = self.read(key)?.unwrap_or_default();
        let node = |(at, raw): (usize, &'a RawValue)| {
            let place = format!("{key}/{at}");
            Node::parse(raw.get(), format!("{}/{place}", self.pointer)).ok_or_else(|| self.error("bad_json", &place))
        };
        items.into_iter().enumerate().map(node).collect()
    }

    /// A short text such as a code; empty means none.
    pub(super) fn text(&self, key: &str) -> Result<Option<String>, FactError> {
        let text: Option<String> = self.read(key)?;
        let text = text.filter(|text| !text.is_empty());
        if text.as_deref().is_none_or(|text| envelope::is_name(text, MAX_TEXT_BYTES)) {
            Ok(text)
        } else {
            Err(self.error("bad_text", key))
        }
    }

    /// An id, kept byte for byte: a string, or an object in its place that carries the id.
    pub(super) fn id(&self, key: &str) -> Result<Option<String>, FactError> {
        let expanded = self.raw(key)?.is_some_and(|raw| raw.get().starts_with('{'));
        let id: Option<String> = match expanded.then(|| self.object(key)).transpose()?.flatten() {
            Some(object) => object.read("id")?,
            None => self.read(key)?,
        };
        if id.as_deref().is_none_or(|id| envelope::is_name(id, MAX_TEXT_BYTES)) {
            Ok(id)
        } else {
            Err(self.error("bad_id", key))
        }
    }

    /// An array of ids; absent means empty.
    pub(super) fn ids(&self, key: &str) -> Result<Vec<String>, FactError> {
        let ids: Vec<String> = self.read(key)?.unwrap_or_default();
        if ids.iter().all(|id| envelope::is_name(id, MAX_TEXT_BYTES)) {
            Ok(ids)
        } else {
            Err(self.error("bad_id", key))
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, FactError> {
        self.read(key)
    }

    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>, FactError> {
        self.read(key)
    }

    /// Unix seconds.
    pub(super) fn seconds(&self, key: &str) -> Result<Option<Time>, FactError> {
        let Some(raw) = self.raw(key)? else { return Ok(None) };
        let time = envelope::seconds(raw).filter(|time| (1..=LAST_SECOND).contains(&time.timestamp()));
        time.map(Some).ok_or_else(|| self.error("bad_time", key))
    }

    /// Unix milliseconds.
    pub(super) fn milliseconds(&self, key: &str) -> Result<Option<Time>, FactError> {
        let Some(raw) = self.raw(key)? else { return Ok(None) };
        let time = envelope::milliseconds(raw)
            .filter(|time| time.timestamp_millis() >= FIRST_MILLISECOND && time.timestamp() <= LAST_SECOND);
        time.map(Some).ok_or_else(|| self.error("bad_time", key))
    }

    /// A value by its own characters, whatever it is.
    pub(super) fn digits(&self, key: &str) -> Result<Option<&'a str>, FactError> {
        Ok(self.raw(key)?.map(RawValue::get))
    }

    pub(super) fn currency(&self, key: &str) -> Result<Currency, FactError> {
        let code: Option<String> = self.read(key).map_err(|_| self.error("bad_currency", key))?;
        code.and_then(|code| code.parse().ok()).ok_or_else(|| self.error("bad_currency", key))
    }

    /// An amount in minor units, read from its own digits. `exponent` is the provider's for the currency.
    pub(super) fn money(&self, key: &str, currency: Currency, exponent: u32) -> Result<Option<Money>, FactError> {
        let Some(raw) = self.raw(key)? else { return Ok(None) };
        let money = Money::from_minor_digits(raw.get(), exponent, currency);
        money.map(Some).map_err(|_| self.error("bad_amount", key))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        #[derive(serde::Deserialize)]
        struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

        let mut fields = Vec::with_capacity(map.size_hint().unwrap_or(32));
        while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
            fields.push((key, value));
        }
        Ok(Fields(fields))
    }
}
