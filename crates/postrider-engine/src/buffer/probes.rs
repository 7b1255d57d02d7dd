//! Chooses which events probe a receiver that is down. It may refuse thousands of events for reasons of their
//! own, and take later ones.
//!
//! The first few events are tried in a row. After that each claim looks for one event. Three of four claims
//! begin elsewhere in the backlog: in its middle, then in the middle of each half, and so on, alternating
//! between fresh events and events that waited. One of four goes on in order after the last one tried so. Where
//! an event was taken, the next ones are tried first.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use postrider_core::{
    Timestamp,
    store::{Lane, Position, RowSummary, Seq},
};

use super::backlog_cursor::BacklogCursor;

/// Most tried events that are remembered by number.
const TRIED_MAX: usize = 1024;

/// How many are tried in a row at first.
const IN_A_ROW: u32 = 8;

/// Of how many events that claims brought the position is remembered.
const BROUGHT_MAX: usize = 16;

/// One claim of this many goes on in order.
const IN_ORDER: u32 = 4;

/// After this many tries in order, claims no longer begin at the first event: they would have to scan over all
/// tried ones.
const SCAN_MAX: u32 = 1024;

/// Where a claim looks for an event to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ProbeOrigin {
    /// From the first event on.
    #[default]
    First,
    /// After those that were tried in order.
    AfterTried,
    /// Where one was taken.
    Taken(BacklogCursor),
    /// This fraction of the way through the fresh events only.
    Fresh(u32),
    /// This fraction of the way through the waiting events, and through the fresh ones.
    Due(u32),
}

/// The events of one backlog that were tried in vain.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// The last ones by number, and in the order of their tries.
    tried: BTreeSet<Seq>,
    tried_last: VecDeque<Seq>,
    /// How far each lane was tried in order, and how many events in all.
    in_order: BTreeMap<Lane, BacklogCursor>,
    in_order_count: u32,
    /// How many probes failed since one was taken.
    in_vain: u32,
    /// How often claims looked for a probe, and how often elsewhere.
    turns: u32,
    elsewhere: u32,
    origin: ProbeOrigin,
    /// The last events that claims brought to be tried, with their positions.
    brought: VecDeque<(Seq, BacklogCursor)>,
    /// The position of the last event that was taken.
    taken: Option<BacklogCursor>,
}

impl Probes {
    /// Records an event that was tried in vain, as a probe or with others when its receiver went down.
    pub(super) fn note_tried(&mut self, seq: Seq, probe: bool) {
        if self.tried.insert(seq) {
            self.tried_last.push_back(seq);
        }
        if self.tried_last.len() > TRIED_MAX {
            self.tried_last.pop_front().into_iter().for_each(|first| _ = self.tried.remove(&first));
        }
        self.in_vain = self.in_vain.saturating_add(u32::from(probe));
        let brought = self.brought(seq);
        let place = brought.unwrap_or(BacklogCursor::of_seq(seq));
        // Where nothing else is left after the taken event, a claim brings what it finds.
        let came_instead = |taken: BacklogCursor| {
            brought.is_some() && self.origin == ProbeOrigin::Taken(taken) && taken.is_apart_from(place)
        };
        if self.taken.is_some_and(|taken| taken.is_reached_by(place) || came_instead(taken)) {
            self.taken = None;
        }
    }

    /// Records an event that was taken. Others like it may follow it.
    pub(super) fn note_taken(&mut self, seq: Seq) {
        (self.in_vain, self.taken) = (0, Some(self.brought(seq).unwrap_or(BacklogCursor::of_seq(seq))));
    }

    fn brought(&self, seq: Seq) -> Option<BacklogCursor> {
        self.brought.iter().find(|(brought, _)| *brought == seq).map(|(_, place)| *place)
    }

    /// Records an event that a claim brings to be tried.
    pub(super) fn bring(&mut self, row: &RowSummary<'_>) {
        let place = BacklogCursor::of(row);
        self.brought.retain(|(brought, _)| *brought != row.seq);
        self.brought.push_front((row.seq, place));
        self.brought.truncate(BROUGHT_MAX);
        if self.is_in_order() {
            let tried = self.in_order.entry(row.lane).or_default();
            *tried = tried.or_after(place);
            self.in_order_count = self.in_order_count.saturating_add(1);
        }
    }

