//! An outside system for tests that answers as it is told.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider::{BoxFuture, Delivery, Event, EventBuilder, Health, Outcome, Sink, SinkTraits};
use tokio::time::Instant;

use super::{keyed, ms, pass, secs};

/// Answers a batch.
pub(crate) type Answer = dyn Fn(&[Delivery]) -> Vec<Outcome> + Send + Sync;

/// Tells slow events.
pub(crate) type Slow = dyn Fn(&Delivery) -> bool + Send + Sync;

/// An outside system that answers as it is told. Its destinations are the tenants of the events, and those whose names begin with "hangs" never
/// answer.
pub(crate) struct Receiver {
    pub(crate) answer: Mutex<Arc<Answer>>,
    pub(crate) takes: Duration,
    pub(crate) traits: SinkTraits,
    pub(crate) health: Health,
    /// Whether those that hang do so now.
    pub(crate) hanging: AtomicBool,
    /// Takes so long for batches with such an event in it.
    pub(crate) hangs_for: Option<(Box<Slow>, Duration)>,
    /// It gives up what hangs after so long, and says what it knows of each event.
    pub(crate) gives_up_after: Option<Duration>,
    /// What it took, and when.
    pub(crate) took: Mutex<Vec<(Instant, Delivery)>>,
    /// How often each event was sent.
    pub(crate) sent: Mutex<BTreeMap<String, usize>>,
}

impl Receiver {
    pub(crate) fn answering(answer: impl Fn(&Delivery) -> Outcome + Send + Sync + 'static) -> Self {
        Self::answering_batches(move |batch| batch.iter().map(&answer).collect())
    }

    pub(crate) fn answering_batches(
        answer: impl Fn(&[Delivery]) -> Vec<Outcome> + Send + Sync + 'static,
    ) -> Self {
        Self {
            answer: Mutex::new(Arc::new(answer)),
            takes: ms(1),
            traits: SinkTraits { batch_max: 1, ..SinkTraits::SINK },
            health: Health::Unknown,
            hanging: AtomicBool::new(true),
            hangs_for: None,
            gives_up_after: None,
            took: Mutex::default(),
            sent: Mutex::default(),
        }
    }

    pub(crate) fn batch(mut self, batch_max: usize) -> Self {
        self.traits.batch_max = batch_max;
        self
    }

    pub(crate) fn healthy(mut self) -> Self {
        self.health = Health::Up;
        self
    }

    pub(crate) fn taking(mut self, takes: Duration) -> Self {
        self.takes = takes;
        self
    }

    pub(crate) fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    /// From now on it takes everything.
    pub(crate) fn mend(&self) {
        *self.answer.lock().unwrap() = Arc::new(|batch: &[Delivery]| vec![Outcome::Delivered; batch.len()]);
    }

    pub(crate) fn took(&self) -> usize {
        self.took.lock().unwrap().len()
    }

    /// How long the events that satisfy this waited, from the longest to the shortest.
    pub(crate) fn took_at(&self, wanted: impl Fn(&Delivery) -> bool) -> Vec<Instant> {
        let took = self.took.lock().unwrap();
        took.iter().filter(|(_, delivery)| wanted(delivery)).map(|(at, _)| *at).collect()
    }

    pub(crate) fn sends_of(&self, key: &str) -> usize {
        self.sent.lock().unwrap().get(key).copied().unwrap_or(0)
    }
}

impl Sink for Receiver {
    fn traits(&self) -> SinkTraits {
        self.traits
    }

    fn destination(&self, event: &Event) -> Option<String> {
        event.tenant_id().map(str::to_owned)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            for key in batch.iter().filter_map(|delivery| delivery.key()) {
                *self.sent.lock().unwrap().entry(key.to_owned()).or_default() += 1;
            }
            pass(self.takes).await;
            let hangs =
                |delivery: &Delivery| delivery.tenant_id().is_some_and(|name| name.starts_with("hangs"));
            if let Some((_, time)) = self.hangs_for.as_ref().filter(|(slow, _)| batch.iter().any(slow)) {
                pass(*time).await;
            }
            let waits = batch.iter().any(hangs) && self.hanging.load(Relaxed);
            match self.gives_up_after.filter(|_| waits) {
                Some(limit) => pass(limit).await,
                None if waits => std::future::pending().await,
                None => {}
            }
            let answer = self.answer.lock().unwrap().clone();
            let mut outcomes = answer(batch);
            for (delivery, outcome) in batch.iter().zip(&mut outcomes).filter(|_| waits) {
                if hangs(delivery) {
                    *outcome = Outcome::unknown("no answer");
                }
            }
            let delivered =
                batch.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Outcome::Delivered);
            self.took
                .lock()
                .unwrap()
                .extend(delivered.map(|(delivery, _)| (Instant::now(), delivery.clone())));
            outcomes
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(std::future::ready(self.health.clone()))
    }
}

/// An event of a key that goes to the destination of this name.
pub(crate) fn at(tenant: &str, key: &str, n: usize) -> EventBuilder {
    keyed(key, n).tenant(tenant)
}

/// Takes so many requests a second, and says "too fast" to others.
pub(crate) fn limited(rate: f64) -> impl Fn(&Delivery) -> Outcome + Send + Sync + 'static {
    let state = Mutex::new((rate, None::<Instant>));
    move |_| {
        let (now, mut state) = (Instant::now(), state.lock().unwrap());
        let passed = state.1.map_or(Duration::ZERO, |then| now - then).as_secs_f64();
        let tokens = (state.0 + passed * rate).min(rate);
        let takes = tokens >= 1.0;
        *state = (if takes { tokens - 1.0 } else { tokens }, Some(now));
        if takes { Outcome::Delivered } else { Outcome::deferred(secs(1)) }
    }
}
