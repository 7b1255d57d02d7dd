//! Everything that is in memory: owned lanes, queued events, busy keys, and outcomes on their way to the table.
//!
//! Three rules hold here and nowhere else:
//!
//! * **One at a time.** A key is busy from the moment its head is queued until the outcome that frees it is
//!   committed. Its followers wait in memory, and go back to the table when the head has to wait.
//! * **In flight.** An event is tracked from claim or hand-over until its settle is committed, and until every
//!   claim that began before has returned: an older snapshot would bring it back.
//! * **Under lease.** Nothing is sent for a lane that is not held, or whose local deadline has passed.

mod admission;
mod backlog;
mod backlog_cursor;
mod backlog_id;
mod batching;
mod claim;
mod claim_order;
mod claim_room;
mod database_clock;
mod first_skipped;
mod followers;
mod gate;
mod hot;
mod in_flight;
mod key_bloom;
mod lanes;
mod late_counts;
mod long_keys;
mod outcome_queue;
mod outcomes;
mod owned_lanes;
mod pauses;
mod peek_tracker;
mod pending_settlements;
mod plan;
mod postponed;
mod probes;
mod queues;
mod ready_queues;
mod receiver_table;
mod receivers;
mod rewind;
mod route_pace;
mod running_claim;
mod suspects;
mod tracker;
mod wakeups;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque, hash_map::Entry},
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{
    Event, EventId, Source, Timestamp,
    event::limits::EVENT_FLAT_BYTES,
    store::{
        Change, Claim, Claimed, ClaimedEvent, Lane, LaneClaim, Lease, Position, Seq, Settlement, Taken,
        Token, Undecodable,
    },
    tx::Placed,
};
use tokio::time::Instant;

use crate::{
    destination::{self, DestinationId},
    hash::{self, QuickState},
    lock,
    mutations::{self, Mutation},
    receiver::Receiver,
    routes::{ReceiverId, RouteId, RouteTable},
    settings::{KeyOrder, Settings},
    slots::{ReceiverSlot, RouteSlot},
};
use backlog::Backlogs;
use claim_order::ClaimOrder;
use claim_room::ClaimRoom;
use database_clock::DatabaseClock;
use followers::Followers;
pub(crate) use hot::HotTarget;
use in_flight::InFlight;
use late_counts::LateCounts;
use long_keys::LongKeys;
use outcome_queue::OutcomeQueue;
use owned_lanes::OwnedLanes;
use pauses::PauseState;
pub(crate) use peek_tracker::PeekResult;
use peek_tracker::PeekTracker;
pub(crate) use pending_settlements::{PendingSettlement, PendingSettlements, SettlementOrigin};
pub(crate) use plan::ClaimPlan;
use postponed::PostponedOutcomes;
pub use postponed::Unsettled;
pub(crate) use postponed::{PostponeReason, Postponement};
use ready_queues::{ReadyQueues, Turn};
use receiver_table::ReceiverTable;
use rewind::Rewind;
use running_claim::RunningClaim;
use suspects::SuspectSchedule;

/// A busy key. The events of one key share its text, so comparing them seldom reads it.
#[derive(Debug, Clone)]
struct LaneKey {
    lane: Lane,
    key: Arc<str>,
    /// The hash of the key. Its text is read once, when its event enters.
    number: u64,
}

impl PartialEq for LaneKey {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
            && self.lane == other.lane
            && (Arc::ptr_eq(&self.key, &other.key) || self.key == other.key)
    }
}

impl Eq for LaneKey {}

impl Hash for LaneKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The lane follows from the key.
        state.write_u64(self.number);
    }
}

