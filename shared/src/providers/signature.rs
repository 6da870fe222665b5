//! How requests prove where they come from: each scheme is data, one engine signs and verifies them all.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::Provider;
use crate::domain::Time;

/// More signatures than any key rotation needs. Further ones are not looked at.
const MAX_SIGNATURES: usize = 16;
/// A shorter key can be guessed.
const MIN_KEY_BYTES: usize = 16;
/// The longest event id, in bytes. It fits a unique index whatever the characters.
pub(crate) const MAX_ID_BYTES: usize = 255;

/// A way in which a provider proves that a request is its own.
#[derive(Debug)]
pub struct Scheme {
    /// What a stored secret of this scheme begins with, such as `hmac:`, where the provider has several schemes. Empty
    /// where it has one.
    pub mark: &'static str,
    /// The header with the proof, in lower case.
    pub header: &'static str,
    pub proof: Proof,
    /// What `raw_events.auth_method` says about requests that pass.
    pub auth_method: &'static str,
}

/// What that header has to hold.
#[derive(Debug)]
pub enum Proof {
    /// A MAC: it proves who sent these very bytes.
    Mac(MacScheme),
    /// The secret itself. It proves who sent the request, but neither what nor when, and whoever reads one request can
    /// send others.
    Secret,
}

/// How a MAC is made and written.
#[derive(Debug)]
pub struct MacScheme {
    /// How the values are written into the header.
    pub form: Form,
    /// Where the signed time of sending is, for schemes that sign one.
    pub timestamp: Option<Timestamp>,
    /// The header with the event id, for schemes that sign it.
    pub id_header: Option<&'static str>,
    /// What the MAC is computed over, piece by piece.
    pub signed: &'static [Part],
    pub digest: Digest,
    pub encoding: Encoding,
    pub key: KeyForm,
}

