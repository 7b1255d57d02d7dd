//! Sends suspects one at a time, in turn with other events.

use super::*;

/// Most time for others between two suspects.
const OTHERS_GO_FOR: Duration = Duration::from_secs(1);

/// A suspect that takes longer hangs. It then blocks no suspect of another receiver or destination, nor events
/// for outside systems: what crashes a process does so sooner.
const HANGS_AFTER: Duration = Duration::from_secs(2);

/// How long after the lane was taken an event must have been written to be no suspect. Clocks are read at
/// different moments.
const CLEARED_AFTER: Duration = Duration::from_secs(2);

/// Whether a suspect goes alone.
pub(super) enum SuspectTurn {
    /// No suspect blocks anybody.
    NotNeeded,
    /// A suspect waits until its receiver is idle, or others wait for a suspect that is under way. These
    /// receivers send nothing else until this moment.
    Wait { until: Instant, receivers: Vec<ReceiverSlot> },
    /// A suspect of this lane can go: its place among the lane's suspects.
    Now(Lane, usize),
}

/// A suspect that is being sent or settled.
#[derive(Debug, Clone, Copy)]
pub(super) struct SuspectUnderWay {
    pub(super) seq: Seq,
    pub(super) receiver: ReceiverSlot,
    pub(super) destination: Option<DestinationId>,
    pub(super) since: Instant,
}

/// A suspect that could be sent.
struct SuspectCandidate {
    lane: Lane,
    /// Its place among the suspects of its lane.
    place: usize,
    receiver: ReceiverSlot,
    destination: Option<DestinationId>,
}

/// Whose turn it is, a suspect's or others', and since when a suspect waits.
#[derive(Debug)]
pub(super) struct SuspectSchedule {
    /// Since when a suspect waits to go alone, or goes.
    waiting_since: Option<Instant>,
    /// Until when others have their turn after a suspect.
    others_until: Option<Instant>,
    /// The receiver of the last suspect.
    last_receiver: Option<ReceiverSlot>,
    /// The lane of the last suspect.
    last_lane: Lane,
    /// Most time that suspects and others wait for each other.
    timeout: Duration,
}

impl SuspectSchedule {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { waiting_since: None, others_until: None, last_receiver: None, last_lane: Lane::MAX, timeout }
    }

    /// Records that a suspect waits to go alone.
    pub(super) fn begin_wait(&mut self) {
        self.waiting_since.get_or_insert_with(Instant::now);
    }

    pub(super) fn forget_wait(&mut self) {
        self.waiting_since = None;
    }

    /// Records that a suspect goes.
    fn goes(&mut self, lane: Lane, receiver: ReceiverSlot, now: Instant) {
        (self.waiting_since, self.last_receiver, self.last_lane) = (Some(now), Some(receiver), lane);
    }

    /// Records that a suspect has ended. Others go for as long as it took, or hundreds of suspects in a row
    /// would keep them waiting for minutes.
    pub(super) fn ended(&mut self, now: Instant) {
        let took = self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.others_until = Some(now + took.min(OTHERS_GO_FOR));
    }
}

