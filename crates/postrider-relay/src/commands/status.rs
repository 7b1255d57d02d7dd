//! `postrider status`: how much of everything there is.

use clap::Args as ClapArgs;
use postrider::store::{Pause, Stats};
use serde_json::{Map, Value, json};

use super::{pause, target::Target};
use crate::{
    Verdict,
    failure::Failure,
    terminal::{Terminal, table},
};

/// Say how much waits, is dead and was delivered, and what is paused.
#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// One JSON object for programs
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<Verdict, Failure> {
    let terminal = Terminal::new(args.json);
    let mut rows = table(
        ["source", "database", "pending", "waiting", "parked", "dead", "held keys", "kept", "oldest"],
        &[2, 3, 4, 5, 6, 7, 8],
    );
    let (mut answer, mut paused) = (Map::new(), Vec::new());
    for outbox in args.target.all().await? {
        let stats = outbox.store.stats().await?;
        let pauses = pause::pauses(&outbox).await?;
        paused.extend(pauses.iter().map(|pause| format!("{}: {}", outbox.name, pause::sentence(pause))));
        let oldest = stats
            .oldest
            .map_or_else(|| "-".to_owned(), |age| humantime::format_duration(round(age)).to_string());
        let numbers = [stats.pending, stats.waiting, stats.parked, stats.dead, stats.held_keys, stats.done];
        let mut row = vec![outbox.name.clone(), outbox.what.clone()];
        row.extend(numbers.map(|number| number.to_string()));
        row.push(oldest);
        rows.add_row(row);
        answer.insert(outbox.name, of(&outbox.what, &stats, &pauses));
    }
    terminal.say(rows);
    paused.iter().for_each(|line| terminal.say(line));
    terminal.answer(answer);
    Ok(Verdict::Good)
}

fn of(what: &str, stats: &Stats, pauses: &[Pause]) -> Value {
    json!({
        "database": what,
        "pending": stats.pending,
        "waiting": stats.waiting,
        "parked": stats.parked,
        "dead": stats.dead,
        "held_keys": stats.held_keys,
        "done": stats.done,
        "oldest_ms": stats.oldest.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        "pauses": pauses.iter().map(pause::of).collect::<Vec<_>>(),
    })
}

/// Nobody reads nanoseconds.
fn round(age: std::time::Duration) -> std::time::Duration {
    std::time::Duration::from_millis(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}
