//! One lane: its lease, its holds, and the three sets that claims read.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use postrider_core::{
    Timestamp,
    store::{HoldReason, Seq, Token},
};

use super::{
    hash::FixedMap,
    row::{Row, Status},
    seqs::Seqs,
};

/// Until when a lane is held, and for how long that was asked for. Who holds it is told by the token alone.
#[derive(Clone)]
pub(super) struct Owner {
    pub(super) until: Timestamp,
    pub(super) ttl: Duration,
}

/// Why a key waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) seq: Seq,
    pub(super) until: Option<Timestamp>,
    pub(super) reason: HoldReason,
}

#[derive(Clone, Default)]
pub(super) struct LaneTable {
    pub(super) owner: Option<Owner>,
    /// A session of somebody else's has locked it: it is neither taken nor renewed.
    pub(super) locked: bool,
    pub(super) epoch: u64,
    /// None after a release: no token passes then.
    pub(super) nonce: Option<u64>,
    /// Whether the last owner gave it back.
    pub(super) clean: bool,
    /// Events up to this one may be under way.
    pub(super) sent_to: Seq,
    pub(super) fresh: Seqs,
    pub(super) waiting: BTreeSet<(Timestamp, Seq)>,
    parked: FixedMap<Arc<str>, BTreeSet<Seq>>,
    parked_rows: u64,
    holds: FixedMap<Arc<str>, Held>,
    /// The holds that are returning, by the seq of their head.
    returning: BTreeSet<(Seq, Arc<str>)>,
}

impl LaneTable {
    /// Whether this token is the one of the lane's present lease. Its end does not matter: nobody else took the lane.
    pub(super) fn is_held_by(&self, token: Token) -> bool {
        self.epoch == token.epoch && self.nonce == Some(token.nonce)
    }

    /// Puts a row into the set that its state belongs to.
    pub(super) fn enter(&mut self, seq: Seq, row: &Row) {
        match row.status {
            _ if row.parked => {
                let Some(key) = row.key() else { return };
                let new = self.parked.entry(Arc::clone(key)).or_default().insert(seq);
                self.parked_rows += u64::from(new);
            }
            Status::New => self.fresh.insert(seq),
            Status::Waiting => _ = self.waiting.insert((row.available_at, seq)),
            Status::Dead => {}
        }
    }

    /// Takes a row out of the set that its state belongs to.
    pub(super) fn leave(&mut self, seq: Seq, row: &Row) {
        match row.status {
            _ if row.parked => {
                let Some((key, set)) = row.key().and_then(|key| Some((key, self.parked.get_mut(key)?)))
                else {
                    return;
                };
                self.parked_rows -= u64::from(set.remove(&seq));
                if set.is_empty() {
                    self.parked.remove(key);
                }
            }
            Status::New => self.fresh.remove(seq),
            Status::Waiting => _ = self.waiting.remove(&(row.available_at, seq)),
            Status::Dead => {}
        }
    }

    pub(super) fn parked_rows(&self) -> u64 {
        self.parked_rows
    }

    /// The rows that are parked behind a key, in order.
    pub(super) fn parked_of(&self, key: &str) -> impl Iterator<Item = Seq> {
        self.parked.get(key).into_iter().flatten().copied()
    }

    pub(super) fn parked_count(&self, key: &str) -> usize {
        self.parked.get(key).map_or(0, BTreeSet::len)
    }

    pub(super) fn held_keys(&self) -> usize {
        self.holds.len()
    }

    pub(super) fn hold_of(&self, key: &str) -> Option<Held> {
        self.holds.get(key).copied()
    }

    /// The hold of this key, if it has one and `seq` is its head.
    pub(super) fn headed_by(&self, key: &str, seq: Seq) -> Option<Held> {
        self.hold_of(key).filter(|hold| hold.seq == seq)
    }

    /// Keys whose parked rows come back, those with the oldest head first.
    pub(super) fn returning(&self) -> impl Iterator<Item = &(Seq, Arc<str>)> {
        self.returning.iter()
    }

    /// Holds a key, in place of whatever held it before.
    pub(super) fn hold(&mut self, key: &Arc<str>, held: Held) {
        let before = self.holds.insert(Arc::clone(key), held);
        if let Some(before) = before.filter(|before| before.reason == HoldReason::Returning) {
            self.returning.remove(&(before.seq, Arc::clone(key)));
        }
        if held.reason == HoldReason::Returning {
            self.returning.insert((held.seq, Arc::clone(key)));
        }
    }

    /// Lets what is parked behind the key come back; a claim takes the hold away when nothing is left of it.
    pub(super) fn set_returning(&mut self, key: &Arc<str>, seq: Seq) {
        self.hold(key, Held { seq, until: None, reason: HoldReason::Returning });
    }

    /// Frees a key, if it is this event that held it, or if it is coming back already.
    pub(super) fn free(&mut self, key: &Arc<str>, seq: Seq) {
        let Some(hold) = self.hold_of(key) else { return };
        if hold.seq != seq && hold.reason != HoldReason::Returning {
            return;
        }
        if self.parked_count(key) > 0 {
            self.set_returning(key, hold.seq);
        } else {
            self.drop_hold(key);
        }
    }

    pub(super) fn drop_hold(&mut self, key: &Arc<str>) {
        if let Some(hold) = self.holds.remove(key) {
            self.returning.remove(&(hold.seq, Arc::clone(key)));
        }
    }
}
