use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use shared::domain::Lane;
use shared::providers::Provider;
use shared::service::seconds_histogram;

/// What a worker counts. Every label value comes from a closed set of ours, never from a payload.
#[derive(Clone)]
pub(crate) struct WorkerMetrics {
    pub processed: Family<ProcessedLabels, Counter>,
    pub quarantined: Family<QuarantinedLabels, Counter>,
    pub dead_lettered: Family<DeadLetteredLabels, Counter>,
    pub failures: Family<FailureLabels, Counter>,
    pub lag: Family<LagLabels, Histogram, fn() -> Histogram>,
    pub consumer_connected: Family<LaneLabel, Gauge>,
    pub oldest_unprocessed: Gauge,
    pub dead_letters_open: Gauge,
    pub oldest_dead_letter: Gauge,
    pub quarantine_open: Gauge,
    pub partitions_ahead: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProcessedLabels {
    pub provider: &'static str,
    pub event_class: &'static str,
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct QuarantinedLabels {
    pub provider: &'static str,
    pub reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct DeadLetteredLabels {
    pub provider: &'static str,
    pub error_code: &'static str,
    pub source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FailureLabels {
    pub provider: &'static str,
    pub error_code: &'static str,
    pub retryable: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LagLabels {
    pub provider: &'static str,
    pub event_class: &'static str,
    pub lane: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LaneLabel {
    pub lane: &'static str,
}

impl WorkerMetrics {
    /// Registers everything, and exports zero for the outcomes that may never happen.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = WorkerMetrics {
            processed: Family::default(),
            quarantined: Family::default(),
            dead_lettered: Family::default(),
            failures: Family::default(),
            lag: Family::new_with_constructor(seconds_histogram),
            consumer_connected: Family::default(),
            oldest_unprocessed: Gauge::default(),
            dead_letters_open: Gauge::default(),
            oldest_dead_letter: Gauge::default(),
            quarantine_open: Gauge::default(),
            partitions_ahead: Gauge::default(),
        };
        for provider in Provider::ALL.map(Provider::as_str) {
            for event_class in ["payments", "subscriptions", "other"] {
                for outcome in ["applied", "noop", "stale", "ignored"] {
                    metrics.processed.get_or_create(&ProcessedLabels { provider, event_class, outcome }).inc_by(0);
                }
            }
        }
        for lane in Lane::ALL.map(Lane::as_str) {
            metrics.consumer_connected.get_or_create(&LaneLabel { lane }).set(0);
        }
        let m = metrics.clone();
        registry.register("events_processed", "Events settled, by what they did to the ledger", m.processed);
        registry.register("events_quarantined", "Events and contradictions set aside for a person", m.quarantined);
        registry.register("dead_lettered", "Events given up", m.dead_lettered);
        registry.register("handler_failures", "Failed attempts", m.failures);
        registry.register("processing_lag_seconds", "From receipt to the commit that settled the event", m.lag);
        registry.register("consumer_connected", "1 while the lane is consumed", m.consumer_connected);
        registry.register(
            "oldest_unprocessed_timestamp_seconds",
            "Receipt of the oldest event that is not settled; the time of the last look when there is none",
            m.oldest_unprocessed,
        );
        registry.register("dead_letters_open", "Dead letters that wait for a person", m.dead_letters_open);
        registry.register(
            "dead_letters_oldest_timestamp_seconds",
            "Last failure of the oldest open dead letter; the time of the last look when there is none",
            m.oldest_dead_letter,
        );
        registry.register("quarantine_open", "Quarantine entries that wait for a person", m.quarantine_open);
        registry.register("partitions_ahead", "Weeks for which the raw store has partitions", m.partitions_ahead);
        metrics
    }
}
