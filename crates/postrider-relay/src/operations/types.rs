//! What is counted by event type. The number of types that are told apart is limited: whoever writes events may invent them.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use metrics::{Counter, Label};
use metrics_exporter_prometheus::PrometheusRecorder;

/// Most types of a source that are told apart.
pub(crate) const TYPES_MAX: usize = 200;

/// What all further types are called, and rows that are no events. No event type has brackets by accident.
pub(crate) const OTHER: &str = "(other)";

const NAME: &str = "outbox_events_rate_total";

/// What is counted of the events of one type.
pub(crate) struct TypeMeters {
    processed: Counter,
    failed: Counter,
    under_way: AtomicU64,
}

/// What is counted of the events of a source, by their type.
pub(crate) struct ByType {
    source: String,
    recorder: Arc<PrometheusRecorder>,
    known: RwLock<HashMap<String, Arc<TypeMeters>>>,
    other: Arc<TypeMeters>,
}

impl ByType {
    pub(super) fn new(source: &str, recorder: Arc<PrometheusRecorder>) -> Self {
        metrics::with_local_recorder(&*recorder, || {
            metrics::describe_counter!(NAME, "events delivered and events that went dead, by type");
        });
        let other = Arc::new(TypeMeters::new(&recorder, source, OTHER));
        Self { source: source.to_owned(), recorder, known: RwLock::default(), other }
    }

    /// What is counted of this type.
    pub(crate) fn of(&self, event_type: &str) -> Arc<TypeMeters> {
        // Nothing here can be left half done.
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

    /// An event went dead. Says what its type is called here.
    pub(super) fn died<'a>(&self, event_type: Option<&'a str>) -> &'a str {
        let meters = event_type.map_or_else(|| self.other.clone(), |name| self.of(name));
        meters.failed.increment(1);
        event_type.filter(|_| !Arc::ptr_eq(&meters, &self.other)).unwrap_or(OTHER)
    }

    /// How many events are being sent, by type.
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

    /// An event was delivered.
    pub(crate) fn delivered(&self) {
        self.processed.increment(1);
    }
}

/// Events that are being sent, until this is dropped.
pub(crate) struct UnderWay(Vec<Arc<TypeMeters>>);

impl UnderWay {
    pub(crate) fn new(meters: Vec<Arc<TypeMeters>>) -> Self {
        meters.iter().for_each(|meters| _ = meters.under_way.fetch_add(1, Relaxed));
        Self(meters)
    }

    /// Of each event, what its type is counted by.
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
