//! The metrics of all sources, in Prometheus's format.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI32, Ordering::Relaxed},
    },
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, Label};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use postrider::Metrics;

use super::{
    breakers::{Breakers, OfEngine},
    failures::Failures,
    types::ByType,
};
use crate::failure::Failure;

/// Histogram buckets of claims and settles, in seconds.
const BUCKETS_S: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// The recorder of the metrics. Cloning copies a pointer.
#[derive(Clone)]
pub(crate) struct Meters {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    types: Arc<Mutex<BTreeMap<String, Arc<ByType>>>>,
    breakers: Arc<Breakers>,
}

impl Meters {
    pub(crate) fn new() -> Result<Self, Failure> {
        let builder = PrometheusBuilder::new()
            .set_buckets(&BUCKETS_S)
            .map_err(|error| Failure::unreachable("cannot start the metrics", &error))?;
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        Ok(Self { recorder: Arc::new(recorder), handle, types: Arc::default(), breakers: Arc::default() })
    }

    /// Renders the metrics for a scrape.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// A counter of the whole relay.
    pub(crate) fn counter(&self, name: &'static str, about: &'static str) -> Counter {
        metrics::with_local_recorder(&*self.recorder, || {
            metrics::describe_counter!(name, about);
            metrics::counter!(name)
        })
    }

    /// The counters of a source by event type. A source that restarts keeps them: known types stay known, and the limit of their number holds for
    /// the process.
    pub(crate) fn types(&self, source: &str) -> Arc<ByType> {
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || Arc::new(ByType::new(source, self.recorder.clone()));
        types.entry(source.to_owned()).or_insert_with(made).clone()
    }

    /// The sinks that are down.
    pub(crate) fn breakers(&self) -> &Breakers {
        &self.breakers
    }

    /// The metrics of a source's engine with these sinks.
    pub(crate) fn of_source<'a>(
        &self,
        source: &str,
        types: Arc<ByType>,
        sinks: impl Iterator<Item = &'a str>,
    ) -> Arc<dyn Metrics> {
        let sinks: Vec<_> = sinks.collect();
        metrics::with_local_recorder(&*self.recorder, || {
            let breakers = OfEngine::new(self.breakers.clone(), source, sinks.iter().copied());
            let failures = Failures::new(source, self.recorder.clone());
            Arc::new(SourceMeters::new(source, &sinks, types, failures, breakers))
        })
    }
}

/// The metrics of one source, looked up once.
struct SourceMeters {
    hot_enqueued: Counter,
    hot_dropped: Counter,
    cold_enqueued: Counter,
    delivered: Counter,
    failed: Counter,
    dead: Counter,
    deferred: Counter,
    fenced: Counter,
    went_back: Counter,
    unsettled: Gauge,
    given_back: Counter,
    purged: Counter,
    hot_depth: Gauge,
    cold_depth: Gauge,
    lanes: Gauge,
    breakers_open: Gauge,
    breakers: OfEngine,
    /// The gauges of sinks that reject everything.
    rejecting: BTreeMap<String, Gauge>,
    /// Breakers that this engine has opened and not closed.
    open: AtomicI32,
    claim_seconds: Histogram,
    settle_seconds: Histogram,
    cleaned: Counter,
    recovered: Counter,
    types: Arc<ByType>,
    failures: Failures,
}