/// An event in memory.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) content: Result<Event, Box<Undecodable>>,
    pub(crate) lease: Lease,
    pub(crate) seq: Seq,
    pub(crate) attempts: u32,
    pub(crate) held: bool,
    pub(crate) source: Source,
    pub(crate) key: Option<Arc<str>>,
    /// The number of its key, or of itself if it has none.
    pub(crate) key_number: u64,
    /// Its destination, if its receiver has more than one.
    pub(crate) destination: Option<DestinationId>,
    /// Whether it is under way together with earlier events of its key.
    pub(crate) batched_with_head: bool,
    /// Whether it failed in this process, whatever the table says.
    pub(crate) failed: bool,
    /// Whether it was only ever told to wait.
    pub(crate) only_deferred: bool,
    /// With which others it may be sent.
    isolation: Isolation,
    /// The place of its route.
    slot: RouteSlot,
    weight_bytes: usize,
}

impl Item {
    /// Its route, if it has one.
    pub(crate) fn route(&self) -> Option<RouteId> {
        self.slot.route()
    }

    pub(crate) fn id(&self) -> &EventId {
        self.content.as_ref().map_or_else(|row| &row.id, Event::id)
    }

    /// Whether it was sent before and not taken. A held key is no proof: the event may have waited for the pace
    /// of its destination.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed || self.attempts > 0 || self.isolation != Isolation::Mixed
    }

    /// Whether it may be what fails a batch.
    fn may_fail_others(&self) -> bool {
        self.has_failed() && !self.only_deferred
    }

    /// The key that is busy with it.
    fn lane_key(&self) -> Option<LaneKey> {
        let (lane, number) = (self.lease.lane, self.key_number);
        self.key.clone().map(|key| LaneKey { lane, key, number })
    }
}

/// With which others an event may be sent, after a batch with it failed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Isolation {
    /// With any others.
    #[default]
    Mixed,
    /// With events of its own key only.
    OwnKey,
    Alone,
}

/// Events that a worker has taken to send, all to the same receiver.
#[derive(Debug)]
pub(crate) struct Assignment {
    /// None if no route wants them.
    pub(crate) receiver: Option<ReceiverId>,
    /// How many events the receiver had delivered by then.
    pub(crate) since: u64,
    pub(crate) items: VecDeque<Item>,
    /// The moment after which none of them is sent.
    pub(crate) until: Option<Instant>,
    /// When they were taken, and how many that were not put back.
    taken_at: Instant,
    taken: usize,
    /// How often something had been paused by then.
    pub(crate) pauses_begun: u64,
    slot: RouteSlot,
    /// The destination of the first one, and whether the send has ended.
    destination: Option<DestinationId>,
    sent: bool,
    /// Whether one of them failed before.
    failed: bool,
    /// Whether it probes the receiver, or a destination of it.
    probe: bool,
    probed: Option<Option<DestinationId>>,
}

impl Assignment {
    /// How many were taken and not put back.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// When they were taken.
    pub(crate) fn taken_at(&self) -> Instant {
        self.taken_at
    }
}

/// What a worker does next.
pub(crate) enum NextWork {
    /// Sends these.
    Send(Assignment),
    /// Sends this one, which may have crashed a process before: its attempt is written first.
    Suspect(Assignment),
    /// Waits until something changes or this moment comes.
    Wait(Option<Instant>),
}

/// Whether a suspect goes alone.
enum SuspectTurn {
    /// No suspect blocks anybody.
    NotNeeded,
    /// A suspect waits until its receiver is idle, or others wait for a suspect that is under way. These
    /// receivers send nothing else until this moment.
    Wait { until: Instant, receivers: Vec<ReceiverSlot> },
    /// A suspect of this lane can go: its place among the lane's suspects.
    Now(Lane, usize),
}

/// What became of a hand-over in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandOver {
    Reserved,
    Full,
    /// The table keeps it: the lane is not ours, the number is in flight, the receiver is down, or the engine
    /// shuts down.
    LeftToClaim,
}

/// A suspect that is being sent or settled.
#[derive(Debug, Clone, Copy)]
struct SuspectUnderWay {
    seq: Seq,
    receiver: ReceiverSlot,
    destination: Option<DestinationId>,
    since: Instant,
}

