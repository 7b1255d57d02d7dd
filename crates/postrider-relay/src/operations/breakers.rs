//! Records which sinks are down, by source. A sink that is down does not make the relay unready, because a restart would not help.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use metrics::{Gauge, Label};

/// The sinks that are down, with the number of engines that say so: a source that restarts has two engines for a moment.
#[derive(Default)]
pub(crate) struct Breakers(Mutex<BTreeMap<(String, String), usize>>);

impl Breakers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), usize>> {
        // Every write is a single operation, so a poisoned lock holds valid data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of sinks that are down, by source.
    pub(crate) fn down(&self) -> BTreeMap<String, Vec<String>> {
        let mut down = BTreeMap::<_, Vec<_>>::new();
        for (source, sink) in self.lock().keys() {
            down.entry(source.clone()).or_default().push(sink.clone());
        }
        down
    }

    /// Records that an engine opened or closed a breaker, and updates the gauge.
    fn change(&self, source: &str, sink: &str, open: bool, gauge: &Gauge) {
        let mut all = self.lock();
        let key = (source.to_owned(), sink.to_owned());
        let engines = all.get(&key).copied().unwrap_or_default();
        let engines = if open { engines.saturating_add(1) } else { engines.saturating_sub(1) };
        match engines {
            0 => all.remove(&key),
            engines => all.insert(key, engines),
        };
        gauge.set(if engines > 0 { 1.0 } else { 0.0 });
    }
}

/// The breakers of one engine, by sink, with the number of receivers that are down and use the sink: several receivers may share one.
pub(super) struct OfEngine {
    all: std::sync::Arc<Breakers>,
    source: String,
    sinks: Mutex<BTreeMap<String, (Gauge, usize)>>,
}

impl OfEngine {
    /// All closed. Must be called while the recorder of the gauges is set.
    pub(super) fn new<'a>(
        all: std::sync::Arc<Breakers>,
        source: &str,
        sinks: impl Iterator<Item = &'a str>,
    ) -> Self {
        metrics::describe_gauge!("postrider_breaker_open", "whether a sink is believed to be down");
        let closed = sinks.map(|sink| {
            let labels = vec![Label::new("source", source.to_owned()), Label::new("sink", sink.to_owned())];
            (sink.to_owned(), (metrics::gauge!("postrider_breaker_open", labels), 0))
        });
        Self { all, source: source.to_owned(), sinks: Mutex::new(closed.collect()) }
    }

    /// A disabled sink has no name here and is not down.
    pub(super) fn set(&self, sink: &str, open: bool) {
        let mut sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((gauge, receivers)) = sinks.get_mut(sink) else { return };
        let was_open = *receivers > 0;
        *receivers = if open { receivers.saturating_add(1) } else { receivers.saturating_sub(1) };
        if was_open != (*receivers > 0) {
            self.all.change(&self.source, sink, open, gauge);
        }
    }
}

impl Drop for OfEngine {
    /// An engine takes its open breakers with it; the next engine starts with all closed.
    fn drop(&mut self) {
        let sinks = self.sinks.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (sink, (gauge, _)) in sinks.iter().filter(|(_, (_, receivers))| *receivers > 0) {
            self.all.change(&self.source, sink, false, gauge);
        }
    }
}
