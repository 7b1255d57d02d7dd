//! Decides, row by row, what a claim brings and what it skips.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use postrider_core::store::{Admission, Lane, RowSummary, Seq};

use super::{
    backlog::{Backlogs, LaneCursors},
    backlog_cursor::BacklogCursor,
    backlog_id::BacklogId,
    long_keys::LongKeyRoom,
    pauses::{EventAttributes, Pauses},
};
use crate::{
    hash, lock,
    routes::RouteTable,
    slots::{ReceiverSlot, RouteSlot},
};

/// The rows of one claim: the store asks it for each of them.
pub(super) struct ClaimAdmission {
    routes: Arc<RouteTable>,
    state: Mutex<AdmissionState>,
    backlogs: Arc<Mutex<Backlogs>>,
    pauses: Arc<Pauses>,
    keyed: bool,
}

impl ClaimAdmission {
    /// For rows whose keys are `keyed` only if order matters.
    pub(super) fn new(
        routes: Arc<RouteTable>,
        state: AdmissionState,
        backlogs: Arc<Mutex<Backlogs>>,
        pauses: Arc<Pauses>,
        keyed: bool,
    ) -> Self {
        Self { routes, state: Mutex::new(state), backlogs, pauses, keyed }
    }

    /// Whether the scan leaves out what was tried before in this lane.
    pub(super) fn leaves_out(&self, lane: Lane) -> bool {
        lock(&self.state).skipped.contains(&lane)
    }

    /// Returns where the scan refused an event again, in this lane.
    pub(super) fn refused(&self, lane: Lane) -> Option<BacklogCursor> {
        lock(&self.state).refused.get(&lane).copied()
    }

    /// Takes the rows to recheck that only the lanes' own claims may bring.
    pub(super) fn take_left_to_lanes(&self) -> Vec<(Lane, Seq)> {
        std::mem::take(&mut lock(&self.state).left_to_lanes)
    }

    fn owner(&self, scanned: Option<BacklogId>, row: &RowSummary<'_>) -> Owner {
        let route = self.routes.find_by_name(row.event_type, row.aggregate_type);
        let slot = RouteSlot::of(route);
        if self.pauses.is_empty() {
            return slot.into();
        }
        let receiver = ReceiverSlot::of(route.and_then(|route| self.routes.receiver(route)));
        let attributes = EventAttributes { event_type: Some(row.event_type), key: row.key, receiver };
        let resumed = scanned.is_some_and(|scanned| self.pauses.fits(scanned, attributes));
        Owner { slot, paused: self.pauses.of(attributes), resumed }
    }
}

impl std::fmt::Debug for ClaimAdmission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClaimAdmission").field(&*lock(&self.state)).finish()
    }
}

impl Admission for ClaimAdmission {
    fn admits(&self, row: &RowSummary<'_>) -> bool {
        let mut state = lock(&self.state);
        let owner = self.owner(state.scanned, row);
        state.admits(&mut lock(&self.backlogs), owner, row, self.keyed)
    }
}

/// Which route, and which pause, a row belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    /// The route.
    slot: RouteSlot,
    /// The backlog of the pause that holds it back.
    paused: Option<BacklogId>,
    /// Whether it belongs to the pause whose backlog is scanned.
    resumed: bool,
}

impl From<RouteSlot> for Owner {
    fn from(slot: RouteSlot) -> Self {
        Self { slot, paused: None, resumed: false }
    }
}

/// What a claim may bring: how much of each route, and from which backlog.
#[derive(Debug)]
pub(super) struct AdmissionState {
    /// How many more events of each route.
    pub(super) room: Vec<usize>,
    /// The routes whose receivers are down: what comes in is a probe.
    pub(super) down: BTreeSet<RouteSlot>,
    /// The backlog that is scanned; none for the lanes' own positions.
    pub(super) scanned: Option<BacklogId>,
    /// Where the scan began, in each lane.
    pub(super) start: BTreeMap<Lane, Seq>,
    /// The lanes in which it leaves out what was tried. It looks only for first events of keys there.
    pub(super) skipped: BTreeSet<Lane>,
    /// Where it refused an event again.
    pub(super) refused: LaneCursors,
    /// Keys of refused events, and what they wait for. The scan brings nothing more of them: there is no room, or
    /// they committed late and the lanes' own claims must meet them first.
    pub(super) refused_keys: BTreeMap<u64, Option<BacklogId>>,
    /// How far the lanes' own claims have met everything.
    pub(super) met: BTreeMap<Lane, Seq>,
    /// Keys with more events than may wait in memory.
    pub(super) long_keys: LongKeyRoom,
    /// The rows to recheck that the scan meets.
    pub(super) recheck: BTreeSet<Seq>,
    /// Those that only the lanes' own claims may bring, because something that committed late may precede them.
    pub(super) left_to_lanes: Vec<(Lane, Seq)>,
}

