//! What went wrong, by sink: attempts that did not succeed, and events that went dead.

use std::sync::Arc;

use metrics::Label;
use metrics_exporter_prometheus::PrometheusRecorder;

const ATTEMPTS: &str = "postrider_failed_attempts_total";
const DEAD: &str = "postrider_dead_total";

/// What stands for the sink of an event that no route takes, or whose sink is switched off.
const NO_SINK: &str = "(none)";

/// What is counted of the failures of a source. Outages make many of them, but each is far dearer than finding its counter.
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
            metrics::describe_counter!(DEAD, "events that went dead, by sink and type");
        });
        Self { source: source.to_owned(), recorder }
    }

    pub(super) fn attempt_failed(&self, sinks: &[String], outcome: &'static str, counted: bool) {
        let counted = if counted { "true" } else { "false" };
        self.count(ATTEMPTS, sinks, [Label::new("outcome", outcome), Label::new("counted", counted)]);
    }

    /// An event of a type that is told apart, or of another.
    pub(super) fn died(&self, sinks: &[String], event_type: &str) {
        self.count(DEAD, sinks, [Label::new("event_type", event_type.to_owned())]);
    }

    /// Several sinks of one receiver are one label: what failed, failed once.
    fn count(&self, name: &'static str, sinks: &[String], more: impl IntoIterator<Item = Label>) {
        let sink = if sinks.is_empty() { NO_SINK.to_owned() } else { sinks.join(",") };
        let mut labels = vec![Label::new("source", self.source.clone()), Label::new("sink", sink)];
        labels.extend(more);
        metrics::with_local_recorder(&*self.recorder, || metrics::counter!(name, labels).increment(1));
    }
}