/// The grammar of a signature header.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// `t=1700000000,v1=…,v1=…`: pairs, of which those named `signature` count.
    Pairs { separator: u8, signature: &'static str },
    /// `v1,… v1,…`: tagged values.
    Tagged { separator: u8, after_tag: u8, tag: &'static str },
    /// `sha256=…`: one value after a fixed text, which may be empty.
    Prefixed(&'static str),
}

/// The signed time of sending.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp {
    pub place: Place,
    pub unit: Unit,
    /// How far it may be from our clock, either way, unless the endpoint says otherwise.
    pub tolerance: Duration,
}

/// Where the signed time is written.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// In a pair of the signature header, under this name.
    Pair(&'static str),
    /// In a header of its own.
    Header(&'static str),
}

/// The unit belongs to the scheme: guessing it by size would hide a changed contract.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    Seconds,
    Milliseconds,
}

/// A piece of what is signed. Headers enter the MAC with their own bytes, never re-printed.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    Id,
    Timestamp,
    Body,
    Text(&'static str),
}

/// The hash inside the MAC. It is fixed by the scheme, never taken from the request.
#[derive(Debug, Clone, Copy)]
pub enum Digest {
    Sha256,
}

/// How a signature value is written.
#[derive(Debug, Clone, Copy)]
pub enum Encoding {
    /// Either case.
    Hex,
    /// The standard alphabet with canonical padding.
    Base64,
}

/// How the secret a provider shows becomes the bytes of the key. A prefix does not tell: two providers write `whsec_`
/// and mean different things.
#[derive(Debug, Clone, Copy)]
pub enum KeyForm {
    /// The whole text as it is.
    Verbatim,
    /// The base64 after this prefix.
    Base64After(&'static str),
}

/// Stripe, "Check the webhook signatures", <https://docs.stripe.com/webhooks#verify-manually>.
pub(super) static STRIPE: Scheme =
    Scheme { mark: "", header: "stripe-signature", proof: Proof::Mac(STRIPE_LIKE), auth_method: "hmac_body" };

const STRIPE_LIKE: MacScheme = MacScheme {
    // `v0` is a test scheme of old and never counts.
    form: Form::Pairs { separator: b',', signature: "v1" },
    timestamp: Some(Timestamp { place: Place::Pair("t"), unit: Unit::Seconds, tolerance: Duration::from_secs(300) }),
    id_header: None,
    signed: &[Part::Timestamp, Part::Text("."), Part::Body],
    digest: Digest::Sha256,
    encoding: Encoding::Hex,
    key: KeyForm::Verbatim,
};

/// Standard Webhooks, "Signature scheme",
/// <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>.
pub(super) static STANDARD_WEBHOOKS: Scheme = Scheme {
    mark: "",
    header: "webhook-signature",
    proof: Proof::Mac(MacScheme {
        form: Form::Tagged { separator: b' ', after_tag: b',', tag: "v1" },
        timestamp: Some(Timestamp {
            place: Place::Header("webhook-timestamp"),
            unit: Unit::Seconds,
            tolerance: Duration::from_secs(300),
        }),
        id_header: Some("webhook-id"),
        signed: &[Part::Id, Part::Text("."), Part::Timestamp, Part::Text("."), Part::Body],
        digest: Digest::Sha256,
        encoding: Encoding::Base64,
        key: KeyForm::Base64After("whsec_"),
    }),
    auth_method: "hmac_body",
};

/// RevenueCat, "Webhooks", <https://www.revenuecat.com/docs/integrations/webhooks>: a signature like Stripe's where it
/// is switched on for the integration, else the value that was set for the `Authorization` header.
pub(super) static REVENUECAT: [Scheme; 2] = [
    Scheme {
        mark: "hmac:",
        header: "x-revenuecat-webhook-signature",
        proof: Proof::Mac(STRIPE_LIKE),
        auth_method: "hmac_body",
    },
    Scheme { mark: "authorization:", header: "authorization", proof: Proof::Secret, auth_method: "static_header" },
];

/// One version of an endpoint's secret. It verifies from `active_from` until just before `active_until`.
#[derive(Clone)]
pub struct SigningKey {
    pub version: i32,
    /// The secret text as [`check_secret`] returned it. It becomes key bytes when a request is verified.
    pub secret: Zeroizing<Vec<u8>>,
    pub active_from: Time,
    pub active_until: Option<Time>,
}

impl SigningKey {
    pub fn is_active(&self, now: Time) -> bool {
        self.active_from <= now && self.active_until.is_none_or(|until| now < until)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("version", &self.version)
            .field("active_from", &self.active_from)
            .field("active_until", &self.active_until)
            .finish_non_exhaustive()
    }
}

/// Bytes that somebody who holds a secret of the endpoint has sent. Only [`verify`] makes one.
#[derive(Debug)]
pub struct Verified<'a> {
    body: &'a [u8],
    id: Option<&'a str>,
    key_version: i32,
    scheme: &'a Scheme,
}

impl<'a> Verified<'a> {
    /// The verified bytes, as they came.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The signed event id, for schemes that carry it in a header.
    pub fn id(&self) -> Option<&'a str> {
        self.id
    }

    /// The version of the secret that fits; the newest where several do.
    pub fn key_version(&self) -> i32 {
        self.key_version
    }

    pub fn auth_method(&self) -> &'static str {
        self.scheme.auth_method
    }

    /// The header with the signature. None where the header holds the secret itself, which nobody may keep.
    pub fn signature_header(&self) -> Option<&'static str> {
        match self.scheme.proof {
            Proof::Mac(_) => Some(self.scheme.header),
            Proof::Secret => None,
        }
    }
}

