//! What happened, in order.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use postrider_core::{EventId, store::Lane};
use tokio::time::Instant;

use super::Tally;

/// The name of one life of an instance.
pub(super) type Name = Arc<str>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Happening {
    Started(usize),
    Crashed,
    Stopped,
    Healed,
    /// A transaction committed with this event, which has this place in its key's order.
    Committed {
        id: EventId,
        key: Option<String>,
        delayed: bool,
    },
    RolledBack(EventId),
    /// The receiver was called.
    Called {
        id: EventId,
        attempt: u32,
        lane: Lane,
        by: Name,
    },
    /// The event ended the process that delivered it.
    Killed(EventId),
    /// The database's clock went forward at once.
    ClockJumped,
    /// The event took effect at the receiver.
    Effect(EventId),
    /// The receiver answered, and the engine heard it.
    Answered {
        id: EventId,
        outcome: &'static str,
        by: Name,
    },
    /// The database misbehaved.
    Fault(&'static str, &'static str),
    /// An engine took lanes.
    Leased {
        by: Name,
        lanes: Vec<Lane>,
    },
    Redriving(EventId),
    Discarding(EventId),
}

#[derive(Debug, Default)]
pub(super) struct History {
    entries: Mutex<Vec<(u64, Happening)>>,
    /// When the first entry was made; moments count from there.
    began: Mutex<Option<Instant>>,
}

impl History {
    pub(super) fn note(&self, happening: Happening) {
        let now = Instant::now();
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let micros = (now - *began.get_or_insert(now)).as_micros() as u64;
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push((micros, happening));
    }

    pub(super) fn entries(&self) -> Vec<Happening> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().map(|(_, happening)| happening.clone()).collect()
    }

    pub(super) fn committed_ids(&self) -> Vec<EventId> {
        let committed = |happening: Happening| match happening {
            Happening::Committed { id, .. } => Some(id),
            _ => None,
        };
        self.entries().into_iter().filter_map(committed).collect()
    }

    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        let (mut seen, mut dead) = (BTreeSet::new(), BTreeSet::new());
        for happening in self.entries() {
            match happening {
                Happening::Committed { .. } => tally.committed += 1,
                Happening::RolledBack(_) => tally.rolled_back += 1,
                Happening::Effect(id) => {
                    tally.effects += 1;
                    tally.duplicates += usize::from(!seen.insert(id));
                }
                Happening::Answered { outcome: "failed" | "panicked" | "unknown", .. } => tally.failures += 1,
                Happening::Crashed => tally.crashes += 1,
                Happening::ClockJumped => tally.jumps += 1,
                Happening::Killed(_) => tally.kills += 1,
                Happening::Fault(..) => tally.faults += 1,
                Happening::Leased { lanes, .. } => tally.leases += lanes.len(),
                Happening::Discarding(id) | Happening::Redriving(id) => {
                    tally.dead += usize::from(dead.insert(id))
                }
                _ => {}
            }
        }
        tally
    }

    /// A number over everything, and everything as text.
    pub(super) fn render(&self) -> (u64, String) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut hasher, mut text) = (DefaultHasher::new(), String::new());
        for (micros, happening) in entries.iter() {
            (micros, happening).hash(&mut hasher);
            let _ = writeln!(text, "{:>12.3} ms {happening:?}", *micros as f64 / 1000.0);
        }
        (hasher.finish(), text)
    }
}
