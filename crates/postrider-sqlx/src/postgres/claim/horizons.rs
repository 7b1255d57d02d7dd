//! Transaction ids of our own, by which a store knows that what was open at a certain claim is over.
//!
//! The end of a snapshot is no bound: a transaction that runs may have an id as large or larger, because a snapshot ends with the last
//! transaction that is *over*. An id that is drawn after a claim is larger than that of every transaction which had one then. Once a snapshot
//! begins beyond it, all of these are over.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use postrider_core::store::Position;

use super::trail::{far, front, near};

/// How long a statement may take from the numbers of its events to that of its transaction.
const GRACE: Duration = Duration::from_secs(60);
/// How often an id is drawn at most.
const EVERY: Duration = Duration::from_millis(500);
const MOST: usize = 256;

/// Claims are numbered from 1. These are the last ones of which all that was open when they ended is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Over {
    /// All transactions that had an id then.
    pub(super) near: u64,
    /// All that had one [`GRACE`] later, and so had taken their numbers before.
    pub(super) far: u64,
}

#[derive(Debug, Clone, Copy)]
struct Horizon {
    /// The last claim that had ended before it was drawn.
    after: u64,
    xid: i64,
    at: Instant,
}

/// The ids that were drawn, in their order.
#[derive(Debug, Default)]
pub(super) struct Horizons {
    drawn: VecDeque<Horizon>,
    tried: Option<Instant>,
}

impl Horizons {
    /// Whether lanes that stand there need another id, and one may be drawn now.
    pub(super) fn wants<'a>(&self, mut lanes: impl Iterator<Item = &'a Position>, now: Instant) -> bool {
        let rested = self.tried.is_none_or(|tried| now.saturating_duration_since(tried) >= EVERY);
        rested && lanes.any(|lane| self.is_near_unbounded(lane) || self.is_far_unbounded(lane, now))
    }

    fn is_near_unbounded(&self, lane: &Position) -> bool {
        near(lane) < front(lane) && self.first_after(lane.trail.near_claim).is_none()
    }

    fn is_far_unbounded(&self, lane: &Position, now: Instant) -> bool {
        far(lane) < front(lane)
            && self.first_after(lane.trail.far_claim).is_none_or(|first| {
                let due = first.at + GRACE;
                now >= due && self.drawn.back().is_none_or(|last| last.at < due)
            })
    }

    fn first_after(&self, claim: u64) -> Option<&Horizon> {
        let first = self.drawn.partition_point(|horizon| horizon.after < claim);
        self.drawn.get(first)
    }

    /// Somebody is about to draw one.
    pub(super) fn tries(&mut self, now: Instant) {
        self.tried = Some(now);
    }

    /// This one was drawn at that time or later, and that claim had ended by then.
    pub(super) fn drew(&mut self, xid: i64, after: u64, at: Instant) {
        let is_next = |last: &Horizon| last.after <= after && last.xid < xid && last.at <= at;
        if self.drawn.back().is_none_or(is_next) {
            self.drawn.push_back(Horizon { after, xid, at });
        }
        if self.drawn.len() > MOST {
            self.drawn.pop_front();
        }
    }

    /// What is over in a snapshot that begins with this transaction.
    pub(super) fn over(&self, xmin: i64) -> Over {
        let passed = self.drawn.partition_point(|horizon| horizon.xid < xmin);
        let Some(last) = passed.checked_sub(1).and_then(|last| self.drawn.get(last)) else {
            return Over::default();
        };
        let early = self.drawn.partition_point(|horizon| horizon.at + GRACE <= last.at);
        let far = early.checked_sub(1).and_then(|early| self.drawn.get(early));
        Over { near: last.after, far: far.map_or(0, |horizon| horizon.after) }
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::store::Trail;

    use super::*;

    fn behind(near_claim: u64, far_claim: u64) -> Position {
        let trail = Trail { front: 9, near: 5, near_claim, far_claim, ..Trail::START };
        Position { seq: 1, trail, ..Position::START }
    }

    #[test]
    fn only_what_was_drawn_after_a_claim_and_before_a_snapshot_begins_bounds_it() {
        let (mut horizons, start) = (Horizons::default(), Instant::now());
        horizons.drew(100, 3, start);
        assert_eq!(horizons.over(100), Over::default(), "a transaction with this very id may run");
        assert_eq!(horizons.over(101), Over { near: 3, far: 0 });
        horizons.drew(200, 7, start + EVERY);
        assert_eq!([horizons.over(150).near, horizons.over(201).near], [3, 7]);
    }

    #[test]
    fn the_far_mark_demands_an_id_that_was_drawn_a_minute_after_another() {
        let (mut horizons, start) = (Horizons::default(), Instant::now());
        horizons.drew(100, 3, start);
        horizons.drew(200, 7, start + GRACE / 2);
        assert_eq!(horizons.over(1000), Over { near: 7, far: 0 });
        horizons.drew(300, 9, start + GRACE);
        assert_eq!(horizons.over(1000), Over { near: 9, far: 3 });
        assert_eq!(horizons.over(300), Over { near: 7, far: 0 });
    }

    #[test]
    fn an_id_is_drawn_only_for_a_lane_that_has_something_behind_it_and_none_yet() {
        let (mut horizons, start) = (Horizons::default(), Instant::now());
        let idle = Position::at(9, postrider_core::Timestamp::EPOCH, 0);
        assert!(!horizons.wants([idle].iter(), start));
        assert!(horizons.wants([idle, behind(1, 1)].iter(), start));
        horizons.tries(start);
        horizons.drew(100, 1, start);
        assert!(!horizons.wants([behind(2, 1)].iter(), start), "too soon");
        assert!(horizons.wants([behind(2, 1)].iter(), start + EVERY));
        assert!(!horizons.wants([behind(1, 1)].iter(), start + EVERY), "there is one");
        assert!(horizons.wants([behind(1, 1)].iter(), start + GRACE), "and for the far mark another");
        horizons.drew(200, 5, start + GRACE);
        assert!(!horizons.wants([behind(1, 1)].iter(), start + GRACE * 2));
    }
}