/// Why a request does not count as signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    #[error("the header {0} is missing or empty")]
    MissingHeader(&'static str),
    #[error("the header {0} is given with different values, or its value is not allowed")]
    BadHeader(&'static str),
    #[error("the signed time is malformed, given more than once, or outside the tolerance")]
    Timestamp,
    #[error("no signature or header value fits the request and an active key")]
    Signature,
}

/// Verifies that a request comes from somebody who holds an active secret, by the strongest scheme that the endpoint has
/// an active secret for: a weaker proof never stands in for a stronger one.
///
/// `schemes` are those of the provider, the strongest first. `headers` holds every header line with its name in lower
/// case. Every active key is tried against every value, without an early exit, so that the time taken does not tell
/// which one was close. A wrong signature is reported before a wrong time: a well-formed time outside the tolerance comes
/// from somebody who holds the secret.
///
/// # Errors
/// See [`VerifyError`].
pub fn verify<'a>(
    schemes: &'a [Scheme],
    headers: &[(&str, &'a [u8])],
    body: &'a [u8],
    keys: &[SigningKey],
    tolerance: Option<Duration>,
    now: Time,
) -> Result<Verified<'a>, VerifyError> {
    let active: Vec<&SigningKey> = keys.iter().filter(|key| key.is_active(now)).collect();
    let demanded = |scheme: &&Scheme| active.iter().any(|key| scheme.secret_in(&key.secret).is_some());
    let scheme = schemes.iter().find(demanded).ok_or(VerifyError::Signature)?;
    let secrets = active.iter().filter_map(|key| Some((key.version, scheme.secret_in(&key.secret)?)));
    let lines: Vec<&'a [u8]> = lines(headers, scheme.header).collect();
    if lines.iter().all(|line| line.trim_ascii().is_empty()) {
        return Err(VerifyError::MissingHeader(scheme.header));
    }
    let (key_version, id) = match &scheme.proof {
        Proof::Mac(mac) => mac.verify(headers, &lines, body, secrets, tolerance, now)?,
        Proof::Secret => (holder(&lines, secrets).ok_or(VerifyError::Signature)?, None),
    };
    Ok(Verified { body, id, key_version, scheme })
}

/// The version of the secret that a header line repeats; the newest where several do.
fn holder<'k>(lines: &[&[u8]], secrets: impl Iterator<Item = (i32, &'k [u8])>) -> Option<i32> {
    let mut fitting: Option<i32> = None;
    for (version, secret) in secrets {
        for line in lines.iter().take(MAX_SIGNATURES) {
            if is_secret(line.trim_ascii(), secret) {
                fitting = fitting.max(Some(version));
            }
        }
    }
    fitting
}

/// Compares MACs of both instead of the bytes, so that the time taken tells neither the place of a difference nor the
/// length of the secret. A secret that could not have been stored equals nothing.
fn is_secret(given: &[u8], secret: &[u8]) -> bool {
    let Ok(mac) = Hmac::<Sha256>::new_from_slice(secret) else { return false };
    let of = |text: &[u8]| mac.clone().chain_update(text);
    secret.len() >= MIN_KEY_BYTES && of(given).verify(&of(secret).finalize().into_bytes()).is_ok()
}

/// Signs a request as the provider would: the headers to send, by name and value.
///
/// Where the provider has several schemes, the mark in front of `secret` chooses one. A secret without a mark, such as a
/// forger may try, goes into the headers of all of them.
///
/// # Errors
/// [`SecretError`] when the secret is not one of the provider's.
pub fn sign(
    provider: Provider,
    secret: &[u8],
    event_id: &str,
    timestamp: Time,
    body: &[u8],
) -> Result<Vec<(&'static str, String)>, SecretError> {
    let schemes = provider.schemes();
    let chosen = schemes.iter().find_map(|scheme| Some((scheme, scheme.secret_in(secret)?)));
    if let Some((scheme, secret)) = chosen {
        return scheme.sign(secret, event_id, timestamp, body);
    }
    let signed: Result<Vec<_>, SecretError> =
        schemes.iter().map(|scheme| scheme.sign(secret, event_id, timestamp, body)).collect();
    Ok(signed?.concat())
}

/// What a request claims about itself, before anything is believed.
struct Claim<'a> {
    id: Option<&'a str>,
    timestamp: &'a [u8],
    signatures: Vec<Vec<u8>>,
}

impl<'a> Claim<'a> {
    /// `lines` are those of the header with the signatures.
    fn read(scheme: &MacScheme, headers: &[(&str, &'a [u8])], lines: &[&'a [u8]]) -> Result<Self, VerifyError> {
        let id = match scheme.id_header {
            Some(name) => Some(signed_id(name, single(headers, name)?)?),
            None => None,
        };
        let timestamp: &'a [u8] = match &scheme.timestamp {
            None => &[],
            Some(Timestamp { place: Place::Header(name), unit, .. }) => {
                let text = single(headers, name)?;
                unit.read(text).map(|_| text).ok_or(VerifyError::Timestamp)?
            }
            Some(Timestamp { place: Place::Pair(name), unit, .. }) => {
                let text = scheme.form.timestamp(lines, name).ok_or(VerifyError::Timestamp)?;
                unit.read(text).map(|_| text).ok_or(VerifyError::Timestamp)?
            }
        };
        let signatures = lines.iter().flat_map(|line| scheme.form.signatures(line));
        let signatures = signatures.take(MAX_SIGNATURES).filter_map(|text| scheme.encoding.decode(text)).collect();
        Ok(Claim { id, timestamp, signatures })
    }
}

