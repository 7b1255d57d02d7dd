//! Owns the backlogs: events that claims skipped because their receiver is down or has its share of memory, or
//! because they are paused.
//!
//! Each backlog has a cursor per lane. A million events are skipped once, and read once when their time has
//! come. Later events of a skipped key wait too, whatever their route: a Bloom filter of fixed size knows the
//! skipped keys. A false positive makes a key wait longer than needed, and never breaks its order.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::store::{Lane, Position, RowSummary, Seq};

use super::{
    backlog_cursor::BacklogCursor, backlog_id::BacklogId, first_skipped::FirstSkipped, key_bloom::KeyBloom,
    probes::Probes,
};
use crate::mutations::{self, Mutation};

pub(super) type LaneCursors = BTreeMap<Lane, BacklogCursor>;

/// All backlogs.
#[derive(Debug, Default)]
pub(super) struct Backlogs {
    cursors: BTreeMap<BacklogId, LaneCursors>,
    keys: Option<KeyBloom>,
    /// The first skipped event of each backlog and key.
    firsts: FirstSkipped,
    /// The backlog that is scanned now, and what was skipped into it since the scan began, which the scan may
    /// not have met.
    scanned: Option<BacklogId>,
    since: LaneCursors,
    /// The backlogs of single keys, by the numbers of their keys.
    paused_keys: BTreeSet<(u64, BacklogId)>,
    /// What was tried in vain for receivers that are down. Other events are tried first.
    probes: BTreeMap<BacklogId, Probes>,
}