impl SourceMeters {
    fn new(source: &str, sinks: &[&str], types: Arc<ByType>, failures: Failures, breakers: OfEngine) -> Self {
        let labels = vec![Label::new("source", source.to_owned())];
        metrics::describe_gauge!(
            "postrider_rejecting",
            "whether a sink rejects everything, and its events wait"
        );
        let rejecting = sinks.iter().map(|sink| {
            let labels = [labels.as_slice(), &[Label::new("sink", (*sink).to_owned())]].concat();
            ((*sink).to_owned(), metrics::gauge!("postrider_rejecting", labels))
        });
        let rejecting = rejecting.collect();
        let counter = |name: &'static str, about: &'static str| {
            metrics::describe_counter!(name, about);
            metrics::counter!(name, labels.clone())
        };
        let gauge = |name: &'static str, about: &'static str| {
            metrics::describe_gauge!(name, about);
            metrics::gauge!(name, labels.clone())
        };
        let histogram = |name: &'static str, about: &'static str| {
            metrics::describe_histogram!(name, metrics::Unit::Seconds, about);
            metrics::histogram!(name, labels.clone())
        };
        let depth = |queue: &'static str| {
            metrics::describe_gauge!(
                "outbox_queue_depth",
                "events in memory, by the queue that they came through"
            );
            let labels = [labels.as_slice(), &[Label::new("queue", queue)]].concat();
            metrics::gauge!("outbox_queue_depth", labels)
        };
        let work = |kind: &'static str| {
            metrics::describe_counter!(
                "outbox_events_by_type_rate_total",
                "events that housekeeping changed, by kind of work"
            );
            let labels = [labels.as_slice(), &[Label::new("type", kind)]].concat();
            metrics::counter!("outbox_events_by_type_rate_total", labels)
        };
        Self {
            hot_enqueued: counter(
                "outbox_hot_enqueued_total",
                "events handed over in memory after their commit",
            ),
            hot_dropped: counter("outbox_hot_dropped_total", "events that found the hot queue full"),
            cold_enqueued: counter("outbox_cold_enqueued_total", "events read from the table"),
            delivered: counter("outbox_dispatch_success_total", "events delivered"),
            failed: counter("outbox_dispatch_failure_total", "failed attempts that will be retried"),
            dead: counter("outbox_dispatch_dead_total", "events that became dead letters"),
            deferred: counter("postrider_deferred_total", "deliveries deferred without counting an attempt"),
            fenced: counter("postrider_fenced_settles_total", "outcomes refused because the lease was lost"),
            went_back: counter("postrider_went_back_total", "how often the database went back in time"),
            unsettled: gauge(
                "postrider_unsettled_events",
                "events whose outcome the database refuses to write",
            ),
            given_back: counter("postrider_given_back_total", "events given back unsent at shutdown"),
            purged: counter("postrider_purged_total", "delivered events deleted after their retention"),
            hot_depth: depth("hot"),
            cold_depth: depth("cold"),
            lanes: gauge("postrider_lanes", "lanes that this instance holds"),
            breakers_open: gauge("postrider_breakers_open", "number of receivers believed to be down"),
            breakers,
            rejecting,
            open: AtomicI32::new(0),
            claim_seconds: histogram("postrider_claim_seconds", "duration of a claim"),
            settle_seconds: histogram("postrider_settle_seconds", "duration of a settle"),
            cleaned: work("cleaned"),
            recovered: work("recovered"),
            types,
            failures,
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a gauge is a float, and no count here reaches 2^53")]
fn gauge_of(value: u64) -> f64 {
    value as f64
}

impl Metrics for SourceMeters {
    fn hot_enqueued(&self) {
        self.hot_enqueued.increment(1);
    }
    fn hot_dropped(&self) {
        self.hot_dropped.increment(1);
    }
    fn cold_enqueued(&self, count: u64) {
        self.cold_enqueued.increment(count);
    }
    fn delivered(&self) {
        self.delivered.increment(1);
    }
    fn failed(&self) {
        self.failed.increment(1);
    }
    fn dead(&self) {
        self.dead.increment(1);
    }
    fn queue_depths(&self, hot: u64, cold: u64) {
        self.hot_depth.set(gauge_of(hot));
        self.cold_depth.set(gauge_of(cold));
    }
    fn deferred(&self) {
        self.deferred.increment(1);
    }
    fn claimed(&self, _events: u64, took: Duration) {
        self.claim_seconds.record(took);
    }
    fn settled(&self, _events: u64, took: Duration) {
        self.settle_seconds.record(took);
    }
    fn fenced(&self, events: u64) {
        self.fenced.increment(events);
    }
    fn went_back(&self) {
        self.went_back.increment(1);
    }
    fn unsettled(&self, events: u64) {
        self.unsettled.set(gauge_of(events));
    }
    fn lanes_owned(&self, lanes: u64) {
        self.lanes.set(gauge_of(lanes));
    }
    fn given_back(&self, events: u64) {
        self.given_back.increment(events);
    }
    fn died(&self, sinks: &[String], event_type: Option<&str>) {
        self.failures.died(sinks, self.types.died(event_type));
    }
    fn attempt_failed(&self, sinks: &[String], outcome: &'static str, counted: bool) {
        self.failures.attempt_failed(sinks, outcome, counted);
    }
    fn rejecting(&self, sinks: &[String]) {
        for (sink, gauge) in &self.rejecting {
            gauge.set(if sinks.contains(sink) { 1.0 } else { 0.0 });
        }
    }
    fn recovered(&self, events: u64) {
        self.recovered.increment(events);
    }
    fn purged(&self, rows: u64) {
        self.cleaned.increment(rows);
        self.purged.increment(rows);
    }
    fn breaker(&self, sinks: &[String], open: bool) {
        sinks.iter().for_each(|sink| self.breakers.set(sink, open));
        let change = if open { 1 } else { -1 };
        self.open.fetch_add(change, Relaxed);
        self.breakers_open.increment(f64::from(change));
    }
}

impl Drop for SourceMeters {
    /// An engine takes its open breakers with it; the next engine starts with all closed. Sinks that reject everything are reported to it again
    /// within a second.
    fn drop(&mut self) {
        self.rejecting(&[]);
        self.breakers_open.decrement(f64::from(self.open.load(Relaxed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_can_be_scraped_by_source() {
        // S3-16.3
        let meters = Meters::new().unwrap();
        let of = |name| meters.of_source(name, meters.types(name), std::iter::empty());
        let (shop, other) = (of("shop"), of("other"));
        shop.delivered();
        shop.cold_enqueued(5);
        other.queue_depths(1, 2);
        shop.claimed(5, Duration::from_millis(2));
        shop.purged(3);
        shop.recovered(2);
        let orders = ["orders".to_owned()];
        shop.died(&orders, Some("OrderPlaced"));
        shop.died(&[], None);
        shop.attempt_failed(&orders, "unavailable", false);
        shop.attempt_failed(&orders, "retry", true);
        shop.attempt_failed(&orders, "retry", true);
        let text = meters.render();
        for line in [
            "outbox_dispatch_success_total{source=\"shop\"} 1",
            "outbox_cold_enqueued_total{source=\"shop\"} 5",
            "outbox_queue_depth{source=\"other\",queue=\"cold\"} 2",
            "postrider_claim_seconds_count{source=\"shop\"} 1",
            "outbox_events_by_type_rate_total{source=\"shop\",type=\"cleaned\"} 3",
            "outbox_events_by_type_rate_total{source=\"shop\",type=\"recovered\"} 2",
            "outbox_events_rate_total{source=\"shop\",event_type=\"OrderPlaced\",status=\"failed\"} 1",
            "postrider_dead_total{source=\"shop\",sink=\"orders\",event_type=\"OrderPlaced\"} 1",
            "postrider_dead_total{source=\"shop\",sink=\"(none)\",event_type=\"(other)\"} 1",
            "postrider_failed_attempts_total{source=\"shop\",sink=\"orders\",outcome=\"unavailable\",counted=\"false\"} 1",
            "postrider_failed_attempts_total{source=\"shop\",sink=\"orders\",outcome=\"retry\",counted=\"true\"} 2",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_breaker_that_is_open_when_its_engine_ends_is_open_no_more() {
        let meters = Meters::new().unwrap();
        let of = || meters.of_source("shop", meters.types("shop"), ["orders", "audit"].into_iter());
        let (old, new) = (of(), of());
        let shows = |line: &str| {
            let text = meters.render();
            assert!(text.contains(&format!("\n{line}\n")), "no {line} in {text}");
        };
        shows("postrider_breaker_open{source=\"shop\",sink=\"orders\"} 0");
        let breaker = |engine: &Arc<dyn Metrics>, sinks: &[&str], open| {
            engine.breaker(&sinks.iter().map(|sink| (*sink).to_owned()).collect::<Vec<_>>(), open);
        };
        for (engine, sinks) in
            [(&old, ["orders"].as_slice()), (&old, &["audit"]), (&old, &[]), (&new, &["orders"])]
        {
            breaker(engine, sinks, true);
        }
        let down = |sinks: &[&str]| {
            let sinks = sinks.iter().map(|sink| (*sink).to_owned()).collect::<Vec<_>>();
            assert_eq!(meters.breakers().down().remove("shop").unwrap_or_default(), sinks);
        };
        down(&["audit", "orders"]);
        breaker(&old, &["audit"], false);
        shows("postrider_breaker_open{source=\"shop\",sink=\"audit\"} 0");
        shows("postrider_breakers_open{source=\"shop\"} 3");
        drop(old);
        shows("postrider_breakers_open{source=\"shop\"} 1");
        shows("postrider_breaker_open{source=\"shop\",sink=\"orders\"} 1");
        down(&["orders"]);
        drop(new);
        shows("postrider_breaker_open{source=\"shop\",sink=\"orders\"} 0");
        down(&[]);
        assert!(
            meters.render().contains("postrider_breakers_open{source=\"shop\"} 0\n"),
            "{}",
            meters.render()
        );
    }

    #[test]
    fn each_sink_of_a_receiver_has_a_gauge_and_is_down_until_all_its_receivers_are_back() {
        let meters = Meters::new().unwrap();
        let engine =
            meters.of_source("shop", meters.types("shop"), ["orders", "audit", "billing"].into_iter());
        let shows = |gauges: [(&str, u8); 3]| {
            let text = meters.render();
            for (sink, open) in gauges {
                let line = format!("\npostrider_breaker_open{{source=\"shop\",sink=\"{sink}\"}} {open}\n");
                assert!(text.contains(&line), "no {line} in {text}");
            }
        };
        let [orders, billing] = ["orders", "billing"].map(|sink| [sink.to_owned(), "audit".to_owned()]);
        engine.breaker(&orders, true);
        shows([("orders", 1), ("audit", 1), ("billing", 0)]);
        engine.breaker(&billing, true);
        engine.breaker(&orders, false);
        shows([("orders", 0), ("audit", 1), ("billing", 1)]);
        assert_eq!(meters.breakers().down()["shop"], ["audit", "billing"]);
        engine.breaker(&billing, false);
        shows([("orders", 0), ("audit", 0), ("billing", 0)]);
        assert!(meters.breakers().down().is_empty());
    }

    #[test]
    fn a_source_that_starts_anew_goes_on_counting_by_type_where_it_was() {
        let meters = Meters::new().unwrap();
        let (old, new, other) = (meters.types("shop"), meters.types("shop"), meters.types("other"));
        assert!(Arc::ptr_eq(&old, &new) && !Arc::ptr_eq(&old, &other));
    }
}
