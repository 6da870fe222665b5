//! Bodies and secrets at rest: compressed, encrypted with AES-256-GCM, and bound to the row and column they belong to.
//! Without keys, which only development may choose, values are stored as they are, so that SQL can read them.
//!
//! A sealed value is self-describing: one format byte, and for ciphertext the id of the key and the nonce. The associated
//! data names the column and the row, so a value copied into another row does not open.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use aes_gcm::aead::{Aead, Generate, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;
use zeroize::Zeroizing;

/// First byte of a value that is stored as it is (development without sealing keys).
const PLAIN: u8 = 0;
/// First byte of a value that is compressed and encrypted.
const SEALED: u8 = 1;
const NONCE_BYTES: usize = 12;
/// A stored body cannot be larger than the largest request plus some slack; a longer one is damage, not data.
const LARGEST_OPENED: usize = 64 * 1024 * 1024;

/// Where a sealed value lives. It becomes the associated data.
#[derive(Debug, Clone, Copy)]
pub enum Column {
    /// `webhook.raw_events.body`
    RawBody,
    /// `webhook.endpoint_keys.secret`
    EndpointSecret,
    /// `webhook.refusals.body_prefix`
    RefusedBody,
}

impl Column {
    fn name(self) -> &'static str {
        match self {
            Column::RawBody => "webhook.raw_events.body",
            Column::EndpointSecret => "webhook.endpoint_keys.secret",
            Column::RefusedBody => "webhook.refusals.body_prefix",
        }
    }

    fn associated_data(self, row: Uuid) -> Vec<u8> {
        let mut data = self.name().as_bytes().to_vec();
        data.push(0);
        data.extend_from_slice(row.as_bytes());
        data
    }
}

/// The keys that seal and open, or the explicit decision to store in plain.
pub struct Sealer {
    /// The key that seals; `None` stores plaintext.
    current: Option<String>,
    ciphers: BTreeMap<String, Aes256Gcm>,
    /// Whether values that are not sealed open. Else whoever can write a row could put words into it.
    opens_plaintext: bool,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("current", &self.current).finish_non_exhaustive()
    }
}

/// Why a `SEALING_KEYS` text is not a keyring. The text never repeats key material.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    #[error("no key given; expected id:base64[,id:base64…], first is current")]
    Empty,
    #[error("entry {0} is not of the form id:base64")]
    Form(usize),
    #[error("the id of entry {0} must be 1 to 32 letters, digits, '-', '_' or '.'")]
    Id(usize),
    #[error("the key of entry {0} is not the base64 of 32 bytes (make one with: openssl rand -base64 32)")]
    Key(usize),
    #[error("the id of entry {0} is given twice")]
    Twice(usize),
}

/// Why a stored value did not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the value is not in a format this version knows")]
    Format,
    #[error("the value is sealed with key {0:?}, which is not in SEALING_KEYS")]
    UnknownKey(String),
    #[error("the value is not sealed; only a process with ALLOW_PLAINTEXT_PAYLOADS=1 opens such values")]
    NotSealed,
    #[error("the value was changed, or belongs to another row")]
    Tampered,
    #[error("the value does not decompress")]
    Damaged,
}

/// The value could not be compressed or encrypted. Does not happen with values that fit in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the value could not be sealed")]
pub struct SealError;

impl Sealer {
    /// Reads `id:base64[,id:base64…]`; the first key seals, all of them open.
    pub fn from_keyring(text: &str) -> Result<Self, KeyringError> {
        let mut current = None;
        let mut ciphers = BTreeMap::new();
        for (index, entry) in text.trim().split(',').enumerate() {
            let number = index + 1;
            if entry.trim().is_empty() {
                return Err(if text.trim().is_empty() { KeyringError::Empty } else { KeyringError::Form(number) });
            }
            let (id, key) = entry.trim().split_once(':').ok_or(KeyringError::Form(number))?;
            let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if id.is_empty() || id.len() > 32 || !id.bytes().all(fits) {
                return Err(KeyringError::Id(number));
            }
            let key = Zeroizing::new(STANDARD.decode(key).map_err(|_| KeyringError::Key(number))?);
            let cipher = Aes256Gcm::new_from_slice(&key).map_err(|_| KeyringError::Key(number))?;
            if ciphers.insert(id.to_owned(), cipher).is_some() {
                return Err(KeyringError::Twice(number));
            }
            current.get_or_insert_with(|| id.to_owned());
        }
        Ok(Sealer { current, ciphers, opens_plaintext: false })
    }

    /// Stores plaintext. For development only, and never by default.
    pub fn plaintext() -> Self {
        Sealer { current: None, ciphers: BTreeMap::new(), opens_plaintext: true }
    }

    /// Opens unsealed values too, such as those stored before there were keys.
    pub fn opening_plaintext(self) -> Self {
        Sealer { opens_plaintext: true, ..self }
    }

    /// Whether new values are stored unencrypted.
    pub fn is_plaintext(&self) -> bool {
        self.current.is_none()
    }

