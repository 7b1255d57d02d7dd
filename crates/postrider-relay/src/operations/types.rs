//! Counts events by type. The number of types is limited, because writers may invent any number of them.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use metrics::{Counter, Label};
use metrics_exporter_prometheus::PrometheusRecorder;

/// Types of a source that are counted separately.
pub(crate) const TYPES_MAX: usize = 200;

/// The label of all further types, and of rows that are not events. Event types have no parentheses by convention.
pub(crate) const OTHER: &str = "(other)";

const NAME: &str = "outbox_events_rate_total";

/// The counters of one type.
pub(crate) struct TypeMeters {
    processed: Counter,
    failed: Counter,
    under_way: AtomicU64,
}

/// The counters of a source, by type.
pub(crate) struct ByType {
    source: String,
    recorder: Arc<PrometheusRecorder>,
    known: RwLock<HashMap<String, Arc<TypeMeters>>>,
    other: Arc<TypeMeters>,
}

impl ByType {
    pub(super) fn new(source: &str, recorder: Arc<PrometheusRecorder>) -> Self {
        metrics::with_local_recorder(&*recorder, || {
            metrics::describe_counter!(NAME, "events delivered and events that became dead letters, by type");
        });
        let other = Arc::new(TypeMeters::new(&recorder, source, OTHER));
        Self { source: source.to_owned(), recorder, known: RwLock::default(), other }
    }

    /// The counters of a type.
    pub(crate) fn of(&self, event_type: &str) -> Arc<TypeMeters> {
        // Every write is a single operation, so a poisoned lock holds valid data.
        if let Some(known) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(event_type) {
            return known.clone();
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= TYPES_MAX && !known.contains_key(event_type) {
            return self.other.clone();
        }
        let made = || Arc::new(TypeMeters::new(&self.recorder, &self.source, event_type));
        known.entry(event_type.to_owned()).or_insert_with(made).clone()
    }

    /// Counts a dead letter and returns the label of its type.
    pub(super) fn died<'a>(&self, event_type: Option<&'a str>) -> &'a str {
        let meters = event_type.map_or_else(|| self.other.clone(), |name| self.of(name));
        meters.failed.increment(1);
        event_type.filter(|_| !Arc::ptr_eq(&meters, &self.other)).unwrap_or(OTHER)
    }

    /// The number of events being sent, by type.
    pub(super) fn under_way(&self) -> HashMap<String, u64> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let counts = known.iter().map(|(name, meters)| (name.as_str(), meters.under_way.load(Relaxed)));
        let counts = counts.chain([(OTHER, self.other.under_way.load(Relaxed))]);
        counts.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
    }
}

impl TypeMeters {
    fn new(recorder: &PrometheusRecorder, source: &str, event_type: &str) -> Self {
        let counter = |status: &'static str| {
            let labels = vec![
                Label::new("source", source.to_owned()),
                Label::new("event_type", event_type.to_owned()),
                Label::new("status", status),
            ];
            metrics::with_local_recorder(recorder, || metrics::counter!(NAME, labels))
        };
        Self { processed: counter("processed"), failed: counter("failed"), under_way: AtomicU64::new(0) }
    }

    /// Counts a delivery.
    pub(crate) fn delivered(&self) {
        self.processed.increment(1);
    }
}

/// Counts events as being sent until dropped.
pub(crate) struct UnderWay(Vec<Arc<TypeMeters>>);

impl UnderWay {
    pub(crate) fn new(meters: Vec<Arc<TypeMeters>>) -> Self {
        meters.iter().for_each(|meters| _ = meters.under_way.fetch_add(1, Relaxed));
        Self(meters)
    }

    /// The counters of each event.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<TypeMeters>> {
        self.0.iter()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.iter().for_each(|meters| _ = meters.under_way.fetch_sub(1, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use crate::operations::Meters;

    use super::*;

    #[test]
    fn types_beyond_the_limit_are_counted_together() {
        let meters = Meters::new().unwrap();
        let types = meters.types("shop");
        for n in 0..TYPES_MAX + 50 {
            types.of(&format!("Type{n}")).delivered();
        }
        types.of("Type0").delivered();
        types.died(None);
        let text = meters.render();
        assert!(
            text.contains(
                "outbox_events_rate_total{source=\"shop\",event_type=\"(other)\",status=\"processed\"} 50"
            ),
            "{text}"
        );
        assert!(text.contains("event_type=\"(other)\",status=\"failed\"} 1"), "{text}");
        assert!(text.contains("event_type=\"Type0\",status=\"processed\"} 2"), "{text}");
        assert!(!text.contains(&format!("Type{TYPES_MAX}\"")), "{text}");
    }

    #[test]
    fn what_is_being_sent_is_known_until_it_ends_however_it_ends() {
        let types = Meters::new().unwrap().types("shop");
        let sending = UnderWay::new(vec![types.of("A"), types.of("B"), types.of("A")]);
        assert_eq!(types.under_way(), HashMap::from([("A".to_owned(), 2), ("B".to_owned(), 1)]));
        drop(sending);
        assert!(types.under_way().is_empty());
    }
}
