use std::cmp::Reverse;
use std::time::Duration;

use chrono::Utc;
use clap::Args;
use serde::{Deserialize, Serialize};
use shared::domain::Environment;
use shared::intake::Endpoint;
use shared::providers::sample::{self, Sample, SampleOptions};
use shared::providers::{Provider, SigningKey, sign};
use shared::service::SealingSettings;
use shared::store;
use uuid::Uuid;

use super::Context;
use super::error::{CtlError, Exit};
use super::output::table;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// How many hexadecimal digits make an event that nobody has sent before.
const SUFFIX_DIGITS: usize = 12;

#[derive(Debug, Args)]
pub(super) struct Trigger {
    /// stripe, standard or revenuecat
    #[arg(required_unless_present = "list")]
    provider: Option<Provider>,
    /// The type of the event, such as payment_intent.succeeded
    #[arg(required_unless_present = "list")]
    event_type: Option<String>,
    /// Show the types of events there are
    #[arg(long)]
    list: bool,
    /// The slug of the endpoint whose newest active key signs
    #[arg(long, value_name = "SLUG", required_unless_present = "list")]
    endpoint: Option<String>,
    /// Where the ingress listens
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = address)]
    ingress: String,
    /// What all ids are made of; events with the same one tell of the same payment. Else a new one
    #[arg(long, value_parser = suffix)]
    suffix: Option<String>,
    /// The payment that it is about, where it is not the one of the suffix
    #[arg(long, value_name = "ID")]
    payment: Option<String>,
    /// The amount of the payment, in the provider's minor unit
    #[arg(long, value_name = "MINOR", default_value_t = 1099, value_parser = clap::value_parser!(i64).range(1..=1_000_000_000_000))]
    amount: i64,
    /// How much of it a refund or dispute takes back; else half for a refund, all for a dispute
    #[arg(long, value_name = "MINOR", value_parser = clap::value_parser!(i64).range(1..=1_000_000_000_000))]
    part: Option<i64>,
    /// Three letters of ISO 4217
    #[arg(long, default_value = "usd", value_parser = currency)]
    currency: String,
    /// Send the same bytes twice: the second time they must be answered as replayed
    #[arg(long, group = "twist")]
    duplicate: bool,
    /// Sign with a secret that is not the endpoint's: must be refused
    #[arg(long, group = "twist")]
    forged: bool,
    /// Send the same event id again with another amount: must be answered as a mismatch
    #[arg(long, group = "twist")]
    mismatch: bool,
    /// How many such events
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    #[command(flatten)]
    sealing: SealingSettings,
}

fn address(text: &str) -> Result<String, &'static str> {
    if text.starts_with("http://") || text.starts_with("https://") {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("the address begins with http:// or https://")
    }
}

fn suffix(text: &str) -> Result<String, &'static str> {
    if (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        Ok(text.to_owned())
    } else {
        Err("a suffix has 1 to 64 letters and digits")
    }
}

fn currency(text: &str) -> Result<String, &'static str> {
    if text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a currency has three letters")
    }
}

/// A request to be sent, and the answer that belongs to it.
struct Shot {
    what: &'static str,
    sample: Sample,
    forged: bool,
    status: u16,
    word: &'static str,
}

/// A request that was sent.
#[derive(Debug, Serialize)]
struct Request {
    event_id: String,
    sent: &'static str,
    http_status: u16,
    answer: String,
    expected_http_status: u16,
    expected_answer: &'static str,
    as_expected: bool,
}

#[derive(Serialize)]
struct SampleType {
    provider: Provider,
    event_type: &'static str,
}

