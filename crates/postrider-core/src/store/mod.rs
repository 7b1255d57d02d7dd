//! The store: domain verbs only. The engine never sees SQL.
//!
//! Inserting is not a verb of the store: it runs on the caller's own transaction (see [`crate::tx`]).
//!
//! A store keeps three things apart, and a claim costs in proportion to what it returns, never to what waits:
//!
//! * **fresh** events, which a claim reads forward from a [`Position`];
//! * **waiting** events, which become due at a time of their own;
//! * **parked** events, which stand behind a held key and come back when it is freed.

mod claim;
mod features;
mod lane;
mod list;
mod operate;
mod orphan;
mod pause;
mod peek;
mod settle;

pub use claim::{
    Admission, Claim, Claimed, ClaimedEvent, LaneClaim, LateCommits, Position, Rescan, RowSummary,
    Undecodable,
};
pub use features::{Defaults, Features, Keeps, Recovery};
pub use lane::{AcquiredLane, LEASE_MAX, Lane, Lease, LeaseRequest, Leased, Marked, Renewed, Token};
pub use list::{ListCursor, ListFrom, ListScope, ListedEvent, Listing, Oldest, OldestEvent, TypeCount};
pub use operate::{DeadLetter, EventStatus, Hold, HoldReason, Instance, Instances, Stats};
pub use orphan::{HeldKey, Orphans};
pub use pause::{PAUSES_MAX, Pause, Paused, SUBJECT_CHARS_MAX, Subject, too_many_pauses};
pub use peek::{Peek, PeekWait};
pub use settle::{Change, Settled, Settlement};

use std::time::Duration;

use crate::{BoxFuture, EventId, Result, Target};

/// An event's place in the order of its outbox.
pub type Seq = u64;

