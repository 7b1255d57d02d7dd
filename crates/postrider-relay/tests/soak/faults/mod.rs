//! What goes wrong. Six hands do it at the same time, each one thing after the other, and each undoes what it did.
//!
//! Their pauses leave every destination alone for more than a minute now and then: only what has a clear way can come late.

mod database;
mod operators;
mod receivers;
mod relays;

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use crate::{Failure, rng::Rng, stage::Stage};

/// How long everything is well at first.
const QUIET: Duration = Duration::from_secs(5);

/// Starts all hands. They end when calm is asked for.
pub(crate) fn start(stage: &Arc<Stage>, seed: u64) -> JoinSet<()> {
    let mut hands = JoinSet::new();
    macro_rules! hand {
        ($name:literal, $pause:expr, $fault:path) => {{
            let (stage, mut rng) = (Arc::clone(stage), Rng::of_part(seed, $name));
            hands.spawn(async move {
                let mut pause = QUIET;
                while stage.hold(pause).await {
                    note(&stage, $name, $fault(&stage, &mut rng).await);
                    pause = rng.seconds($pause.0, $pause.1);
                }
            });
        }};
    }
    hand!("relays", (3, 12), relays::fault);
    hand!("database", (2, 10), database::fault);
    hand!("webhooks", (2, 10), receivers::webhook_fault);
    hand!("batches", (20, 140), receivers::batch_fault);
    hand!("feed", (20, 140), receivers::feed_fault);
    hand!("operators", (15, 60), operators::fault);
    hands
}

/// A fault that could not be done or undone is no fault of the relays.
fn note(stage: &Stage, hand: &str, done: Result<(), Failure>) {
    if let Err(error) = done {
        stage.shared.history.note(stage.shared.clock.now(), format_args!("{hand}: {error}"));
    }
}
