//! Lists of events and counts of them, for people who look.

use std::time::Duration;

use super::{EventStatus, Seq};
use crate::{EventId, Payload, Timestamp};

/// Which events a list is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListScope {
    /// Those that are not delivered, dead ones included, in the order of their places.
    Undelivered,
    /// Dead ones, in the order of their places.
    Dead,
    /// Delivered ones that are kept, in the order in which they were delivered. external outbox tables have no such order:
    /// there it is that of their places.
    Delivered,
}

/// Where a list begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListFrom {
    /// The last ones.
    Newest,
    /// The last ones before this.
    Before(ListCursor),
    /// The first ones after this.
    After(ListCursor),
}

/// The place of an event in a list. What it is made of is the store's own business.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListCursor {
    /// A time, where the list is in the order of one.
    pub at: Timestamp,
    /// A place in the order of the outbox, where it has numbers.
    pub seq: Seq,
    /// An id, where it has none.
    pub id: String,
}

/// A page of a list. However it is read, the oldest event of the page comes first.
///
/// ```
/// use postrider_core::store::{Listing, ListScope};
/// let orders = Listing { event_type: Some("OrderPlaced".to_owned()), ..Listing::newest(ListScope::Undelivered, 50) };
/// assert!(!orders.payloads);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Which events.
    pub scope: ListScope,
    /// From where.
    pub from: ListFrom,
    /// Only those of this type.
    pub event_type: Option<String>,
    /// Only those of this key.
    pub key: Option<String>,
    /// Only the one of this id, which is found by it and not by looking through the scope.
    pub id: Option<EventId>,
    /// At most so many.
    pub limit: usize,
    /// Whether payloads are read too. They may be a mebibyte each.
    pub payloads: bool,
}

impl Listing {
    /// The last events of a scope, whatever they are, without their payloads.
    pub fn newest(scope: ListScope, limit: usize) -> Self {
        Self { scope, from: ListFrom::Newest, event_type: None, key: None, id: None, limit, payloads: false }
    }
}

/// An event in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedEvent {
    /// Its place in this list.
    pub cursor: ListCursor,
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: String,
    /// What it happened to; [`GLOBAL_AGGREGATE`](crate::GLOBAL_AGGREGATE) if that is not said.
    pub aggregate_type: String,
    /// Its key.
    pub key: Option<String>,
    /// Where it is.
    pub status: EventStatus,
    /// How often it was tried without success.
    pub attempts: u32,
    /// When it was inserted, as far as that is kept.
    pub created_at: Timestamp,
    /// Of a dead one, when it went dead, where that is kept.
    pub died_at: Option<Timestamp>,
    /// Its payload, if that was asked for and is there.
    pub payload: Option<Payload>,
}

/// How many events of one type there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeCount {
    /// The type.
    pub event_type: String,
    /// Those that are not delivered and not dead.
    pub pending: u64,
    /// Dead ones.
    pub dead: u64,
}

/// The oldest events that are neither delivered nor dead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Oldest {
    /// The oldest first.
    pub events: Vec<OldestEvent>,
    /// Whether there may be others behind these.
    pub more: bool,
    /// How far it was read: what is behind these begins there. None where it cannot be read on.
    pub read_to: Option<Seq>,
}

/// One of them: what a route is chosen by, and how old it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldestEvent {
    /// Its type.
    pub event_type: String,
    /// What it happened to.
    pub aggregate_type: String,
    /// How long ago it was inserted, on the database's clock.
    pub age: Duration,
}
