use chrono::DateTime;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::signature::MAX_ID_BYTES;
use crate::domain::{Environment, Lane, Time};

/// The longest event type, account, API version and search key, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// What serde_json itself would allow; it does not count what it skips.
const MAX_DEPTH: usize = 127;
/// An event cannot be older than this when it arrives…
const OLDEST_DAYS: i64 = 3653;
/// …nor come from further ahead.
const NEWEST_DAYS: i64 = 2;

/// What the intake knows of an event: enough to store, find and route it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The provider's id of the event. With provider and account it is the dedup key.
    pub event_id: String,
    pub event_type: String,
    /// The provider account in the payload; none where the provider names none.
    pub account: Option<String>,
    /// When it happened at the provider; none where the event does not say, or says something impossible.
    pub occurred_at: Option<Time>,
    /// None where the payload does not say.
    pub environment: Option<Environment>,
    pub api_version: Option<String>,
    pub lane: Lane,
    /// A hash over what the event means. Deliveries of one event may differ in bytes, never in this.
    pub semantic_hash: [u8; 32],
    pub keys: SearchKeys,
}

/// The ids by which people look for events. A value that could not be stored or indexed is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchKeys {
    pub app_user_id: Option<String>,
    /// The object the event is about.
    pub transaction_id: Option<String>,
    /// The payment or subscription that object belongs to; the object itself where it is one.
    pub original_transaction_id: Option<String>,
    pub product_id: Option<String>,
    pub store: Option<String>,
}

/// Why signed bytes are not an event. Each answers 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("the body is not JSON in UTF-8, or it is nested too deeply")]
    Json,
    #[error("the body is not an event: a field is missing, of another type, or given twice")]
    Schema,
    #[error("the event id is empty, longer than 255 bytes, or has control characters")]
    Id,
    #[error("the event type is empty, longer than 255 bytes, or has control characters")]
    Type,
}

impl EnvelopeError {
    pub const ALL: [EnvelopeError; 4] =
        [EnvelopeError::Json, EnvelopeError::Schema, EnvelopeError::Id, EnvelopeError::Type];

    /// A stable code, for metrics and refusals.
    pub fn code(self) -> &'static str {
        match self {
            EnvelopeError::Json => "bad_json",
            EnvelopeError::Schema => "bad_schema",
            EnvelopeError::Id => "bad_id",
            EnvelopeError::Type => "bad_type",
        }
    }
}

/// The JSON text of a body: a byte order mark in front is no part of it.
pub(super) fn text_of(body: &[u8]) -> Result<&str, EnvelopeError> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    std::str::from_utf8(body).map_err(|_| EnvelopeError::Json)
}

/// Reads the top level of an event.
pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, EnvelopeError> {
    let text = text_of(body)?;
    if is_too_deep(text) {
        return Err(EnvelopeError::Json);
    }
    let event = serde_json::from_str(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => EnvelopeError::Schema,
        serde_json::error::Category::Syntax | serde_json::error::Category::Eof | serde_json::error::Category::Io => {
            EnvelopeError::Json
        }
    })?;
    // serde would take an array of the right length for a struct.
    if text.trim_start().starts_with('{') { Ok(event) } else { Err(EnvelopeError::Schema) }
}

fn is_too_deep(text: &str) -> bool {
    // Nearly every body has too few brackets to be deep; counting them is quicker than following them.
    if text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count() <= MAX_DEPTH {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

pub(super) fn event_id(id: &str) -> Result<String, EnvelopeError> {
    if is_name(id, MAX_ID_BYTES) { Ok(id.to_owned()) } else { Err(EnvelopeError::Id) }
}

pub(super) fn event_type(name: &str) -> Result<String, EnvelopeError> {
    if is_name(name, MAX_NAME_BYTES) { Ok(name.to_owned()) } else { Err(EnvelopeError::Type) }
}

/// A field that may be absent, but when present must be storable.
pub(super) fn optional(name: Option<&str>) -> Result<Option<String>, EnvelopeError> {
    match name {
        Some(name) if !is_name(name, MAX_NAME_BYTES) => Err(EnvelopeError::Schema),
        other => Ok(other.map(str::to_owned)),
    }
}

/// Whether PostgreSQL can store and index the text and a person can read it.
pub(super) fn is_name(text: &str, longest: usize) -> bool {
    !text.is_empty() && text.len() <= longest && !text.contains(char::is_control)
}

pub(super) fn environment(livemode: Option<bool>) -> Option<Environment> {
    livemode.map(|live| if live { Environment::Production } else { Environment::Sandbox })
}

/// A wrong time would win or lose every comparison for ever, so an impossible one counts as none.
pub(super) fn plausible(time: Time, received_at: Time) -> Option<Time> {
    let age = received_at.signed_duration_since(time);
    (-NEWEST_DAYS * 86_400..=OLDEST_DAYS * 86_400).contains(&age.num_seconds()).then_some(time)
}

/// Unix seconds, written as a plain JSON integer.
pub(super) fn seconds(raw: &RawValue) -> Option<Time> {
    Time::from_timestamp(count(raw)?, 0)
}

/// Unix milliseconds, written as a plain JSON integer.
pub(super) fn milliseconds(raw: &RawValue) -> Option<Time> {
    Time::from_timestamp_millis(count(raw)?)
}

fn count(raw: &RawValue) -> Option<i64> {
    let digits = raw.get();
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

/// RFC 3339 in a JSON string.
pub(super) fn rfc3339(raw: &RawValue) -> Option<Time> {
    let text: String = serde_json::from_str(raw.get()).ok()?;
    DateTime::parse_from_rfc3339(&text).ok().map(Time::from)
}

/// A JSON string, or the id of the object that stands in its place, if it can be a search key.
pub(super) fn search_key(raw: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Reference {
        Id(String),
        Expanded { id: String },
    }
    let (Reference::Id(id) | Reference::Expanded { id }) = serde_json::from_str(raw?.get()).ok()?;
    is_name(&id, MAX_NAME_BYTES).then_some(id)
}

/// SHA-256 over parts whose borders count: each is preceded by its length, and an absent one differs from an empty one.
pub(super) fn hash_parts(parts: &[Option<&str>]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        match part {
            None => hash.update([0]),
            Some(text) => {
                hash.update([1]);
                hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
                hash.update(text.as_bytes());
            }
        }
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_borders_of_hashed_parts_count() {
        let different: [&[Option<&str>]; 7] = [
            &[Some("ab")],
            &[Some("a"), Some("b")],
            &[Some("a\u{1}b")],
            &[Some("a"), None, Some("b")],
            &[Some("a"), Some(""), Some("b")],
            &[Some("a\u{1}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{1}b")],
            &[Some("a\u{0}"), Some("b")],
        ];
        let hashes: std::collections::BTreeSet<[u8; 32]> = different.into_iter().map(hash_parts).collect();
        assert_eq!(hashes.len(), different.len());
    }
}