/// The lines of one header.
fn lines<'a>(headers: &[(&str, &'a [u8])], name: &str) -> impl Iterator<Item = &'a [u8]> {
    headers.iter().filter(move |(given, _)| *given == name).map(|(_, value)| *value)
}

/// The value of a header that has one value: several lines must agree.
fn single<'a>(headers: &[(&str, &'a [u8])], name: &'static str) -> Result<&'a [u8], VerifyError> {
    let mut values = lines(headers, name);
    let first = values.next().filter(|value| !value.is_empty()).ok_or(VerifyError::MissingHeader(name))?;
    if values.any(|value| value != first) { Err(VerifyError::BadHeader(name)) } else { Ok(first) }
}

/// An id that enters the MAC before a full stop must not contain one, else the boundary could be moved.
fn signed_id<'a>(header: &'static str, value: &'a [u8]) -> Result<&'a str, VerifyError> {
    let id = std::str::from_utf8(value).map_err(|_| VerifyError::BadHeader(header))?;
    let allowed = id.len() <= MAX_ID_BYTES && !id.contains(|c: char| c == '.' || c.is_control());
    if allowed { Ok(id) } else { Err(VerifyError::BadHeader(header)) }
}

impl Form {
    /// The signature values of one header line, still encoded.
    fn signatures<'a>(self, line: &'a [u8]) -> Box<dyn Iterator<Item = &'a [u8]> + 'a> {
        match self {
            Form::Pairs { separator, signature } => Box::new(
                pairs(line, separator, b'=').filter(move |(name, _)| *name == signature.as_bytes()).map(|(_, v)| v),
            ),
            Form::Tagged { separator, after_tag, tag } => Box::new(
                pairs(line, separator, after_tag).filter(move |(name, _)| *name == tag.as_bytes()).map(|(_, v)| v),
            ),
            Form::Prefixed(prefix) => Box::new(line.trim_ascii().strip_prefix(prefix.as_bytes()).into_iter()),
        }
    }

    /// The time in the pair `name`: at most once in a line, and the same in all lines.
    fn timestamp<'a>(self, lines: &[&'a [u8]], name: &str) -> Option<&'a [u8]> {
        let Form::Pairs { separator, .. } = self else { return None };
        let mut agreed: Option<&'a [u8]> = None;
        for line in lines {
            let mut given = pairs(line, separator, b'=').filter(|(key, _)| *key == name.as_bytes());
            let Some((_, value)) = given.next() else { continue };
            if given.next().is_some() || agreed.is_some_and(|before| before != value) {
                return None;
            }
            agreed = Some(value);
        }
        agreed
    }

    fn write(self, timestamp: Option<(&str, &str)>, signature: &str) -> String {
        match self {
            Form::Pairs { separator, signature: name } => {
                let time = timestamp.map(|(key, value)| format!("{key}={value}{}", char::from(separator)));
                format!("{}{name}={signature}", time.unwrap_or_default())
            }
            Form::Tagged { after_tag, tag, .. } => format!("{tag}{}{signature}", char::from(after_tag)),
            Form::Prefixed(prefix) => format!("{prefix}{signature}"),
        }
    }
}

/// `name=value` items; items without the mark are passed over.
fn pairs(line: &[u8], separator: u8, mark: u8) -> impl Iterator<Item = (&[u8], &[u8])> {
    line.split(move |byte| *byte == separator).filter_map(move |item| {
        let at = item.iter().position(|byte| *byte == mark)?;
        let (name, rest) = item.split_at_checked(at)?;
        Some((name.trim_ascii(), rest.get(1..)?))
    })
}

impl Unit {
    /// Plain digits only: no sign, no exponent, no leading zero, no spaces.
    fn read(self, text: &[u8]) -> Option<u64> {
        let longest = match self {
            Unit::Seconds => 12,
            Unit::Milliseconds => 15,
        };
        let plain = text.len() <= longest && text.iter().all(u8::is_ascii_digit) && !text.starts_with(b"0");
        if plain { std::str::from_utf8(text).ok()?.parse().ok() } else { None }
    }

    fn of(self, time: Time) -> u64 {
        let count = match self {
            Unit::Seconds => time.timestamp(),
            Unit::Milliseconds => time.timestamp_millis(),
        };
        u64::try_from(count).unwrap_or(0)
    }

