//! The handler and its moods.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{Delivery, Outcome, rng::Rng};

use super::{
    history::{Happening, History, Name},
    scenario::Moods,
};

/// Says that an event has ended the process.
#[derive(Clone, Default)]
pub(super) struct Killed(Arc<KilledInner>);

#[derive(Default)]
struct KilledInner {
    yes: AtomicBool,
    notify: tokio::sync::Notify,
}

impl Killed {
    fn kill(&self) {
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

type Answer = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// One outside system, which outlives every engine.
#[derive(Clone)]
pub(super) struct Receiver(Arc<Inner>);

struct Inner {
    rng: Mutex<Rng>,
    /// What killers are told by.
    salt: u64,
    moods: Moods,
    healed: AtomicBool,
    history: Arc<History>,
}

#[derive(Debug, Clone, Copy)]
enum Mood {
    Well,
    Fail,
    Panic,
    Reject,
    Defer,
    Unavailable,
    Unknown,
    Hang,
}

impl Receiver {
    pub(super) fn new(mut rng: Rng, moods: Moods, history: Arc<History>) -> Self {
        let salt = rng.next_u64();
        Self(Arc::new(Inner { rng: Mutex::new(rng), salt, moods, healed: AtomicBool::new(false), history }))
    }

    /// Takes everything from now on.
    pub(super) fn heal(&self) {
        self.0.healed.store(true, Relaxed);
    }

    /// The handler of one life of an instance.
    pub(super) fn handler(
        &self,
        by: Name,
        killed: &Killed,
    ) -> impl Fn(Delivery) -> Answer + Send + Sync + 'static {
        let (this, killed) = (self.clone(), killed.clone());
        move |delivery| Box::pin(this.clone().receive(delivery, by.clone(), killed.clone()))
    }

    async fn receive(self, delivery: Delivery, by: Name, killed: Killed) -> Outcome {
        let id = delivery.id().clone();
        let (mood, before, after) = self.draw();
        self.0.history.note(Happening::Called {
            id: id.clone(),
            attempt: delivery.attempt,
            lane: delivery.lane,
            by: by.clone(),
        });
        tokio::time::sleep(before).await;
        if self.is_killer(&delivery) {
            self.0.history.note(Happening::Killed(id));
            killed.kill();
            return std::future::pending().await;
        }
        if matches!(mood, Mood::Well | Mood::Unknown | Mood::Hang) {
            self.0.history.note(Happening::Effect(id.clone()));
        }
        // A crash in here loses the answer to something that took effect.
        tokio::time::sleep(after).await;
        let (word, outcome) = match mood {
            Mood::Well | Mood::Hang => ("delivered", Outcome::Delivered),
            Mood::Fail => ("failed", Outcome::retry("not in the mood")),
            Mood::Reject => ("rejected", Outcome::rejected("never")),
            Mood::Defer => ("deferred", Outcome::deferred(Duration::from_millis(50))),
            Mood::Unavailable => ("unavailable", Outcome::unavailable("down")),
            Mood::Unknown => ("unknown", Outcome::unknown("no answer")),
            Mood::Panic => ("panicked", Outcome::Delivered),
        };
        self.0.history.note(Happening::Answered { id, outcome: word, by });
        if matches!(mood, Mood::Panic) {
            // As a panic, but without the message on the screen.
            std::panic::resume_unwind(Box::new("in a bad mood"));
        }
        outcome
    }

    /// Decided by the event alone, so that it is one wherever and whenever it is delivered.
    fn is_killer(&self, delivery: &Delivery) -> bool {
        let seed = delivery
            .id()
            .as_str()
            .bytes()
            .fold(self.0.salt, |hash, byte| hash.rotate_left(7) ^ u64::from(byte));
        Rng::seeded(seed).chance(self.0.moods.kill)
    }

    fn draw(&self) -> (Mood, Duration, Duration) {
        let mut rng = self.0.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pause = |most_us: u64| Duration::from_micros(rng.below(most_us));
        let (before, after) = (pause(4000), pause(2000));
        if self.0.healed.load(Relaxed) {
            return (Mood::Well, before, after);
        }
        let moods = self.0.moods;
        let all = [
            (moods.fail, Mood::Fail),
            (moods.panic, Mood::Panic),
            (moods.reject, Mood::Reject),
            (moods.defer, Mood::Defer),
            (moods.unavailable, Mood::Unavailable),
            (moods.unknown, Mood::Unknown),
            (moods.hang, Mood::Hang),
        ];
        let mut point = rng.next_f64();
        for (rate, mood) in all {
            if point < rate {
                let long = Duration::from_millis(500 + rng.below(5000));
                return (mood, before, if matches!(mood, Mood::Hang) { long } else { after });
            }
            point -= rate;
        }
        (Mood::Well, before, after)
    }
}