/// A row, with what the decision about it needs.
struct Candidate<'a> {
    row: &'a RowSummary<'a>,
    owner: Owner,
    /// The backlog of its route.
    id: BacklogId,
    key: Option<u64>,
    /// Whether the lanes' own claims have met it.
    met: bool,
    /// Whether it is to be rechecked.
    rechecked: bool,
    /// The backlog that is scanned. None for rechecked rows: they are decided as by the lanes' own claims, since
    /// what the scan will meet after them is not known yet.
    scanned: Option<BacklogId>,
}

impl AdmissionState {
    /// Returns whether a row comes in. A row that does not is recorded.
    fn admits(
        &mut self,
        backlogs: &mut Backlogs,
        owner: impl Into<Owner>,
        row: &RowSummary<'_>,
        keyed: bool,
    ) -> bool {
        let owner = owner.into();
        let rechecked = self.recheck.contains(&row.seq);
        let candidate = Candidate {
            row,
            owner,
            id: owner.slot.into(),
            key: row.key.filter(|_| keyed).map(hash::of_key),
            met: self.met.get(&row.lane).is_some_and(|met| row.seq <= *met),
            rechecked,
            scanned: self.scanned.filter(|_| !rechecked),
        };
        if !Self::is_listed(backlogs, &candidate) || (rechecked && !candidate.met) {
            self.leave_to_others(&candidate);
            return false;
        }
        match self.waits_for(backlogs, &candidate) {
            None => self.let_in(backlogs, &candidate),
            Some(holder) => self.refuse(backlogs, &candidate, holder),
        }
    }

    /// Whether the scan looks for this row.
    fn is_listed(backlogs: &Backlogs, candidate: &Candidate<'_>) -> bool {
        candidate.scanned.is_none_or(|scanned| {
            candidate.id == scanned
                || candidate.owner.resumed
                || candidate.key.is_some_and(|key| backlogs.may_hold(scanned, key))
        })
    }

    /// Leaves a row that belongs to another backlog, or was never met.
    fn leave_to_others(&mut self, candidate: &Candidate<'_>) {
        let Candidate { row, key, met, rechecked, .. } = *candidate;
        self.refused_keys.extend(key.filter(|_| !met).map(|key| (key, self.scanned)));
        self.left_to_lanes.extend(rechecked.then_some((row.lane, row.seq)));
    }

    /// Returns the backlog that a row waits in; none if it may come in.
    fn waits_for(&self, backlogs: &Backlogs, candidate: &Candidate<'_>) -> Option<BacklogId> {
        let Candidate { row, owner, id, key, .. } = *candidate;
        // It follows a refused event of its key, and waits for the same.
        let refused = key.and_then(|key| self.refused_keys.get(&key).copied().flatten());
        if refused.is_some() {
            return refused;
        }
        let no_room = self.long_keys.is_scanned(key) && !self.long_keys.has_room();
        if no_room || self.may_follow_unseen(backlogs, candidate) {
            return self.scanned;
        }
        if let Some(holder) = owner.paused.or_else(|| self.long_keys.holder(key)) {
            return Some(holder);
        }
        let unseen = |other| self.is_unseen(backlogs, candidate, other);
        if self.is_full(backlogs, candidate) || unseen(id) {
            return Some(id);
        }
        backlogs.holder(row, key, unseen)
    }

    /// Whether the scan may have left out an earlier event of the key. Where it leaves something out, it knows only
    /// the first events of keys.
    fn may_follow_unseen(&self, backlogs: &Backlogs, candidate: &Candidate<'_>) -> bool {
        let Candidate { row, id, key, .. } = *candidate;
        let leaves_out = candidate.scanned.is_some() && self.skipped.contains(&row.lane);
        let is_first = || key.is_none_or(|key| backlogs.is_first(id, key, row.seq));
        leaves_out && (Some(id) != self.scanned || !is_first())
    }

    /// Whether the route has no room, or the row was tried in vain while its receiver is down.
    fn is_full(&self, backlogs: &Backlogs, candidate: &Candidate<'_>) -> bool {
        let slot = candidate.owner.slot;
        self.room.get(slot.index()).is_none_or(|room| *room == 0)
            || (self.down.contains(&slot) && backlogs.was_tried(candidate.id, candidate.row))
    }