/// A database with an outbox in it.
///
/// Every verb is safe to repeat. `join` to `settle` belong to the engine; a settle, and
/// whatever a claim has to write, takes effect only under the token of a lease that still holds.
pub trait Store: Send + Sync + 'static {
    /// What this store can do.
    fn features(&self) -> Features;

    /// How an outbox on it is set unless its user says otherwise; none for the usual defaults.
    fn defaults(&self) -> Option<Defaults> {
        None
    }

    /// The table that events are inserted into.
    fn target(&self) -> &Target;

    /// An error if what answers is no database that this store can work with: another product, or too old. Asked when an outbox
    /// starts; [`migrate`](Store::migrate) asks it too.
    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Creates or upgrades our tables. Safe when many start at once; refuses an external outbox table of our name.
    fn migrate(&self) -> BoxFuture<'_, Result<()>>;

    /// Tries what delivering does, and leaves nothing behind: an error says which table, right or setting is missing. With `migrate`,
    /// tables that are missing are tried too where the database can take that back, and are no error where it cannot.
    fn rehearse(&self, _migrate: bool) -> BoxFuture<'_, Result<()>> {
        self.check()
    }

    /// Says that an instance is there, for `ttl` from now, and how many there are. Those without lanes count too.
    fn join<'a>(&'a self, instance: &'a str, ttl: Duration) -> BoxFuture<'a, Result<u32>>;

    /// Says that an instance is gone.
    fn leave<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Takes lanes that are free or whose lease has run out, at most as many as are wanted. Lanes whose rows another session has locked are left
    /// out, not waited for. A lease that ends later than its own length from now was taken before the clock was set back: it is cut to that.
    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> BoxFuture<'a, Result<Leased>>;

    /// Extends leases by `ttl` from now and says which of the lanes are still held. A row that another session has locked keeps no other from being
    /// extended.
    fn renew<'a>(&'a self, leases: &'a [Lease], ttl: Duration) -> BoxFuture<'a, Result<Renewed>>;

    /// Notes for each lane that events up to this one may be under way from now on, and says which of the lanes are no
    /// longer held. A mark never goes down. A lane that another session has locked keeps no other from being marked.
    fn mark_sent<'a>(&'a self, marks: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Marked>>;

    /// Gives lanes back at once. Nothing of them may be in flight. Events up to the `seq` that is named stay suspects for the
    /// next owner; zero if there are none. Says which lanes are held as before, because another session has locked their rows: they keep no other from
    /// being given back, and can be given back later.
    fn release<'a>(&'a self, lanes: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Vec<Lane>>>;

    /// Reads due events of lanes that one holds, in the order of `seq` within a key.
    ///
    /// It never returns an event of a held key other than its head; those that it meets it parks. Nothing else is
    /// written, and a claim marks no event that it returns.
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Claimed>>;

    /// The last `seq` that was drawn, as cheaply as the database can say it: a fraction of a claim. Engines that rest ask every few milliseconds
    /// and claim when it moved, so that events of plain `INSERT`s and of other processes are found at once. It may move for
    /// nothing: a number is drawn at the `INSERT`, and its transaction may never commit. None where the store cannot tell, or may
    /// not; then polling finds what nobody told of.
    fn peek(&self) -> BoxFuture<'_, Result<Option<Peek>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Peeks, and where the database can wait by itself, answers when the number is no longer the known one. A wait inside the database costs a
    /// fraction of asking it again and again. A store that cannot wait answers at once.
    fn peek_from(&self, _wait: PeekWait) -> BoxFuture<'_, Result<Option<Peek>>> {
        self.peek()
    }

    /// Writes outcomes, in one transaction, if every lane that they belong to is still held; otherwise none of them.
    /// Repeating a settle changes nothing. A row that somebody else has locked is not waited for: the others are written, and the answer
    /// names it.
    fn settle<'a>(
        &'a self,
        leases: &'a [Lease],
        settlements: &'a [Settlement],
        retention: Duration,
    ) -> BoxFuture<'a, Result<Settled>>;

    /// How often abandoned claims are looked for, and how old they are by then; none for stores whose claims mark nothing.
    fn recovery(&self) -> Option<Recovery> {
        None
    }

    /// Makes events due again that were claimed longer ago than this by somebody who is gone, without counting an attempt. Says how
    /// many there were, which may be fewer than there are: call it until there are none. Only for stores whose claim marks events; for
    /// others there are none.
    fn recover(&self, _older_than: Duration) -> BoxFuture<'_, Result<u64>> {
        Box::pin(std::future::ready(Ok(0)))
    }

    /// Dead letters in the order of `seq`, after the given one.
    fn dead(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>>;

    /// Makes dead events due again, with their attempts counted from zero. Says how many there were.
    fn redrive<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>>;

    /// Deletes dead events and frees their keys. Says how many there were.
    fn discard<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>>;

    /// Frees keys whose head is no longer in the table, because somebody deleted it there: they go on as after a
    /// [`discard`](Store::discard). Looks at no more than `limit` keys that wait, those behind the place `after`. An engine asks every few
    /// seconds. Keys whose rows another session has locked are left to the next search. Stores that keep no holds have nothing to free.
    fn free_orphans<'a>(
        &'a self,
        _after: Option<&'a HeldKey>,
        _limit: usize,
    ) -> BoxFuture<'a, Result<Orphans>> {
        Box::pin(std::future::ready(Ok(Orphans::default())))
    }

    /// Deletes at most `limit` delivered events that are older than `retention`. Says how many there were.
    fn purge(&self, retention: Duration, limit: usize) -> BoxFuture<'_, Result<u64>>;

    /// How much of everything there is.
    fn stats(&self) -> BoxFuture<'_, Result<Stats>>;

    /// Who delivers; none where the store cannot tell.
    fn instances(&self) -> BoxFuture<'_, Result<Option<Instances>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// A page of the events of a scope, the oldest of them first. What is under way shows as it was when it was claimed.
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Vec<ListedEvent>>>;

    /// The oldest events that are neither delivered nor dead, at most `limit` of them, behind the place `after` in the order of the outbox; 0 is
    /// its beginning. Cheap enough to ask every few seconds: it reads along that order and ends where it has enough, or behind many dead ones.
    /// External outbox tables may have no index in that order: there it costs as much as a claim's look, and begins at the beginning only. None
    /// where the store cannot tell.
    fn oldest(&self, _after: Seq, _limit: usize) -> BoxFuture<'_, Result<Option<Oldest>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// How many events that are not delivered there are of each type: the types with most of them first, at most so many types. It
    /// reads all of them.
    fn count_by_type(&self, types: usize) -> BoxFuture<'_, Result<Vec<TypeCount>>>;

    /// Where one event is.
    fn status<'a>(&'a self, id: &'a EventId) -> BoxFuture<'a, Result<EventStatus>>;

    /// What a key waits for; none if it is not held.
    fn why<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Hold>>>;

    /// Notes that nothing of this subject is to be sent until it is [resumed](Store::resume), with a reason that may be empty. Pausing
    /// what is paused changes nothing. At most [`PAUSES_MAX`] at a time. Only for stores that [keep](Keeps::pauses) them.
    fn pause<'a>(&'a self, _subject: &'a Subject, _reason: &'a str) -> BoxFuture<'a, Result<Paused>> {
        pause::cannot()
    }

    /// Takes a pause away, and says what it was; none if there was none.
    fn resume<'a>(&'a self, _subject: &'a Subject) -> BoxFuture<'a, Result<Option<Pause>>> {
        pause::cannot()
    }

    /// All that is paused, the longest first. Engines ask once a second.
    fn pauses(&self) -> BoxFuture<'_, Result<Vec<Pause>>> {
        pause::cannot()
    }

    /// Tells other instances that something was committed. A hint: it returns at once, many become one, and whether any
    /// of them arrives is open. Stores that cannot reach others do nothing.
    fn notify_others(&self) {}

    /// Waits until another instance [notifies](Store::notify_others) something. For ever where nobody can; an error if the way is
    /// cut, after which it is worth asking again.
    fn notified(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::pending())
    }
}
