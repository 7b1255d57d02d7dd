//! For the tests of programs that use Postrider: an outbox in memory that remembers what was written to it.
//!
//! # Layout
//!
//! * [`TestOutbox`]: the outbox
//! * [`Recorder`]: what was written and delivered; it can be attached to any other outbox too
//! * [`Written`]: what is asserted of it; `json` compares payloads

mod json;
mod recorder;
mod written;

use std::{
    fmt,
    task::{Context, Poll, Waker},
};

use postrider_core::{Delivery, Error, Event, EventId, EventType, Result, Store, store::EventStatus};
use postrider_engine::{
    Outbox, OutboxBuilder, Tx,
    memory::{MemoryStore, MemoryTx},
};
pub use recorder::Recorder;
pub use written::Written;

/// A real outbox on a store in memory, for tests of business code.
///
/// Such code is tested here if it takes a `Tx` of any database, as a rule so: `tx: &mut Tx<impl OwnedTx>`, or if it takes the
/// [`Outbox`] and a [`MemoryStore`] can stand for its pool. Code that runs statements of its own database is tested on that,
/// with a [`Recorder`] attached to its outbox.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use postrider::{Error, Event, OwnedTx, Tx};
/// use postrider_testkit::outbox::TestOutbox;
///
/// async fn place_order(tx: &mut Tx<impl OwnedTx>, id: u32, total: u32) -> Result<(), Error> {
///     if total > 0 {
///         let order = Event::json_text("OrderPlaced", format!(r#"{{"id":{id},"total":{total}}}"#));
///         tx.write(order.aggregate("Order", id)).await?;
///     }
///     Ok(())
/// }
///
/// let outbox = TestOutbox::new().await?;
/// outbox.transaction(async |tx| place_order(tx, 41, 0).await).await?;
/// outbox.assert_nothing_written();
///
/// outbox.transaction(async |tx| place_order(tx, 42, 12).await).await?;
/// outbox.assert_written("OrderPlaced").once().with_key("Order:42").with_json(r#"{"total":12}"#);
/// # Ok(()) }
/// ```
///
/// A failed assertion lists what was written instead:
///
/// ```should_panic
/// # use postrider::Event;
/// # use postrider_testkit::outbox::TestOutbox;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # runtime.block_on(async {
/// # let outbox = TestOutbox::new().await.unwrap();
/// # let written = Event::json_text("OrderPlaced", r#"{"total":13}"#).aggregate("Order", 42);
/// # outbox.transaction(async |tx| tx.write(written).await).await.unwrap();
/// outbox.assert_written("OrderPlaced").with_json(r#"{"total":12}"#);
/// // no OrderPlaced with a payload with {"total":12} ($.total is 13, not 12) was written
/// // one event was written:
/// //   OrderPlaced, key "Order:42", 12 bytes: {"total":13}
/// # });
/// ```
///
/// Time is tokio's: in a test with `start_paused = true` nothing waits, and an event that is due in an hour is delivered by
/// `tokio::time::advance` and [`drain`](TestOutbox::drain).
pub struct TestOutbox {
    store: MemoryStore,
    outbox: Outbox,
    recorder: Recorder,
}

impl TestOutbox {
    /// An outbox that delivers every event to nobody.
    pub async fn new() -> Result<Self> {
        Self::with(Outbox::builder().otherwise(async |_: Delivery| ())).await
    }

    /// An outbox with the handlers, hooks and settings of this builder. Its store is one in memory, whatever the builder was
    /// given, and its randomness repeats.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use postrider::{Delivery, Event, Outbox};
    /// use postrider_testkit::outbox::TestOutbox;
    ///
    /// let charge = async |order: Delivery| if order.attempt < 3 { Err("the bank is asleep") } else { Ok(()) };
    /// let retry = |_: u32, _: &str| std::time::Duration::ZERO;
    /// let outbox = TestOutbox::with(Outbox::builder().on("CardCharged", charge).retry(retry)).await?;
    ///
    /// outbox.transaction(async |tx| tx.write(Event::json_text("CardCharged", "{}")).await).await?;
    /// outbox.drain().await?;
    /// assert_eq!(outbox.delivered()[0].attempt, 3);
    /// # Ok(()) }
    /// ```
    pub async fn with(outbox: OutboxBuilder) -> Result<Self> {
        let (store, recorder) = (MemoryStore::new(1), Recorder::new());
        let outbox = recorder.attach(outbox.store(store.clone()).seed(0)).start().await?;
        Ok(Self { store, outbox, recorder })
    }

    /// The store, for code that begins transactions by itself and for `store().get(…)`, which reads what a transaction
    /// [put](MemoryTx::put).
    pub fn store(&self) -> &MemoryStore {
        &self.store
    }

    /// The outbox that the code under test is given.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Runs `work` in a transaction: see [`Outbox::transaction`].
    pub async fn transaction<T, E, F>(&self, work: F) -> Result<T, E>
    where
        E: From<Error>,
        F: AsyncFnOnce(&mut Tx<MemoryTx>) -> Result<T, E>,
    {
        self.outbox.transaction(&self.store, work).await
    }

    /// Begins a transaction; dropping it rolls it back.
    pub async fn begin(&self) -> Result<Tx<MemoryTx>> {
        self.outbox.begin(&self.store).await
    }

    /// Delivers everything that is due, what comes in meanwhile included: see [`Outbox::drain`].
    pub async fn drain(&self) -> Result<()> {
        self.outbox.drain().await
    }

    /// The events of committed transactions, in the order of writing, delivered or not.
    pub fn written(&self) -> Vec<Event> {
        self.recorder().written()
    }

    /// What was delivered, in the order of delivery.
    pub fn delivered(&self) -> Vec<Delivery> {
        self.recorder.delivered()
    }

    /// Asserts that events of this type were written; what comes back asserts more of them.
    #[track_caller]
    pub fn assert_written(&self, event_type: impl EventType) -> Written {
        self.recorder().assert_written(event_type)
    }

    /// Asserts that no event of this type was written.
    #[track_caller]
    pub fn assert_not_written(&self, event_type: impl EventType) {
        self.recorder().assert_not_written(event_type);
    }

    /// Asserts that nothing was written at all.
    #[track_caller]
    pub fn assert_nothing_written(&self) {
        self.recorder().assert_nothing_written();
    }

    /// The recorder, up to date with the table.
    fn recorder(&self) -> &Recorder {
        self.recorder.ask(|id| is_in(&self.store, id));
        &self.recorder
    }
}

/// Whether a committed event of this id is in the store. It answers at once.
fn is_in(store: &MemoryStore, id: &EventId) -> bool {
    let answer = store.status(id).as_mut().poll(&mut Context::from_waker(Waker::noop()));
    matches!(answer, Poll::Ready(Ok(status)) if status != EventStatus::Absent)
}

impl fmt::Debug for TestOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestOutbox")
            .field("store", &self.store)
            .field("recorder", &self.recorder)
            .finish_non_exhaustive()
    }
}