    fn count(self, duration: Duration) -> u64 {
        match self {
            Unit::Seconds => duration.as_secs(),
            Unit::Milliseconds => u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Encoding {
    fn decode(self, text: &[u8]) -> Option<Vec<u8>> {
        let text = text.trim_ascii();
        match self {
            Encoding::Hex => hex::decode(text).ok(),
            Encoding::Base64 => STANDARD.decode(text).ok(),
        }
    }

    fn encode(self, bytes: &[u8]) -> String {
        match self {
            Encoding::Hex => hex::encode(bytes),
            Encoding::Base64 => STANDARD.encode(bytes),
        }
    }
}

impl Scheme {
    /// The secret in a stored text, if it is one of this scheme.
    fn secret_in<'s>(&self, stored: &'s [u8]) -> Option<&'s [u8]> {
        stored.strip_prefix(self.mark.as_bytes())
    }

    fn sign(
        &self,
        secret: &[u8],
        event_id: &str,
        timestamp: Time,
        body: &[u8],
    ) -> Result<Vec<(&'static str, String)>, SecretError> {
        match &self.proof {
            Proof::Mac(mac) => mac.sign(self.header, secret, event_id, timestamp, body),
            Proof::Secret => {
                let value = std::str::from_utf8(secret).map_err(|_| SecretError::NotAHeaderValue)?;
                Ok(vec![(self.header, value.to_owned())])
            }
        }
    }

    fn check(&self, secret: &str) -> Result<(), SecretError> {
        match &self.proof {
            Proof::Mac(_) if secret.contains(|c: char| c.is_whitespace() || c.is_control()) => Err(SecretError::Blanks),
            Proof::Mac(mac) => mac.key.decode(secret.as_bytes()).map(drop),
            Proof::Secret if !secret.chars().all(|c| c == ' ' || c.is_ascii_graphic()) => {
                Err(SecretError::NotAHeaderValue)
            }
            // What stands beside it, such as `Bearer`, guards nothing.
            Proof::Secret if secret.split(' ').all(|word| word.len() < MIN_KEY_BYTES) => Err(SecretError::Guessable),
            Proof::Secret => Ok(()),
        }
    }
}

impl MacScheme {
    /// The version of the key that fits, and the signed event id.
    fn verify<'a, 'k>(
        &self,
        headers: &[(&str, &'a [u8])],
        lines: &[&'a [u8]],
        body: &[u8],
        secrets: impl Iterator<Item = (i32, &'k [u8])>,
        tolerance: Option<Duration>,
        now: Time,
    ) -> Result<(i32, Option<&'a str>), VerifyError> {
        let claim = Claim::read(self, headers, lines)?;
        let mut fitting: Option<i32> = None;
        for (version, secret) in secrets {
            let Some(mac) = self.mac(secret, claim.id.unwrap_or_default().as_bytes(), claim.timestamp, body) else {
                continue;
            };
            for signature in &claim.signatures {
                if mac.clone().verify_slice(signature).is_ok() {
                    fitting = fitting.max(Some(version));
                }
            }
        }
        let key_version = fitting.ok_or(VerifyError::Signature)?;
        if let Some(timestamp) = &self.timestamp {
            let sent = timestamp.unit.read(claim.timestamp).ok_or(VerifyError::Timestamp)?;
            let allowed = timestamp.unit.count(tolerance.unwrap_or(timestamp.tolerance));
            if timestamp.unit.of(now).abs_diff(sent) > allowed {
                return Err(VerifyError::Timestamp);
            }
        }
        Ok((key_version, claim.id))
    }

    /// The MAC over everything the scheme signs, ready to be compared. None where the stored secret is unusable.
    fn mac(&self, secret: &[u8], id: &[u8], timestamp: &[u8], body: &[u8]) -> Option<Hmac<Sha256>> {
        let key = self.key.decode(secret).ok()?;
        let mut mac = match self.digest {
            Digest::Sha256 => Hmac::<Sha256>::new_from_slice(&key).ok()?,
        };
        for part in self.signed {
            mac.update(match part {
                Part::Id => id,
                Part::Timestamp => timestamp,
                Part::Body => body,
                Part::Text(text) => text.as_bytes(),
            });
        }
        Some(mac)
    }

    fn sign(
        &self,
        header: &'static str,
        secret: &[u8],
        event_id: &str,
        timestamp: Time,
        body: &[u8],
    ) -> Result<Vec<(&'static str, String)>, SecretError> {
        let time = self.timestamp.as_ref().map(|t| (t.place, t.unit.of(timestamp).to_string()));
        let text = time.as_ref().map_or("", |(_, text)| text.as_str());
        self.key.decode(secret)?;
        let mac = self.mac(secret, event_id.as_bytes(), text.as_bytes(), body).ok_or(SecretError::TooShort)?;
        let signature = self.encoding.encode(&mac.finalize().into_bytes());
        let mut headers = Vec::new();
        if let Some(name) = self.id_header {
            headers.push((name, event_id.to_owned()));
        }
        let mut pair = None;
        match &time {
            Some((Place::Header(name), text)) => headers.push((*name, text.clone())),
            Some((Place::Pair(name), text)) => pair = Some((*name, text.as_str())),
            None => {}
        }
        headers.push((header, self.form.write(pair, &signature)));
        Ok(headers)
    }
}

/// Why a text cannot be a signing secret. The text is never repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("the signing secret is empty")]
    Empty,
    #[error("the signing secret holds fewer than 16 bytes; copy the whole secret from the provider's dashboard")]
    TooShort,
    #[error("the signing secret has blanks or control characters inside; copy it again, without line breaks")]
    Blanks,
    #[error("this is an API key, not a signing secret; the signing secret is shown with the webhook endpoint")]
    ApiKey,
    #[error("the signing secret must be base64, with or without {0} before it")]
    NotBase64(&'static str),
    #[error("{0} authenticates in several ways; write {marks} in front of the secret to say which", marks = marks(*.0))]
    Unmarked(Provider),
    #[error("the header value may hold only visible ASCII characters, and blanks between them")]
    NotAHeaderValue,
    #[error(
        "the header value can be guessed; set one with at least 16 characters in a row in the provider's dashboard"
    )]
    Guessable,
}

fn marks(provider: Provider) -> String {
    provider.schemes().iter().map(|scheme| scheme.mark).collect::<Vec<_>>().join(" or ")
}

impl KeyForm {
    fn decode(self, secret: &[u8]) -> Result<Zeroizing<Vec<u8>>, SecretError> {
        let key = match self {
            KeyForm::Verbatim => Zeroizing::new(secret.to_vec()),
            KeyForm::Base64After(prefix) => {
                let text = secret.strip_prefix(prefix.as_bytes()).unwrap_or(secret);
                Zeroizing::new(STANDARD.decode(text).map_err(|_| SecretError::NotBase64(prefix))?)
            }
        };
        if key.len() < MIN_KEY_BYTES { Err(SecretError::TooShort) } else { Ok(key) }
    }
}

/// Checks a secret before it is stored, and returns the text to store: the secret without surrounding white space, after
/// the mark of its scheme where the provider has several. RevenueCat's are written `hmac:SECRET`, for an integration
/// that signs, and `authorization:VALUE`, for the whole value of the `Authorization` header.
///
/// # Errors
/// [`SecretError`] says what is wrong and what to do.
pub fn check_secret(provider: Provider, secret: &str) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let text = secret.trim();
    if text.is_empty() {
        return Err(SecretError::Empty);
    }
    let marked = provider.schemes().iter().find_map(|scheme| Some((scheme, after_mark(text, scheme.mark)?)));
    let (scheme, secret) = marked.ok_or(SecretError::Unmarked(provider))?;
    if secret.is_empty() {
        return Err(SecretError::Empty);
    }
    if ["sk_", "rk_", "pk_", "whpk_"].into_iter().any(|prefix| secret.starts_with(prefix)) {
        return Err(SecretError::ApiKey);
    }
    scheme.check(secret)?;
    Ok(Zeroizing::new([scheme.mark.as_bytes(), secret.as_bytes()].concat()))
}

/// What follows the mark, which may be written like a header's name: `Authorization: VALUE`.
fn after_mark<'s>(text: &'s str, mark: &str) -> Option<&'s str> {
    let (given, rest) = text.split_at_checked(mark.len())?;
    given.eq_ignore_ascii_case(mark).then(|| rest.trim())
}

#[cfg(test)]
mod tests;