impl Buffer {
    /// Decides whether a suspect goes next. One goes at a time, so that no event is counted for what another
    /// one did, and alone to its receiver; events for other receivers go on. It waits for others of its
    /// receiver, and they for it, no longer than the timeout: a slow suspect must not stop its receiver. One
    /// that hangs keeps suspects of other receivers waiting only for a moment.
    pub(super) fn suspect_turn(&self, now: Instant) -> SuspectTurn {
        // Until its outcome is settled: if the process ended before, its attempt would stay counted.
        let under_way = self.suspects_under_way();
        if under_way.is_empty() && self.others_go_until(now).is_some() {
            return SuspectTurn::NotNeeded;
        }
        let mut waits: Vec<(Instant, Option<ReceiverSlot>)> = under_way
            .iter()
            .map(|suspect| (suspect.since + self.keeps_others(suspect.receiver), Some(suspect.receiver)))
            .filter(|(until, _)| now < *until)
            .collect();
        if let Some(SuspectCandidate { lane, place, receiver, destination }) = self.suspect(&under_way, now) {
            let is_busy = self.receivers.at(receiver).is_some_and(|receiver| receiver.busy > 0);
            let timeout_at = self.suspects.waiting_since.unwrap_or(now) + self.suspects.timeout;
            let last = under_way.iter().map(|suspect| suspect.since).max();
            let beside = last.map_or(now, |since| since + HANGS_AFTER.min(self.suspects.timeout));
            let same_receiver = || under_way.iter().filter(|suspect| suspect.receiver == receiver);
            let may_go_at = match same_receiver().find(|suspect| suspect.destination == destination) {
                Some(same) => same.since + self.suspects.timeout,
                None if same_receiver().next().is_some() => beside,
                None if is_busy => timeout_at,
                None => beside,
            };
            if now >= may_go_at.min(timeout_at) {
                return SuspectTurn::Now(lane, place);
            }
            // The receiver makes room for it, unless it waits for another suspect.
            let makes_room = is_busy && under_way.is_empty();
            waits.push((may_go_at.min(timeout_at), makes_room.then_some(receiver)));
        }
        match waits.iter().map(|(until, _)| *until).min() {
            Some(until) => {
                let receivers = waits.into_iter().filter_map(|(_, receiver)| receiver).collect();
                SuspectTurn::Wait { until, receivers }
            }
            None => SuspectTurn::NotNeeded,
        }
    }

    /// Defers to the table the suspects that would go next and whose destination is not ready. They block
    /// nobody there, and come back as suspects. Returns whether there were any.
    pub(super) fn defer_suspects(&mut self, now: Instant) -> bool {
        let (under_way, mut any) = (self.suspects_under_way(), false);
        while let Some(SuspectCandidate { lane, place, .. }) = self.unready_suspect(&under_way, now) {
            let suspects = self.lanes.get_mut(lane).map(|owned| &mut owned.suspects);
            let Some(item) = suspects.and_then(|suspects| suspects.remove(place)) else { break };
            let (slot, mut items) = (item.slot, VecDeque::from([item]));
            _ = self.keep_ready(slot, &mut items, now);
            if let Some(item) = items.pop_front() {
                self.enqueue_front(item);
                break;
            }
            any = true;
        }
        any
    }

    /// Returns the suspect that would go next, if its destination is not ready.
    fn unready_suspect(&self, under_way: &[SuspectUnderWay], now: Instant) -> Option<SuspectCandidate> {
        self.suspect(under_way, now).filter(|next| {
            self.receivers.at(next.receiver).is_some_and(|receiver| receiver.is_shut(next.destination, now))
        })
    }

    fn suspects_under_way(&self) -> Vec<SuspectUnderWay> {
        self.lanes.values().flat_map(|lane| lane.suspects_under_way.iter().copied()).collect()
    }

    /// Returns how long others of a receiver wait for its suspect.
    fn keeps_others(&self, receiver: ReceiverSlot) -> Duration {
        match self.receivers.at(receiver) {
            Some(outside) if !outside.is_in_process() => HANGS_AFTER.min(self.suspects.timeout),
            _ => self.suspects.timeout,
        }
    }

    /// Returns until when others have their turn, if they want it.
    pub(super) fn others_go_until(&self, now: Instant) -> Option<Instant> {
        let until = self
            .suspects
            .others_until
            .filter(|until| now < *until && !mutations::active(Mutation::SuspectsBlockEverything))?;
        let same = |slot: RouteSlot| Some(self.receivers.of(slot)) == self.suspects.last_receiver;
        self.queues.has(same).then_some(until)
    }

    /// Whether a route waits for a suspect.
    pub(super) fn waits_for(&self, turn: &SuspectTurn, slot: RouteSlot) -> bool {
        let SuspectTurn::Wait { receivers, .. } = turn else { return false };
        receivers.contains(&self.receivers.of(slot)) || mutations::active(Mutation::SuspectsBlockEverything)
    }

