//! The outbox in one piece: a writer and, unless it only writes, an engine.

use std::sync::Arc;

use postrider_core::{
    BlockingCallerTx, CallerTx, Error, Event, EventId, IntoEvent, Result, Store, TxSource,
    store::{DeadLetter, EventStatus, Hold, Pause, Paused, Seq, Stats, Subject},
    tx::OnDuplicate,
};

use crate::{
    Drained, Engine, EngineHealth, OutboxBuilder, Receipt, Receipts, ShutdownReport, Tx, Unsettled, Writer,
    tx::may_be_hot,
};

/// A transactional outbox. Clones are cheap and share one outbox. When the last clone is dropped the engine stops
/// at once; [`shutdown`](Outbox::shutdown) lets it finish what is under way.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use postrider_core::{Delivery, Event};
/// use postrider_engine::{Outbox, memory::MemoryStore};
///
/// let store = MemoryStore::new(1);
/// let outbox = Outbox::builder()
///     .store(store.clone())
///     .on("OrderPlaced", async |order: Delivery| println!("{}", order.id()))
///     .start()
///     .await?;
///
/// outbox.transaction(&store, async |tx| tx.write(Event::json_text("OrderPlaced", "{}")).await).await?;
/// outbox.shutdown().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Outbox {
    writer: Writer,
    engine: Option<Arc<Engine>>,
}

impl Outbox {
    /// Starts to build an outbox.
    pub fn builder() -> OutboxBuilder {
        OutboxBuilder::new()
    }

    /// Assembles an outbox from its parts.
    pub fn from_parts(writer: Writer, engine: Option<Arc<Engine>>) -> Self {
        let writer = match &engine {
            Some(engine) => writer.with_hints(engine.shared.hints.clone()),
            None => writer,
        };
        Self { writer, engine }
    }

    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// The engine, unless this outbox only writes.
    pub fn engine(&self) -> Option<&Arc<Engine>> {
        self.engine.as_ref()
    }

    /// Returns the outcomes that the database refuses to write: see [`Engine::unsettled`].
    pub fn unsettled(&self) -> Vec<Unsettled> {
        self.engine.as_ref().map(|engine| engine.unsettled()).unwrap_or_default()
    }