struct OwnedLane {
    lease: Lease,
    /// The local moment after which nothing is sent.
    deadline: Instant,
    position: Position,
    recheck: Vec<Seq>,
    /// The next claim reads from the start, wherever the running one ends.
    from_start: bool,
    /// Up to where the table knows that events may be under way.
    sent_to: Seq,
    /// Events up to this one may have been under way when the last owner ended. Each goes alone and is counted
    /// beforehand.
    suspect_to: Seq,
    suspects: VecDeque<Item>,
    /// The suspects under way. There is more than one only if the first one hangs.
    suspects_under_way: Vec<SuspectUnderWay>,
    late_counts: LateCounts,
    taken_at: Instant,
    /// How many events are being sent or settled.
    busy: usize,
    /// Since when the lane is being given up: nothing more of it is claimed or sent.
    draining: Option<Instant>,
    /// The lane was not idle in time, and is not drained again before this moment.
    kept_until: Option<Instant>,
    /// How often it was not idle in time.
    kept: u32,
    /// Another session locked its row when it was to be marked: nothing is claimed from it before this moment.
    locked_until: Option<Instant>,
}

impl OwnedLane {
    /// Takes the rows to recheck up to this event, sorted and without duplicates.
    fn take_recheck(&mut self, to: Seq) -> Vec<Seq> {
        self.recheck.sort_unstable();
        self.recheck.dedup();
        let beyond = self.recheck.split_off(self.recheck.partition_point(|seq| *seq <= to));
        std::mem::replace(&mut self.recheck, beyond)
    }

    fn new(taken: Taken, deadline: Instant) -> Self {
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
    fn end_suspect(&mut self, seq: Seq) -> bool {
        let before = self.suspects_under_way.len();
        self.suspects_under_way.retain(|suspect| suspect.seq != seq);
        self.suspects_under_way.len() < before
    }

    /// Whether it may be drained now.
    fn may_drain(&self, now: Instant) -> bool {
        self.draining.is_none() && self.kept_until.is_none_or(|until| until <= now)
    }

    /// Whether its events may be claimed now.
    fn may_claim(&self, now: Instant) -> bool {
        self.gate(now).is_open() && self.locked_until.is_none_or(|until| until <= now)
    }

    /// Whether what was claimed under this lease is still ours to send.
    fn may_take(&self, lease: Option<Lease>) -> bool {
        lease == Some(self.lease) && self.draining.is_none()
    }
}

/// Everything in memory. It coordinates its parts, which own their state.
pub(crate) struct Buffer {
    lanes: OwnedLanes,
    in_flight: InFlight,
    queues: ReadyQueues,
    /// Busy keys with their followers.
    keys: HashMap<LaneKey, Followers, QuickState>,
    /// Keys with more events than may wait in memory.
    long_keys: LongKeys,
    /// Events that are about to commit.
    reserved: BTreeMap<Seq, Item>,
    /// How many events are being sent.
    sending: usize,
    suspects: SuspectSchedule,
    receivers: ReceiverTable,
    pauses: PauseState,
    outcomes: OutcomeQueue,
    postponed: PostponedOutcomes,
    rewind: Rewind,
    peeks: PeekTracker,
    clock: DatabaseClock,
    running_claim: RunningClaim,
    claim_room: ClaimRoom,
    claims: ClaimOrder,
    /// What claims have skipped, shared with the running claim.
    backlogs: Arc<Mutex<Backlogs>>,
    /// The first moment that an idle worker waits for.
    awaited_until: Option<Instant>,
    /// Whether an event was deferred since the settler was last notified.
    deferred: bool,
    pub(crate) accepting: bool,
}

impl Buffer {
    pub(crate) fn new(routes: &RouteTable, settings: &Settings) -> Self {
        let slots = routes.len() + 1;
        Self {
            lanes: OwnedLanes::default(),
            in_flight: InFlight::new(slots),
            queues: ReadyQueues::new(slots),
            keys: HashMap::default(),
            long_keys: LongKeys::new(settings),
            reserved: BTreeMap::new(),
            sending: 0,
            suspects: SuspectSchedule::new(settings.lease),
            receivers: ReceiverTable::new(routes, settings),
            pauses: PauseState::default(),
            outcomes: OutcomeQueue::default(),
            postponed: PostponedOutcomes::default(),
            rewind: Rewind::default(),
            peeks: PeekTracker::default(),
            clock: DatabaseClock::default(),
            running_claim: RunningClaim::default(),
            claim_room: ClaimRoom::default(),
            claims: ClaimOrder::default(),
            backlogs: Arc::new(Mutex::new(Backlogs::new(slots))),
            awaited_until: None,
            deferred: false,
            accepting: true,
        }
    }

