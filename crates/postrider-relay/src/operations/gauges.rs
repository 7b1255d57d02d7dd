//! Gauges that query the database: the number of events by status and type.
//!
//! Counting reads everything that is not delivered, so it is off by default and its result is cached. These gauges are rendered here and not kept by
//! the recorder, so that a type without events disappears at the next scrape.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use postrider::{
    Store,
    sink::error_chain,
    store::{Stats, TypeCount},
};
use tokio::time::Instant;
use tracing::warn;

use super::{
    text::label,
    types::{ByType, OTHER, TYPES_MAX},
};
use crate::config;

/// Timeout of a count.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// The gauges of all sources. Cloning copies a pointer.
#[derive(Clone)]
pub(crate) struct Gauges(Arc<Shared>);

struct Shared {
    wanted: bool,
    cache: Duration,
    sources: Mutex<BTreeMap<String, Arc<Counted>>>,
}

/// A source and its last count.
struct Counted {
    store: Arc<dyn Store>,
    types: Arc<ByType>,
    last: tokio::sync::Mutex<Option<Last>>,
}

struct Last {
    asked: Instant,
    /// `None` if the count failed.
    counts: Option<Counts>,
}

/// The counts of a source at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counts {
    pending: u64,
    in_process: u64,
    dead: u64,
    /// Pending, in-process and dead events, by type.
    by_type: BTreeMap<String, [u64; 3]>,
}

impl Gauges {
    pub(crate) fn new(config: &config::Gauges) -> Self {
        let (wanted, cache) = (config.enabled, config.cache.0);
        Self(Arc::new(Shared { wanted, cache, sources: Mutex::default() }))
    }

