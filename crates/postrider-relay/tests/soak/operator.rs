//! The operator: looks at dead letters, notes them, and uses the commands that operators have.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::{
    Failure,
    board::Mode,
    ledger::{Dead, Number, Release},
    stage::Stage,
    time::pass,
    writers::id,
};

const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Most dead letters that one command is about.
const AT_ONCE: usize = 100;

const DEAD: &str =
    "SELECT event_id, attempts, coalesce(last_error, '') FROM postrider_event WHERE status = 3 ORDER BY seq";

/// Looks until it is told to stop.
pub(crate) async fn look_after(stage: Arc<Stage>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Err(error) = look(&stage).await {
            let shared = &stage.shared;
            shared.history.note(shared.clock.now(), format_args!("operator: {error}"));
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = pass(LOOK_EVERY) => {}
        }
    }
}

/// Notes what is dead. Discards what can never be delivered, and redrives the rest once its receiver takes events again.
async fn look(stage: &Stage) -> Result<(), Failure> {
    let shared = &stage.shared;
    let rows: Vec<(String, i32, String)> = sqlx::query_as(DEAD).fetch_all(&stage.database.pool).await?;
    let (mut hopeless, mut hopeful) = (Vec::new(), Vec::new());
    for (event_id, attempts, error) in rows {
        let number: Number = event_id.strip_prefix('e').ok_or("a foreign id")?.parse()?;
        let at = shared.clock.now();
        if shared.ledger.dead(Dead { number, at, attempts, error: error.clone() }) {
            shared.history.note(at, format_args!("e{number} is dead after {attempts}: {error}"));
        }
        let book = shared.ledger.lock();
        let Some(event) = book.event(number) else { continue };
        let rejects = shared.board.mode(event.destination) == Mode::Rejects;
        if event.poisoned {
            hopeless.push(number);
        } else if !rejects {
            hopeful.push(number);
        }
    }
    release(stage, &["dead", "discard", "--yes"], &hopeless, Release::Discarded).await?;
    release(stage, &["dead", "redrive"], &hopeful, Release::Redriven).await
}

async fn release(
    stage: &Stage,
    command: &[&str],
    numbers: &[Number],
    release: Release,
) -> Result<(), Failure> {
    for numbers in numbers.chunks(AT_ONCE) {
        let ids: Vec<String> = numbers.iter().map(|number| id(*number)).collect();
        let arguments: Vec<&str> = command.iter().copied().chain(ids.iter().map(String::as_str)).collect();
        let at = stage.shared.clock.now();
        stage.relays.operate(&arguments).await?;
        numbers.iter().for_each(|number| stage.shared.ledger.released(*number, release, at));
        stage.shared.history.note(at, format_args!("{release:?}: {}", ids.join(" ")));
    }
    Ok(())
}
