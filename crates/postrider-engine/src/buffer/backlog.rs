//! What claims have passed over: events whose receiver is down, or has more than its share of memory, or that are paused.
//!
//! A slot whose events were passed over is *behind*. For each lane it has a place of its own to go on reading from, so that a million
//! events are passed over once, and read once when their time has come. The next events of a key that was passed over wait too, whatever
//! their route: a filter of fixed size knows the keys. It may take a key for another, which then waits longer than it had to, and never
//! out of order.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::store::{Glance, Lane, Position, Seq};

use super::{
    backlog_cursor::BacklogCursor, backlog_id::BacklogId, first_skipped::FirstSkipped, key_bloom::KeyBloom,
    long_keys::LongKeyRoom, probes::Probes,
};
use crate::{
    hash,
    mutations::{self, Mutation},
    slots::RouteSlot,
};

type LaneCursors = BTreeMap<Lane, BacklogCursor>;

/// The slots that are behind.
#[derive(Debug, Default)]
pub(super) struct Backlogs {
    slots: BTreeMap<BacklogId, LaneCursors>,
    keys: Option<KeyBloom>,
    /// The first event of a slot and key that was passed over.
    firsts: FirstSkipped,
    /// The slot whose backlog is walked now, and what was passed over on its account since the walk began: the walk may not have met it.
    walked: Option<BacklogId>,
    since: LaneCursors,
    /// The slots of paused keys with the numbers of their keys: nothing else is ever passed over on their account.
    paused_keys: BTreeSet<(u64, BacklogId)>,
    /// What was tried in vain of a slot whose receiver is down: others have their turn first.
    probes: BTreeMap<BacklogId, Probes>,
}