    /// Clears events that were written after the lane was taken. The table records how far the last owner *may*
    /// have come, which is further than it came.
    pub(crate) fn clear_suspicion(&mut self, claimed: &Claimed) {
        let now = Instant::now();
        for event in &claimed.events {
            let Some(lane) = self.lanes.get_mut(event.lane).filter(|lane| event.seq <= lane.suspect_to)
            else {
                continue;
            };
            let taken_at = claimed.now.minus(now.saturating_duration_since(lane.taken_at));
            // An event from the future was written by a clock that is wrong.
            if event.created_at > taken_at.plus(CLEARED_AFTER) && event.created_at <= claimed.now {
                lane.suspect_to = event.seq - 1;
            }
        }
    }

    /// Takes a suspect to be sent.
    pub(super) fn take_suspect(&mut self, lane: Lane, place: usize, now: Instant) -> Option<Assignment> {
        let owned = self.lanes.get_mut(lane)?;
        let item = owned.suspects.remove(place)?;
        let (seq, slot, destination) = (item.seq, item.slot, item.destination);
        // The suspect probes a destination that is down.
        let mut items = VecDeque::from([item]);
        let probed = self.keep_ready(slot, &mut items, now);
        if items.is_empty() {
            return None;
        }
        let receiver = self.receivers.of(slot);
        let owned = self.lanes.get_mut(lane)?;
        owned.suspects_under_way.push(SuspectUnderWay { seq, receiver, destination, since: now });
        self.suspects.goes(lane, receiver, now);
        let mut assignment = self.assignment(slot, items, now);
        assignment.probed = probed;
        self.receivers.get_mut(slot).into_iter().for_each(|receiver| receiver.suspect_went_last = true);
        Some(assignment)
    }

    /// Returns the first suspect that could be sent. Receivers and lanes take turns: a suspect that is refused
    /// for good must not be the only one its receiver is asked for, and a slow receiver's suspects not the only
    /// ones sent.
    fn suspect(&self, under_way: &[SuspectUnderWay], now: Instant) -> Option<SuspectCandidate> {
        let is_free = |receiver: ReceiverSlot| under_way.iter().all(|suspect| suspect.receiver != receiver);
        let is_next = |receiver: ReceiverSlot| Some(receiver) != self.suspects.last_receiver;
        let is_apart = |receiver: ReceiverSlot, destination: Option<DestinationId>| {
            let same =
                |other: &SuspectUnderWay| (other.receiver, other.destination) == (receiver, destination);
            !under_way.iter().any(same)
        };
        self.suspect_where(now, |receiver, _| is_free(receiver) && is_next(receiver))
            .or_else(|| self.suspect_where(now, |receiver, _| is_free(receiver)))
            .or_else(|| self.suspect_where(now, is_apart))
            .or_else(|| self.suspect_where(now, |_, _| true))
    }

    fn suspect_where(
        &self,
        now: Instant,
        wanted: impl Fn(ReceiverSlot, Option<DestinationId>) -> bool,
    ) -> Option<SuspectCandidate> {
        let receiver_of = |item: &Item| self.receivers.of(item.slot);
        self.lanes.after(self.suspects.last_lane).filter(|(_, lane)| !lane.suspects.is_empty()).find_map(
            |(&lane, owned)| {
                let sendable = |item: &Item| {
                    wanted(receiver_of(item), item.destination)
                        && self.receivers.is_open(item.slot, now)
                        && !self.gives_way(item.slot)
                };
                let (place, item) = owned.suspects.iter().enumerate().find(|(_, item)| sendable(item))?;
                Some(SuspectCandidate {
                    lane,
                    place,
                    receiver: receiver_of(item),
                    destination: item.destination,
                })
            },
        )
    }

    /// Whether a suspect lets others go first. A receiver that is down is probed by suspects and others in
    /// turn.
    fn gives_way(&self, slot: RouteSlot) -> bool {
        let receiver = self.receivers.of(slot);
        let same = |slot: RouteSlot| self.receivers.of(slot) == receiver;
        self.receivers.get(slot).is_some_and(|receiver| !receiver.is_up() && receiver.suspect_went_last)
            && (self.queues.has(same))
    }
}
