use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use actix_web::{HttpRequest, HttpResponse, web};
use chrono::{SubsecRound, Utc};
use futures_util::StreamExt;
use shared::domain::Time;
use shared::intake::{Admission, Endpoint, Inbound, Refusal, admit};
use shared::providers::Provider;
use shared::sealing::Sealer;
use shared::store::{AcceptEvent, Accepted};
use tokio::sync::oneshot;

use crate::endpoints::Endpoints;
use crate::metrics::{AcceptedLabels, IngressMetrics, NO_PROVIDER, ProviderLabel, ReasonLabels, RequestLabels};
use crate::refusals::{RefusalLog, Refused};
use crate::reply;
use crate::writer::{Queue, Waiting};

/// How long a verified event may wait for its commit before the provider is asked to come again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

/// What every request needs.
pub(crate) struct Intake {
    pub endpoints: Endpoints,
    pub sealer: Arc<Sealer>,
    pub queue: Queue,
    pub refusals: RefusalLog,
    pub metrics: IngressMetrics,
    pub body_limit: usize,
    pub body_timeout: Duration,
}

/// `POST /webhooks/{provider}/{endpoint}`: from the socket to the answer.
pub(crate) async fn receive(
    request: HttpRequest,
    path: web::Path<(String, String)>,
    payload: web::Payload,
    intake: web::Data<Intake>,
) -> HttpResponse {
    let (provider, slug) = path.into_inner();
    let received_at = Utc::now().trunc_subsecs(3);
    let Ok(provider) = provider.parse::<Provider>() else {
        return intake.refuse(Refused::new(Refusal::UnknownProvider, NO_PROVIDER, received_at, &[]));
    };
    let body = match read_body(&request, payload, intake.body_limit, intake.body_timeout).await {
        Ok(body) => body,
        Err(refusal) => return intake.refuse(Refused::new(refusal, provider.as_str(), received_at, &[])),
    };
    let started = Instant::now();
    let response = intake.take(&request, provider, &slug, &body, received_at).await;
    let label = ProviderLabel { provider: provider.as_str() };
    intake.metrics.durations.get_or_create(&label).observe(started.elapsed().as_secs_f64());
    response
}

/// Any other method on the webhook path.
pub(crate) async fn wrong_method(intake: web::Data<Intake>) -> HttpResponse {
    intake.refuse(Refused::new(Refusal::Method, NO_PROVIDER, Utc::now(), &[]))
}

/// The bytes as they came. An encoded body is refused: the signature covers what is on the wire.
async fn read_body(
    request: &HttpRequest,
    mut payload: web::Payload,
    limit: usize,
    timeout: Duration,
) -> Result<Vec<u8>, Refusal> {
    let encoded = |value: &[u8]| !value.trim_ascii().eq_ignore_ascii_case(b"identity");
    if request.headers().get_all(CONTENT_ENCODING).any(|value| encoded(value.as_bytes())) {
        return Err(Refusal::Encoded);
    }
    let declared =
        request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<usize>().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(Refusal::TooLarge);
    }
    let collect = async {
        let mut body = Vec::with_capacity(declared.unwrap_or(0).min(limit));
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|_| Refusal::BadRequest)?;
            if body.len() + chunk.len() > limit {
                return Err(Refusal::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    tokio::time::timeout(timeout, collect).await.unwrap_or(Err(Refusal::TooSlow))
}

impl Intake {
    async fn take(
        &self,
        request: &HttpRequest,
        provider: Provider,
        slug: &str,
        body: &[u8],
        received_at: Time,
    ) -> HttpResponse {
        let headers: Vec<(&str, &[u8])> =
            request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let inbound = Inbound { provider, endpoint_slug: slug, headers: &headers, body, received_at };
        let snapshot = self.endpoints.snapshot();
        let Some(ring) = snapshot.as_ref() else {
            return self.refuse(Refused::new(Refusal::Unavailable, provider.as_str(), received_at, body));
        };
        let refused = |refusal| Refused {
            endpoint_id: ring.get(provider, slug).map(|endpoint| endpoint.id),
            claimed_event_id: inbound.claimed_id(),
            ..Refused::new(refusal, provider.as_str(), received_at, body)
        };
        let admission = match admit(&inbound, ring, Utc::now()) {
            Ok(admission) => admission,
            Err(refusal) => return self.refuse(refused(refusal)),
        };
        let endpoint = admission.endpoint;
        let lane = admission.envelope.lane;
        match self.store(admission).await {
            Ok(accepted) => {
                self.count_accepted(endpoint, lane.as_str(), accepted);
                self.answer(provider.as_str(), reply::accepted(endpoint, accepted))
            }
            Err(refusal) => self.refuse(refused(refusal)),
        }
    }

    /// Leaves the event with a writer and waits for its commit.
    async fn store(&self, admission: Admission<'_>) -> Result<Accepted, Refusal> {
        let event = AcceptEvent::seal(admission, &self.sealer).map_err(|_| Refusal::Unavailable)?;
        let (answer, committed) = oneshot::channel();
        self.queue.try_send(Waiting { event, answer }).map_err(|_| Refusal::Unavailable)?;
        match tokio::time::timeout(ANSWER_TIMEOUT, committed).await {
            Ok(Ok(Ok(accepted))) => Ok(accepted),
            // The commit failed, the writer is gone, or it is late: whatever became of the event, it may come again.
            Ok(Ok(Err(_)) | Err(_)) | Err(_) => Err(Refusal::Unavailable),
        }
    }

    fn count_accepted(&self, endpoint: &Endpoint, event_class: &'static str, accepted: Accepted) {
        let provider = endpoint.provider.as_str();
        match accepted {
            Accepted::New => self.metrics.accepted.get_or_create(&AcceptedLabels { provider, event_class }).inc(),
            Accepted::Replayed => self.metrics.replayed.get_or_create(&ProviderLabel { provider }).inc(),
            Accepted::Mismatch => {
                self.metrics.quarantined.get_or_create(&ReasonLabels { provider, reason: "payload_mismatch" }).inc()
            }
        };
    }

    fn refuse(&self, refused: Refused) -> HttpResponse {
        let (refusal, provider) = (refused.refusal, refused.provider);
        self.metrics.rejected.get_or_create(&ReasonLabels { provider, reason: refusal.reason() }).inc();
        self.refusals.report(refused);
        self.answer(provider, reply::refused(refusal))
    }

    fn answer(&self, provider: &'static str, response: HttpResponse) -> HttpResponse {
        let code = response.status().as_u16();
        self.metrics.requests.get_or_create(&RequestLabels { provider, code }).inc();
        response
    }
}
