//! The intake decision: bytes and headers become an [`Admission`] or a [`Refusal`]. Pure: no database, no clock.

use std::collections::HashMap;
use std::time::Duration;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::domain::{Environment, Time};
use crate::providers::{self, Envelope, EnvelopeError, Provider, SigningKey, VerifyError};

/// How much of a signature header is kept, in bytes.
const KEPT_HEADER_BYTES: usize = 1024;
/// What is kept instead of a header that holds the secret itself.
pub const WITHHELD: &str = "withheld";
/// How far into an unverified body an id is looked for, in bytes.
const CLAIM_WINDOW_BYTES: usize = 512;
/// The longest claimed id that is worth keeping, in bytes.
const CLAIM_BYTES: usize = 64;

/// A request as it came.
#[derive(Clone, Copy)]
pub struct Inbound<'a> {
    pub provider: Provider,
    pub endpoint_slug: &'a str,
    /// Every header line, with its name in lower case.
    pub headers: &'a [(&'a str, &'a [u8])],
    pub body: &'a [u8],
    pub received_at: Time,
}

impl Inbound<'_> {
    /// The event id that the request claims. Nobody has vouched for it: it may help a person, it must never be a key.
    pub fn claimed_id(&self) -> Option<String> {
        let claimed = match self.provider.id_header() {
            Some(name) => self.headers.iter().find(|(given, _)| *given == name).map(|(_, value)| *value),
            None => first_id(self.body),
        };
        let claimed = claimed.filter(|id| !id.is_empty() && id.len() <= CLAIM_BYTES)?;
        let plain = claimed.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte));
        if plain { String::from_utf8(claimed.to_vec()).ok() } else { None }
    }
}

/// The value after the first `"id":` near the start of the body, by sight: unverified bytes are not parsed.
fn first_id(body: &[u8]) -> Option<&[u8]> {
    let start = body.get(..body.len().min(CLAIM_WINDOW_BYTES))?;
    let at = start.windows(4).position(|window| window == b"\"id\"")?;
    let value = start.get(at + 4..)?.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
    value.get(..value.iter().position(|byte| *byte == b'"')?)
}

/// Where one account at one provider sends its webhooks.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub id: Uuid,
    pub slug: String,
    pub provider: Provider,
    /// The account of events that name none.
    pub account: String,
    /// Further accounts whose events this endpoint may carry, such as connected accounts.
    pub other_accounts: Vec<String>,
    /// The environment of events that do not say.
    pub environment: Environment,
    pub active: bool,
    /// How far the signed time may be from our clock; none means what the scheme says. Whole seconds.
    pub tolerance: Option<Duration>,
    /// What to answer when a known event id comes with other content: 409, or 200 for providers that retry it for days.
    pub mismatch_status: u16,
    pub keys: Vec<SigningKey>,
    /// Whether the endpoint has keys that we could not open. Then a request without a usable key is our trouble, not the
    /// sender's.
    pub has_unreadable_keys: bool,
}

impl Endpoint {
    fn carries(&self, account: &str) -> bool {
        self.account == account || self.other_accounts.iter().any(|other| other == account)
    }
}

/// All endpoints with their keys: a snapshot of the database.
#[derive(Debug, Default)]
pub struct KeyRing {
    endpoints: HashMap<Provider, HashMap<String, Endpoint>>,
}

impl KeyRing {
    pub fn new(endpoints: Vec<Endpoint>) -> Self {
        let mut ring = KeyRing::default();
        for endpoint in endpoints {
            ring.endpoints.entry(endpoint.provider).or_default().insert(endpoint.slug.clone(), endpoint);
        }
        ring
    }

    pub fn get(&self, provider: Provider, slug: &str) -> Option<&Endpoint> {
        self.endpoints.get(&provider)?.get(slug)
    }

    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.values().flat_map(HashMap::values)
    }
}

/// A request that may be stored.
#[derive(Debug)]
pub struct Admission<'a> {
    pub endpoint: &'a Endpoint,
    /// The account under which the event and its ledger rows are kept; it tells environments apart.
    pub account_key: String,
    pub environment: Environment,
    pub key_version: i32,
    pub auth_method: &'static str,
    /// The signature header as it came, for forensics: lossy, all lines, cut at 1 KiB; or [`WITHHELD`].
    pub signature_header: String,
    pub raw_sha256: [u8; 32],
    pub envelope: Envelope,
    pub body: &'a [u8],
    pub received_at: Time,
}