    /// Whether the claim leaves out only what was tried.
    pub(super) fn is_in_order(&self) -> bool {
        matches!(self.origin, ProbeOrigin::First | ProbeOrigin::AfterTried)
    }

    /// Nothing was found elsewhere: the next claim goes on in order.
    pub(super) fn found_nothing(&mut self) {
        self.taken = None;
        self.turns = self.turns.next_multiple_of(IN_ORDER).wrapping_sub(1);
    }

    pub(super) fn was_tried(&self, row: &RowSummary<'_>) -> bool {
        let in_order =
            || self.in_order.get(&row.lane).is_some_and(|tried| BacklogCursor::of(row).is_reached_by(*tried));
        self.tried.contains(&row.seq) || in_order()
    }

    /// Whether so many were tried in vain that the next one is looked for elsewhere. What is refused in one
    /// place is refused beside it too.
    pub(super) fn looks_for_one(&self) -> bool {
        self.in_vain >= IN_A_ROW && self.taken.is_none()
    }

    /// Chooses where the next claim looks, given whether there are fresh events and waiting ones.
    pub(super) fn take_turn(&mut self, fresh: bool, due: bool) {
        self.turns = self.turns.wrapping_add(1);
        self.origin = match self.taken {
            Some(taken) => ProbeOrigin::Taken(taken),
            None if self.in_vain < IN_A_ROW || self.turns.is_multiple_of(IN_ORDER) => {
                if self.in_order_count < SCAN_MAX { ProbeOrigin::First } else { ProbeOrigin::AfterTried }
            }
            None => {
                self.elsewhere = self.elsewhere.wrapping_add(1);
                let part = self.elsewhere.reverse_bits();
                // These turns look everywhere for both kinds. There may be no waiting events.
                let waited_next = due && self.elsewhere.count_ones().is_multiple_of(2);
                if waited_next || !fresh && due { ProbeOrigin::Due(part) } else { ProbeOrigin::Fresh(part) }
            }
        };
    }

    /// Returns where the claim begins in a lane, given its first event and how far it was read.
    pub(super) fn begin(&self, lane: Lane, first: BacklogCursor, read: Position) -> BacklogCursor {
        let fresh = |part| {
            first.seq.map(|first| first.saturating_add(part_of(read.front().saturating_sub(first), part)))
        };
        match self.origin {
            ProbeOrigin::First => first,
            ProbeOrigin::AfterTried => {
                self.in_order.get(&lane).map_or(first, |tried| tried.within(first).or_after(first))
            }
            ProbeOrigin::Taken(taken) => {
                let begin = taken.within(first).or_after(first);
                // Waiting events would come before what follows a fresh one.
                BacklogCursor { due: begin.due.filter(|_| taken.due.is_some()), ..begin }
            }
            ProbeOrigin::Fresh(part) => BacklogCursor { seq: fresh(part), due: None },
            ProbeOrigin::Due(part) => {
                let due = first.due.map(|(at, seq)| (at.plus(part_of_time(at, read.due_at, part)), seq));
                BacklogCursor { seq: fresh(part), due }
            }
        }
    }
}

/// Returns a fraction of a whole.
fn part_of(whole: u64, part: u32) -> u64 {
    u64::try_from((u128::from(whole) * u128::from(part)) >> u32::BITS).unwrap_or_default()
}

