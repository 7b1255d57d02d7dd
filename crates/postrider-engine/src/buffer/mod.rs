//! Everything that is in memory: owned lanes, queued events, busy keys, and outcomes on their way back.
//!
//! Three rules live here, and nowhere else:
//!
//! * **One at a time.** A key is busy from the moment its head is queued until the outcome that frees it is committed;
//!   what follows waits behind it in memory, and is given back when the head has to wait.
//! * **In flight.** An event is tracked from claim or hand-over until its settle is committed, and beyond that until
//!   every claim that began before has returned: an older snapshot would bring it back.
//! * **Under lease.** Nothing is sent for a lane that is not held, or whose local deadline has passed.

mod admission;
mod backlog;
mod backlog_cursor;
mod batching;
mod claim;
mod first_skipped;
mod followers;
mod hot;
mod key_bloom;
mod lanes;
mod late_counts;
mod long_keys;
mod outcomes;
mod pauses;
mod peek_tracker;
mod pending_settlements;
mod postponed;
mod probes;
mod queues;
mod receivers;
mod rewind;
mod route_pace;
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
    Event, EventId, SinkTraits, Source, Timestamp,
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
    fair_queue::FairQueue,
    hash::{self, QuickState},
    lock,
    mutations::{self, Mutation},
    receiver::Receiver,
    routes::{ReceiverId, RouteId, RouteTable},
    settings::{KeyOrder, Settings},
};
pub(crate) use admission::ClaimPlan;
use backlog::Backlogs;
use followers::Followers;
pub(crate) use hot::HotTarget;
use late_counts::LateCounts;
use long_keys::LongKeys;
use pauses::Pauses;
pub(crate) use peek_tracker::PeekResult;
use peek_tracker::PeekTracker;
pub(crate) use pending_settlements::{PendingSettlement, PendingSettlements};
use postponed::PostponedOutcomes;
pub use postponed::Unsettled;
pub(crate) use postponed::{PostponeReason, Postponement};
use route_pace::RoutePace;
use tracker::Tracker;

/// A key that is busy. What is in memory of one key shares its text, so that it is seldom compared.
#[derive(Debug, Clone)]
struct LaneKey {
    lane: Lane,
    key: Arc<str>,
    /// The number of the key: its text is read once, when its event enters.
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

/// One event in memory.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) content: Result<Event, Box<Undecodable>>,
    pub(crate) lease: Lease,
    pub(crate) seq: Seq,
    pub(crate) attempts: u32,
    pub(crate) held: bool,
    pub(crate) source: Source,
    pub(crate) key: Option<Arc<str>>,
    /// The number of its key, or of itself.
    pub(crate) key_number: u64,
    /// Where its receiver takes it, if that has more than one place.
    pub(crate) destination: Option<DestinationId>,
    /// It is under way together with earlier events of its key.
    pub(crate) batched_with_head: bool,
    /// It has failed in this process, whatever the table says of it.
    pub(crate) failed: bool,
    /// All that was ever said of it is that it has to wait.
    pub(crate) only_deferred: bool,
    /// With whom it may be sent.
    isolation: Isolation,
    /// Its route, plus one; zero if it has none.
    slot: usize,
    weight_bytes: usize,
}

impl Item {
    /// Its route, if it has one.
    pub(crate) fn route(&self) -> Option<RouteId> {
        self.slot.checked_sub(1)
    }

    pub(crate) fn id(&self) -> &EventId {
        self.content.as_ref().map_or_else(|row| &row.id, Event::id)
    }

    /// Whether it was sent before and not taken, alone or with others. That its key is held says nothing: it may have waited for the pace of its
    /// destination.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed || self.attempts > 0 || self.isolation != Isolation::Mixed
    }

    /// Whether it may be what fails a batch: it was sent before, and not only told to wait.
    fn may_fail_others(&self) -> bool {
        self.has_failed() && !self.only_deferred
    }

    /// The key that is busy with it.
    fn lane_key(&self) -> Option<LaneKey> {
        let (lane, number) = (self.lease.lane, self.key_number);
        self.key.clone().map(|key| LaneKey { lane, key, number })
    }
}

/// With whom an event may be sent, after a batch with it in it has failed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Isolation {
    /// With anybody.
    #[default]
    Mixed,
    /// With events of its own key.
    OwnKey,
    Alone,
}