    fn sources(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Counted>>> {
        // Every write is a single operation, so a poisoned lock holds valid data.
        self.0.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a source.
    pub(crate) fn add(&self, source: &str, store: &Arc<dyn Store>, types: &Arc<ByType>) {
        if self.0.wanted {
            let counted =
                Counted { store: store.clone(), types: types.clone(), last: tokio::sync::Mutex::default() };
            self.sources().insert(source.to_owned(), Arc::new(counted));
        }
    }

    /// Removes a source.
    pub(crate) fn remove(&self, source: &str) {
        self.sources().remove(source);
    }

    /// Renders the gauges for a scrape; empty if counting is off.
    pub(super) async fn render(&self) -> String {
        let sources: Vec<_> =
            self.sources().iter().map(|(name, counted)| (name.clone(), counted.clone())).collect();
        let asking = sources.iter().map(|(name, counted)| counted.counts(name, self.0.cache));
        let counts = futures_util::future::join_all(asking).await;
        let known: Vec<_> =
            sources.iter().zip(counts).filter_map(|((name, _), counts)| Some((name, counts?))).collect();
        let mut text = String::new();
        if !known.is_empty() {
            write_all(&mut text, &known);
        }
        text
    }
}

impl Counted {
    /// The counts, at most as old as the cache allows. Concurrent callers wait for one query.
    async fn counts(&self, source: &str, cache: Duration) -> Option<Counts> {
        let mut last = self.last.lock().await;
        if let Some(last) = last.as_ref().filter(|last| last.asked.elapsed() < cache) {
            return last.counts.clone();
        }
        let asked = Instant::now();
        let counts = match tokio::time::timeout(COUNT_TIMEOUT, self.count()).await {
            Ok(Ok(counts)) => Some(counts),
            Ok(Err(error)) => {
                warn!(source, error = %error_chain(&error), "counting events failed");
                None
            }
            Err(_) => {
                warn!(source, "counting events took longer than {COUNT_TIMEOUT:?}");
                None
            }
        };
        // A failed count is cached as long as a successful one.
        *last = Some(Last { asked, counts: counts.clone() });
        counts
    }

    async fn count(&self) -> postrider::Result<Counts> {
        let stats = self.store.stats().await?;
        let types = self.store.count_by_type(TYPES_MAX).await?;
        Ok(sorted(&stats, types, &self.types.under_way()))
    }
}

/// Sorts stored counts. An event that is being sent counts as in process and not as pending. Types beyond the limit are summed up.
fn sorted(stats: &Stats, types: Vec<TypeCount>, under_way: &HashMap<String, u64>) -> Counts {
    let in_process = under_way.values().sum::<u64>().min(stats.pending);
    let mut by_type = BTreeMap::new();
    let (mut pending, mut sent, mut dead) = (stats.pending, in_process, stats.dead);
    for TypeCount { event_type, pending: of_type, dead: dead_of_type } in types {
        let sending = under_way.get(&event_type).copied().unwrap_or_default().min(of_type);
        pending = pending.saturating_sub(of_type);
        sent = sent.saturating_sub(sending);
        dead = dead.saturating_sub(dead_of_type);
        by_type.insert(event_type, [of_type - sending, sending, dead_of_type]);
    }
    if pending + dead > 0 {
        let sending = sent.min(pending);
        by_type.insert(OTHER.to_owned(), [pending - sending, sending, dead]);
    }
    Counts { pending: stats.pending - in_process, in_process, dead: stats.dead, by_type }
}

/// One sample of a gauge: labels and value.
type Line = (Vec<(&'static str, String)>, u64);

fn write_all(text: &mut String, known: &[(&String, Counts)]) {
    let source = |name: &String| ("source", name.clone());
    let with = |name: &String, more: &[(&'static str, &str)]| {
        let more = more.iter().map(|(label, value)| (*label, (*value).to_owned()));
        std::iter::once(source(name)).chain(more).collect::<Vec<_>>()
    };
    let (mut all, mut by_status, mut by_type) = (Vec::new(), Vec::new(), Vec::new());
    let (mut dead, mut dead_by_type) = (Vec::new(), Vec::new());
    for (name, counts) in known {
        all.push((with(name, &[]), counts.pending + counts.in_process));
        by_status.push((with(name, &[("status", "pending")]), counts.pending));
        by_status.push((with(name, &[("status", "in_process")]), counts.in_process));
        dead.push((with(name, &[]), counts.dead));
        for (event_type, [pending, in_process, of_type]) in &counts.by_type {
            let of = |status| with(name, &[("event_type", event_type), ("status", status)]);
            by_type.push((of("pending"), *pending));
            by_type.push((of("in_process"), *in_process));
            dead_by_type.push((with(name, &[("event_type", event_type)]), *of_type));
        }
    }
    for (name, about, lines) in [
        ("outbox_events", "events that are neither delivered nor dead", all),
        ("outbox_events_by_status", "events that are neither delivered nor dead, by status", by_status),
        (
            "outbox_events_by_event_type_and_status",
            "events that are neither delivered nor dead, by type and status",
            by_type,
        ),
        ("postrider_dead_events", "dead letters", dead),
        ("postrider_dead_events_by_event_type", "dead letters by type", dead_by_type),
    ] {
        write(text, name, about, &lines);
    }
}

fn write(text: &mut String, name: &str, about: &str, lines: &[Line]) {
    // Writing into a string cannot fail.
    _ = writeln!(text, "# HELP {name} {about}\n# TYPE {name} gauge");
    for (labels, value) in lines {
        let labels: Vec<_> = labels.iter().map(|(name, value)| label(name, value)).collect();
        _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(event_type: &str, pending: u64, dead: u64) -> TypeCount {
        TypeCount { event_type: event_type.to_owned(), pending, dead }
    }

    #[test]
    fn what_is_being_sent_is_in_process_alone_and_unknown_types_are_told_together() {
        // S4-24
        let stats = Stats { pending: 10, dead: 3, ..Stats::default() };
        let under_way = HashMap::from([("A".to_owned(), 2), (OTHER.to_owned(), 1)]);
        let counts = sorted(&stats, vec![of("A", 5, 1), of("B", 2, 0)], &under_way);
        assert_eq!((counts.pending, counts.in_process, counts.dead), (7, 3, 3));
        let by_type = BTreeMap::from([
            ("A".to_owned(), [3, 2, 1]),
            ("B".to_owned(), [2, 0, 0]),
            (OTHER.to_owned(), [2, 1, 2]),
        ]);
        assert_eq!(counts.by_type, by_type);
        // What was delivered between the two queries must not become a negative number.
        assert_eq!(sorted(&Stats::default(), vec![], &under_way), Counts::default());
    }

    #[test]
    fn labels_are_escaped() {
        let counts = Counts {
            pending: 1,
            by_type: BTreeMap::from([("a\"\\\nb".to_owned(), [1, 0, 0])]),
            ..Counts::default()
        };
        let mut text = String::new();
        write_all(&mut text, &[(&"shop".to_owned(), counts)]);
        let line = "outbox_events_by_event_type_and_status{source=\"shop\",event_type=\"a\\\"\\\\\\nb\",status=\"pending\"} 1\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("\noutbox_events{source=\"shop\"} 1\n"), "{text}");
    }
}
