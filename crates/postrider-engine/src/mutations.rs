//! Flaws that are kept on purpose: the simulator is trusted only as long as it finds each of them.
//!
//! Without the feature `mutations`, which only the tests of the test kit turn on, none of them exists and every question for one is
//! answered with no at compile time. With it, one flaw at a time is switched on for the thread that asks.

/// A flaw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mutation {
    /// The store writes every settle, whoever holds the lane.
    NoFence,
    /// The store compares the token and then writes, and holds no lock in between.
    FenceNotLocked,
    /// The store gives rows to whoever comes first, and knows no lanes.
    ClaimByRow,
    /// Held keys are known to the owner of their lane alone, and forgotten when it changes hands.
    HoldsInMemory,
    /// `committed()` delivers, whatever became of the transaction.
    ReceiptDelivers,
    /// An event is forgotten when it is settled, although an older claim may still bring it.
    TrackerForgets,
    /// What may have ended a process goes along with all the others, and is not counted beforehand.
    NoSuspects,
    /// A failure counts although nobody knows whether the receiver was there.
    OutageCounts,
    /// A key is not busy while its head is: the next event of it goes along.
    TwoOfAKey,
    /// What stands behind a failed event of its key in a batch has failed as well.
    BehindFails,
    /// Nobody knows which keys were passed over.
    PassedKeysForgotten,
    /// What was passed over is never read again.
    BacklogUnread,
    /// What is in memory when something is paused is sent all the same.
    PausedInMemorySent,
    /// The event that a receiver refused is the next one that it is asked for.
    ProbeStays,
    /// A scan behind the front that could not be finished starts over with the next claim.
    ScanStartsOver,
    /// A scan that goes on sees what has committed since it began.
    ScanSeesMore,
    /// A settle names a row by its number alone, which may have been given again.
    SettleBySeqAlone,
    /// A settle that meets a locked row is repeated whole, and nothing else is written meanwhile.
    LockedRowBlocks,
    /// A settle that is refused is repeated whole, for ever.
    RefusedSettleRepeatedWhole,
    /// A database that went back in time is claimed from where its lost future ended.
    KeepsPositionsAfterGoingBack,
    /// An attempt that is counted makes its event new, also after its outcome was written.
    CountedAttemptIsNew,
    /// One destination that is down is taken for the whole receiver.
    OneDestinationIsAll,
    /// A destination that hangs may have all that is sent to its receiver at a time.
    HangingDestinationTakesAll,
    /// A receiver that says "too fast" is sent as much as before.
    TooFastIgnored,
    /// A batch that fails as a whole has failed for each of its events.
    BatchFailsEach,
    /// What a destination rejects dies, however much that is.
    RejectionsUnbraked,
    /// A key has as many followers in memory as there is room for.
    FollowersUnbounded,
    /// A handler may take as long as it likes.
    NoHandlerTimeout,
    /// Failing keys open the breaker of a destination, although its health check passes.
    HealthCheckIgnored,
    /// While a suspect is under way, nothing is sent to any receiver.
    SuspectsStopEverybody,
    /// One lane that is not idle keeps all others from being released.
    LanesFrozen,
    /// After an outage all that is allowed goes at once.
    NoRamp,
    /// An event that its receiver refuses alone waits for ever.
    UnavailableForIgnored,
    /// Events die of used-up attempts, however many do in a row.
    ExhaustionUnbraked,
    /// A send may take as long as it likes.
    SendsWithoutDeadline,
    /// The engine waits for the store for as long as it takes.
    VerbsWithoutLimit,
    /// What a peek finds is left to the next poll.
    PeeksIgnored,
    /// The engine says that it is ready, whatever its verbs have come to.
    ReadyRegardless,
}

#[cfg(not(feature = "mutations"))]
/// Whether this flaw is switched on: never.
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

    /// Whether this flaw is switched on.
    pub fn active(mutation: Mutation) -> bool {
        ACTIVE.get() == Some(mutation)
    }

    /// Runs something with a flaw switched on, on this thread.
    pub fn with<T>(mutation: Mutation, run: impl FnOnce() -> T) -> T {
        let _restore = Restore(ACTIVE.replace(Some(mutation)));
        run()
    }

    /// Sets back what was, however the run ends.
    struct Restore(Option<Mutation>);

    impl Drop for Restore {
        fn drop(&mut self) {
            ACTIVE.set(self.0);
        }
    }

    impl Engine {
        /// What a receipt must not do: delivers events that nobody knows to have committed, at places that no row has.
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
