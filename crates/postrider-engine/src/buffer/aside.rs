//! Outcomes that could not be written: a row is locked by somebody else, or the database refuses it. They are tried again, the first soon and
//! the others slowly, while all else goes on. Their events stay tracked, their keys busy, and their lanes cannot be given back.
//!
//! What follows in a key that is *stuck* so is not kept in memory, which a long backlog of it would fill: it is dropped when a claim brings it,
//! and the lane is read from the beginning once the key goes on.

use super::*;

/// How long to wait before a row that was locked is tried again; doubled each time.
const LOCKED_MIN: Duration = Duration::from_millis(50);
const LOCKED_MAX: Duration = Duration::from_secs(1);

/// The same for an outcome that was refused.
const REFUSED_MIN: Duration = Duration::from_secs(1);
const REFUSED_MAX: Duration = Duration::from_secs(60);

/// So many refused outcomes are tried again at once, and others have their turn before the next ones.
const REFUSED_AT_ONCE: usize = 8;

/// Most outcomes that wait here. A database that refuses as many refuses everything.
const ASIDE_MAX: usize = 4096;

/// A key is stuck after so many tries at a locked row; most locks are gone by then.
const LOCKED_TRIES: u32 = 3;

/// An outcome that the database refuses to write, in whatever form. It is tried again once in a while.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsettled {
    /// The id of the event.
    pub event_id: EventId,
    /// Its type, unless what is in its row is no event.
    pub event_type: Option<String>,
    /// The key that waits behind it.
    pub key: Option<String>,
    /// What the database said.
    pub error: String,
}

/// Why an outcome was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Locked,
    Refused,
}

#[derive(Debug, Default)]
pub(super) struct Aside {
    waiting: Vec<(Instant, Why, Verdict)>,
    refused: BTreeMap<Seq, Unsettled>,
    /// Keys whose followers are not kept in memory.
    stuck: HashSet<KeyOfLane, QuickState>,
}

impl Aside {
    /// When the first of them is to be tried again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.iter().map(|(at, ..)| *at).min()
    }

    /// Whether some wait for a lock to go, which will.
    pub(super) fn has_locked(&self) -> bool {
        self.waiting.iter().any(|(_, why, _)| *why == Why::Locked)
    }

    /// The lanes that have such an outcome.
    pub(super) fn lanes(&self) -> BTreeSet<Lane> {
        self.waiting.iter().map(|(.., verdict)| verdict.lease.lane).collect()
    }

    /// Whether there are as many as may be: nothing more is claimed then.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= ASIDE_MAX
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many wait because their rows are locked, and how many because they were refused.
    fn counts(&self) -> (usize, usize) {
        let locked = self.waiting.iter().filter(|(_, why, _)| *why == Why::Locked).count();
        (locked, self.waiting.len() - locked)
    }

    /// Takes those whose time has come, of one kind: what is refused must not keep others from being written, so of these a few at a time.
    fn take_due(&mut self, now: Instant) -> Verdicts {
        let mut taken = Verdicts::default();
        let due = |(at, ..): &&(Instant, Why, Verdict)| *at <= now;
        let Some(kind) = self.waiting.iter().find(due).map(|(_, why, _)| *why) else { return taken };
        let most = if kind == Why::Refused { REFUSED_AT_ONCE } else { usize::MAX };
        let due = |(at, why, _): &mut (Instant, Why, Verdict)| *at <= now && *why == kind;
        for entry in self.waiting.extract_if(.., due).take(most) {
            taken.push_again(entry.2);
        }
        taken
    }

    /// The outcome was written, or is nobody's business any more.
    pub(super) fn forget(&mut self, seq: Seq) {
        if !self.refused.is_empty() {
            self.refused.remove(&seq);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Buffer {
    /// Takes outcomes that were put aside and whose time has come.
    pub(super) fn take_aside(&mut self, now: Instant) -> Verdicts {
        self.aside.take_due(now)
    }

    /// An outcome could not be written. Says whether that is news.
    pub(crate) fn put_aside(&mut self, mut verdict: Verdict, why: Why, error: &str, now: Instant) -> bool {
        if self.is_forgotten(verdict.lease) {
            return false;
        }
        let Settlement { lane, seq, event_id, key, .. } = &verdict.settlement;
        // It does not go alone any more: others need not wait for a lock to go.
        if let Some(lane) = self.lanes.get_mut(lane).filter(|lane| lane.lease == verdict.lease) {
            lane.end_suspect(*seq);
        }
        let (min, max) = match why {
            Why::Locked => (LOCKED_MIN, LOCKED_MAX),
            Why::Refused => (REFUSED_MIN, REFUSED_MAX),
        };
        let news = match why {
            Why::Locked => verdict.tries == 0,
            Why::Refused => {
                let event_type = verdict.event.as_ref().map(|event| event.event_type().to_owned());
                let told = self.aside.refused.get(seq).and_then(|told| told.event_type.clone());
                let unsettled = Unsettled {
                    event_id: event_id.clone(),
                    event_type: event_type.or(told),
                    key: key.as_deref().map(str::to_owned),
                    error: error.to_owned(),
                };
                self.aside.refused.insert(*seq, unsettled).is_none()
            }
        };
        if why == Why::Refused || verdict.tries >= LOCKED_TRIES {
            self.stick(&verdict);
        }
        match why {
            Why::Locked => self.give_up_slot(verdict.settlement.seq),
            Why::Refused => {
                // What may wait for ever keeps nothing in memory but its outcome.
                verdict.event = None;
                self.give_up_room(verdict.settlement.seq);
            }
        }
        let pause = min.saturating_mul(1 << verdict.tries.min(16)).min(max);
        verdict.tries = verdict.tries.saturating_add(1);
        self.aside.waiting.push((now + pause, why, verdict));
        news
    }

    /// What waits behind a key that is stuck is left to the table.
    fn stick(&mut self, verdict: &Verdict) {
        let Some(key) = verdict.key_of_lane() else { return };
        let followers = self.keys.get_mut(&key).map(Followers::take).unwrap_or_default();
        followers.iter().for_each(|follower| self.untrack(follower.seq));
        self.aside.stuck.insert(key);
    }

    /// Whether an event is not to be kept, because its key is stuck.
    pub(super) fn is_stuck(&self, item: &Item) -> bool {
        !self.aside.stuck.is_empty() && item.key_of_lane().is_some_and(|key| self.aside.stuck.contains(&key))
    }

    /// The outcome was written: if its key was stuck, the lane is read from the beginning. What a claim under way brings of the key would
    /// come before what was dropped.
    pub(super) fn unstick(&mut self, verdict: &Verdict) {
        if self.aside.stuck.is_empty() {
            return;
        }
        let Some(key) = verdict.key_of_lane().filter(|key| self.aside.stuck.contains(key)) else { return };
        self.aside.stuck.remove(&key);
        if let Some(lane) = self.lanes.get_mut(&key.lane) {
            lane.from_start = true;
        }
        if self.claiming {
            self.held_meanwhile.insert(key);
        }
    }

    /// Outcomes that the database refuses to write.
    pub(crate) fn unsettled(&self) -> Vec<Unsettled> {
        self.aside.refused.values().cloned().collect()
    }

    /// How many outcomes were put aside because their rows are locked, and how many because the database refused them.
    pub(crate) fn aside_counts(&self) -> (usize, usize) {
        self.aside.counts()
    }

    pub(crate) fn unsettled_count(&self) -> usize {
        self.aside.refused.len()
    }
}
