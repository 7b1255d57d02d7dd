//! A receiver as one engine sees it: a sink.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{BoxFuture, Delivery, Event, Health, Outcome, Sink, SinkTraits};
use postrider_engine::{Engine, Outbox};
use tokio::time::Instant;

use super::{
    destinations::Destination,
    history::{Call, Happening, Name},
    outage::Whole,
    receiver::{Mood, Receiver, Spoiled, To},
};

/// Ends one life of a process when an event wants it, and says so.
#[derive(Clone, Default)]
pub(super) struct Killed(Arc<KilledInner>);

#[derive(Default)]
struct KilledInner {
    /// Weak, because the engine holds its receivers, and they hold this.
    victim: OnceLock<Weak<Engine>>,
    yes: AtomicBool,
    notify: tokio::sync::Notify,
}

impl Killed {
    /// Whose life it is.
    pub(super) fn set_victim(&self, outbox: &Outbox) {
        let engine = outbox.engine().map(Arc::downgrade).unwrap_or_default();
        let _ = self.0.victim.set(engine);
    }

    fn kill(&self) {
        self.0.victim.get().and_then(Weak::upgrade).into_iter().for_each(|engine| engine.abort());
        self.0.yes.store(true, Relaxed);
        self.0.notify.notify_one();
    }

    /// Whether it was, since this was last asked.
    pub(super) fn take(&self) -> bool {
        self.0.yes.swap(false, Relaxed)
    }

    /// Waits until it is.
    pub(super) async fn wait(&self) {
        while !self.take() {
            self.0.notify.notified().await;
        }
    }
}

pub(super) struct Door {
    receiver: Receiver,
    by: Name,
    killed: Killed,
}

impl Door {
    pub(super) fn new(receiver: Receiver, by: Name, killed: Killed) -> Self {
        Self { receiver, by, killed }
    }

    fn note(&self, what: Happening) {
        self.receiver.history().note(what);
    }

    async fn receive(&self, batch: &[Delivery]) -> Vec<Outcome> {
        let plan = self.receiver.draw(batch);
        let under_way = UnderWay::begin(self, batch);
        pass(plan.before).await;
        if let Some(killer) = batch.iter().find(|delivery| self.receiver.is_killer(delivery)) {
            self.note(Happening::Killed(killer.id().clone()));
            self.killed.kill();
            return std::future::pending().await;
        }
        let moods: Vec<Mood> = match plan.whole {
            // Nothing of a batch is done if one of its events makes it fail.
            None if plan.spoiled.is_some() => vec![Mood::Fail; batch.len()],
            None | Some(Whole::TooFew) => plan.moods,
            Some(Whole::Hang { .. }) if self.receiver.to() == To::Handler => vec![Mood::Well; batch.len()],
            Some(Whole::Lose | Whole::Hang { effect: true }) => vec![Mood::Unknown; batch.len()],
            Some(Whole::Fail | Whole::Panic | Whole::Hang { effect: false }) => vec![Mood::Fail; batch.len()],
            Some(Whole::Refuse) => vec![Mood::Unavailable; batch.len()],
            Some(Whole::Reject) => vec![Mood::Reject; batch.len()],
        };
        for (place, (delivery, mood)) in batch.iter().zip(&moods).enumerate() {
            if mood.has_effect() && (place < plan.outcomes || plan.rest_has_effect) {
                self.note(Happening::Effect(delivery.id().clone()));
            }
        }
        // A crash in here loses the answer to something that took effect.
        pass(plan.after).await;
        match plan.whole {
            Some(Whole::Hang { .. }) if self.receiver.to() != To::Handler => std::future::pending().await,
            Some(Whole::Panic) => {
                batch.iter().for_each(|delivery| self.answered(delivery, "panicked", under_way.call));
                // As a panic, but without the message on the screen.
                std::panic::resume_unwind(Box::new("in a bad mood"));
            }
            _ => {}
        }
        let together = batch.len() > 1
            && plan.outcomes == batch.len()
            && moods.iter().all(|mood| {
                mood.is_failure() && Some(mood.answer()) == moods.first().map(|mood| mood.answer())
            });
        let as_a_whole = plan.whole.is_none() && plan.spoiled == Some(Spoiled::AsAWhole);
        let mut outcomes = Vec::with_capacity(batch.len());
        for (place, (delivery, mood)) in batch.iter().zip(moods).enumerate() {
            let (word, outcome) = match mood.answer() {
                (_, _) if as_a_whole => ("together", Outcome::batch_failed("one of them is bad")),
                (_, outcome) if together => ("together", outcome),
                answer => answer,
            };
            let word = if batch.len() == 1 && word == "together" { "failed" } else { word };
            if place < plan.outcomes {
                self.answered(delivery, word, under_way.call);
                outcomes.push(outcome);
            } else {
                self.answered(delivery, "missing", under_way.call);
            }
        }
        outcomes
    }

    async fn ask(&self, destination: Option<Destination>) -> Health {
        match self.receiver.is_up(destination) {
            None => std::future::pending().await,
            Some(None) => Health::Unknown,
            Some(Some(false)) => Health::Down { error: "down".to_owned() },
            Some(Some(true)) => {
                let (by, to) = (self.by.clone(), self.receiver.to());
                self.note(Happening::Healthy { by, to, destination });
                Health::Up
            }
        }
    }

    fn answered(&self, delivery: &Delivery, outcome: &'static str, call: Call) {
        let (id, by, to) = (delivery.id().clone(), self.by.clone(), self.receiver.to());
        self.note(Happening::Answered { id, outcome, by, to, call });
    }
}

async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

impl Sink for Door {
    fn traits(&self) -> SinkTraits {
        self.receiver.traits()
    }

    fn name(&self) -> Option<&str> {
        Some(self.receiver.to().name())
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(self.receive(batch))
    }

    fn destination(&self, event: &Event) -> Option<String> {
        self.receiver.destination_name(event)
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(self.ask(None))
    }

    fn health_for<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Health> {
        Box::pin(self.ask(Some(self.receiver.destination(event))))
    }
}

/// A call that is under way. However it ends, it is written down.
struct UnderWay<'a> {
    door: &'a Door,
    call: Call,
    since: Instant,
}

impl<'a> UnderWay<'a> {
    fn begin(door: &'a Door, batch: &[Delivery]) -> Self {
        let (call, to) = (door.receiver.next_call(), door.receiver.to());
        for delivery in batch {
            door.note(Happening::Called {
                id: delivery.id().clone(),
                attempt: delivery.attempt,
                lane: delivery.lane,
                by: door.by.clone(),
                to,
                call,
            });
        }
        Self { door, call, since: Instant::now() }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let limit = self.door.receiver.time_limit();
        let late = limit.is_some_and(|limit| self.since.elapsed() >= limit);
        self.door.note(Happening::Ended { call: self.call, late });
    }
}
