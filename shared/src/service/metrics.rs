use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The metrics of one process, under their full names, to which each part adds its own.
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// `component` is `ingress` or `worker`.
    pub fn of(component: &'static str) -> Self {
        let mut registry = Registry::with_prefix("webhook");
        let build: Family<Vec<(&str, &str)>, Gauge> = Family::default();
        build.get_or_create(&vec![("component", component), ("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.register("build_info", "Which version is running", build);
        Metrics { registry }
    }

    /// Where parts register theirs. The prefix `webhook_`, and for counters the suffix `_total`, are added here.
    pub fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// The Prometheus text format.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// A histogram of seconds with buckets from a millisecond to an hour.
pub fn seconds_histogram() -> Histogram {
    const BUCKETS: [f64; 18] = [
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0,
    ];
    Histogram::new(BUCKETS)
}