    /// Compresses and encrypts `value` for `column` of the row `row`.
    pub fn seal(&self, column: Column, row: Uuid, value: &[u8]) -> Result<Vec<u8>, SealError> {
        let Some((id, cipher)) = self.current.as_ref().and_then(|id| Some((id, self.ciphers.get(id)?))) else {
            return Ok([&[PLAIN], value].concat());
        };
        let compressed = Zeroizing::new(compress(value)?);
        let nonce = Nonce::generate();
        let payload = Payload { msg: &compressed, aad: &column.associated_data(row) };
        let ciphertext = cipher.encrypt(&nonce, payload).map_err(|_| SealError)?;
        let id_length = u8::try_from(id.len()).map_err(|_| SealError)?;
        let mut sealed = Vec::with_capacity(2 + id.len() + NONCE_BYTES + ciphertext.len());
        sealed.extend_from_slice(&[SEALED, id_length]);
        sealed.extend_from_slice(id.as_bytes());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&ciphertext);
        Ok(sealed)
    }

    /// Opens a value that [`Sealer::seal`] made for the same column and row.
    pub fn open(&self, column: Column, row: Uuid, stored: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        match stored.split_first() {
            Some((&PLAIN, _)) if !self.opens_plaintext => Err(OpenError::NotSealed),
            Some((&PLAIN, value)) => Ok(Zeroizing::new(value.to_vec())),
            Some((&SEALED, rest)) => {
                let (&id_length, rest) = rest.split_first().ok_or(OpenError::Format)?;
                let (id, rest) = rest.split_at_checked(usize::from(id_length)).ok_or(OpenError::Format)?;
                let (nonce, ciphertext) = rest.split_at_checked(NONCE_BYTES).ok_or(OpenError::Format)?;
                let id = std::str::from_utf8(id).map_err(|_| OpenError::Format)?;
                let cipher = self.ciphers.get(id).ok_or_else(|| OpenError::UnknownKey(id.to_owned()))?;
                let nonce = Nonce::try_from(nonce).map_err(|_| OpenError::Format)?;
                let payload = Payload { msg: ciphertext, aad: &column.associated_data(row) };
                let compressed = Zeroizing::new(cipher.decrypt(&nonce, payload).map_err(|_| OpenError::Tampered)?);
                decompress(&compressed)
            }
            Some(_) | None => Err(OpenError::Format),
        }
    }
}

thread_local! {
    /// A compression context is a few hundred kilobytes; making one per event costs more than the compression.
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> = RefCell::new(zstd::bulk::Compressor::new(1).ok());
}

fn compress(value: &[u8]) -> Result<Vec<u8>, SealError> {
    COMPRESSOR
        .with_borrow_mut(|compressor| compressor.as_mut().ok_or(SealError)?.compress(value).map_err(|_| SealError))
}

fn decompress(compressed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let size = zstd::bulk::Decompressor::upper_bound(compressed).ok_or(OpenError::Damaged)?;
    zstd::bulk::decompress(compressed, size.min(LARGEST_OPENED)).map(Zeroizing::new).map_err(|_| OpenError::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "2026-11:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const TWO: &str = "2026-12:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn row(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    #[test]
    fn what_is_sealed_opens_and_shows_nothing() {
        let sealer = Sealer::from_keyring(ONE).unwrap();
        let body = b"{\"card\":\"4111111111111111\"}";
        let sealed = sealer.seal(Column::RawBody, row(1), body).unwrap();
        assert!(!sealed.windows(8).any(|w| w == b"41111111"));
        assert_eq!(*sealer.open(Column::RawBody, row(1), &sealed).unwrap(), body);
    }

    #[test]
    fn a_value_opens_only_in_its_own_row_and_column() {
        let sealer = Sealer::from_keyring(ONE).unwrap();
        let sealed = sealer.seal(Column::RawBody, row(1), b"x").unwrap();
        assert_eq!(sealer.open(Column::RawBody, row(2), &sealed), Err(OpenError::Tampered));
        assert_eq!(sealer.open(Column::RefusedBody, row(1), &sealed), Err(OpenError::Tampered));
        for index in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[index] ^= 1;
            assert!(sealer.open(Column::RawBody, row(1), &changed).is_err(), "byte {index}");
            assert!(sealer.open(Column::RawBody, row(1), &sealed[..index]).is_err(), "cut at {index}");
        }
    }

    #[test]
    fn an_older_key_still_opens_after_a_rotation() {
        let sealed = Sealer::from_keyring(ONE).unwrap().seal(Column::RawBody, row(1), b"x").unwrap();
        let rotated = Sealer::from_keyring(&format!("{TWO},{ONE}")).unwrap();
        assert_eq!(*rotated.open(Column::RawBody, row(1), &sealed).unwrap(), b"x");
        let only_new = Sealer::from_keyring(TWO).unwrap();
        assert_eq!(only_new.open(Column::RawBody, row(1), &sealed), Err(OpenError::UnknownKey("2026-11".into())));
    }

    #[test]
    fn a_sealed_store_does_not_believe_unsealed_values() {
        let sealer = Sealer::from_keyring(ONE).unwrap();
        assert_eq!(sealer.open(Column::RawBody, row(1), b"\0{}"), Err(OpenError::NotSealed));
        assert_eq!(*sealer.opening_plaintext().open(Column::RawBody, row(1), b"\0{}").unwrap(), b"{}");
    }

    #[test]
    fn a_broken_keyring_names_the_entry() {
        let error = |text: &str| Sealer::from_keyring(text).unwrap_err();
        assert_eq!(error(" "), KeyringError::Empty);
        assert_eq!(error("nocolon"), KeyringError::Form(1));
        assert_eq!(error(&format!("{ONE},")), KeyringError::Form(2));
        assert_eq!(error("sp ace:AA=="), KeyringError::Id(1));
        assert_eq!(error("a:AAAA"), KeyringError::Key(1));
        assert_eq!(error(&format!("{ONE},{ONE}")), KeyringError::Twice(2));
    }

    #[test]
    fn a_plain_store_keeps_the_bytes_readable_and_opens_without_keys() {
        let sealer = Sealer::plaintext();
        let stored = sealer.seal(Column::RawBody, row(1), b"x").unwrap();
        assert_eq!(stored, b"\0x");
        assert_eq!(*sealer.open(Column::RawBody, row(9), &stored).unwrap(), b"x");
    }
}
