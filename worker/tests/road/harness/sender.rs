use std::time::Duration;

use chrono::Utc;
use shared::providers::sample::{self, SampleOptions};
use shared::providers::{Provider, sign};

use super::{Process, SECRET};

/// An event to send: its id and its bytes.
#[derive(Debug, Clone)]
pub struct Event {
    pub id: String,
    pub body: Vec<u8>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// A Stripe event of the story `suffix`, changed by `change`.
pub fn stripe(event_type: &str, suffix: &str, change: impl FnOnce(&mut SampleOptions)) -> Event {
    let mut options = SampleOptions::new(suffix, Utc::now());
    change(&mut options);
    let sample = sample::event(Provider::Stripe, event_type, &options).unwrap();
    Event { id: sample.event_id, body: sample.body }
}

/// The headers that Stripe would send with the body now.
pub fn signed(body: &[u8]) -> Vec<(String, String)> {
    let headers = sign(Provider::Stripe, SECRET.as_bytes(), "", Utc::now(), body).unwrap();
    headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Posts bytes with headers. None when no answer came.
pub fn post(agent: &ureq::Agent, url: &str, headers: &[(String, String)], body: &[u8]) -> Option<Answer> {
    let mut request = agent.post(url);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let mut response = request.send(body).ok()?;
    Some(Answer { status: response.status().as_u16(), body: response.body_mut().read_to_string().ok()? })
}

/// Sends signed events to `stripe/main`.
#[derive(Clone)]
pub struct Sender {
    agent: ureq::Agent,
    url: String,
}

impl Sender {
    pub fn to(ingress: &Process) -> Sender {
        Sender::to_address(&ingress.public())
    }

    pub fn to_address(address: &str) -> Sender {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(20)))
            .build();
        Sender { agent: config.into(), url: format!("{address}/webhooks/stripe/main") }
    }

    pub fn agent(&self) -> &ureq::Agent {
        &self.agent
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// None when no answer came.
    pub fn try_send(&self, event: &Event) -> Option<Answer> {
        post(&self.agent, &self.url, &signed(&event.body), &event.body)
    }

    pub fn send(&self, event: &Event) -> Answer {
        self.try_send(event).expect("an answer")
    }

    /// Sends and expects 200.
    pub fn deliver(&self, event: &Event) {
        let answer = self.send(event);
        assert_eq!(answer.status, 200, "{}: {}", event.id, answer.body);
    }

    /// Waits until the ingress has read its endpoints, and can answer anything but 503.
    pub fn wait_until_open(&self) {
        super::wait_for("the ingress to know its endpoints", || {
            post(&self.agent, &self.url, &[], b"{}").is_some_and(|answer| answer.status == 400)
        });
    }
}