/// Returns a fraction of the time between two moments.
fn part_of_time(from: Timestamp, to: Timestamp, part: u32) -> Duration {
    let whole = u64::try_from(to.since(from).as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(part_of(whole, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_vain() -> Probes {
        let mut probes = Probes::default();
        (1..=Seq::from(IN_A_ROW)).for_each(|seq| probes.note_tried(seq, true));
        probes
    }

    fn row(seq: Seq, due_at: Option<i64>) -> RowSummary<'static> {
        let due_at = due_at.map(Timestamp::from_micros);
        RowSummary { lane: 0, seq, event_type: "", aggregate_type: "", key: None, due_at }
    }

    /// Returns where the next claim begins among the fresh events after the first one.
    fn begins(probes: &mut Probes, first: Seq, read_to: Seq) -> Option<Seq> {
        probes.take_turn(true, false);
        let read = Position { seq: read_to, ..Position::START };
        probes.begin(0, BacklogCursor::of_seq(first), read).seq.filter(|seq| *seq > first)
    }

    #[test]
    fn the_first_few_are_tried_in_a_row_and_then_most_claims_begin_elsewhere() {
        assert_eq!(begins(&mut Probes::default(), 0, 1000), None);
        let mut probes = in_vain();
        let begins: Vec<_> = (0..6).map(|_| begins(&mut probes, 100, 1100)).collect();
        assert_eq!(begins, [Some(600), Some(350), Some(850), None, Some(225), Some(725)]);
    }

    #[test]
    fn a_batch_that_was_refused_when_the_receiver_went_down_is_no_probe() {
        let mut probes = Probes::default();
        (1..100).for_each(|seq| probes.note_tried(seq, false));
        assert_eq!(begins(&mut probes, 0, 1000), None);
        assert!(!probes.looks_for_one());
    }

    #[test]
    fn good_events_behind_many_bad_ones_are_found_soon() {
        for (first_good, last_good) in [(100_000, 100_100), (50_000, 53_000), (90_000, 100_000)] {
            let mut probes = in_vain();
            let is_good = |seq| (first_good..last_good).contains(&(seq + 100));
            let found = (0..10_000).find(|_| begins(&mut probes, 0, 100_000).is_some_and(is_good));
            assert!(found.is_some_and(|claims| claims < 2500), "{found:?}");
        }
    }

    #[test]
    fn what_is_tried_in_order_comes_to_the_end_however_much_there_is() {
        for due in [None, Some(7)] {
            let mut probes = Probes::default();
            let mut met = BTreeSet::new();
            for _ in 0..5000 {
                probes.take_turn(due.is_none(), due.is_some());
                let Some(next) = (1..=3000).find(|seq| !probes.was_tried(&row(*seq, due))) else { break };
                probes.bring(&row(next, due));
                probes.note_tried(next, false);
                met.insert(next);
            }
            assert_eq!(met.len(), 3000);
            assert!(probes.tried.len() <= TRIED_MAX && probes.tried_last.len() == probes.tried.len());
            let first = BacklogCursor { seq: Some(0), due: due.map(|_| (Timestamp::EPOCH, 0)) };
            assert_ne!(probes.begin(0, first, Position::START), first, "no claim scans all of them");
        }
    }

    #[test]
    fn where_one_was_taken_the_next_ones_are_tried_first_until_one_is_refused() {
        let mut probes = in_vain();
        probes.note_taken(500);
        assert_eq!(begins(&mut probes, 0, 1000), Some(500));
        probes.note_tried(20, true);
        assert_eq!(begins(&mut probes, 0, 1000), Some(500), "that one lies elsewhere");
        probes.note_tried(501, true);
        assert_eq!(begins(&mut probes, 0, 1000), None);
    }

    #[test]
    fn events_that_are_fresh_and_events_that_waited_are_looked_for_in_turn() {
        let mut probes = in_vain();
        let first = BacklogCursor { seq: Some(100), due: Some((Timestamp::from_micros(1000), 0)) };
        let read = Position { seq: 1100, due_at: Timestamp::from_micros(2000), ..Position::START };
        let begins: Vec<_> = (0..6)
            .map(|_| {
                probes.take_turn(true, true);
                let begin = probes.begin(0, first, read);
                (begin.seq, begin.due.map(|(at, _)| at.as_micros()))
            })
            .collect();
        let all = (Some(100), Some(1000));
        let fresh = |seq| (Some(seq), None);
        let due = |seq, at| (Some(seq), Some(at));
        assert_eq!(begins, [fresh(600), fresh(350), due(850, 1750), all, fresh(225), due(725, 1625)]);
        // After a waiting event was taken, the next waiting ones are tried first.
        probes.bring(&row(40, Some(1700)));
        probes.note_taken(40);
        probes.take_turn(true, true);
        let backlogs = BacklogCursor { seq: Some(100), due: Some((Timestamp::from_micros(1700), 40)) };
        assert_eq!(probes.begin(0, first, read), backlogs);
        probes.bring(&row(30, Some(1800)));
        probes.note_tried(30, true);
        assert_eq!(probes.taken, None);
    }
}
