//! Defines the events in memory, and their keys.

use std::{
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use postrider_core::{
    Event, EventId, Source,
    store::{Lane, Lease, Seq, Undecodable},
};

use crate::{
    destination::{self, DestinationId},
    routes::{RouteId, RouteTable},
    slots::RouteSlot,
};

/// A busy key. The events of one key share its text, so comparing them seldom reads it.
#[derive(Debug, Clone)]
pub(super) struct LaneKey {
    pub(super) lane: Lane,
    pub(super) key: Arc<str>,
    /// The hash of the key. Its text is read once, when its event enters.
    pub(super) number: u64,
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
    pub(super) isolation: Isolation,
    /// The place of its route.
    pub(super) slot: RouteSlot,
    pub(super) weight_bytes: usize,
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
    pub(super) fn may_fail_others(&self) -> bool {
        self.has_failed() && !self.only_deferred
    }

    /// The key that is busy with it.
    pub(super) fn lane_key(&self) -> Option<LaneKey> {
        let (lane, number) = (self.lease.lane, self.key_number);
        self.key.clone().map(|key| LaneKey { lane, key, number })
    }
}

/// With which others an event may be sent, after a batch with it failed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Isolation {
    /// With any others.
    #[default]
    Mixed,
    /// With events of its own key only.
    OwnKey,
    Alone,
}

/// Returns the destination of an event, if its receiver has more than one.
pub(super) fn destination_of(event: &Event, slot: RouteSlot, routes: &RouteTable) -> Option<DestinationId> {
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
pub(super) fn slot_of(event: &Event, routes: &RouteTable) -> RouteSlot {
    RouteSlot::of(routes.find(event))
}

#[cfg(test)]
pub(super) fn test_item(key: &str, seq: Seq, slot: usize) -> Item {
    use postrider_core::store::Token;

    use crate::hash;

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
