//! Which sinks are taken to be down, by source. It makes no relay unready: a restart would bring no sink back.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use metrics::{Gauge, Label};

/// The sinks of all sources that are taken to be down, and by how many engines: of a source that starts anew there are two for a moment.
#[derive(Default)]
pub(crate) struct Breakers(Mutex<BTreeMap<(String, String), usize>>);

impl Breakers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), usize>> {
        // Nothing here can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of sinks that are taken to be down, by the names of their sources.
    pub(crate) fn down(&self) -> BTreeMap<String, Vec<String>> {
        let mut down = BTreeMap::<_, Vec<_>>::new();
        for (source, sink) in self.lock().keys() {
            down.entry(source.clone()).or_default().push(sink.clone());
        }
        down
    }

    /// Notes that an engine has opened or closed a breaker, and shows it.
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

/// The breakers of one engine, by the names of its sinks, with how many receivers are down that have this one: a sink may be one of several
/// of each of them.
pub(super) struct OfEngine {
    all: std::sync::Arc<Breakers>,
    source: String,
    sinks: Mutex<BTreeMap<String, (Gauge, usize)>>,
}

impl OfEngine {
    /// All closed. To be called with the recorder of the gauges at hand.
    pub(super) fn new<'a>(
        all: std::sync::Arc<Breakers>,
        source: &str,
        sinks: impl Iterator<Item = &'a str>,
    ) -> Self {
        metrics::describe_gauge!("postrider_breaker_open", "whether a sink is taken to be down");
        let closed = sinks.map(|sink| {
            let labels = vec![Label::new("source", source.to_owned()), Label::new("sink", sink.to_owned())];
            (sink.to_owned(), (metrics::gauge!("postrider_breaker_open", labels), 0))
        });
        Self { all, source: source.to_owned(), sinks: Mutex::new(closed.collect()) }
    }

    /// What is switched off has no name, and is not down.
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
    /// Breakers that are open at the end of an engine are gone with it; those of the next one begin closed.
    fn drop(&mut self) {
        let sinks = self.sinks.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (sink, (gauge, _)) in sinks.iter().filter(|(_, (_, receivers))| *receivers > 0) {
            self.all.change(&self.source, sink, false, gauge);
        }
    }
}