    /// Tracks an event that enters memory.
    fn track(&mut self, item: &Item) {
        self.peeks.came(item.seq);
        self.in_flight.insert(item);
    }

    pub(crate) fn depths(&self) -> (usize, usize) {
        (self.in_flight.hot(), self.in_flight.cold())
    }

    pub(crate) fn sending(&self) -> usize {
        self.sending
    }

    /// Whether outcomes wait to be settled or are being settled. Refused ones do not count.
    pub(crate) fn has_outcomes(&self) -> bool {
        self.outcomes.unwritten() > 0 || self.postponed.has_locked()
    }

    /// Returns how many outcomes wait or are being settled, without postponed ones.
    pub(crate) fn unwritten(&self) -> usize {
        self.outcomes.unwritten()
    }

    /// Returns since when the oldest outcome waits.
    pub(crate) fn outcomes_since(&self) -> Option<Instant> {
        self.outcomes.since()
    }

    /// Whether nothing is being sent or settled, and nothing can be sent.
    pub(crate) fn is_drained(&self, now: Instant) -> bool {
        self.sending == 0 && !self.has_outcomes() && !self.has_work(now)
    }

    /// Whether nothing is in memory, and only paused events were skipped.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && !self.has_unpaused_backlog()
    }

    /// Forgets the queued events without counting an attempt. Returns how many.
    pub(crate) fn give_back(&mut self) -> usize {
        let suspects: usize = self.lanes.values_mut().map(|lane| lane.suspects.drain(..).count()).sum();
        let queued = self.queues.extract(|_| false).len() + suspects;
        let waiting: usize = self.keys.values_mut().map(|followers| followers.take().len()).sum();
        self.keys.clear();
        self.in_flight.clear();
        queued + waiting
    }

    /// Returns when the oldest claimed event was created.
    pub(crate) fn oldest(claimed: &Claimed) -> Option<Timestamp> {
        claimed.events.iter().map(|event| event.created_at).min()
    }
}

/// Returns the destination of an event, if its receiver has more than one.
fn destination_of(event: &Event, slot: RouteSlot, routes: &RouteTable) -> Option<DestinationId> {
    let receiver = routes.receiver(slot.route()?)?;
    if routes.traits(receiver).in_process {
        return None;
    }
    // A sink that panics here names none: it must not end a claim.
    let sink = routes.sink(receiver)?;
    let named = catch_unwind(AssertUnwindSafe(|| sink.destination(event))).unwrap_or_default();
    named.as_deref().map(destination::destination_id)
}

/// Returns the slot of an event; the first one if no route wants it.
fn slot_of(event: &Event, routes: &RouteTable) -> RouteSlot {
    RouteSlot::of(routes.find(event))
}

#[cfg(test)]
fn test_item(key: &str, seq: Seq, slot: usize) -> Item {
    use postrider_core::store::Token;

    let event = Event::json_text("A", "1").key(key).build().unwrap();
    Item {
        key: event.shared_key().cloned(),
        key_number: hash::of_key(key),
        weight_bytes: event.weight_bytes(),
        content: Ok(event),
        lease: Lease { lane: 0, token: Token { epoch: 1, nonce: 1 } },
        seq,
        attempts: 0,
        held: false,
        source: Source::Cold,
        destination: None,
        batched_with_head: false,
        failed: false,
        only_deferred: false,
        isolation: Isolation::Mixed,
        slot: RouteSlot::at(slot),
    }
}
