//! An operator who pauses and resumes: a type, a key, a sink, or everything.

use std::{sync::Arc, time::Duration};

use postrider_core::{Store, rng::Rng, store::Subject};
use postrider_engine::memory::MemoryStore;
use tokio::{task::JoinHandle, time::Instant};

use super::{
    history::{Happening, History},
    receiver::To,
    scenario::Scenario,
};

/// One pause.
#[derive(Debug, Clone)]
pub(super) struct Break {
    pub(super) subject: Subject,
    /// From the beginning of the run.
    from: Duration,
    to: Duration,
}

impl Break {
    pub(super) fn draw(rng: &mut Rng, keys: u64) -> Self {
        let subject = match rng.below(9) {
            0 => Subject::Source,
            1 | 2 => Subject::key(format!("key-{}", rng.below(keys))),
            3 | 4 => Subject::sink(pick(rng, &To::ALL).map_or("", To::name)),
            // Two types, of which one alone may be meant, go to one receiver.
            5 => Subject::event_type("Shared*"),
            _ => Subject::event_type(pick(rng, &To::TYPES).map_or("", |(event_type, _)| event_type)),
        };
        let from = Duration::from_millis(rng.below(2000));
        let lasts = 50 + if rng.chance(0.5) { rng.below(1500) } else { rng.below(8000) };
        Self { subject, from, to: from + Duration::from_millis(lasts) }
    }

    /// A long pause of one sink, where nothing else goes wrong.
    pub(super) fn long(rng: &mut Rng, to: To) -> Self {
        let from = Duration::from_millis(rng.below(300));
        let lasts = Duration::from_millis(12_000 + rng.below(18_000));
        Self { subject: Subject::sink(to.name()), from, to: from + lasts }
    }
}

fn pick<T: Copy>(rng: &mut Rng, all: &[T]) -> Option<T> {
    all.get(rng.below(all.len() as u64) as usize).copied()
}

/// Pauses and resumes as the scenario says. What one pause ends, another may have begun: the last word counts.
pub(super) fn start(scenario: &Scenario, store: &MemoryStore, history: &Arc<History>) -> Vec<JoinHandle<()>> {
    let began = Instant::now();
    let operate = |each: &Break| {
        let (each, store, history) = (each.clone(), store.clone(), history.clone());
        tokio::spawn(async move {
            tokio::time::sleep_until(began + each.from).await;
            if store.pause(&each.subject, "").await.is_ok_and(|paused| paused.new) {
                history.note(Happening::Paused(each.subject.clone()));
            }
            tokio::time::sleep_until(began + each.to).await;
            // Noted first: an engine of this process is not asked, but it could look at once.
            history.note(Happening::Resumed(each.subject.clone()));
            let _ = store.resume(&each.subject).await;
        })
    };
    scenario.breaks.iter().map(operate).collect()
}
