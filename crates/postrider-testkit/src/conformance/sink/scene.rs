//! How every check begins: a sink, its receiver, and events that can be told by their payloads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use postrider_core::{BatchOrder, Delivery, Event, Outcome, Sink, SinkTraits, Source};

use super::{Checked, Failure, Received, Receiver, SinkHarness};

/// How long a send may take before the suite gives up.
pub const SEND_MAX: Duration = Duration::from_secs(60);

/// Most events that the suite sends in a batch, however many a sink would take.
pub const BATCH_MAX: usize = 1000;

/// A sink under test.
pub struct Scene<H> {
    /// The harness.
    pub harness: H,
    /// The sink.
    pub sink: Arc<dyn Sink>,
    /// What it says of itself.
    pub traits: SinkTraits,
    made: usize,
    /// What it has said to be delivered.
    acknowledged: Vec<Event>,
}

impl<H: SinkHarness> Scene<H> {
    /// A fresh one.
    pub async fn fresh() -> Result<Self, Failure> {
        let harness = H::fresh().await?;
        let sink = harness.sink();
        let traits = sink.traits();
        Ok(Self { harness, sink, traits, made: 0, acknowledged: Vec::new() })
    }

    /// An event of this key, with a payload like no other's.
    pub fn event(&mut self, key: &str) -> Result<Event, Failure> {
        self.made += 1;
        Ok(Event::json_text("Tested", format!(r#"{{"number":{}}}"#, self.made)).key(key).build()?)
    }

    /// So many events, each of a key of its own.
    pub fn events(&mut self, count: usize) -> Result<Vec<Event>, Failure> {
        (0..count).map(|number| self.event(&format!("alone {number}"))).collect()
    }

    /// Events of these keys, in this order.
    pub fn events_of<const N: usize>(&mut self, keys: [&str; N]) -> Result<[Event; N], Failure> {
        let events: Result<Vec<_>, _> = keys.iter().map(|key| self.event(key)).collect();
        events?.try_into().map_err(|_| "as many events as keys".into())
    }

    /// So many events as fit into a batch, but no more than `count`.
    pub fn batch_of(&mut self, count: usize) -> Result<Vec<Event>, Failure> {
        self.events(count.min(self.traits.batch_max).min(BATCH_MAX))
    }

    /// Sends one batch. There must be an outcome for each event; what is said to be delivered is remembered.
    pub async fn send(&mut self, batch: &[Event]) -> Result<Vec<Outcome>, Failure> {
        let sending = send(self.sink.clone(), batch.to_vec());
        let outcomes = tokio::time::timeout(SEND_MAX, sending).await.map_err(|_| "a send does not end")?;
        self.note(batch, &outcomes);
        Ok(outcomes)
    }

    /// Remembers what a send has said of a batch.
    pub fn note(&mut self, batch: &[Event], outcomes: &[Outcome]) {
        assert_eq!(outcomes.len(), batch.len(), "one outcome for each event: {outcomes:?}");
        let delivered = batch.iter().zip(outcomes).filter(|(_, outcome)| **outcome == Outcome::Delivered);
        self.acknowledged.extend(delivered.map(|(event, _)| event.clone()));
    }

    /// Sends events in batches as an engine would cut them: none larger than the sink takes, and for an independent sink
    /// at most one event of a key in each.
    pub async fn send_all(&mut self, events: &[Event]) -> Result<Vec<Outcome>, Failure> {
        let mut outcomes = Vec::with_capacity(events.len());
        let mut rest = events;
        while !rest.is_empty() {
            let (batch, after) = rest.split_at_checked(self.first_batch(rest)).ok_or("a batch")?;
            outcomes.extend(self.send(batch).await?);
            rest = after;
        }
        Ok(outcomes)
    }

    fn first_batch(&self, events: &[Event]) -> usize {
        let mut keys = BTreeSet::new();
        let fits = |event: &&Event| {
            self.traits.order == BatchOrder::Prefix
                || event.key().is_none_or(|key| keys.insert(key.to_owned()))
        };
        events.iter().take(self.traits.batch_max.clamp(1, BATCH_MAX)).take_while(fits).count()
    }

    /// Sends events and expects all of them to be delivered.
    pub async fn deliver(&mut self, events: &[Event]) -> Checked {
        for (event, outcome) in events.iter().zip(self.send_all(events).await?) {
            assert_eq!(outcome, Outcome::Delivered, "{}", event.id());
        }
        Ok(())
    }

    /// Makes the receiver do this from now on.
    pub async fn receiver(&self, receiver: Receiver) -> Checked {
        self.harness.set_receiver(receiver).await
    }

    /// Everything that has arrived; everything that was acknowledged must be among it.
    pub async fn received(&self) -> Result<Vec<Received>, Failure> {
        let received = self.harness.received().await?;
        for event in &self.acknowledged {
            assert!(count(event, &received) > 0, "said to be delivered and never arrived: {}", event.id());
        }
        Ok(received)
    }

    /// These events, and nothing else, have arrived: each of them once.
    pub async fn arrived_once(&self, events: &[Event]) -> Checked {
        let received = self.received().await?;
        for event in events {
            assert_eq!(count(event, &received), 1, "arrived more or less than once: {}", event.id());
        }
        assert_eq!(received.len(), events.len(), "something else arrived");
        Ok(())
    }

    /// Within each key these events came in their order. What came more than once counts where it came first.
    pub async fn arrived_in_order(&self, events: &[Event]) -> Checked {
        in_order(events, &self.received().await?)
    }
}

/// All of these events are among what was received, and within each key in their order. What came more than once counts where it
/// came first.
pub fn in_order(events: &[Event], received: &[Received]) -> Checked {
    let mut first: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (place, received) in received.iter().enumerate() {
        first.entry(&received.payload).or_insert(place);
    }
    let mut furthest: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for event in events {
        let place = first.get(event.payload().as_bytes()).copied();
        let place = place.ok_or_else(|| format!("did not arrive: {}", event.id()))?;
        let before = furthest.insert(event.key(), place);
        assert!(before.is_none_or(|before| before < place), "out of order: {:?}", event.key());
    }
    Ok(())
}

/// One call of a sink, as the first attempt of each event.
pub async fn send(sink: Arc<dyn Sink>, batch: Vec<Event>) -> Vec<Outcome> {
    let delivery = |event| Delivery { event, source: Source::Cold, attempt: 1, lane: 0 };
    let batch: Vec<Delivery> = batch.into_iter().map(delivery).collect();
    sink.send(&batch).await
}

/// Whether this is that event.
pub fn is(received: &Received, event: &Event) -> bool {
    received.payload == event.payload().as_bytes()
}

/// How often an event arrived.
pub fn count(event: &Event, received: &[Received]) -> usize {
    received.iter().filter(|received| is(received, event)).count()
}
