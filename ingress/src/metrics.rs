use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use shared::domain::Lane;
use shared::intake::Refusal;
use shared::providers::Provider;
use shared::service::seconds_histogram;

/// What the ingress counts. Every label value comes from a closed set of ours, never from a payload.
#[derive(Clone)]
pub(crate) struct IngressMetrics {
    pub requests: Family<RequestLabels, Counter>,
    pub durations: Family<ProviderLabel, Histogram, fn() -> Histogram>,
    pub accepted: Family<AcceptedLabels, Counter>,
    pub replayed: Family<ProviderLabel, Counter>,
    pub rejected: Family<ReasonLabels, Counter>,
    pub quarantined: Family<ReasonLabels, Counter>,
    pub publishes: Family<PublishLabels, Counter>,
    pub pending: Family<LaneLabel, Gauge>,
    pub oldest_pending: Family<LaneLabel, Gauge>,
    pub broker_connected: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub provider: &'static str,
    pub code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProviderLabel {
    pub provider: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AcceptedLabels {
    pub provider: &'static str,
    pub event_class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReasonLabels {
    pub provider: &'static str,
    pub reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PublishLabels {
    pub lane: &'static str,
    pub result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LaneLabel {
    pub lane: &'static str,
}

/// The label of requests that name no provider of ours.
pub(crate) const NO_PROVIDER: &str = "none";

impl IngressMetrics {
    /// Registers everything, and exports zero for what may never happen: an alert on an increase cannot see a series that
    /// is born at one.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = IngressMetrics {
            requests: Family::default(),
            durations: Family::new_with_constructor(seconds_histogram),
            accepted: Family::default(),
            replayed: Family::default(),
            rejected: Family::default(),
            quarantined: Family::default(),
            publishes: Family::default(),
            pending: Family::default(),
            oldest_pending: Family::default(),
            broker_connected: Gauge::default(),
        };
        metrics.start_at_zero();
        let m = metrics.clone();
        registry.register("http_requests", "Requests answered, by status code", m.requests);
        registry.register(
            "http_request_duration_seconds",
            "From the last byte of a request to its answer",
            m.durations,
        );
        registry.register("events_accepted", "Events committed", m.accepted);
        registry.register("events_replayed", "Deliveries of known events with the same content", m.replayed);
        registry.register("events_rejected", "Requests refused", m.rejected);
        registry.register("events_quarantined", "Deliveries set aside for a person", m.quarantined);
        registry.register("outbox_publishes", "Messages handed to the broker, by what it said", m.publishes);
        registry.register("outbox_pending_rows", "Outbox rows that are due", m.pending);
        registry.register(
            "outbox_oldest_pending_timestamp_seconds",
            "Since when the oldest due row waits; the time of the last look when there is none",
            m.oldest_pending,
        );
        registry.register("broker_connected", "1 while the relay is connected", m.broker_connected);
        metrics
    }

    fn start_at_zero(&self) {
        for provider in Provider::ALL.map(Provider::as_str) {
            self.replayed.get_or_create(&ProviderLabel { provider }).inc_by(0);
            self.quarantined.get_or_create(&ReasonLabels { provider, reason: "payload_mismatch" }).inc_by(0);
            for refusal in Refusal::ALL {
                self.rejected.get_or_create(&ReasonLabels { provider, reason: refusal.reason() }).inc_by(0);
            }
            for lane in Lane::ALL {
                self.accepted.get_or_create(&AcceptedLabels { provider, event_class: lane.as_str() }).inc_by(0);
            }
        }
        for lane in Lane::ALL.map(Lane::as_str) {
            for result in ["confirmed", "refused", "unknown"] {
                self.publishes.get_or_create(&PublishLabels { lane, result }).inc_by(0);
            }
        }
    }
}
