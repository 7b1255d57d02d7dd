//! Counts failed attempts and dead letters by sink.

use std::sync::Arc;

use metrics::Label;
use metrics_exporter_prometheus::PrometheusRecorder;

const ATTEMPTS: &str = "postrider_failed_attempts_total";
const DEAD: &str = "postrider_dead_total";

/// The label of events that no route matches or whose sink is disabled.
const NO_SINK: &str = "(none)";

/// The failure counters of a source. They are looked up at each failure; an attempt costs far more than that.
pub(super) struct Failures {
    source: String,
    recorder: Arc<PrometheusRecorder>,
}

impl Failures {
    pub(super) fn new(source: &str, recorder: Arc<PrometheusRecorder>) -> Self {
        metrics::with_local_recorder(&*recorder, || {
            metrics::describe_counter!(
                ATTEMPTS,
                "attempts that did not succeed, by sink, outcome and whether they count towards the event's attempts"
            );
            metrics::describe_counter!(DEAD, "events that became dead letters, by sink and type");
        });
        Self { source: source.to_owned(), recorder }
    }

    pub(super) fn attempt_failed(&self, sinks: &[String], outcome: &'static str, counted: bool) {
        let counted = if counted { "true" } else { "false" };
        self.count(ATTEMPTS, sinks, [Label::new("outcome", outcome), Label::new("counted", counted)]);
    }

    /// Counts a dead letter; `event_type` is the label of its type.
    pub(super) fn died(&self, sinks: &[String], event_type: &str) {
        self.count(DEAD, sinks, [Label::new("event_type", event_type.to_owned())]);
    }

    /// Several sinks of one receiver share one label, because one attempt failed.
    fn count(&self, name: &'static str, sinks: &[String], more: impl IntoIterator<Item = Label>) {
        let sink = if sinks.is_empty() { NO_SINK.to_owned() } else { sinks.join(",") };
        let mut labels = vec![Label::new("source", self.source.clone()), Label::new("sink", sink)];
        labels.extend(more);
        metrics::with_local_recorder(&*self.recorder, || metrics::counter!(name, labels).increment(1));
    }
}
