//! Owns transactions: the only ones whose commit is certain, and whose events may be handed over in memory.

use std::collections::BTreeSet;

use postrider_core::{Event, EventId, IntoEvent, OwnedTx, Result, TxOutcome, event::Due, tx::OnDuplicate};

use crate::{
    Outbox,
    write::{Prepared, WriteNotice},
};

/// An open transaction that belongs to an outbox. Dropping it, by an early return or a panic, rolls it back.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use postrider_core::{Delivery, Event};
/// use postrider_engine::{Outbox, memory::MemoryStore};
///
/// let store = MemoryStore::new(1);
/// let outbox = Outbox::builder().store(store.clone()).on("Greeted", async |_: Delivery| ()).start().await?;
///
/// let mut tx = outbox.begin(&store).await?;
/// tx.write(Event::json_text("Greeted", "{}")).await?;
/// tx.commit().await?;
/// # outbox.shutdown().await; Ok(()) }
/// ```
pub struct Tx<O: OwnedTx> {
    inner: O,
    outbox: Outbox,
    /// New events that may take the hot path if they commit.
    hot: Vec<Event>,
    /// Whether events were written that a claim has to fetch.
    cold: bool,
    notice: WriteNotice,
}

impl<O: OwnedTx> Tx<O> {
    pub(crate) fn new(inner: O, outbox: Outbox) -> Self {
        let notice = outbox.writer().notice(TxOutcome::RolledBack);
        Self { inner, outbox, hot: Vec::new(), cold: false, notice }
    }

    /// The connection for business statements.
    pub fn conn(&mut self) -> &mut O::Conn {
        self.inner.conn()
    }

    /// Writes an event. Returns its ID.
    pub async fn write(&mut self, event: impl IntoEvent) -> Result<EventId> {
        let event = event.into_event()?;
        let id = event.id().clone();
        Ok(self.write_events([event], OnDuplicate::Fail).await?.0.pop().unwrap_or(id))
    }

    /// Writes several events in one round trip, all or none. Returns their IDs in order.
    pub async fn write_all(
        &mut self,
        events: impl IntoIterator<Item = impl IntoEvent>,
    ) -> Result<Vec<EventId>> {
        Ok(self.write_events(events, OnDuplicate::Fail).await?.0)
    }

    /// Writes an event unless one with its ID exists. Returns whether it is new.
    pub async fn write_if_absent(&mut self, event: impl IntoEvent) -> Result<bool> {
        Ok(self.write_events([event], OnDuplicate::Keep).await?.1 > 0)
    }

    async fn write_events(
        &mut self,
        events: impl IntoIterator<Item = impl IntoEvent>,
        on_duplicate: OnDuplicate,
    ) -> Result<(Vec<EventId>, usize)> {
        let writer = self.outbox.writer().clone();
        let prepared = writer.prepare(events)?;
        if prepared.events.is_empty() {
            return Ok((prepared.ids, 0));
        }
        let new = self.inner.insert(&writer.target, &prepared.events, on_duplicate).await?;
        writer.count(&new);
        let before = self.notice.ids.len();
        self.notice.ids.extend(prepared.new_ids(&new));
        let Prepared { ids, events } = prepared;
        for (event, _) in events.into_iter().zip(new).filter(|(_, new)| *new) {
            if self.outbox.may_be_hot(&event) { self.hot.push(event) } else { self.cold = true }
        }
        Ok((ids, self.notice.ids.len() - before))
    }

    /// Commits, then hands events without a key over in memory and wakes the lanes of the others.
    ///
    /// A commit may report success although it rolled back, so events for the hot path are read back right
    /// before it: that fails in an aborted transaction, and does not find events behind a rolled-back
    /// savepoint.
    pub async fn commit(self) -> Result<()> {
        let Self { mut inner, outbox, hot, cold, mut notice } = self;
        let ids: Vec<EventId> = if notice.is_heard() {
            notice.ids.clone()
        } else {
            hot.iter().map(|event| event.id().clone()).collect()
        };
        let mut placed = match ids.as_slice() {
            [] => Vec::new(),
            ids => inner.read_back(&outbox.writer().target, ids).await?,
        };
        if notice.is_heard() {
            let found: BTreeSet<&EventId> = placed.iter().map(|place| &place.id).collect();
            notice.ids.retain(|id| found.contains(id));
            let hot: BTreeSet<&EventId> = hot.iter().map(Event::id).collect();
            placed.retain(|place| hot.contains(&place.id));
        }
        let reservation = outbox.engine().map(|engine| engine.reserve(&hot, &placed));
        // From now on only the table knows, until the database has answered.
        notice.outcome = TxOutcome::Unknown;
        inner.commit().await?;
        notice.tell(TxOutcome::Committed);
        if let Some(reservation) = reservation {
            reservation.hand_over();
        }
        if cold {
            outbox.wake();
        }
        Ok(())
    }

    /// Rolls back.
    pub async fn rollback(self) -> Result<()> {
        let Self { inner, mut notice, .. } = self;
        let result = inner.rollback().await;
        notice.tell(TxOutcome::RolledBack);
        result
    }
}

/// Whether an event may be delivered from memory: due now, and without an order to keep.
pub(crate) fn may_be_hot(event: &Event, keeps_order: bool) -> bool {
    event.due() == Due::AtOnce && (event.key().is_none() || !keeps_order)
}