impl Backlogs {
    /// For so many slots of routes.
    pub(super) fn new(routes: usize) -> Self {
        Self { firsts: FirstSkipped::new(routes), ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn has(&self, id: BacklogId) -> bool {
        self.slots.contains_key(&id)
    }

    /// The slots that are behind, in order.
    pub(super) fn slots(&self) -> impl DoubleEndedIterator<Item = BacklogId> {
        self.slots.keys().copied()
    }

    pub(super) fn places(&self, id: BacklogId) -> impl Iterator<Item = (Lane, BacklogCursor)> {
        self.slots.get(&id).into_iter().flatten().map(|(lane, place)| (*lane, *place))
    }

    /// A row is passed over on account of this slot.
    fn pass(&mut self, id: BacklogId, row: &Glance<'_>, key: Option<u64>) {
        self.note(id, row.lane, BacklogCursor::before(row), key, row.seq);
    }

    /// An event of this slot is in memory to see whether its receiver is back. What follows it in its key waits in the table.
    pub(super) fn note_probe(&mut self, id: BacklogId, lane: Lane, seq: Seq, key: Option<u64>) {
        self.note(id, lane, BacklogCursor::before_seq(seq), key, seq);
    }

    /// An event was tried, as a probe or when its receiver went down, which is still down. It waits in the table, and is tried again when all others
    /// were.
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

    /// The receiver of a slot was down, and has taken an event.
    pub(super) fn note_taken(&mut self, id: BacklogId, seq: Seq) {
        if let Some(probes) = self.probes.get_mut(&id) {
            probes.note_taken(seq);
        }
    }

    /// A walk over the backlog of a slot begins; whether its receiver is down. Gives the places to begin at, in lanes that stand so far.
    pub(super) fn begin_walk(
        &mut self,
        id: BacklogId,
        is_down: bool,
        stands: impl Fn(Lane) -> Option<Position>,
    ) -> Vec<(Lane, Position)> {
        (self.walked, self.since) = (Some(id), LaneCursors::new());
        let places: Vec<(Lane, BacklogCursor)> = self.places(id).collect();
        let mut probes = self.probes.get_mut(&id).filter(|_| is_down);
        if let Some(probes) = &mut probes {
            let fresh = places.iter().any(|(_, place)| place.seq.is_some());
            probes.take_turn(fresh, places.iter().any(|(_, place)| place.due.is_some()));
        }
        let begin = |lane: Lane, place: BacklogCursor, stands: Position| match &probes {
            Some(probes) => probes.begin(lane, place, stands),
            None => place,
        };
        let position = |(lane, place): (Lane, BacklogCursor)| {
            let stands = stands(lane)?;
            Some((lane, begin(lane, place, stands).position(stands)))
        };
        places.into_iter().filter_map(position).collect()
    }

    /// No walk is under way any more.
    pub(super) fn end_walk(&mut self) {
        (self.walked, self.since) = (None, LaneCursors::new());
    }

    /// What was tried of a slot.
    pub(super) fn probes(&self, id: BacklogId) -> Option<&Probes> {
        self.probes.get(&id)
    }

    /// Whether a reading of a lane from here leaves out events that were passed over on account of this slot.
    pub(super) fn skips_from(&self, id: BacklogId, lane: Lane, from: Position) -> bool {
        let place = self.slots.get(&id).and_then(|places| places.get(&lane));
        place.is_some_and(|place| place.is_skipped_from(from))
    }

    /// This slot is that of a paused key.
    pub(super) fn know_key(&mut self, id: BacklogId, key: u64) {
        self.paused_keys.insert((key, id));
    }

    /// It is no longer.
    pub(super) fn forget_key(&mut self, id: BacklogId, key: u64) {
        self.paused_keys.remove(&(key, id));
    }

    /// A walk has found nothing to try. One in order: all were tried, and all are tried again.
    pub(super) fn found_nothing(&mut self, id: BacklogId) {
        match self.probes.get_mut(&id) {
            Some(probes) if !probes.is_in_order() => probes.found_nothing(),
            _ => _ = self.probes.remove(&id),
        }
    }

    fn was_tried(&self, id: BacklogId, row: &Glance<'_>) -> bool {
        self.probes.get(&id).is_some_and(|probes| probes.was_tried(row))
    }

    /// A walk over the backlog of a slot whose receiver is down brings an event of it.
    fn bring_probe(&mut self, id: BacklogId, row: &Glance<'_>) {
        self.probes.get_mut(&id).into_iter().for_each(|probes| probes.bring(row));
    }

    fn note(&mut self, id: BacklogId, lane: Lane, before: BacklogCursor, key: Option<u64>, seq: Seq) {
        let place = self.slots.entry(id).or_default().entry(lane).or_default();
        *place = place.or_before(before);
        if self.walked == Some(id) {
            let since = self.since.entry(lane).or_default();
            *since = since.or_before(before);
        }
        self.remember(id, key, seq);
    }

    fn remember(&mut self, id: BacklogId, key: Option<u64>, seq: Seq) {
        let Some(key) = key.filter(|_| !id.has_one_key()) else { return };
        self.keys.get_or_insert_with(KeyBloom::new).insert(id.number_of(key));
        self.firsts.note(id, key, seq);
    }

    /// Whether all that was passed over of this key on account of this slot comes after this event: it waits for nothing of it.
    fn is_before_first(&self, id: BacklogId, key: u64, seq: Seq) -> bool {
        !id.has_one_key() && self.firsts.least(id, key).is_none_or(|first| seq < first)
    }

    /// Whether this is known to be the first event of its key that was passed over on account of this slot.
    fn is_first(&self, id: BacklogId, key: u64, seq: Seq) -> bool {
        self.firsts.least(id, key) == Some(seq)
    }

    /// Whether an event of this key may have been passed over on account of this slot.
    fn may_hold(&self, id: BacklogId, key: u64) -> bool {
        if id.has_one_key() {
            return self.paused_keys.contains(&(key, id));
        }
        self.keys.as_ref().is_some_and(|keys| keys.has(id.number_of(key)))
            && !mutations::active(Mutation::PassedKeysForgotten)
    }

    /// The slot on whose account an earlier event of this key waits, among those that `counts`. What waits for a time of its own holds nobody
    /// up here: if it is the head of its key, the table keeps the others back.
    fn holder(
        &self,
        row: &Glance<'_>,
        key: Option<u64>,
        counts: impl Fn(BacklogId) -> bool,
    ) -> Option<BacklogId> {
        let key = key?;
        let earlier = |places: &LaneCursors| {
            places.get(&row.lane).and_then(|place| place.seq).is_some_and(|seq| seq < row.seq)
        };
        // Paused keys are many, and only one of them can be this one.
        let paused = self
            .paused_keys
            .range((key, BacklogId::FIRST_KEY)..=(key, BacklogId::LAST_KEY))
            .map(|(_, id)| id);
        let paused = paused.filter_map(|id| self.slots.get_key_value(id));
        let mut slots = self.slots.range(..BacklogId::FIRST_KEY).chain(paused);
        let holds = |(id, places): &(&BacklogId, &LaneCursors)| {
            earlier(places)
                && counts(**id)
                && self.may_hold(**id, key)
                && !self.is_before_first(**id, key, row.seq)
        };
        slots.find(holds).map(|(id, _)| *id)
    }

    /// Whether the backlog of a slot begins before this event of a lane; none is the end of it.
    pub(super) fn begins_before(&self, id: BacklogId, lane: Lane, seq: Option<Seq>) -> bool {
        let place = self.slots.get(&id).and_then(|places| places.get(&lane)?.seq);
        place.is_some_and(|place| seq.is_none_or(|seq| place < seq))
    }

    /// A walk over what is behind in a slot has come so far; none if it has come to the end of a lane. Not for one that has skipped something: what
    /// it left out is still there.
    pub(super) fn walked(
        &mut self,
        id: BacklogId,
        lane: Lane,
        reached: Option<Position>,
        refused: Option<BacklogCursor>,
    ) {
        let since = self.since.remove(&lane).filter(|_| self.walked == Some(id));
        let left = reached.map(BacklogCursor::at).into_iter().chain(refused).chain(since);
        let Some(places) = self.slots.get_mut(&id) else { return };
        match left.reduce(BacklogCursor::or_before) {
            Some(place) => _ = places.insert(lane, place),
            None => _ = places.remove(&lane),
        }
        if places.is_empty() {
            self.slots.remove(&id);
        } else if let Some(to) = places.values().filter_map(|place| place.seq).min() {
            self.firsts.is_over(id, to);
        }
        self.tidy();
    }

    /// Waiting events are looked for from the start.
    pub(super) fn wait_from_start(&mut self) {
        let places = self.slots.values_mut().flat_map(BTreeMap::values_mut);
        places.for_each(|place| place.due = Some(BacklogCursor::FIRST_DUE));
    }

    /// The lane is no longer ours.
    pub(super) fn forget_lane(&mut self, lane: Lane) {
        self.keep_lanes(|other| other != lane);
    }

    /// Forgets all other lanes.
    pub(super) fn keep_lanes(&mut self, ours: impl Fn(Lane) -> bool) {
        if self.slots.is_empty() {
            return;
        }
        self.slots.values_mut().for_each(|places| places.retain(|lane, _| ours(*lane)));
        self.slots.retain(|_, places| !places.is_empty());
        self.tidy();
    }

    fn tidy(&mut self) {
        self.probes.retain(|id, _| self.slots.contains_key(id));
        self.firsts.retain(|id| self.slots.contains_key(&id));
        if self.slots.is_empty() {
            self.keys = None;
        }
    }
}

/// Whose a row is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    /// The slot of its route.
    pub(super) slot: RouteSlot,
    /// The slot of the pause that holds it back.
    pub(super) paused: Option<BacklogId>,
    /// It is of the pause whose backlog is walked.
    pub(super) resumed: bool,
}

impl From<RouteSlot> for Owner {
    fn from(slot: RouteSlot) -> Self {
        Self { slot, paused: None, resumed: false }
    }
}

/// Who may come in: how many more of each slot, and which slot alone is looked for.
#[derive(Debug)]
pub(super) struct AdmissionState {
    /// How many more of each slot.
    pub(super) room: Vec<usize>,
    /// The slots whose receivers are down: what comes in is a probe.
    pub(super) down: BTreeSet<RouteSlot>,
    /// The slot whose backlog is walked; none for the lanes' own positions.
    pub(super) only: Option<BacklogId>,
    /// Where the walk over a backlog began, in each lane.
    pub(super) start: BTreeMap<Lane, Seq>,
    /// The lanes in which it leaves out what was tried: only the first event of a key is looked for there.
    pub(super) skipped: BTreeSet<Lane>,
    /// What a walk over a backlog had to leave once more.
    pub(super) refused: LaneCursors,
    /// Keys of events that a walk had to leave: for want of room, or because they committed late and the lanes' own claims have to
    /// meet them first. Nothing of them comes in after that; what they wait for.
    pub(super) left: BTreeMap<u64, Option<BacklogId>>,
    /// Up to where the lanes' own claims have met everything.
    pub(super) met: BTreeMap<Lane, Seq>,
    /// Keys with more events than may wait in memory.
    pub(super) crowded: LongKeyRoom,
    /// What was let go, as far as a walk meets it.
    pub(super) again: BTreeSet<Seq>,
    /// What of it is for the lanes' own claims to bring: something that committed late may stand before it.
    pub(super) others: Vec<(Lane, Seq)>,
}

impl AdmissionState {
    /// Whether this row comes in. One that does not is remembered.
    pub(super) fn admits(
        &mut self,
        backlogs: &mut Backlogs,
        whose: impl Into<Owner>,
        row: &Glance<'_>,
        keyed: bool,
    ) -> bool {
        let Owner { slot, paused, resumed } = whose.into();
        let id = BacklogId::Route(slot);
        let key = row.key.filter(|_| keyed).map(hash::of_key);
        let met = self.met.get(&row.lane).is_some_and(|met| row.seq <= *met);
        // What was let go is judged as the lanes' own claims do it: of what the walk will meet after it nothing is known yet.
        let let_go = self.again.contains(&row.seq);
        let walked = self.only.filter(|_| !let_go);
        let listed = walked
            .is_none_or(|only| id == only || resumed || key.is_some_and(|key| backlogs.may_hold(only, key)));
        if !listed || (let_go && !met) {
            // Somebody else's, or never met.
            self.left.extend(key.filter(|_| !met).map(|key| (key, self.only)));
            self.others.extend(let_go.then_some((row.lane, row.seq)));
            return false;
        }
        let full = self.room.get(slot.index()).is_none_or(|room| *room == 0)
            || (self.down.contains(&slot) && backlogs.was_tried(id, row));
        // What lies in a backlog that begins later is met by this walk too, in order: it need not be asked for. The walk that begins first is
        // the one that decides, or two would leave events to each other for ever.
        // But only keys that were passed over on its account are met whole.
        let whole = |only: BacklogId| key.is_none_or(|key| backlogs.may_hold(only, key));
        let unseen = |other: BacklogId| match walked {
            Some(only) if only == other => false,
            Some(only) if whole(only) => {
                backlogs.begins_before(other, row.lane, self.start.get(&row.lane).copied())
            }
            _ => backlogs.has(other),
        };
        // Of what lies before a walk that leaves something out nothing is known but the first events of keys.
        let skips = walked.is_some() && self.skipped.contains(&row.lane);
        let follows =
            skips && (Some(id) != self.only || key.is_some_and(|key| !backlogs.is_first(id, key, row.seq)));
        let of_crowd = self.crowded.is_walked(key);
        // What stands behind an event of its key that was left waits for the same.
        let left = key.and_then(|key| self.left.get(&key).copied().flatten());
        let waits_for = if left.is_some() {
            left
        } else if follows || of_crowd && !self.crowded.has_room() {
            self.only
        } else if let Some(pause) = paused.or_else(|| self.crowded.holder(key)) {
            Some(pause)
        } else if full || unseen(id) {
            Some(id)
        } else {
            backlogs.holder(row, key, unseen)
        };
        let Some(holder) = waits_for else {
            self.room.get_mut(slot.index()).into_iter().for_each(|room| *room = room.saturating_sub(1));
            if of_crowd {
                self.crowded.enter();
            }
            match self.down.contains(&slot) {
                true if self.only == Some(id) => backlogs.bring_probe(id, row),
                true => backlogs.note_probe(id, row.lane, row.seq, key),
                false => {}
            }
            return true;
        };
        // A walk that leaves something out may begin behind what was let go, and takes the place of its backlog nowhere.
        let stays = let_go && self.skipped.contains(&row.lane);
        if self.only == Some(holder) && !stays {
            let place = self.refused.entry(row.lane).or_default();
            *place = place.or_before(BacklogCursor::before(row));
            // One that committed late is still to be met by the lanes' own claims, and what stands before it in its key must not wait for it.
            backlogs.remember(holder, key.filter(|_| met || let_go), row.seq);
        } else {
            backlogs.pass(holder, row, key);
        }
        if self.only.is_some() {
            self.left.extend(key.map(|key| (key, Some(holder))));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::Timestamp;

    use super::*;

    fn row(seq: Seq, key: Option<&str>) -> Glance<'_> {
        Glance { lane: 0, seq, event_type: "", aggregate_type: "", key, due_at: None }
    }

    fn route(n: usize) -> RouteSlot {
        RouteSlot::at(n)
    }

    fn id(n: usize) -> BacklogId {
        route(n).into()
    }

    fn state(room: [usize; 3], only: Option<usize>) -> AdmissionState {
        AdmissionState {
            room: room.to_vec(),
            down: BTreeSet::new(),
            only: only.map(id),
            start: BTreeMap::new(),
            skipped: BTreeSet::new(),
            refused: LaneCursors::new(),
            left: BTreeMap::new(),
            met: [(0, 100)].into(),
            crowded: LongKeyRoom::default(),
            again: BTreeSet::new(),
            others: Vec::new(),
        }
    }

    #[test]
    fn a_full_slot_is_passed_over_and_so_are_later_events_of_its_keys_and_nothing_else() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        assert!(main.admits(&mut backlogs, route(2), &row(1, Some("a")), true));
        assert!(!main.admits(&mut backlogs, route(1), &row(2, Some("a")), true));
        assert!(!main.admits(&mut backlogs, route(2), &row(3, Some("a")), true), "it would overtake");
        assert!(main.admits(&mut backlogs, route(2), &row(4, Some("b")), true));
        assert!(backlogs.has(id(1)) && !backlogs.has(id(2)));
    }

