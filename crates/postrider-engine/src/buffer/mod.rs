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
mod item;
mod key_bloom;
mod lanes;
mod late_counts;
mod long_keys;
mod outcome_queue;
mod outcomes;
mod owned_lane;
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
mod work;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque, hash_map::Entry},
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
        AcquiredLane, Change, Claim, Claimed, ClaimedEvent, Lane, LaneClaim, Lease, Position, Seq,
        Settlement, Token, Undecodable,
    },
    tx::Placed,
};
use tokio::time::Instant;

use crate::{
    destination::DestinationId,
    hash::{self, QuickState},
    lock,
    mutations::{self, Mutation},
    receiver::Receiver,
    routes::{ReceiverId, RouteTable},
    settings::{KeyOrder, Settings},
    slots::{ReceiverSlot, RouteSlot},
};
use backlog::Backlogs;
use claim_order::ClaimOrder;
use claim_room::ClaimRoom;
use database_clock::DatabaseClock;
use followers::Followers;
pub(crate) use hot::{HandOver, HotTarget};
use in_flight::InFlight;
pub(crate) use item::Item;
#[cfg(test)]
use item::test_item;
use item::{Isolation, LaneKey, destination_of, slot_of};
use long_keys::LongKeys;
use outcome_queue::OutcomeQueue;
use owned_lane::OwnedLane;
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
use suspects::{SuspectSchedule, SuspectTurn};
pub(crate) use work::{Assignment, NextWork};

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
