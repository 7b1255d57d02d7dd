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
    history::{Happening, History},
    scenario::Moods,
};

type Answer = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// One outside system, which outlives every engine.
#[derive(Clone)]
pub(super) struct Receiver(Arc<Inner>);

struct Inner {
    rng: Mutex<Rng>,
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
    pub(super) fn new(rng: Rng, moods: Moods, history: Arc<History>) -> Self {
        Self(Arc::new(Inner { rng: Mutex::new(rng), moods, healed: AtomicBool::new(false), history }))
    }

    /// Takes everything from now on.
    pub(super) fn heal(&self) {
        self.0.healed.store(true, Relaxed);
    }

    pub(super) fn handler(&self) -> impl Fn(Delivery) -> Answer + Send + Sync + 'static {
        let this = self.clone();
        move |delivery| Box::pin(this.clone().receive(delivery))
    }

    async fn receive(self, delivery: Delivery) -> Outcome {
        let id = delivery.id().clone();
        let (mood, before, after) = self.draw();
        self.0.history.note(Happening::Called { id: id.clone(), attempt: delivery.attempt });
        tokio::time::sleep(before).await;
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
        self.0.history.note(Happening::Answered { id, outcome: word });
        if matches!(mood, Mood::Panic) {
            // As a panic, but without the message on the screen.
            std::panic::resume_unwind(Box::new("in a bad mood"));
        }
        outcome
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
