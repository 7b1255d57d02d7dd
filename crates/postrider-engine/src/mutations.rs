//! Defects that the test kit switches on, one at a time, to prove that its tests find them.
//!
//! Without the feature `mutations`, which only the test kit enables, none exists: every check is false at
//! compile time. With it, one mutation is active for the current thread.

/// A defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mutation {
    /// The store writes every settle, no matter which instance holds the lane.
    NoFence,
    /// The store compares the token and then writes without a lock.
    FenceNotLocked,
    /// The store gives rows to anyone who comes first, without lanes.
    ClaimByRow,
    /// Only the owner of a lane knows its held keys, and they are forgotten when the lane moves.
    HoldsInMemory,
    /// `committed()` delivers, whatever became of the transaction.
    ReceiptDelivers,
    /// An event is forgotten when it is settled, although an older claim may still bring it.
    TrackerForgets,
    /// Suspects are sent together with others, and not counted beforehand.
    NoSuspects,
    /// Failures count although the receiver may have been down.
    OutageCounts,
    /// A key is not busy while its head is: its next event is sent too.
    KeyNotBusy,
    /// Events after a failed one of their key in a batch have failed as well.
    FollowersFailToo,
    /// Skipped keys are forgotten.
    SkippedKeysForgotten,
    /// Backlogs are never read.
    BacklogUnread,
    /// Events in memory are sent although they were paused.
    PausedInMemorySent,
    /// A refused event is the next one that the receiver is asked for.
    RefusedProbeRepeated,
    /// A scan for late commits that could not be finished starts over with the next claim.
    ScanStartsOver,
    /// A scan that goes on sees what has committed since it began.
    ScanSeesMore,
    /// A settle names a row by its number alone, which may have been given to another event.
    SettleBySeqAlone,
    /// A settle that meets a locked row is repeated whole, and nothing else is written meanwhile.
    LockedRowBlocks,
    /// A refused settle is repeated whole, for ever.
    RefusedSettleRepeatedWhole,
    /// A database that went back in time is claimed from the old positions.
    PositionsSurviveRewind,
    /// A counted attempt makes its event new, even after its outcome was written.
    CountedAttemptIsNew,
    /// One destination that is down counts as the whole receiver.
    OneDestinationIsAll,
    /// A destination that hangs may have all concurrent sends of its receiver.
    HangingDestinationTakesAll,
    /// A receiver that says "too fast" is sent as much as before.
    TooFastIgnored,
    /// A batch that fails as a whole counts as a failure of each event.
    BatchFailureCountsEach,
    /// Rejected events die, however many in a row.
    RejectionsUnbraked,
    /// The number of followers in memory is not limited per key.
    FollowersUnbounded,
    /// Handlers have no time limit.
    NoHandlerTimeout,
    /// Failing keys open the breaker of a destination although its health check passes.
    HealthCheckIgnored,
    /// While a suspect is under way, nothing is sent to any receiver.
    SuspectsBlockEverything,
    /// One busy lane keeps all others from being released.
    LanesFrozen,
    /// After an outage all concurrent sends start at once.
    NoRamp,
    /// An event that is refused alone waits for ever.
    UnavailableForIgnored,
    /// Events that used up their attempts die, however many in a row.
    ExhaustionUnbraked,
    /// Sends have no time limit.
    SendsWithoutDeadline,
    /// Calls to the store have no time limit.
    StoreCallsWithoutLimit,
    /// What peeks find is left to the next poll.
    PeeksIgnored,
    /// The engine reports that it is ready, whatever its calls return.
    ReadyRegardless,
}

#[cfg(not(feature = "mutations"))]
/// Whether this mutation is active: never.
pub const fn active(_: Mutation) -> bool {
    false
}

#[cfg(feature = "mutations")]
pub use switch::{active, with};

#[cfg(feature = "mutations")]
mod switch {
    use std::{
        cell::Cell,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
    };

    use postrider_core::{Event, store::Seq, tx::Placed};

    use super::Mutation;
    use crate::{Engine, lock};

    thread_local! {
        static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Whether this mutation is active.
    pub fn active(mutation: Mutation) -> bool {
        ACTIVE.get() == Some(mutation)
    }

    /// Runs `run` with a mutation active on this thread.
    pub fn with<T>(mutation: Mutation, run: impl FnOnce() -> T) -> T {
        let _restore = Restore(ACTIVE.replace(Some(mutation)));
        run()
    }

    /// Restores the previous mutation, however the run ends.
    struct Restore(Option<Mutation>);

    impl Drop for Restore {
        fn drop(&mut self) {
            ACTIVE.set(self.0);
        }
    }

    impl Engine {
        /// Delivers events that may not have committed, at places that no row has: what a receipt must not do.
        pub(crate) fn deliver_unproved(self: &Arc<Self>, events: &[Event]) {
            static NOWHERE: AtomicU64 = AtomicU64::new(Seq::MAX / 2);
            let Some(lease) = lock(&self.shared.buffer).leases().first().copied() else { return };
            let place = |event: &Event| Placed {
                id: event.id().clone(),
                seq: NOWHERE.fetch_add(1, Relaxed),
                lane: lease.lane,
            };
            let placed: Vec<Placed> = events.iter().map(place).collect();
            self.reserve(events, &placed).hand_over();
        }
    }
}
