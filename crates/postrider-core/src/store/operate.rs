//! What operators see and do.

use std::{collections::BTreeMap, fmt, time::Duration};

use super::{Lane, Seq};
use crate::{EventId, Timestamp};

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its place in the order.
    pub seq: Seq,
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: String,
    /// Its key.
    pub key: Option<String>,
    /// How often it was tried.
    pub attempts: u32,
    /// Why it went dead.
    pub error: String,
    /// Whether its key waits for it.
    pub blocks: bool,
    /// When it was inserted.
    pub created_at: Timestamp,
    /// When it went dead, where that is kept: external outbox tables may have no room for it.
    pub died_at: Option<Timestamp>,
}

/// Where one event is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventStatus {
    /// Not in this outbox: never written, rolled back, or delivered and past its retention.
    Absent,
    /// Waiting for its first attempt, which is due.
    New,
    /// Waiting behind the head of its key.
    Parked,
    /// Waiting for its time: it is to be tried again, or was written to be delivered later.
    Waiting {
        /// How often it was tried.
        attempts: u32,
        /// When it is due.
        available_at: Timestamp,
        /// What went wrong last.
        error: Option<String>,
    },
    /// Delivered, and kept until its retention ends.
    Done {
        /// When.
        done_at: Timestamp,
    },
    /// Not to be tried again until an operator says so.
    Dead {
        /// How often it was tried.
        attempts: u32,
        /// Why.
        error: String,
    },
}

/// Why a key waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldReason {
    /// Its head failed and will be tried again.
    Retry,
    /// Its head was put off without an attempt being counted.
    Deferred,
    /// Its head is dead.
    Dead,
    /// It was freed, and what was parked behind it is coming back.
    Returning,
}

impl HoldReason {
    /// The word that is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Deferred => "deferred",
            Self::Dead => "dead",
            Self::Returning => "returning",
        }
    }

    /// The reason that a stored word stands for. A word that nobody wrote reads as [`HoldReason::Dead`], the one that
    /// waits for a person.
    pub fn from_stored(word: &str) -> Self {
        match word {
            "retry" => Self::Retry,
            "deferred" => Self::Deferred,
            "returning" => Self::Returning,
            _ => Self::Dead,
        }
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a key waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The lane of the key.
    pub lane: Lane,
    /// The key.
    pub key: String,
    /// The event that it waits for.
    pub seq: Seq,
    /// Why.
    pub reason: HoldReason,
    /// Until when, where that is known.
    pub until: Option<Timestamp>,
    /// How many events are parked behind it.
    pub parked: u64,
}

/// An instance that is alive: it holds lanes, or has said not long ago that it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its name. Several of one name are told as one.
    pub name: String,
    /// The lanes that it holds; none if it stands by.
    pub lanes: Vec<Lane>,
    /// When the last of its leases ends unless it renews them; of one that stands by, until when it is believed to be there. On the
    /// database's clock.
    pub until: Timestamp,
}

/// Who delivers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instances {
    /// Those that are alive, by their names.
    pub alive: Vec<Instance>,
    /// How many lanes there are, held or not.
    pub lanes: u32,
}

impl Instances {
    /// From the rows of lanes and of instances: whose each is, unless its time is over, which lane, and until when.
    ///
    /// ```
    /// use postrider_core::{Timestamp, store::Instances};
    /// let at = Timestamp::from_micros;
    /// let row = |owner: &str, lane, until| (Some(owner.to_owned()), lane, at(until));
    /// let found = Instances::gather([row("a", Some(1), 20), (None, Some(2), at(0)), row("b", None, 30), row("a", None, 25)]);
    /// assert_eq!(found.lanes, 2);
    /// let [a, b] = found.alive.as_slice() else { panic!("{found:?}") };
    /// assert_eq!((a.lanes.as_slice(), a.until), ([1].as_slice(), at(20)));
    /// assert_eq!((b.lanes.as_slice(), b.until), ([].as_slice(), at(30)));
    /// ```
    pub fn gather(rows: impl IntoIterator<Item = (Option<String>, Option<Lane>, Timestamp)>) -> Self {
        let mut by_name = BTreeMap::<String, (Vec<Lane>, Timestamp)>::new();
        let mut lanes = 0;
        for (owner, lane, until) in rows {
            lanes += u32::from(lane.is_some());
            let Some(owner) = owner else { continue };
            let (held, latest) = by_name.entry(owner).or_insert((Vec::new(), until));
            // What it said of itself counts for less than its leases.
            *latest = match lane {
                None if !held.is_empty() => *latest,
                Some(_) if held.is_empty() => until,
                _ => until.max(*latest),
            };
            held.extend(lane);
        }
        let alive = by_name.into_iter().map(|(name, (mut lanes, until))| {
            lanes.sort_unstable();
            Instance { name, lanes, until }
        });
        Self { alive: alive.collect(), lanes }
    }
}

/// How much of everything there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events that are not delivered and not dead.
    pub pending: u64,
    /// Those of them that wait for a time of their own.
    pub waiting: u64,
    /// Those of the waiting ones whose time has come, and that nobody has delivered since.
    pub due: u64,
    /// Those of them that are parked behind the head of their key.
    pub parked: u64,
    /// Dead letters.
    pub dead: u64,
    /// Held keys.
    pub held_keys: u64,
    /// Those of them that were freed, and whose parked events are coming back.
    pub returning: u64,
    /// Delivered events that are kept.
    pub done: u64,
    /// Age of the oldest event that is not delivered and not dead.
    pub oldest: Option<Duration>,
}
