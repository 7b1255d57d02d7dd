//! Owns what is known of one lane that this instance holds.

use std::collections::VecDeque;

use postrider_core::store::{AcquiredLane, Lease, Position, Seq};
use tokio::time::Instant;

use super::{Item, late_counts::LateCounts, suspects::SuspectUnderWay};
use crate::mutations::{self, Mutation};

/// A lane under its lease.
pub(super) struct OwnedLane {
    pub(super) lease: Lease,
    /// The local moment after which nothing is sent.
    pub(super) deadline: Instant,
    pub(super) position: Position,
    pub(super) recheck: Vec<Seq>,
    /// The next claim reads from the start, wherever the running one ends.
    pub(super) from_start: bool,
    /// Up to where the table knows that events may be under way.
    pub(super) sent_to: Seq,
    /// Events up to this one may have been under way when the last owner ended. Each goes alone and is counted
    /// beforehand.
    pub(super) suspect_to: Seq,
    pub(super) suspects: VecDeque<Item>,
    /// The suspects under way. There is more than one only if the first one hangs.
    pub(super) suspects_under_way: Vec<SuspectUnderWay>,
    pub(super) late_counts: LateCounts,
    pub(super) taken_at: Instant,
    /// How many events are being sent or settled.
    pub(super) busy: usize,
    /// Since when the lane is being given up: nothing more of it is claimed or sent.
    pub(super) draining: Option<Instant>,
    /// The lane was not idle in time, and is not drained again before this moment.
    pub(super) kept_until: Option<Instant>,
    /// How often it was not idle in time.
    pub(super) kept: u32,
    /// Another session locked its row when it was to be marked: nothing is claimed from it before this moment.
    pub(super) locked_until: Option<Instant>,
}

impl OwnedLane {
    /// Takes the rows to recheck up to this event, sorted and without duplicates.
    pub(super) fn take_recheck(&mut self, to: Seq) -> Vec<Seq> {
        self.recheck.sort_unstable();
        self.recheck.dedup();
        let beyond = self.recheck.split_off(self.recheck.partition_point(|seq| *seq <= to));
        std::mem::replace(&mut self.recheck, beyond)
    }

    pub(super) fn new(taken: AcquiredLane, deadline: Instant) -> Self {
        let suspect_to = if mutations::active(Mutation::NoSuspects) { 0 } else { taken.suspect_to };
        Self {
            lease: taken.lease,
            deadline,
            position: Position::START,
            recheck: Vec::new(),
            from_start: false,
            sent_to: taken.suspect_to,
            suspect_to,
            suspects: VecDeque::new(),
            suspects_under_way: Vec::new(),
            late_counts: LateCounts::default(),
            taken_at: Instant::now(),
            busy: 0,
            draining: None,
            kept_until: None,
            kept: 0,
            locked_until: None,
        }
    }

    /// Records that an event has ended. Returns whether it was a suspect.
    pub(super) fn end_suspect(&mut self, seq: Seq) -> bool {
        let before = self.suspects_under_way.len();
        self.suspects_under_way.retain(|suspect| suspect.seq != seq);
        self.suspects_under_way.len() < before
    }

    /// Whether it may be drained now.
    pub(super) fn may_drain(&self, now: Instant) -> bool {
        self.draining.is_none() && self.kept_until.is_none_or(|until| until <= now)
    }

    /// Whether its events may be claimed now.
    pub(super) fn may_claim(&self, now: Instant) -> bool {
        self.gate(now).is_open() && self.locked_until.is_none_or(|until| until <= now)
    }

    /// Whether what was claimed under this lease is still ours to send.
    pub(super) fn may_take(&self, lease: Option<Lease>) -> bool {
        lease == Some(self.lease) && self.draining.is_none()
    }
}