impl Backlogs {
    /// For this many route slots.
    pub(super) fn new(routes: usize) -> Self {
        Self { firsts: FirstSkipped::new(routes), ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cursors.is_empty()
    }

    pub(super) fn has(&self, id: BacklogId) -> bool {
        self.cursors.contains_key(&id)
    }

    /// The backlogs that have events, in order.
    pub(super) fn ids(&self) -> impl DoubleEndedIterator<Item = BacklogId> {
        self.cursors.keys().copied()
    }

    pub(super) fn cursors(&self, id: BacklogId) -> impl Iterator<Item = (Lane, BacklogCursor)> {
        self.cursors.get(&id).into_iter().flatten().map(|(lane, place)| (*lane, *place))
    }

    /// Skips a row.
    pub(super) fn skip(&mut self, id: BacklogId, row: &RowSummary<'_>, key: Option<u64>) {
        self.note(id, row.lane, BacklogCursor::before(row), key, row.seq);
    }

    /// Records an event in memory that probes its receiver. Later events of its key wait in the table.
    pub(super) fn note_probe(&mut self, id: BacklogId, lane: Lane, seq: Seq, key: Option<u64>) {
        self.note(id, lane, BacklogCursor::before_seq(seq), key, seq);
    }

    /// Records an event that was tried, as a probe or when its receiver went down. It waits in the table until
    /// all others were tried.
    pub(super) fn note_tried(
        &mut self,
        id: BacklogId,
        (lane, seq): (Lane, Seq),
        key: Option<u64>,
        probe: bool,
    ) {
        self.note_probe(id, lane, seq, key);
        self.probes.entry(id).or_default().note_tried(seq, probe);
    }

    /// Records that a receiver which was down has taken an event.
    pub(super) fn note_taken(&mut self, id: BacklogId, seq: Seq) {
        if let Some(probes) = self.probes.get_mut(&id) {
            probes.note_taken(seq);
        }
    }

    /// Begins to scan a backlog. Returns where to begin, for lanes whose own claims `stands` knows.
    pub(super) fn begin_scan(
        &mut self,
        id: BacklogId,
        is_down: bool,
        stands: impl Fn(Lane) -> Option<Position>,
    ) -> Vec<(Lane, Position)> {
        (self.scanned, self.since) = (Some(id), LaneCursors::new());
        let cursors: Vec<(Lane, BacklogCursor)> = self.cursors(id).collect();
        let mut probes = self.probes.get_mut(&id).filter(|_| is_down);
        if let Some(probes) = &mut probes {
            let fresh = cursors.iter().any(|(_, place)| place.seq.is_some());
            probes.take_turn(fresh, cursors.iter().any(|(_, place)| place.due.is_some()));
        }
        let begin = |lane: Lane, place: BacklogCursor, stands: Position| match &probes {
            Some(probes) => probes.begin(lane, place, stands),
            None => place,
        };
        let position = |(lane, place): (Lane, BacklogCursor)| {
            let stands = stands(lane)?;
            Some((lane, begin(lane, place, stands).position(stands)))
        };
        cursors.into_iter().filter_map(position).collect()
    }

    /// Ends the scan.
    pub(super) fn end_scan(&mut self) {
        (self.scanned, self.since) = (None, LaneCursors::new());
    }

    /// Returns what was tried for a backlog.
    pub(super) fn probes(&self, id: BacklogId) -> Option<&Probes> {
        self.probes.get(&id)
    }

    /// Whether a scan of a lane from here leaves out events of this backlog.
    pub(super) fn skips_from(&self, id: BacklogId, lane: Lane, from: Position) -> bool {
        let place = self.cursors.get(&id).and_then(|cursors| cursors.get(&lane));
        place.is_some_and(|place| place.is_skipped_from(from))
    }

    /// Adds the backlog of a single key.
    pub(super) fn add_key(&mut self, id: BacklogId, key: u64) {
        self.paused_keys.insert((key, id));
    }

    /// Removes it.
    pub(super) fn remove_key(&mut self, id: BacklogId, key: u64) {
        self.paused_keys.remove(&(key, id));
    }

    /// Records that a scan found nothing to try. If it went in order, all events were tried, and all are tried
    /// again.
    pub(super) fn found_nothing(&mut self, id: BacklogId) {
        match self.probes.get_mut(&id) {
            Some(probes) if !probes.is_in_order() => probes.found_nothing(),
            _ => _ = self.probes.remove(&id),
        }
    }

    pub(super) fn was_tried(&self, id: BacklogId, row: &RowSummary<'_>) -> bool {
        self.probes.get(&id).is_some_and(|probes| probes.was_tried(row))
    }

    /// Records that the scan for a receiver that is down brings an event.
    pub(super) fn bring_probe(&mut self, id: BacklogId, row: &RowSummary<'_>) {
        self.probes.get_mut(&id).into_iter().for_each(|probes| probes.bring(row));
    }

    pub(super) fn note(
        &mut self,
        id: BacklogId,
        lane: Lane,
        before: BacklogCursor,
        key: Option<u64>,
        seq: Seq,
    ) {
        let place = self.cursors.entry(id).or_default().entry(lane).or_default();
        *place = place.or_before(before);
        if self.scanned == Some(id) {
            let since = self.since.entry(lane).or_default();
            *since = since.or_before(before);
        }
        self.remember(id, key, seq);
    }

    pub(super) fn remember(&mut self, id: BacklogId, key: Option<u64>, seq: Seq) {
        let Some(key) = key.filter(|_| !id.has_one_key()) else { return };
        self.keys.get_or_insert_with(KeyBloom::new).insert(id.number_of(key));
        self.firsts.note(id, key, seq);
    }

    /// Whether all skipped events of this key come after this one, so that it waits for none of them.
    fn is_before_first(&self, id: BacklogId, key: u64, seq: Seq) -> bool {
        !id.has_one_key() && self.firsts.least(id, key).is_none_or(|first| seq < first)
    }

    /// Whether this is known to be the first skipped event of its key.
    pub(super) fn is_first(&self, id: BacklogId, key: u64, seq: Seq) -> bool {
        self.firsts.least(id, key) == Some(seq)
    }

    /// Whether an event of this key may have been skipped into this backlog.
    pub(super) fn may_hold(&self, id: BacklogId, key: u64) -> bool {
        if id.has_one_key() {
            return self.paused_keys.contains(&(key, id));
        }
        self.keys.as_ref().is_some_and(|keys| keys.has(id.number_of(key)))
            && !mutations::active(Mutation::SkippedKeysForgotten)
    }

    /// Returns the backlog that has an earlier event of this key, among those that `counts`. Events that wait
    /// for a time of their own block nothing here: if one is the head of its key, the table holds the others
    /// back.
    pub(super) fn holder(
        &self,
        row: &RowSummary<'_>,
        key: Option<u64>,
        counts: impl Fn(BacklogId) -> bool,
    ) -> Option<BacklogId> {
        let key = key?;
        let earlier = |cursors: &LaneCursors| {
            cursors.get(&row.lane).and_then(|place| place.seq).is_some_and(|seq| seq < row.seq)
        };
        // There may be many paused keys, and only one of them is this one.
        let paused = self
            .paused_keys
            .range((key, BacklogId::FIRST_KEY)..=(key, BacklogId::LAST_KEY))
            .map(|(_, id)| id);
        let paused = paused.filter_map(|id| self.cursors.get_key_value(id));
        let mut slots = self.cursors.range(..BacklogId::FIRST_KEY).chain(paused);
        let holds = |(id, cursors): &(&BacklogId, &LaneCursors)| {
            earlier(cursors)
                && counts(**id)
                && self.may_hold(**id, key)
                && !self.is_before_first(**id, key, row.seq)
        };
        slots.find(holds).map(|(id, _)| *id)
    }

    /// Whether a backlog begins before this event of a lane, or before its end.
    pub(super) fn begins_before(&self, id: BacklogId, lane: Lane, seq: Option<Seq>) -> bool {
        let place = self.cursors.get(&id).and_then(|cursors| cursors.get(&lane)?.seq);
        place.is_some_and(|place| seq.is_none_or(|seq| place < seq))
    }

    /// Records how far a scan has read a lane; none for its end. Not for scans that leave something out.
    pub(super) fn scanned(
        &mut self,
        id: BacklogId,
        lane: Lane,
        reached: Option<Position>,
        refused: Option<BacklogCursor>,
    ) {
        let since = self.since.remove(&lane).filter(|_| self.scanned == Some(id));
        let left = reached.map(BacklogCursor::at).into_iter().chain(refused).chain(since);
        let Some(cursors) = self.cursors.get_mut(&id) else { return };
        match left.reduce(BacklogCursor::or_before) {
            Some(place) => _ = cursors.insert(lane, place),
            None => _ = cursors.remove(&lane),
        }
        if cursors.is_empty() {
            self.cursors.remove(&id);
        } else if let Some(to) = cursors.values().filter_map(|place| place.seq).min() {
            self.firsts.is_over(id, to);
        }
        self.tidy();
    }

    /// Looks for waiting events from the start.
    pub(super) fn wait_from_start(&mut self) {
        let cursors = self.cursors.values_mut().flat_map(BTreeMap::values_mut);
        cursors.for_each(|place| place.due = Some(BacklogCursor::FIRST_DUE));
    }

    /// Forgets a lane that is lost.
    pub(super) fn forget_lane(&mut self, lane: Lane) {
        self.keep_lanes(|other| other != lane);
    }

    /// Forgets all other lanes.
    pub(super) fn keep_lanes(&mut self, ours: impl Fn(Lane) -> bool) {
        if self.cursors.is_empty() {
            return;
        }
        self.cursors.values_mut().for_each(|cursors| cursors.retain(|lane, _| ours(*lane)));
        self.cursors.retain(|_, cursors| !cursors.is_empty());
        self.tidy();
    }

    fn tidy(&mut self) {
        self.probes.retain(|id, _| self.cursors.contains_key(id));
        self.firsts.retain(|id| self.cursors.contains_key(&id));
        if self.cursors.is_empty() {
            self.keys = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hash, slots::RouteSlot};

    const A: BacklogId = BacklogId::Route(RouteSlot::at(1));

    #[test]
    fn what_is_skipped_while_a_scan_runs_is_met_by_the_next_one() {
        let (mut backlogs, a) = (Backlogs::default(), Some(hash::of_key("a")));
        backlogs.note_probe(A, 0, 10, a);
        backlogs.begin_scan(A, false, |_| Some(Position::START));
        backlogs.note_tried(A, (0, 5), a, true);
        backlogs.scanned(A, 0, Some(Position { seq: 600, ..Position::START }), None);
        assert_eq!(backlogs.cursors(A).next().map(|(_, place)| place.seq), Some(Some(4)));
        backlogs.end_scan();
        backlogs.note_tried(A, (0, 7), a, true);
        backlogs.begin_scan(A, false, |_| Some(Position::START));
        backlogs.scanned(A, 0, None, None);
        assert!(backlogs.is_empty());
    }
}