/// Why a request is not accepted. Nothing of it is stored but a counter and a bounded refusal row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no such provider")]
    UnknownProvider,
    #[error("no such endpoint")]
    UnknownEndpoint,
    #[error("method not allowed; send webhooks with POST")]
    Method,
    #[error("the body did not arrive in time")]
    TooSlow,
    #[error("the body is too large")]
    TooLarge,
    #[error("the body is encoded; send it without Content-Encoding")]
    Encoded,
    #[error("the headers are too large")]
    HeadersTooLarge,
    #[error("the request broke off or is not proper HTTP")]
    BadRequest,
    #[error("too many requests for this endpoint")]
    RateLimited,
    #[error("the endpoint is switched off")]
    EndpointDisabled,
    #[error("the endpoint has no active key")]
    InactiveKey,
    #[error("the header {0} is missing or empty")]
    MissingHeader(&'static str),
    #[error("the header {0} is not usable")]
    BadHeader(&'static str),
    #[error("the signature does not fit")]
    Signature,
    #[error("the signed time is outside the tolerance")]
    Timestamp,
    #[error(transparent)]
    Envelope(EnvelopeError),
    #[error("the event belongs to an account that this endpoint does not carry")]
    UnknownAccount,
    #[error("cannot take the event right now; send it again later")]
    Unavailable,
}

impl Refusal {
    /// One of each kind, in the order in which a request meets them.
    pub const ALL: [Refusal; 21] = [
        Refusal::UnknownProvider,
        Refusal::Method,
        Refusal::BadRequest,
        Refusal::HeadersTooLarge,
        Refusal::TooLarge,
        Refusal::Encoded,
        Refusal::TooSlow,
        Refusal::UnknownEndpoint,
        Refusal::RateLimited,
        Refusal::EndpointDisabled,
        Refusal::InactiveKey,
        Refusal::MissingHeader("webhook-signature"),
        Refusal::BadHeader("webhook-id"),
        Refusal::Signature,
        Refusal::Timestamp,
        Refusal::Envelope(EnvelopeError::Json),
        Refusal::Envelope(EnvelopeError::Schema),
        Refusal::Envelope(EnvelopeError::Id),
        Refusal::Envelope(EnvelopeError::Type),
        Refusal::UnknownAccount,
        Refusal::Unavailable,
    ];

    /// The HTTP status that answers it. `docs/STATUS-CODES.md` is this table.
    pub fn status(self) -> u16 {
        match self {
            Refusal::BadRequest | Refusal::MissingHeader(_) | Refusal::BadHeader(_) | Refusal::Envelope(_) => 400,
            Refusal::Signature | Refusal::Timestamp => 401,
            Refusal::EndpointDisabled | Refusal::InactiveKey => 403,
            Refusal::UnknownProvider | Refusal::UnknownEndpoint | Refusal::UnknownAccount => 404,
            Refusal::Method => 405,
            Refusal::TooSlow => 408,
            Refusal::TooLarge => 413,
            Refusal::Encoded => 415,
            Refusal::RateLimited => 429,
            Refusal::HeadersTooLarge => 431,
            Refusal::Unavailable => 503,
        }
    }

    /// A stable code: the `reason` of metrics and refusal rows.
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::UnknownProvider => "unknown_provider",
            Refusal::UnknownEndpoint => "unknown_endpoint",
            Refusal::Method => "method",
            Refusal::TooSlow => "too_slow",
            Refusal::TooLarge => "too_large",
            Refusal::Encoded => "encoding",
            Refusal::HeadersTooLarge => "headers_too_large",
            Refusal::BadRequest => "bad_request",
            Refusal::RateLimited => "rate_limited",
            Refusal::EndpointDisabled => "endpoint_disabled",
            Refusal::InactiveKey => "inactive_key",
            Refusal::MissingHeader(_) => "missing_header",
            Refusal::BadHeader(_) => "bad_header",
            Refusal::Signature => "signature",
            Refusal::Timestamp => "timestamp",
            Refusal::Envelope(error) => error.code(),
            Refusal::UnknownAccount => "unknown_account",
            Refusal::Unavailable => "storage",
        }
    }
}

impl From<VerifyError> for Refusal {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::MissingHeader(name) => Refusal::MissingHeader(name),
            VerifyError::BadHeader(name) => Refusal::BadHeader(name),
            VerifyError::Timestamp => Refusal::Timestamp,
            VerifyError::Signature => Refusal::Signature,
        }
    }
}

impl From<EnvelopeError> for Refusal {
    fn from(error: EnvelopeError) -> Self {
        Refusal::Envelope(error)
    }
}

/// Decides about one request. `now` is our clock, against which keys and the signed time are held.
///
/// # Errors
/// [`Refusal`], the first that applies: endpoint, key, signature and time, envelope, account.
pub fn admit<'a>(inbound: &Inbound<'a>, ring: &'a KeyRing, now: Time) -> Result<Admission<'a>, Refusal> {
    let endpoint = ring.get(inbound.provider, inbound.endpoint_slug).ok_or(Refusal::UnknownEndpoint)?;
    if !endpoint.active {
        return Err(Refusal::EndpointDisabled);
    }
    if !endpoint.keys.iter().any(|key| key.is_active(now)) {
        return Err(if endpoint.has_unreadable_keys { Refusal::Unavailable } else { Refusal::InactiveKey });
    }
    let schemes = inbound.provider.schemes();
    let verified = providers::verify(schemes, inbound.headers, inbound.body, &endpoint.keys, endpoint.tolerance, now)?;
    let signature = verified.signature_header().map(|name| kept_header(inbound.headers, name));
    let envelope = providers::envelope(inbound.provider, &verified, inbound.received_at)?;
    let account = envelope.account.as_deref().unwrap_or(&endpoint.account);
    if !endpoint.carries(account) {
        return Err(Refusal::UnknownAccount);
    }
    let environment = envelope.environment.unwrap_or(endpoint.environment);
    Ok(Admission {
        endpoint,
        account_key: environment.account_key(account),
        environment,
        key_version: verified.key_version(),
        auth_method: verified.auth_method(),
        signature_header: signature.unwrap_or_else(|| WITHHELD.to_owned()),
        raw_sha256: Sha256::digest(inbound.body).into(),
        body: inbound.body,
        received_at: inbound.received_at,
        envelope,
    })
}

/// All lines of a header in one text that can be stored anywhere.
fn kept_header(headers: &[(&str, &[u8])], name: &str) -> String {
    let lines = headers.iter().filter(|(given, _)| *given == name).map(|(_, value)| *value);
    let bytes: Vec<u8> = lines.flat_map(|line| line.iter().chain(b"\n")).copied().take(KEPT_HEADER_BYTES).collect();
    let mut kept = String::with_capacity(bytes.len());
    for char in String::from_utf8_lossy(&bytes).trim_end().chars().filter(|c| *c == '\n' || !c.is_control()) {
        if kept.len() + char.len_utf8() > KEPT_HEADER_BYTES {
            break;
        }
        kept.push(char);
    }
    kept
}

#[cfg(test)]
mod tests;