impl Trigger {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let (Some(provider), Some(event_type), Some(slug)) = (self.provider, &self.event_type, &self.endpoint) else {
            return list(context, self.provider);
        };
        if self.list {
            return list(context, self.provider);
        }
        // An unknown type is told before anything is asked for.
        sample::event(provider, event_type, &SampleOptions::new("x", Utc::now()))?;
        let sealer = self.sealing.sealer()?;
        let ring = store::load_key_ring(&mut *context.connection()?, &sealer)?;
        let name = format!("{provider}/{slug}");
        let endpoint = ring.get(provider, slug).ok_or_else(|| store::EndpointStoreError::NotFound(name.clone()))?;
        let sender = Sender::of(endpoint, &self.ingress).ok_or(CtlError::NoActiveKey(name))?;
        let mut requests = Vec::new();
        for suffix in self.suffixes() {
            for shot in self.shots(event_type, endpoint, &suffix)? {
                requests.push(sender.send(&shot)?);
            }
        }
        const HEADINGS: [&str; 5] = ["EVENT ID", "SENT", "HTTP", "ANSWER", "EXPECTED"];
        context.print("trigger.send", &requests, |requests| table(&HEADINGS, requests, Request::cells))?;
        match requests.iter().filter(|request| !request.as_expected).count() {
            0 => Ok(Exit::Done),
            count => Err(CtlError::UnexpectedAnswers { count, hint: hint(&requests) }),
        }
    }

    fn suffixes(&self) -> Vec<String> {
        let first = self.suffix.clone().unwrap_or_else(fresh_suffix);
        if self.count == 1 { vec![first] } else { (1..=self.count).map(|number| format!("{first}{number}")).collect() }
    }

    /// The requests about one event.
    fn shots(&self, event_type: &str, endpoint: &Endpoint, suffix: &str) -> Result<Vec<Shot>, CtlError> {
        let options = self.options(event_type, endpoint, suffix);
        let sample = sample::event(endpoint.provider, event_type, &options)?;
        let shot =
            |what, sample: &Sample, forged, status, word| Shot { what, sample: sample.clone(), forged, status, word };
        let event = shot("event", &sample, false, 200, "accepted");
        if self.forged {
            return Ok(vec![shot("forged event", &sample, true, 401, "signature")]);
        }
        if self.duplicate {
            return Ok(vec![event, shot("same bytes", &sample, false, 200, "replayed")]);
        }
        if self.mismatch {
            let dearer = SampleOptions { amount_minor: options.amount_minor + 1, ..options };
            let other = sample::event(endpoint.provider, event_type, &dearer)?;
            if other.body == sample.body {
                return Err(CtlError::NoAmount(event_type.to_owned()));
            }
            return Ok(vec![event, shot("other amount", &other, false, endpoint.mismatch_status, "payload_mismatch")]);
        }
        Ok(vec![event])
    }

    fn options(&self, event_type: &str, endpoint: &Endpoint, suffix: &str) -> SampleOptions {
        let part = match kind(event_type) {
            Kind::Whole => None,
            Kind::Refund => Some(self.part.unwrap_or((self.amount / 2).max(1))),
            Kind::Dispute => Some(self.part.unwrap_or(self.amount)),
        };
        SampleOptions {
            payment: self.payment.clone(),
            amount_minor: part.unwrap_or(self.amount),
            payment_amount_minor: part.map(|_| self.amount),
            currency: self.currency.clone(),
            livemode: endpoint.environment == Environment::Production,
            ..SampleOptions::new(suffix, Utc::now())
        }
    }
}

/// What part of a payment an event is about.
enum Kind {
    Whole,
    Refund,
    Dispute,
}

fn kind(event_type: &str) -> Kind {
    if event_type.contains("refund") || event_type.starts_with("REFUND") {
        Kind::Refund
    } else if event_type.contains("dispute") {
        Kind::Dispute
    } else {
        Kind::Whole
    }
}

/// The random end of a UUIDv7.
fn fresh_suffix() -> String {
    let id = Uuid::now_v7().simple().to_string();
    id.get(id.len().saturating_sub(SUFFIX_DIGITS)..).unwrap_or(&id).to_owned()
}

fn hint(requests: &[Request]) -> &'static str {
    let repeated = requests
        .iter()
        .any(|r| r.expected_answer == "accepted" && matches!(r.answer.as_str(), "replayed" | "payload_mismatch"));
    if repeated { "; an event with this id was sent before, and another --suffix makes a new one" } else { "" }
}

fn list(context: &Context, provider: Option<Provider>) -> Result<Exit, CtlError> {
    let providers = Provider::ALL.into_iter().filter(|known| provider.is_none_or(|asked| asked == *known));
    let types: Vec<SampleType> = providers
        .flat_map(|provider| sample::types(provider).iter().map(move |event_type| SampleType { provider, event_type }))
        .collect();
    context.print("trigger.list", &types, |types| {
        table(&["PROVIDER", "TYPE"], types, |known| vec![known.provider.to_string(), known.event_type.to_owned()])
    })?;
    Ok(Exit::Done)
}

/// Signs and sends as the provider would.
struct Sender<'a> {
    provider: Provider,
    url: String,
    key: &'a SigningKey,
    agent: ureq::Agent,
}

/// What the ingress says, well or ill.
#[derive(Deserialize)]
struct Words {
    #[serde(alias = "error")]
    status: String,
}

impl<'a> Sender<'a> {
    /// None when the endpoint has no active key.
    fn of(endpoint: &'a Endpoint, ingress: &str) -> Option<Self> {
        let now = Utc::now();
        // Where a provider has several schemes, the strongest one that has a key is the one that counts.
        let strength = |key: &SigningKey| endpoint.provider.schemes().iter().position(|scheme| key.secret.starts_with(scheme.mark.as_bytes()));
        let active = endpoint.keys.iter().filter(|key| key.is_active(now));
        let key = active.max_by_key(|key| (Reverse(strength(key)), key.version))?;
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(ANSWER_TIMEOUT))
            .max_redirects(0)
            // The ingress is ours and near. A proxy in between would answer for it.
            .proxy(None)
            .user_agent(concat!("webhookctl/", env!("CARGO_PKG_VERSION")));
        let url = format!("{ingress}/webhooks/{}/{}", endpoint.provider, endpoint.slug);
        Some(Sender { provider: endpoint.provider, url, key, agent: config.build().new_agent() })
    }

    fn send(&self, shot: &Shot) -> Result<Request, CtlError> {
        let Sample { event_id, body } = &shot.sample;
        let forger = Uuid::now_v7().simple().to_string();
        let secret = if shot.forged { forger.as_bytes() } else { &self.key.secret };
        let mut request = self.agent.post(&self.url).header("content-type", "application/json");
        for (name, value) in sign(self.provider, secret, event_id, Utc::now(), body)? {
            request = request.header(name, value);
        }
        let silent = |error| CtlError::IngressSilent { url: self.url.clone(), why: why(&error) };
        let mut response = request.send(body.as_slice()).map_err(silent)?;
        let http_status = response.status().as_u16();
        let text = response.body_mut().read_to_string().map_err(silent)?;
        let answer =
            serde_json::from_str(&text).map_or_else(|_| "not an answer of ours".to_owned(), |w: Words| w.status);
        Ok(Request {
            event_id: event_id.clone(),
            sent: shot.what,
            as_expected: http_status == shot.status && answer == shot.word,
            http_status,
            answer,
            expected_http_status: shot.status,
            expected_answer: shot.word,
        })
    }
}