    /// Whether another backlog may have events before this row that the scan does not meet.
    ///
    /// This scan also meets the events of backlogs that begin later, in order, so it need not ask for them. The scan
    /// that begins first decides, or two scans would leave events to each other for ever. That holds only for keys
    /// that were skipped into its own backlog: it meets those whole.
    fn is_unseen(&self, backlogs: &Backlogs, candidate: &Candidate<'_>, other: BacklogId) -> bool {
        let whole = |scanned| candidate.key.is_none_or(|key| backlogs.may_hold(scanned, key));
        match candidate.scanned {
            Some(scanned) if scanned == other => false,
            Some(scanned) if whole(scanned) => {
                let lane = candidate.row.lane;
                backlogs.begins_before(other, lane, self.start.get(&lane).copied())
            }
            _ => backlogs.has(other),
        }
    }

    /// Lets a row in.
    fn let_in(&mut self, backlogs: &mut Backlogs, candidate: &Candidate<'_>) -> bool {
        let Candidate { row, owner, id, key, .. } = *candidate;
        self.room.get_mut(owner.slot.index()).into_iter().for_each(|room| *room = room.saturating_sub(1));
        if self.long_keys.is_scanned(key) {
            self.long_keys.enter();
        }
        match self.down.contains(&owner.slot) {
            true if self.scanned == Some(id) => backlogs.bring_probe(id, row),
            true => backlogs.note_probe(id, row.lane, row.seq, key),
            false => {}
        }
        true
    }

    /// Skips a row that waits in this backlog.
    fn refuse(&mut self, backlogs: &mut Backlogs, candidate: &Candidate<'_>, holder: BacklogId) -> bool {
        let Candidate { row, key, met, rechecked, .. } = *candidate;
        // A scan that leaves something out may begin after a rechecked row. It does not move its backlog's cursor.
        let stays = rechecked && self.skipped.contains(&row.lane);
        if self.scanned == Some(holder) && !stays {
            let cursor = self.refused.entry(row.lane).or_default();
            *cursor = cursor.or_before(BacklogCursor::before(row));
            // The lanes' own claims still have to meet a row that committed late. Earlier rows of its key must not
            // wait for it.
            backlogs.remember(holder, key.filter(|_| met || rechecked), row.seq);
        } else {
            backlogs.skip(holder, row, key);
        }
        if self.scanned.is_some() {
            self.refused_keys.extend(key.map(|key| (key, Some(holder))));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::{Timestamp, store::Position};

    use super::*;

    fn row(seq: Seq, key: Option<&str>) -> RowSummary<'_> {
        RowSummary { lane: 0, seq, event_type: "", aggregate_type: "", key, due_at: None }
    }

    fn route(n: usize) -> RouteSlot {
        RouteSlot::at(n)
    }

    fn id(n: usize) -> BacklogId {
        route(n).into()
    }

    fn state(room: [usize; 3], scanned: Option<usize>) -> AdmissionState {
        AdmissionState {
            room: room.to_vec(),
            down: BTreeSet::new(),
            scanned: scanned.map(id),
            start: BTreeMap::new(),
            skipped: BTreeSet::new(),
            refused: LaneCursors::new(),
            refused_keys: BTreeMap::new(),
            met: [(0, 100)].into(),
            long_keys: LongKeyRoom::default(),
            recheck: BTreeSet::new(),
            left_to_lanes: Vec::new(),
        }
    }

    #[test]
    fn a_full_route_is_skipped_and_so_are_later_events_of_its_keys_and_nothing_else() {
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
        let due = RowSummary { due_at: Some(Timestamp::from_micros(1)), ..row(5, Some("b")) };
        assert!(main.admits(&mut backlogs, route(2), &due, true), "what was skipped of its key comes later");
        assert!(!main.admits(&mut backlogs, route(2), &row(10, Some("b")), true), "it would overtake");
        // One that is found later precedes it.
        assert!(!main.admits(&mut backlogs, route(1), &row(4, Some("b")), true));
        assert!(!main.admits(&mut backlogs, route(2), &due, true));
    }

    #[test]
    fn a_scan_of_a_backlog_finds_what_was_skipped_in_order_and_leaves_others_alone() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        main.admits(&mut backlogs, route(1), &row(2, Some("a")), true);
        main.admits(&mut backlogs, route(2), &row(3, Some("a")), true);
        let mut scan = state([9, 9, 9], Some(1));
        assert!(scan.admits(&mut backlogs, route(1), &row(2, Some("a")), true));
        assert!(scan.admits(&mut backlogs, route(2), &row(3, Some("a")), true));
        assert!(!scan.admits(&mut backlogs, route(2), &row(4, Some("b")), true), "it was never skipped");
        let lane = Position { seq: 9, ..Position::START };
        assert_eq!(backlogs.cursors(id(1)).next().unwrap().1.position(lane).seq, 1);
        backlogs.scanned(id(1), 0, None, None);
        assert!(backlogs.is_empty() && !backlogs.may_hold(id(1), hash::of_key("a")));
    }