    #[test]
    fn an_event_does_not_wait_for_one_of_its_key_that_comes_after_it() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        assert!(!main.admits(&mut backlogs, route(1), &row(2, Some("a")), true));
        assert!(!main.admits(&mut backlogs, route(1), &row(9, Some("b")), true));
        let due = Glance { due_at: Some(Timestamp::from_micros(1)), ..row(5, Some("b")) };
        assert!(
            main.admits(&mut backlogs, route(2), &due, true),
            "what was passed over of its key comes later"
        );
        assert!(!main.admits(&mut backlogs, route(2), &row(10, Some("b")), true), "it would overtake");
        // One that is found later stands before it.
        assert!(!main.admits(&mut backlogs, route(1), &row(4, Some("b")), true));
        assert!(!main.admits(&mut backlogs, route(2), &due, true));
    }

    #[test]
    fn a_walk_over_the_backlog_finds_what_was_passed_over_in_order_and_leaves_others_alone() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        main.admits(&mut backlogs, route(1), &row(2, Some("a")), true);
        main.admits(&mut backlogs, route(2), &row(3, Some("a")), true);
        let mut walk = state([9, 9, 9], Some(1));
        assert!(walk.admits(&mut backlogs, route(1), &row(2, Some("a")), true));
        assert!(walk.admits(&mut backlogs, route(2), &row(3, Some("a")), true));
        assert!(!walk.admits(&mut backlogs, route(2), &row(4, Some("b")), true), "it was never passed over");
        let lane = Position { seq: 9, ..Position::START };
        assert_eq!(backlogs.places(id(1)).next().unwrap().1.position(lane).seq, 1);
        backlogs.walked(id(1), 0, None, None);
        assert!(backlogs.is_empty() && backlogs.keys.is_none());
    }

    #[test]
    fn a_walk_that_has_no_room_for_an_event_leaves_later_ones_of_its_key_whatever_their_slot() {
        let mut backlogs = Backlogs::default();
        backlogs.pass(id(1), &row(2, Some("a")), Some(hash::of_key("a")));
        let mut walk = state([9, 0, 9], Some(1));
        assert!(!walk.admits(&mut backlogs, route(1), &row(2, Some("a")), true));
        assert!(!walk.admits(&mut backlogs, route(2), &row(3, Some("a")), true), "it would overtake");
    }

    #[test]
    fn while_a_slot_is_behind_its_new_events_wait_their_turn() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        main.admits(&mut backlogs, route(1), &row(2, None), true);
        let mut later = state([9, 9, 9], None);
        assert!(!later.admits(&mut backlogs, route(1), &row(5, None), true));
        assert!(later.admits(&mut backlogs, route(2), &row(6, None), true));
    }

    #[test]
    fn what_waits_for_another_slot_moves_to_its_backlog() {
        let mut backlogs = Backlogs::default();
        backlogs.pass(id(1), &row(2, Some("a")), Some(hash::of_key("a")));
        backlogs.pass(id(2), &row(5, Some("b")), Some(hash::of_key("b")));
        // "a" of slot 2 stands behind "a" of slot 1, which is still down.
        let mut walk = state([9, 0, 9], Some(2));
        assert!(!walk.admits(&mut backlogs, route(2), &row(6, Some("a")), true));
        assert!(walk.admits(&mut backlogs, route(2), &row(7, Some("b")), true));
        assert!(walk.refused.is_empty());
        let mut walk = state([9, 9, 9], Some(1));
        assert!(walk.admits(&mut backlogs, route(1), &row(2, Some("a")), true));
    }

    #[test]
    fn what_follows_a_probe_in_its_key_waits_in_the_table() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 1, 9], None));
        main.down.insert(route(1));
        assert!(main.admits(&mut backlogs, route(1), &row(2, Some("a")), true), "the probe");
        assert!(!main.admits(&mut backlogs, route(2), &row(3, Some("a")), true));
        assert!(main.admits(&mut backlogs, route(2), &row(4, Some("b")), true));
    }

    #[test]
    fn what_was_tried_in_vain_waits_until_all_others_were_and_its_key_waits_with_it() {
        let mut backlogs = Backlogs::default();
        backlogs.note_tried(id(1), (0, 5), Some(hash::of_key("a")), true);
        let mut walk = state([9, 9, 9], Some(1));
        walk.down.insert(route(1));
        assert!(!walk.admits(&mut backlogs, route(1), &row(5, Some("a")), true));
        assert!(!walk.admits(&mut backlogs, route(1), &row(6, Some("a")), true), "it would overtake");
        assert!(walk.admits(&mut backlogs, route(1), &row(7, Some("b")), true));
        backlogs.found_nothing(id(1));
        assert!(state([9, 9, 9], Some(1)).admits(&mut backlogs, route(1), &row(5, Some("a")), true));
    }

    #[test]
    fn a_walk_that_leaves_something_out_brings_only_what_is_known_to_be_the_first_of_its_key() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        for (seq, key) in [(5, "a"), (6, "b"), (8, "a"), (9, "c")] {
            assert!(!main.admits(&mut backlogs, route(1), &row(seq, Some(key)), true));
        }
        let from = |seq| BacklogCursor::of_seq(seq).position(Position { seq: 100, ..Position::START });
        assert!(backlogs.skips_from(id(1), 0, from(7)) && !backlogs.skips_from(id(1), 0, from(4)));
        let mut walk = AdmissionState { skipped: [0].into(), ..state([9, 9, 9], Some(1)) };
        assert!(!walk.admits(&mut backlogs, route(1), &row(8, Some("a")), true), "5 stands before it");
        assert!(!walk.admits(&mut backlogs, route(1), &row(10, Some("d")), true), "nobody has met it yet");
        assert!(!walk.admits(&mut backlogs, route(2), &row(11, Some("b")), true), "6 stands before it");
        assert!(walk.admits(&mut backlogs, route(1), &row(9, Some("c")), true));
        assert!(walk.admits(&mut backlogs, route(1), &row(12, None), true), "it has no order");
    }

    #[test]
    fn two_backlogs_do_not_leave_an_event_to_each_other() {
        let (mut backlogs, a) = (Backlogs::default(), hash::of_key("a"));
        // Slot 1 begins first and once held "a" up; now only slot 2 has something of it.
        backlogs.note(id(1), 0, BacklogCursor::before_seq(5), Some(a), 6);
        backlogs.note(id(2), 0, BacklogCursor::before_seq(9), Some(a), 10);
        let mut second = state([9, 9, 9], Some(2));
        assert!(
            !second.admits(&mut backlogs, route(2), &row(9, Some("a")), true),
            "slot 1 may have something before it"
        );
        let mut first = state([9, 9, 9], Some(1));
        first.start.insert(0, 4);
        assert!(
            first.admits(&mut backlogs, route(2), &row(9, Some("a")), true),
            "it has seen all that slot 1 has"
        );
    }

    #[test]
    fn an_event_that_waits_on_another_slots_account_does_not_overtake_when_its_own_is_walked() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        main.admits(&mut backlogs, route(1), &row(4, Some("a")), true);
        main.admits(&mut backlogs, route(2), &row(5, Some("a")), true);
        backlogs.note(id(2), 0, BacklogCursor::before_seq(3), Some(hash::of_key("b")), 4);
        let mut second = state([9, 9, 9], Some(2));
        assert!(!second.admits(&mut backlogs, route(1), &row(4, Some("a")), true), "not on its account");
        assert!(!second.admits(&mut backlogs, route(2), &row(5, Some("a")), true));
    }

    #[test]
    fn what_was_let_go_is_judged_by_a_walk_as_the_lanes_own_claims_do_it() {
        let mut backlogs = Backlogs::default();
        backlogs.pass(id(1), &row(7, Some("x")), Some(hash::of_key("x")));
        let mut walk = state([9, 9, 9], Some(1));
        walk.again = [4, 8, 9, 105].into();
        assert!(walk.admits(&mut backlogs, route(2), &row(4, Some("a")), true), "nobody stands before it");
        assert!(!walk.admits(&mut backlogs, route(2), &row(8, Some("x")), true), "7 may stand before it");
        assert!(
            !walk.admits(&mut backlogs, route(1), &row(9, Some("b")), true),
            "the walk brings it in its turn"
        );
        assert!(
            !walk.admits(&mut backlogs, route(1), &row(7, Some("x")), true),
            "another claim meets both in order"
        );
        assert_eq!(walk.refused.get(&0), Some(&BacklogCursor::before_seq(7)));
        assert!(walk.others.is_empty());
        // What committed late may stand before this one.
        assert!(!walk.admits(&mut backlogs, route(2), &row(105, Some("c")), true));
        assert!(!walk.admits(&mut backlogs, route(1), &row(106, Some("c")), true), "it would overtake");
        assert_eq!(walk.others, [(0, 105)]);
    }

    #[test]
    fn what_committed_late_is_not_overtaken_by_what_was_passed_over() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        main.admits(&mut backlogs, route(1), &row(120, Some("x")), true);
        // One transaction wrote 110 and 111; both became visible after 120 was met.
        let mut walk = state([9, 9, 9], Some(1));
        assert!(
            !walk.admits(&mut backlogs, route(2), &row(110, Some("a")), true),
            "the lane's own claim brings it"
        );
        assert!(!walk.admits(&mut backlogs, route(1), &row(111, Some("a")), true));
        assert!(walk.admits(&mut backlogs, route(1), &row(120, Some("x")), true));
        assert!(!walk.refused.is_empty());
        // Nor does it wait for what stands behind it.
        assert!(state([9, 0, 9], None).admits(&mut backlogs, route(2), &row(110, Some("a")), true));
        // And where the walk would begin behind it, it begins earlier.
        let lane = Position { seq: 100, met: 130, ..Position::START };
        assert_eq!(backlogs.places(id(1)).next().unwrap().1.position(lane).seq, 100);
    }

    #[test]
    fn what_was_let_go_before_a_walk_that_leaves_something_out_is_not_lost() {
        let mut backlogs = Backlogs::default();
        backlogs.pass(id(1), &row(10, Some("b")), Some(hash::of_key("b")));
        let mut walk = AdmissionState { skipped: [0].into(), again: [4].into(), ..state([9, 9, 9], Some(1)) };
        assert!(!walk.admits(&mut backlogs, route(1), &row(4, Some("a")), true));
        assert!(!walk.admits(&mut backlogs, route(1), &row(70, Some("a")), true), "it would overtake");
        assert_eq!(backlogs.places(id(1)).next(), Some((0, BacklogCursor::before_seq(4))));
    }

    #[test]
    fn what_is_let_go_while_a_walk_is_under_way_is_met_by_the_next_one() {
        let (mut backlogs, a) = (Backlogs::default(), Some(hash::of_key("a")));
        backlogs.note_probe(id(1), 0, 10, a);
        backlogs.begin_walk(id(1), false, |_| Some(Position::START));
        backlogs.note_tried(id(1), (0, 5), a, true);
        backlogs.walked(id(1), 0, Some(Position { seq: 600, ..Position::START }), None);
        assert_eq!(backlogs.places(id(1)).next().map(|(_, place)| place.seq), Some(Some(4)));
        backlogs.end_walk();
        backlogs.note_tried(id(1), (0, 7), a, true);
        backlogs.begin_walk(id(1), false, |_| Some(Position::START));
        backlogs.walked(id(1), 0, None, None);
        assert!(backlogs.is_empty());
    }

    #[test]
    fn the_first_event_of_each_of_very_many_keys_can_be_tried_and_no_other() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        let key = |n: u64| format!("k{}", n % 10_000);
        for n in 0..20_000 {
            assert!(!main.admits(&mut backlogs, route(1), &row(n + 10, Some(&key(n))), true));
        }
        let mut tried = |from: u64| {
            let would_come = |n: &u64| {
                let mut walk = AdmissionState { skipped: [0].into(), ..state([9, 9, 9], Some(1)) };
                walk.admits(&mut backlogs, route(1), &row(n + 10, Some(&key(*n))), true)
            };
            (from..from + 10_000).filter(would_come).count()
        };
        assert!(tried(0) > 9500);
        assert_eq!(tried(10_000), 0, "they would overtake");
    }
}
