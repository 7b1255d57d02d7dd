//! A store that writes down which lanes are taken and what becomes of settles, and passes everything on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider::{
    BoxFuture, EventId, Metrics, Result, Store, Target,
    store::{
        Change, Claim, Claimed, DeadLetter, EventStatus, Features, Hold, Lane, Lease, LeaseRequest, Leased,
        ListedEvent, Listing, Marked, Pause, Paused, Peek, PeekWait, Renewed, Seq, Settled, Settlement,
        Stats, Subject, TypeCount,
    },
};

use crate::history::{Pen, What};

pub(crate) struct Recording {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) pen: Arc<Pen>,
    pub(crate) calls: AtomicU64,
}

impl Recording {
    fn note(&self, what: &What) {
        note(&self.pen, what);
    }
}

/// An instance that cannot write its history is no witness any more, and ends.
pub(crate) fn note(pen: &Pen, what: &What) {
    if pen.note(what).is_err() {
        std::process::abort();
    }
}

/// What the engine counts.
pub(crate) struct Counted(pub(crate) Arc<Pen>);

impl Metrics for Counted {
    fn fenced(&self, events: u64) {
        note(&self.0, &What::Fenced { events });
    }
}

macro_rules! passed_on {
    ($($verb:ident($($name:ident: $type:ty),*) -> $done:ty;)*) => {$(
        fn $verb<'a>(&'a self, $($name: $type),*) -> BoxFuture<'a, Result<$done>> {
            self.store.$verb($($name),*)
        }
    )*};
}

impl Store for Recording {
    fn features(&self) -> Features {
        self.store.features()
    }

    fn target(&self) -> &Target {
        self.store.target()
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> BoxFuture<'a, Result<Leased>> {
        Box::pin(async move {
            let leased = self.store.lease(request).await?;
            for taken in &leased.taken {
                let Lease { lane, token } = taken.lease;
                self.note(&What::AcquiredLane { lane, epoch: token.epoch, suspect_to: taken.suspect_to });
            }
            Ok(leased)
        })
    }

    fn settle<'a>(
        &'a self,
        leases: &'a [Lease],
        settlements: &'a [Settlement],
        retention: Duration,
    ) -> BoxFuture<'a, Result<Settled>> {
        Box::pin(async move {
            let call = self.calls.fetch_add(1, Relaxed);
            if let Some(done) = settlements.iter().find(|each| each.change == Change::Done) {
                self.note(&What::Settling { call, lane: done.lane, seq: done.seq });
            }
            let settled = self.store.settle(leases, settlements, retention).await?;
            self.note(&match settled.lost.len() {
                0 => What::Settled { call },
                lanes => What::Refused { call, lanes },
            });
            Ok(settled)
        })
    }

    passed_on! {
        check() -> ();
        migrate() -> ();
        join(instance: &'a str, ttl: Duration) -> u32;
        leave(instance: &'a str) -> ();
        renew(leases: &'a [Lease], ttl: Duration) -> Renewed;
        mark_sent(marks: &'a [(Lease, Seq)]) -> Marked;
        release(lanes: &'a [(Lease, Seq)]) -> Vec<Lane>;
        claim(claim: &'a Claim) -> Claimed;
        peek() -> Option<Peek>;
        peek_from(wait: PeekWait) -> Option<Peek>;
        dead(after: Seq, limit: usize) -> Vec<DeadLetter>;
        list(listing: &'a Listing) -> Vec<ListedEvent>;
        count_by_type(types: usize) -> Vec<TypeCount>;
        redrive(ids: &'a [EventId]) -> u64;
        discard(ids: &'a [EventId]) -> u64;
        purge(retention: Duration, limit: usize) -> u64;
        stats() -> Stats;
        status(id: &'a EventId) -> EventStatus;
        why(key: &'a str) -> Option<Hold>;
        pause(subject: &'a Subject, reason: &'a str) -> Paused;
        resume(subject: &'a Subject) -> Option<Pause>;
        pauses() -> Vec<Pause>;
        notified() -> ();
    }

    fn notify_others(&self) {
        self.store.notify_others();
    }
}