    #[test]
    fn a_scan_without_room_for_an_event_leaves_later_ones_of_its_key_whatever_their_route() {
        let mut backlogs = Backlogs::default();
        backlogs.skip(id(1), &row(2, Some("a")), Some(hash::of_key("a")));
        let mut scan = state([9, 0, 9], Some(1));
        assert!(!scan.admits(&mut backlogs, route(1), &row(2, Some("a")), true));
        assert!(!scan.admits(&mut backlogs, route(2), &row(3, Some("a")), true), "it would overtake");
    }

    #[test]
    fn while_a_route_has_a_backlog_its_new_events_wait_their_turn() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        main.admits(&mut backlogs, route(1), &row(2, None), true);
        let mut later = state([9, 9, 9], None);
        assert!(!later.admits(&mut backlogs, route(1), &row(5, None), true));
        assert!(later.admits(&mut backlogs, route(2), &row(6, None), true));
    }

    #[test]
    fn what_waits_for_another_route_moves_to_its_backlog() {
        let mut backlogs = Backlogs::default();
        backlogs.skip(id(1), &row(2, Some("a")), Some(hash::of_key("a")));
        backlogs.skip(id(2), &row(5, Some("b")), Some(hash::of_key("b")));
        // "a" of route 2 follows "a" of route 1, which is still down.
        let mut scan = state([9, 0, 9], Some(2));
        assert!(!scan.admits(&mut backlogs, route(2), &row(6, Some("a")), true));
        assert!(scan.admits(&mut backlogs, route(2), &row(7, Some("b")), true));
        assert!(scan.refused.is_empty());
        let mut scan = state([9, 9, 9], Some(1));
        assert!(scan.admits(&mut backlogs, route(1), &row(2, Some("a")), true));
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
        let mut scan = state([9, 9, 9], Some(1));
        scan.down.insert(route(1));
        assert!(!scan.admits(&mut backlogs, route(1), &row(5, Some("a")), true));
        assert!(!scan.admits(&mut backlogs, route(1), &row(6, Some("a")), true), "it would overtake");
        assert!(scan.admits(&mut backlogs, route(1), &row(7, Some("b")), true));
        backlogs.found_nothing(id(1));
        assert!(state([9, 9, 9], Some(1)).admits(&mut backlogs, route(1), &row(5, Some("a")), true));
    }

    #[test]
    fn a_scan_that_leaves_something_out_brings_only_known_first_events_of_keys() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        for (seq, key) in [(5, "a"), (6, "b"), (8, "a"), (9, "c")] {
            assert!(!main.admits(&mut backlogs, route(1), &row(seq, Some(key)), true));
        }
        let from = |seq| BacklogCursor::of_seq(seq).position(Position { seq: 100, ..Position::START });
        assert!(backlogs.skips_from(id(1), 0, from(7)) && !backlogs.skips_from(id(1), 0, from(4)));
        let mut scan = AdmissionState { skipped: [0].into(), ..state([9, 9, 9], Some(1)) };
        assert!(!scan.admits(&mut backlogs, route(1), &row(8, Some("a")), true), "5 stands before it");
        assert!(!scan.admits(&mut backlogs, route(1), &row(10, Some("d")), true), "no claim has met it yet");
        assert!(!scan.admits(&mut backlogs, route(2), &row(11, Some("b")), true), "6 stands before it");
        assert!(scan.admits(&mut backlogs, route(1), &row(9, Some("c")), true));
        assert!(scan.admits(&mut backlogs, route(1), &row(12, None), true), "it has no order");
    }

    #[test]
    fn two_backlogs_do_not_leave_an_event_to_each_other() {
        let (mut backlogs, a) = (Backlogs::default(), hash::of_key("a"));
        // Backlog 1 begins first and once had "a". Now only backlog 2 has an event of it.
        backlogs.note(id(1), 0, BacklogCursor::before_seq(5), Some(a), 6);
        backlogs.note(id(2), 0, BacklogCursor::before_seq(9), Some(a), 10);
        let mut second = state([9, 9, 9], Some(2));
        assert!(
            !second.admits(&mut backlogs, route(2), &row(9, Some("a")), true),
            "backlog 1 may have something before it"
        );
        let mut first = state([9, 9, 9], Some(1));
        first.start.insert(0, 4);
        assert!(
            first.admits(&mut backlogs, route(2), &row(9, Some("a")), true),
            "it has seen all of backlog 1"
        );
    }

    #[test]
    fn an_event_that_waits_for_another_route_does_not_overtake_when_its_own_backlog_is_scanned() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        main.admits(&mut backlogs, route(1), &row(4, Some("a")), true);
        main.admits(&mut backlogs, route(2), &row(5, Some("a")), true);
        backlogs.note(id(2), 0, BacklogCursor::before_seq(3), Some(hash::of_key("b")), 4);
        let mut second = state([9, 9, 9], Some(2));
        assert!(
            !second.admits(&mut backlogs, route(1), &row(4, Some("a")), true),
            "it belongs to another backlog"
        );
        assert!(!second.admits(&mut backlogs, route(2), &row(5, Some("a")), true));
    }

    #[test]
    fn a_scan_decides_on_rechecked_rows_as_the_lanes_own_claims_do() {
        let mut backlogs = Backlogs::default();
        backlogs.skip(id(1), &row(7, Some("x")), Some(hash::of_key("x")));
        let mut scan = state([9, 9, 9], Some(1));
        scan.recheck = [4, 8, 9, 105].into();
        assert!(scan.admits(&mut backlogs, route(2), &row(4, Some("a")), true), "nobody stands before it");
        assert!(!scan.admits(&mut backlogs, route(2), &row(8, Some("x")), true), "7 may stand before it");
        assert!(
            !scan.admits(&mut backlogs, route(1), &row(9, Some("b")), true),
            "the scan brings it in its turn"
        );
        assert!(
            !scan.admits(&mut backlogs, route(1), &row(7, Some("x")), true),
            "another claim meets both in order"
        );
        assert_eq!(scan.refused.get(&0), Some(&BacklogCursor::before_seq(7)));
        assert!(scan.left_to_lanes.is_empty());
        // What committed late may precede this one.
        assert!(!scan.admits(&mut backlogs, route(2), &row(105, Some("c")), true));
        assert!(!scan.admits(&mut backlogs, route(1), &row(106, Some("c")), true), "it would overtake");
        assert_eq!(scan.left_to_lanes, [(0, 105)]);
    }

    #[test]
    fn what_committed_late_is_not_overtaken_by_what_was_skipped() {
        let (mut backlogs, mut main) = (Backlogs::default(), state([9, 0, 9], None));
        main.admits(&mut backlogs, route(1), &row(120, Some("x")), true);
        // One transaction wrote 110 and 111; both became visible after 120 was met.
        let mut scan = state([9, 9, 9], Some(1));
        assert!(
            !scan.admits(&mut backlogs, route(2), &row(110, Some("a")), true),
            "the lane's own claim brings it"
        );
        assert!(!scan.admits(&mut backlogs, route(1), &row(111, Some("a")), true));
        assert!(scan.admits(&mut backlogs, route(1), &row(120, Some("x")), true));
        assert!(!scan.refused.is_empty());
        // It does not wait for what follows it either.
        assert!(state([9, 0, 9], None).admits(&mut backlogs, route(2), &row(110, Some("a")), true));
        // A scan that would begin after it begins earlier.
        let lane = Position { seq: 100, met: 130, ..Position::START };
        assert_eq!(backlogs.cursors(id(1)).next().unwrap().1.position(lane).seq, 100);
    }

    #[test]
    fn a_row_to_recheck_before_a_scan_that_leaves_something_out_is_not_lost() {
        let mut backlogs = Backlogs::default();
        backlogs.skip(id(1), &row(10, Some("b")), Some(hash::of_key("b")));
        let mut scan =
            AdmissionState { skipped: [0].into(), recheck: [4].into(), ..state([9, 9, 9], Some(1)) };
        assert!(!scan.admits(&mut backlogs, route(1), &row(4, Some("a")), true));
        assert!(!scan.admits(&mut backlogs, route(1), &row(70, Some("a")), true), "it would overtake");
        assert_eq!(backlogs.cursors(id(1)).next(), Some((0, BacklogCursor::before_seq(4))));
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
                let mut scan = AdmissionState { skipped: [0].into(), ..state([9, 9, 9], Some(1)) };
                scan.admits(&mut backlogs, route(1), &row(n + 10, Some(&key(*n))), true)
            };
            (from..from + 10_000).filter(would_come).count()
        };
        assert!(tried(0) > 9500);
        assert_eq!(tried(10_000), 0, "they would overtake");
    }
}
