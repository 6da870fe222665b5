use chrono::Utc;
use shared::providers::sample::{self, SampleOptions};
use shared::providers::{Provider, sign};

use crate::Failed;

pub const SECRET: &str = "whsec_bench_secret_0123456789abcdef";
const PATH: &str = "/webhooks/stripe/bench";

/// What a mixed load is made of.
pub const STORY: [&str; 6] = [
    "payment_intent.succeeded",
    "charge.succeeded",
    "refund.created",
    "charge.refunded",
    "customer.subscription.created",
    "invoice.paid",
];

/// Signed requests of one point, as bytes for the socket. Made before the clock starts, and well within the time that a
/// signature is good for.
pub struct Requests {
    prefix: String,
    bytes: Vec<Vec<u8>>,
}

impl Requests {
    /// `count` events of as many payments, told apart by `prefix` and their number.
    pub fn prepare(prefix: &str, count: usize) -> Result<Self, Failed> {
        let bytes = (0..count).map(|number| request(&format!("{prefix}n{number:07}"))).collect::<Result<_, _>>()?;
        Ok(Requests { prefix: prefix.to_owned(), bytes })
    }

    /// `count` events of mixed stories, each of a payment with its refund and a subscription with its invoice.
    pub fn mixed(prefix: &str, count: usize) -> Result<Self, Failed> {
        let story = |number: usize| format!("{prefix}n{:07}", number / STORY.len());
        let event = |number: usize| STORY.get(number % STORY.len()).copied().unwrap_or(STORY[0]);
        let bytes = (0..count).map(|number| request_of(event(number), &story(number))).collect::<Result<_, _>>()?;
        Ok(Requests { prefix: prefix.to_owned(), bytes })
    }

    pub fn get(&self, number: usize) -> Option<&[u8]> {
        self.bytes.get(number).map(Vec::as_slice)
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What the payment ids of these requests begin with; the number follows.
    pub fn payment_prefix(&self) -> String {
        format!("pi_{}n", self.prefix)
    }

    /// Bytes of a body.
    pub fn body_bytes(&self) -> usize {
        let end_of_head = |bytes: &Vec<u8>| bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
        self.bytes.first().map_or(0, |bytes| bytes.len() - end_of_head(bytes).unwrap_or(0))
    }
}

fn request(suffix: &str) -> Result<Vec<u8>, Failed> {
    request_of("charge.succeeded", suffix)
}

fn request_of(event_type: &str, suffix: &str) -> Result<Vec<u8>, Failed> {
    let now = Utc::now();
    let body = sample::event(Provider::Stripe, event_type, &SampleOptions::new(suffix, now))?.body;
    let mut request = format!(
        "POST {PATH} HTTP/1.1\r\nHost: bench\r\nUser-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\n\
         Accept: */*; q=0.5, application/xml\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\n",
        body.len()
    )
    .into_bytes();
    for (name, value) in sign(Provider::Stripe, SECRET.as_bytes(), "", now, &body)? {
        request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(&body);
    Ok(request)
}