/// Events that a worker has taken to send, all to the same receiver.
#[derive(Debug)]
pub(crate) struct Assignment {
    /// None if nobody wants them.
    pub(crate) receiver: Option<ReceiverId>,
    /// What the receiver had done by then.
    pub(crate) since: u64,
    pub(crate) items: VecDeque<Item>,
    /// None of them is sent after this moment.
    pub(crate) until: Option<Instant>,
    /// When they were taken, and how many that were that were not put back.
    taken_at: Instant,
    taken: usize,
    /// How often something had been paused by then.
    pub(crate) pauses_begun: u64,
    slot: usize,
    /// Where the first of them goes, and whether the send has ended.
    destination: Option<DestinationId>,
    sent: bool,
    /// Whether one of them has failed before.
    failed: bool,
    /// Sent to see whether the receiver is back, or this destination of it.
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

/// What a worker is to do next.
pub(crate) enum NextWork {
    /// Send these.
    Send(Assignment),
    /// Send this one, which may have ended a process before: the attempt is written first.
    Suspect(Assignment),
    /// Nothing to send, until something changes or this moment comes.
    Wait(Option<Instant>),
}

/// Whether a suspect goes alone.
enum SuspectTurn {
    /// No suspect stands in the way of anybody.
    NotNeeded,
    /// One waits until its receiver has nothing else to do, or those of its receiver wait for one that is under way: these receivers send nothing
    /// else, until this moment.
    Wait { until: Instant, receivers: Vec<usize> },
    /// One of this lane can go, and where it stands.
    Now(Lane, usize),
}

/// What became of the wish to hand an event over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandOver {
    Reserved,
    Full,
    /// Somebody else's lane, in flight already, a receiver that is down, or shutting down: the table has it.
    LeftToClaim,
}

/// A suspect that is being sent or settled.
#[derive(Debug, Clone, Copy)]
struct SuspectUnderWay {
    seq: Seq,
    receiver: usize,
    destination: Option<DestinationId>,
    since: Instant,
}

struct OwnedLane {
    lease: Lease,
    /// The local moment after which nothing is sent.
    deadline: Instant,
    position: Position,
    again: Vec<Seq>,
    /// The next claim begins before everything, wherever one that is under way ends.
    from_start: bool,
    /// How far the table knows that events may be under way.
    sent_to: Seq,
    /// Events up to this one may have been under way when the last owner ended: each goes alone, and is counted before.
    suspect_to: Seq,
    suspects: VecDeque<Item>,
    /// The suspects that are under way; more than one only where the first hangs.
    suspects_under_way: Vec<SuspectUnderWay>,
    late_counts: LateCounts,
    taken_at: Instant,
    /// Events that are being sent or settled.
    busy: usize,
    /// Since when it is being given up: nothing more is claimed or sent.
    draining: Option<Instant>,
    /// It could not be given up, and is not tried again before this moment.
    kept_until: Option<Instant>,
    /// How often it was not idle in time.
    kept: u32,
    /// Another session had its row locked when it was to be marked: nothing is claimed from it before this moment.
    locked_until: Option<Instant>,
}

impl OwnedLane {
    /// Takes what is to be looked at again up to this event, sorted and each once.
    fn take_recheck(&mut self, to: Seq) -> Vec<Seq> {
        self.again.sort_unstable();
        self.again.dedup();
        let beyond = self.again.split_off(self.again.partition_point(|seq| *seq <= to));
        std::mem::replace(&mut self.again, beyond)
    }

