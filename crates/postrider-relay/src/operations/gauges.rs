//! Gauges that the database is asked for: how many events there are, by status and by type.
//!
//! Counting reads all that is not delivered, so it is off unless it is wanted, and an answer is kept for a while. They are written out here
//! and not kept by the recorder: a type that is gone must be gone from the next scrape too.

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

/// How long a database may take to count.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// The gauges of all sources. Cloning it copies a pointer.
#[derive(Clone)]
pub(crate) struct Gauges(Arc<Shared>);

struct Shared {
    wanted: bool,
    cache: Duration,
    sources: Mutex<BTreeMap<String, Arc<Counted>>>,
}

/// A source that can be asked, and what it said last.
struct Counted {
    store: Arc<dyn Store>,
    types: Arc<ByType>,
    last: tokio::sync::Mutex<Option<Last>>,
}

struct Last {
    asked: Instant,
    /// None if it could not be counted.
    counts: Option<Counts>,
}

/// What a source has, at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counts {
    pending: u64,
    in_process: u64,
    dead: u64,
    /// Pending, being sent and dead ones, by type.
    by_type: BTreeMap<String, [u64; 3]>,
}

impl Gauges {
    pub(crate) fn new(config: &config::Gauges) -> Self {
        let (wanted, cache) = (config.enabled, config.cache.0);
        Self(Arc::new(Shared { wanted, cache, sources: Mutex::default() }))
    }

    fn sources(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Counted>>> {
        // Nothing here can be left half done.
        self.0.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on a source can be asked.
    pub(crate) fn add(&self, source: &str, store: &Arc<dyn Store>, types: &Arc<ByType>) {
        if self.0.wanted {
            let counted =
                Counted { store: store.clone(), types: types.clone(), last: tokio::sync::Mutex::default() };
            self.sources().insert(source.to_owned(), Arc::new(counted));
        }
    }

    /// A source that is no longer there.
    pub(crate) fn remove(&self, source: &str) {
        self.sources().remove(source);
    }

    /// What a scrape reads, nothing if they are not wanted.
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
    /// What there is, as it was counted at most so long ago. Whoever asks while it is being counted waits for that.
    async fn counts(&self, source: &str, cache: Duration) -> Option<Counts> {
        let mut last = self.last.lock().await;
        if let Some(last) = last.as_ref().filter(|last| last.asked.elapsed() < cache) {
            return last.counts.clone();
        }
        let asked = Instant::now();
        let counts = match tokio::time::timeout(COUNT_TIMEOUT, self.count()).await {
            Ok(Ok(counts)) => Some(counts),
            Ok(Err(error)) => {
                warn!(source, error = %error_chain(&error), "events cannot be counted");
                None
            }
            Err(_) => {
                warn!(source, "events were not counted in {COUNT_TIMEOUT:?}");
                None
            }
        };
        // A count that fails is not repeated sooner than one that does not.
        *last = Some(Last { asked, counts: counts.clone() });
        counts
    }

    async fn count(&self) -> postrider::Result<Counts> {
        let stats = self.store.stats().await?;
        let types = self.store.count_by_type(TYPES_MAX).await?;
        Ok(sorted(&stats, types, &self.types.under_way()))
    }
}

/// What is being sent is in process, and not pending too. Types that are not told apart are told together.
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

/// One line of a gauge: labels and value.
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
        ("outbox_events", "events that are not delivered and not dead", all),
        ("outbox_events_by_status", "the same by status", by_status),
        ("outbox_events_by_event_type_and_status", "the same by type and status", by_type),
        ("postrider_dead_events", "dead letters", dead),
        ("postrider_dead_events_by_event_type", "the same by type", dead_by_type),
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
        // What was delivered between the two looks is no negative number.
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