    /// The database.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.writer.store
    }

    /// Writes an event in the caller's own transaction.
    ///
    /// The event is delivered only after that transaction commits. A failed insert is returned to the caller
    /// and never repeated here.
    pub async fn write<M, X: CallerTx<M>>(&self, tx: X, event: impl IntoEvent) -> Result<Receipt> {
        self.writer.write_one(self.engine.as_ref(), tx, event, OnDuplicate::Fail).await
    }

    /// Writes several events in one round trip, all or none. If its future is dropped early, roll the
    /// transaction back: some events may be in it.
    pub async fn write_all<M, X: CallerTx<M>>(
        &self,
        tx: X,
        events: impl IntoIterator<Item = impl IntoEvent>,
    ) -> Result<Receipts> {
        self.writer.write_events(self.engine.as_ref(), tx, events, OnDuplicate::Fail).await
    }

    /// Writes an event unless one with its ID exists.
    pub async fn write_if_absent<M, X: CallerTx<M>>(&self, tx: X, event: impl IntoEvent) -> Result<Receipt> {
        self.writer.write_one(self.engine.as_ref(), tx, event, OnDuplicate::Keep).await
    }

    /// As [`write`](Outbox::write), for drivers that block.
    pub fn write_blocking<M, X: BlockingCallerTx<M>>(&self, tx: X, event: impl IntoEvent) -> Result<Receipt> {
        let event = event.into_event()?;
        let given = event.id().clone();
        let receipts = self.writer.write_blocking(self.engine.as_ref(), tx, [event], OnDuplicate::Fail)?;
        Ok(Receipt::new(given, receipts))
    }

    /// As [`write_all`](Outbox::write_all), for drivers that block.
    pub fn write_all_blocking<M, X: BlockingCallerTx<M>>(
        &self,
        tx: X,
        events: impl IntoIterator<Item = impl IntoEvent>,
    ) -> Result<Receipts> {
        self.writer.write_blocking(self.engine.as_ref(), tx, events, OnDuplicate::Fail)
    }

    /// Runs `work` in a transaction: commits if it returns `Ok`, rolls back on an error or a panic.
    ///
    /// This is the quick way: Postrider owns the commit, so events without a key go to their handler in memory.
    ///
    /// The closure's error may be of any type that converts from Postrider's. If its statements fail with
    /// several types, name one at the end: `Ok::<_, Box<dyn std::error::Error>>(())`, or `anyhow::Ok(())`.
    pub async fn transaction<M, P, T, E, F>(&self, pool: P, work: F) -> Result<T, E>
    where
        P: TxSource<M>,
        E: From<Error>,
        F: AsyncFnOnce(&mut Tx<P::Tx>) -> Result<T, E>,
    {
        let mut tx = self.begin(pool).await?;
        match work(&mut tx).await {
            Ok(value) => {
                tx.commit().await?;
                Ok(value)
            }
            Err(error) => {
                // The caller's error is returned. A failed rollback ends with the connection.
                let _ = tx.rollback().await;
                Err(error)
            }
        }
    }

    /// Begins a transaction as a guard: [`Tx::commit`] commits, dropping it rolls back.
    pub async fn begin<M, P: TxSource<M>>(&self, pool: P) -> Result<Tx<P::Tx>> {
        Ok(Tx::new(pool.begin().await?, self.clone()))
    }

    /// Runs one claim now. Returns how many events it brought; zero for an outbox that only writes.
    pub async fn poll_once(&self) -> Result<usize> {
        match &self.engine {
            Some(engine) => engine.poll_once().await,
            None => Ok(0),
        }
    }

    /// Returns the health of its engine, as the engine's own calls to the store show it: for a readiness probe. An
    /// outbox that only writes is always ready.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use postrider_core::Delivery;
    /// use postrider_engine::{Outbox, memory::MemoryStore};
    ///
    /// let outbox =
    ///     Outbox::builder().store(MemoryStore::new(1)).on("OrderPlaced", async |_: Delivery| ()).start().await?;
    /// let health = outbox.health();
    /// assert!(health.is_ready(), "{:?}", health.reasons);
    /// # outbox.shutdown().await;
    /// # Ok(()) }
    /// ```
    pub fn health(&self) -> EngineHealth {
        self.engine.as_ref().map_or_else(EngineHealth::default, |engine| engine.health())
    }

    /// Waits until everything due has been delivered, or has failed and waits; see [`Engine::drain`]. Call it
    /// before [`shutdown`](Outbox::shutdown) in tests and in programs that end after a piece of work.
    pub async fn drain(&self) -> Result<()> {
        match &self.engine {
            Some(engine) => engine.drain().await,
            None => Ok(()),
        }
    }

    /// As [`drain`](Self::drain), but does not wait for unavailable receivers; see [`Engine::drain_available`].
    /// For programs that run from time to time.
    pub async fn drain_available(&self) -> Result<Drained> {
        match &self.engine {
            Some(engine) => engine.drain_available().await,
            None => Ok(Drained::Everything),
        }
    }

    /// Hints that something was committed that no receipt knows of.
    pub fn wake(&self) {
        match &self.engine {
            Some(engine) => engine.wake(),
            None => self.store().notify_others(),
        }
    }

    pub(crate) fn may_be_hot(&self, event: &Event) -> bool {
        self.engine.as_ref().is_some_and(|engine| may_be_hot(event, engine.keeps_order()))
    }

    /// Returns the status of one event.
    pub async fn status(&self, id: impl Into<EventId>) -> Result<EventStatus> {
        self.store().status(&id.into()).await
    }

    /// Returns the counts of events by state.
    pub async fn stats(&self) -> Result<Stats> {
        self.store().stats().await
    }

    /// Returns what a key waits for; none if it is not held.
    pub async fn why(&self, key: &str) -> Result<Option<Hold>> {
        self.store().why(key).await
    }

    /// Returns dead letters in order, after this position.
    pub async fn dead(&self, after: Seq, limit: usize) -> Result<Vec<DeadLetter>> {
        self.store().dead(after, limit).await
    }

    /// Makes dead events due again, with their attempts reset. Returns how many.
    pub async fn redrive(&self, ids: impl IntoIterator<Item = impl Into<EventId>>) -> Result<u64> {
        let ids: Vec<EventId> = ids.into_iter().map(Into::into).collect();
        let count = self.store().redrive(&ids).await?;
        self.wake();
        Ok(count)
    }

    /// Deletes dead events and frees their keys. Returns how many.
    pub async fn discard(&self, ids: impl IntoIterator<Item = impl Into<EventId>>) -> Result<u64> {
        let ids: Vec<EventId> = ids.into_iter().map(Into::into).collect();
        let count = self.store().discard(&ids).await?;
        self.wake();
        Ok(count)
    }

    /// Pauses a whole source, a type, a key or a sink: no instance sends its events until it is
    /// [resumed](Outbox::resume), even after a restart. No attempt is counted, nothing dies, keys keep their order, and
    /// everything else goes on.
    ///
    /// After this returns, this process begins no send of it; others obey within about a second. Running sends end.
    /// Pausing what is paused changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use postrider_core::{Delivery, Event, store::Subject};
    /// use postrider_engine::{Outbox, memory::MemoryStore};
    ///
    /// # let store = MemoryStore::new(1);
    /// let outbox = Outbox::builder()
    ///     .store(store.clone())
    ///     .on("OrderPlaced", async |order: Delivery| println!("{}", order.id()))
    ///     .start()
    ///     .await?;
    /// let orders = Subject::event_type("Order*");
    /// assert!(outbox.pause(&orders, "the shop is being moved").await?.new);
    /// assert!(!outbox.pause(&orders, "").await?.new);
    /// assert_eq!(outbox.pauses().await?[0].reason, "the shop is being moved");
    ///
    /// outbox.transaction(&store, async |tx| tx.write(Event::json_text("OrderPlaced", "{}")).await).await?;
    /// outbox.drain().await?;
    /// assert_eq!(outbox.stats().await?.pending, 1);
    ///
    /// assert!(outbox.resume(&orders).await?.is_some());
    /// outbox.drain().await?;
    /// assert_eq!(outbox.stats().await?.pending, 0);
    /// # outbox.shutdown().await;
    /// # Ok(()) }
    /// ```
    pub async fn pause(&self, subject: &Subject, reason: &str) -> Result<Paused> {
        let paused = self.store().pause(subject, reason).await?;
        self.look_at_pauses().await?;
        Ok(paused)
    }

    /// Ends a pause. Returns it; none if there was none. Waiting events come in order.
    pub async fn resume(&self, subject: &Subject) -> Result<Option<Pause>> {
        let ended = self.store().resume(subject).await?;
        self.look_at_pauses().await?;
        Ok(ended)
    }

    /// Returns all pauses, the oldest first.
    pub async fn pauses(&self) -> Result<Vec<Pause>> {
        self.store().pauses().await
    }

    async fn look_at_pauses(&self) -> Result<()> {
        match &self.engine {
            Some(engine) => engine.look_at_pauses().await,
            None => Ok(()),
        }
    }

    /// Stops claiming, delivers what is in memory for at most the drain timeout, gives the rest back and frees
    /// the lanes. Writing still works. The next engine delivers what is written then, or was committed a moment
    /// ago and not read yet; call [`drain`](Outbox::drain) first if this one is to deliver it.
    pub async fn shutdown(&self) -> ShutdownReport {
        match &self.engine {
            Some(engine) => engine.shutdown().await,
            None => ShutdownReport::default(),
        }
    }
}