    fn new(taken: Taken, deadline: Instant) -> Self {
        let suspect_to = if mutations::active(Mutation::NoSuspects) { 0 } else { taken.suspect_to };
        Self {
            lease: taken.lease,
            deadline,
            position: Position::START,
            again: Vec::new(),
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

    /// An event has ended, whatever became of it. Whether it was the suspect.
    fn end_suspect(&mut self, seq: Seq) -> bool {
        let before = self.suspects_under_way.len();
        self.suspects_under_way.retain(|suspect| suspect.seq != seq);
        self.suspects_under_way.len() < before
    }

    /// Whether it can be given up.
    fn may_drain(&self, now: Instant) -> bool {
        self.draining.is_none() && self.kept_until.is_none_or(|until| until <= now)
    }

    /// Whether its events can be claimed now.
    fn may_claim(&self, now: Instant) -> bool {
        now < self.deadline && self.draining.is_none() && self.locked_until.is_none_or(|until| until <= now)
    }

    /// Whether what was claimed under this lease is still for us to send.
    fn may_take(&self, lease: Option<Lease>) -> bool {
        lease == Some(self.lease) && self.draining.is_none()
    }
}

pub(crate) struct Buffer {
    lanes: BTreeMap<Lane, OwnedLane>,
    first_deadline: Option<Instant>,
    hot: FairQueue<Item>,
    cold: FairQueue<Item>,
    /// Counts takes modulo three: two for hot, one for cold.
    turn: u8,
    /// Busy keys, with what waits behind them.
    keys: HashMap<LaneKey, Followers, QuickState>,
    /// Those of which more is in the table than may wait in memory.
    long_keys: LongKeys,
    tracked: Tracker,
    /// What peeks have told of.
    peeks: PeekTracker,
    /// Places in the hot queue for events that are about to commit.
    reserved: BTreeMap<Seq, Item>,
    hot_count: usize,
    cold_count: usize,
    /// How many events of each slot are in memory.
    slot_counts: Vec<usize>,
    bytes: usize,
    /// A claim is under way. What is settled meanwhile stays tracked until it has returned, and keys that are held meanwhile are noted.
    claiming: bool,
    /// The claim under way passes rows over, and how many such claims have returned; and how many had when the settle under way began.
    passing: bool,
    passed: u64,
    passed_before_settle: u64,
    /// Whether the last claim of the lanes' own positions passed rows over.
    passes: bool,
    /// Since when claims are not begun for want of room.
    starved_since: Option<Instant>,
    /// Memory is full and drains slowly: claims look beyond what fills it, and each slot has a share.
    sharing: bool,
    /// The first and the last event of the last claim of the lanes' own positions, if it left something.
    left_more: Option<(Seq, Seq)>,
    /// What claims have passed over; shared with the claim under way.
    backlogs: Arc<Mutex<Backlogs>>,
    /// The slot whose backlog was read last, and whether the lanes' own positions have their turn now.
    walked_slot: usize,
    main_turn: bool,
    /// A held key was freed: what is parked behind it can come back.
    returning: bool,
    /// When the next waiting event is due, as far as is known.
    due_at: Option<Instant>,
    held_meanwhile: HashSet<LaneKey, QuickState>,
    /// Events that are being sent.
    sending: usize,
    outcomes: PendingSettlements,
    /// What outcomes had room in that are settled now.
    outcomes_room: PendingSettlements,
    outcomes_since: Option<Instant>,
    /// Whether something lines up that finds no room beside what goes to other destinations.
    saturated: bool,
    /// The first moment that a worker is known to wait for.
    awaited_until: Option<Instant>,
    /// Whether something was put off that the settles have not been told of.
    defer: bool,
    /// Outcomes that a settle under way writes.
    settling: usize,
    /// Outcomes that could not be written, and whether they are next.
    postponed: PostponedOutcomes,
    postponed_turn: bool,
    /// The leases that were taken since the database went back in time, as long as something from before may be under way.
    taken_since: Option<HashSet<Token>>,
    old_leases: Vec<(Lease, Seq)>,
    /// The database's clock as it was last seen, and when that was here.
    clock: Option<(Timestamp, Instant)>,
    /// Since when a suspect waits to go alone, or goes.
    alone_since: Option<Instant>,
    /// After a suspect others have their turn, for as long as it took.
    others_until: Option<Instant>,
    /// The receiver that the last suspect went to.
    suspect_receiver: Option<usize>,
    /// The lane whose suspect went last.
    suspect_turn: Lane,
    /// How long suspects and others wait for each other.
    suspect_timeout: Duration,
    /// The first is for events without a route; a route's is one more than its number.
    receivers: Vec<Receiver>,
    /// The receiver of each slot.
    receiver_of: Vec<usize>,
    /// The pace of each slot.
    paces: Vec<RoutePace>,
    /// What is paused; shared with the claim under way. And how often something was.
    pauses: Arc<Pauses>,
    pauses_begun: Arc<AtomicU64>,
    /// Most events in memory for a receiver that is down.
    probes: usize,
    /// Workers that handlers in this process have between them, how many of them are busy, and how many one slot may have.
    workers: usize,
    handlers_busy: usize,
    workers_of_slot: usize,
    pub(crate) accepting: bool,
}

impl Buffer {
    pub(crate) fn new(routes: &RouteTable, settings: &Settings) -> Self {
        let slots = routes.len() + 1;
        let receivers: Vec<Receiver> = std::iter::once(SinkTraits::HANDLER)
            .chain((0..routes.receivers()).map(|id| routes.traits(id)))
            .map(Receiver::new)
            .collect();
        let receiver_of: Vec<usize> = std::iter::once(0)
            .chain((0..routes.len()).map(|route| routes.receiver(route).map_or(0, |id| id + 1)))
            .collect();
        let paces = std::iter::once(None)
            .chain((0..routes.len()).map(|route| routes.settings(Some(route))))
            .map(RoutePace::of)
            .collect();
        let of_handlers = |slot: &&usize| receivers.get(**slot).is_some_and(Receiver::is_in_process);
        // One type whose handler hangs must not take the last worker from the others.
        let others = receiver_of.iter().skip(1).filter(of_handlers).count() > 1;
        Self {
            lanes: BTreeMap::new(),
            first_deadline: None,
            hot: FairQueue::new(slots),
            cold: FairQueue::new(slots),
            turn: 0,
            keys: HashMap::default(),
            long_keys: LongKeys::new(settings),
            tracked: Tracker::default(),
            peeks: PeekTracker::default(),
            reserved: BTreeMap::new(),
            hot_count: 0,
            cold_count: 0,
            slot_counts: vec![0; slots],
            bytes: 0,
            claiming: false,
            passing: false,
            passes: false,
            passed: 0,
            passed_before_settle: 0,
            starved_since: None,
            sharing: false,
            left_more: None,
            backlogs: Arc::new(Mutex::new(Backlogs::new(slots))),
            walked_slot: 0,
            main_turn: true,
            returning: false,
            due_at: None,
            held_meanwhile: HashSet::default(),
            sending: 0,
            outcomes: PendingSettlements::default(),
            outcomes_room: PendingSettlements::default(),
            outcomes_since: None,
            saturated: false,
            awaited_until: None,
            defer: false,
            settling: 0,
            postponed: PostponedOutcomes::default(),
            postponed_turn: false,
            taken_since: None,
            old_leases: Vec::new(),
            clock: None,
            alone_since: None,
            others_until: None,
            suspect_receiver: None,
            suspect_turn: Lane::MAX,
            suspect_timeout: settings.lease,
            pauses: Arc::default(),
            pauses_begun: Arc::default(),
            probes: admission::probes(receivers.len(), settings),
            workers: settings.workers,
            handlers_busy: 0,
            workers_of_slot: settings.workers - usize::from(others && settings.workers > 1),
            receivers,
            receiver_of,
            paces,
            accepting: true,
        }
    }

    pub(crate) fn depths(&self) -> (usize, usize) {
        (self.hot_count, self.cold_count)
    }

    pub(crate) fn sending(&self) -> usize {
        self.sending
    }

    /// Whether outcomes wait to be settled, or are being settled. What the database refuses is not waited for.
    pub(crate) fn has_outcomes(&self) -> bool {
        !self.outcomes.is_empty() || self.settling > 0 || self.postponed.has_locked()
    }

    /// How many outcomes wait to be settled or are being settled, but for those that were put aside.
    pub(crate) fn unwritten(&self) -> usize {
        self.outcomes.len() + self.settling
    }

    /// Since when outcomes wait that nobody has taken to settle.
    pub(crate) fn outcomes_since(&self) -> Option<Instant> {
        self.outcomes_since
    }

    /// Nothing is being sent, nothing is to be settled, and nothing can be sent.
    pub(crate) fn is_drained(&self, now: Instant) -> bool {
        self.sending == 0 && !self.has_outcomes() && !self.has_work(now)
    }

    /// Nothing is in memory, and nothing was passed over but what is paused.
    pub(crate) fn is_empty(&self) -> bool {
        self.tracked.is_empty() && !self.has_unpaused_backlog()
    }

    /// Forgets what is queued, without an attempt counted; says how many events that were.
    pub(crate) fn give_back(&mut self) -> usize {
        let suspects: usize = self.lanes.values_mut().map(|lane| lane.suspects.drain(..).count()).sum();
        let queued = self.hot.extract(|_| false).len() + self.cold.extract(|_| false).len() + suspects;
        let waiting: usize = self.keys.values_mut().map(|followers| followers.take().len()).sum();
        self.keys.clear();
        self.tracked.clear();
        queued + waiting
    }

    /// The age of an event at the time of its claim.
    pub(crate) fn oldest(claimed: &Claimed) -> Option<Timestamp> {
        claimed.events.iter().map(|event| event.created_at).min()
    }
}

/// Where the receiver of a slot takes an event, if that has more than one place.
fn destination_of(event: &Event, slot: usize, routes: &RouteTable) -> Option<DestinationId> {
    let receiver = routes.receiver(slot.checked_sub(1)?)?;
    if routes.traits(receiver).in_process {
        return None;
    }
    // What panics here names none: a claim must not end by it.
    let sink = routes.sink(receiver)?;
    let named = catch_unwind(AssertUnwindSafe(|| sink.destination(event))).unwrap_or_default();
    named.as_deref().map(destination::destination_id)
}

/// The slot of an event; the first if nobody wants it.
fn slot_of(event: &Event, routes: &RouteTable) -> usize {
    routes.find(event).map_or(0, |route| route + 1)
}
