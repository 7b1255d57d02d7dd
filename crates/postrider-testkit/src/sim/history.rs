//! What happened, in order.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use postrider_core::{
    EventId,
    store::{Lane, Seq, Subject},
};
use tokio::time::Instant;

use super::{Tally, destinations::Destination, receiver::To, writers::LONG_KEY};

/// The name of one life of an instance.
pub(super) type Name = Arc<str>;

/// The number of a call of a receiver: all events of a batch share it.
pub(super) type Call = u64;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Happening {
    Started(usize),
    Crashed,
    /// An engine was shut down: how many events it gave back, and how many it was sending.
    Stopped {
        given_back: usize,
        interrupted: usize,
    },
    Healed,
    /// A transaction committed with this event, which has this place in its key's order.
    Committed {
        id: EventId,
        event_type: &'static str,
        key: Option<String>,
        to: To,
        delayed: bool,
    },
    RolledBack(EventId),
    /// A commit took effect and its reply was lost.
    CommitReplyLost,
    /// The receiver was called.
    Called {
        id: EventId,
        attempt: u32,
        lane: Lane,
        by: Name,
        to: To,
        call: Call,
    },
    /// The call has ended, with or without an answer; whether it had taken longer than it may.
    Ended {
        call: Call,
        late: bool,
    },
    /// The event ended the process that delivered it.
    Killed(EventId),
    /// The database lost its last transactions...
    WentBack,
    /// ...and this event with them.
    Lost(EventId),
    /// Somebody else locked the row of this event.
    Locked(EventId),
    /// The database refused an outcome of this event.
    Refused(EventId),
    /// The database's clock went forward at once.
    ClockJumped,
    /// The event took effect at the receiver.
    Effect(EventId),
    /// The receiver answered, and the engine heard it.
    Answered {
        id: EventId,
        outcome: &'static str,
        by: Name,
        to: To,
        call: Call,
    },
    /// The receiver said that it is up, or that one of its destinations is.
    Healthy {
        by: Name,
        to: To,
        destination: Option<Destination>,
    },
    /// A receiver, or one destination of it, does nothing but one wrong thing from now on.
    OutageBegan(To, Option<Destination>, &'static str),
    OutageEnded(To, Option<Destination>),
    /// This event fails every batch that it is in.
    Spoiler(EventId),
    /// An engine wrote that the event is dead.
    Died {
        by: Name,
        id: EventId,
    },
    /// This event is refused whenever it is sent.
    Poison(EventId),
    /// The database misbehaved.
    Fault(&'static str, &'static str),
    /// Nobody waits for the answer of a verb any more.
    CutOff(&'static str),
    /// A settle takes longer than a lease.
    SettleStalled,
    /// A settle was refused because a lane had changed hands.
    Fenced,
    /// A settle of somebody who had lost the lane was written.
    FenceBroken(Lane),
    /// An engine took lanes, so many of which had a held key and an owner before.
    Leased {
        by: Name,
        lanes: Vec<Lane>,
        held: usize,
    },
    /// A claim left so many rows where they were.
    Skipped(usize),
    /// A claim went back to what was skipped.
    Walked,
    /// More events were in memory than may be.
    Overfull(u64, u64),
    /// An operator paused something, or resumed it.
    Paused(Subject),
    Resumed(Subject),
    /// An engine has read what is paused.
    SawPauses {
        by: Name,
        subjects: Vec<Subject>,
    },
    /// An engine writes an attempt down before it makes it, or has.
    Counting(Name, Seq),
    Counted(Name, Seq),
    /// An engine says whether it is ready, and said otherwise before.
    Ready {
        by: Name,
        ready: bool,
    },
    /// An operator saw that the event is dead.
    Dead(EventId),
    Redriving(EventId),
    Discarding(EventId),
}

/// One happening, and how many microseconds after the first.
#[derive(Debug, Clone, Hash)]
pub(super) struct Entry {
    pub(super) at: u64,
    pub(super) what: Happening,
}

#[derive(Debug, Default)]
pub(super) struct History {
    entries: Mutex<Vec<Entry>>,
    /// When the first entry was made; moments count from there.
    began: Mutex<Option<Instant>>,
}

impl History {
    pub(super) fn note(&self, what: Happening) {
        let now = Instant::now();
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (now - *began.get_or_insert(now)).as_micros() as u64;
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push(Entry { at, what });
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        let (mut seen, mut dead) = (BTreeSet::new(), BTreeSet::new());
        let (mut last_committed, mut last_call) = (None, None);
        for Entry { what, .. } in self.entries() {
            match what {
                Happening::Committed { id, key, .. } => {
                    tally.committed += 1;
                    tally.of_long_keys += usize::from(key.as_deref() == Some(LONG_KEY));
                    tally.late_commits += usize::from(last_committed.as_ref() > Some(&id));
                    last_committed = last_committed.max(Some(id));
                }
                Happening::RolledBack(_) => tally.rolled_back += 1,
                Happening::CommitReplyLost => tally.lost_commits += 1,
                Happening::Called { call, .. } => {
                    // The events of a batch follow one another; a third one is no second batch.
                    match last_call {
                        Some((last, 1)) if last == call => {
                            tally.batches += 1;
                            last_call = Some((call, 2));
                        }
                        Some((last, _)) if last == call => {}
                        _ => last_call = Some((call, 1)),
                    }
                }
                Happening::Ended { call, late } => {
                    let of_handler = Call::from(To::Handler as u32) == call >> 32;
                    tally.timeouts += usize::from(late && !of_handler);
                    tally.handler_timeouts += usize::from(late && of_handler);
                }
                Happening::Effect(id) => {
                    tally.effects += 1;
                    tally.duplicates += usize::from(!seen.insert(id));
                }
                Happening::Answered { outcome, .. } => match outcome {
                    "failed" | "unknown" => tally.failures += 1,
                    "unavailable" => tally.refusals += 1,
                    "missing" => tally.missing += 1,
                    "rejected" => tally.rejections += 1,
                    "together" => tally.failed_together += 1,
                    "too fast" => tally.too_fast += 1,
                    "panicked" => tally.panics += 1,
                    _ => {}
                },
                Happening::Healthy { .. } => tally.healthy += 1,
                Happening::OutageBegan(_, destination, word) => {
                    tally.outages += 1;
                    tally.destination_outages += usize::from(destination.is_some());
                    tally.rejecting += usize::from(word == "rejects");
                    tally.failing_and_well += usize::from(word == "fails and is well");
                    tally.limits += usize::from(word == "has a limit");
                }
                Happening::Spoiler(_) => tally.spoilers += 1,
                Happening::Poison(_) => tally.poisons += 1,
                Happening::Crashed => tally.crashes += 1,
                Happening::Stopped { given_back, interrupted } => {
                    tally.shutdowns += 1;
                    tally.busy_shutdowns += usize::from(given_back + interrupted > 0);
                }
                Happening::WentBack => tally.times_back += 1,
                Happening::Lost(_) => tally.lost += 1,
                Happening::Locked(_) => tally.locked += 1,
                Happening::Refused(_) => tally.refused_outcomes += 1,
                Happening::ClockJumped => tally.jumps += 1,
                Happening::Killed(_) => tally.kills += 1,
                Happening::Fault(..) => tally.faults += 1,
                Happening::CutOff(_) => tally.cut_off += 1,
                Happening::SettleStalled => tally.stalled_settles += 1,
                Happening::Fenced => tally.fenced += 1,
                Happening::Leased { lanes, held, .. } => {
                    tally.leases += lanes.len();
                    tally.held_takeovers += held;
                }
                Happening::Skipped(rows) => tally.skipped += rows,
                Happening::Walked => tally.walks += 1,
                Happening::Paused(_) => tally.pauses += 1,
                Happening::SawPauses { subjects, .. } => {
                    tally.pauses_seen += usize::from(!subjects.is_empty())
                }
                Happening::Dead(id) => tally.dead += usize::from(dead.insert(id)),
                _ => {}
            }
        }
        tally
    }

    /// A number over everything, and everything as text.
    pub(super) fn render(&self) -> (u64, String) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut hasher, mut text) = (DefaultHasher::new(), String::new());
        entries.hash(&mut hasher);
        for Entry { at, what } in entries.iter() {
            let _ = writeln!(text, "{:>12.3} ms {what:?}", *at as f64 / 1000.0);
        }
        (hasher.finish(), text)
    }
}