fn why(error: &ureq::Error) -> &'static str {
    match error {
        ureq::Error::Timeout(_) => "no answer in time",
        ureq::Error::HostNotFound => "the host is not known",
        ureq::Error::BadUri(_) => "not an address",
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => "no secure connection",
        _ => "no connection",
    }
}

impl Request {
    fn cells(&self) -> Vec<String> {
        let expected = if self.as_expected {
            "yes".to_owned()
        } else {
            format!("no: {} {}", self.expected_http_status, self.expected_answer)
        };
        vec![self.event_id.clone(), self.sent.to_owned(), self.http_status.to_string(), self.answer.clone(), expected]
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        trigger: Trigger,
    }

    fn trigger(options: &str) -> Trigger {
        let line = format!("trigger stripe payment_intent.succeeded --endpoint demo {options}");
        Line::try_parse_from(line.split_whitespace()).unwrap().trigger
    }

    fn endpoint() -> Endpoint {
        Endpoint {
            id: Uuid::nil(),
            slug: "demo".to_owned(),
            provider: Provider::Stripe,
            account: "acct_1".to_owned(),
            other_accounts: Vec::new(),
            environment: Environment::Sandbox,
            active: true,
            tolerance: None,
            mismatch_status: 200,
            has_unreadable_keys: false,
            keys: Vec::new(),
        }
    }

    #[test]
    fn each_twist_says_which_answers_belong_to_it() {
        let answers = |options: &str| -> Vec<_> {
            let shots = trigger(options).shots("payment_intent.succeeded", &endpoint(), "a").unwrap();
            shots.iter().map(|shot| (shot.status, shot.word, shot.forged)).collect()
        };
        assert_eq!(answers(""), [(200, "accepted", false)]);
        assert_eq!(answers("--duplicate"), [(200, "accepted", false), (200, "replayed", false)]);
        assert_eq!(answers("--forged"), [(401, "signature", true)]);
        assert_eq!(answers("--mismatch"), [(200, "accepted", false), (200, "payload_mismatch", false)]);
    }

    #[test]
    fn a_mismatch_has_the_same_id_and_other_bytes() {
        let shots = trigger("--mismatch").shots("payment_intent.succeeded", &endpoint(), "a").unwrap();
        assert_eq!(shots[0].sample.event_id, shots[1].sample.event_id);
        assert_ne!(shots[0].sample.body, shots[1].sample.body);
        let error = trigger("--mismatch").shots("customer.created", &endpoint(), "a").err().unwrap();
        assert!(matches!(error, CtlError::NoAmount(_)));
    }

    #[test]
    fn a_refund_takes_back_a_part_of_its_payment() {
        let options = trigger("--amount 5000").options("refund.created", &endpoint(), "a");
        assert_eq!((options.amount_minor, options.payment_amount_minor), (2500, Some(5000)));
        let options = trigger("--amount 5000 --part 1").options("charge.refunded", &endpoint(), "a");
        assert_eq!((options.amount_minor, options.payment_amount_minor), (1, Some(5000)));
        let options = trigger("--amount 5000").options("charge.dispute.created", &endpoint(), "a");
        assert_eq!((options.amount_minor, options.payment_amount_minor), (5000, Some(5000)));
        let options = trigger("--amount 5000").options("charge.succeeded", &endpoint(), "a");
        assert_eq!((options.amount_minor, options.payment_amount_minor, options.livemode), (5000, None, false));
    }

    #[test]
    fn several_events_have_ids_of_their_own() {
        assert_eq!(trigger("--suffix a --count 3").suffixes(), ["a1", "a2", "a3"]);
        assert_eq!(trigger("--suffix a").suffixes(), ["a"]);
        assert_ne!(trigger("").suffixes(), trigger("").suffixes());
    }

    #[test]
    fn twists_exclude_each_other() {
        let line = "trigger stripe charge.succeeded --endpoint demo --forged --mismatch";
        assert!(Line::try_parse_from(line.split(' ')).is_err());
    }
}
