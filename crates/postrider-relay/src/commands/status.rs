//! `postrider status`: counts of events, instances, pauses and sinks that are down.

use clap::Args as ClapArgs;
use postrider::store::{Pause, Stats};
use serde_json::{Map, Value, json};

use super::{
    instances::Delivering,
    pause,
    running_relay::RunningRelay,
    target::{Named, Outbox, Target},
};
use crate::{
    Conclusion,
    failure::Failure,
    terminal::{Terminal, print_error, table},
};

/// Show how many events wait, are dead or were delivered, who delivers, what is paused, and which sinks are down
///
/// The relay that runs on this machine says which sinks are down.
#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<Conclusion, Failure> {
    let terminal = Terminal::new(args.json);
    let mut rows = table(
        ["source", "database", "pending", "waiting", "parked", "dead", "held keys", "kept", "oldest"],
        &[2, 3, 4, 5, 6, 7, 8],
    );
    let (mut answer, mut lines, mut failures) = (Map::new(), Vec::new(), Vec::new());
    for source in args.target.sources()? {
        let name = source.name.clone();
        let Found { outbox, stats, delivering, pauses, relay } = match query(source).await {
            Ok(found) => found,
            // The other sources are still shown.
            Err(failure) => {
                rows.add_row([&name, "failed; see the error"]);
                answer.insert(name, json!({ "error": failure.to_json() }));
                failures.push(failure);
                continue;
            }
        };
        let down = relay.as_ref().map(|relay| relay.down(&outbox.name)).unwrap_or_default();
        let sentences = relay.iter().flat_map(|relay| down.iter().map(|sink| relay.sentence(sink)));
        let notes =
            delivering.sentences().into_iter().chain(pauses.iter().map(pause::sentence)).chain(sentences);
        lines.extend(notes.map(|line| format!("{}: {line}", outbox.name)));
        let oldest = stats
            .oldest
            .map_or_else(|| "-".to_owned(), |age| humantime::format_duration(round(age)).to_string());
        let numbers = [stats.pending, stats.waiting, stats.parked, stats.dead, stats.held_keys, stats.done];
        let mut row = vec![outbox.name.clone(), outbox.what.clone()];
        row.extend(numbers.map(|number| number.to_string()));
        row.push(oldest);
        rows.add_row(row);
        let down = relay.is_some().then_some(down);
        answer.insert(outbox.name, of(&outbox.what, &stats, (&delivering, &pauses, down)));
    }
    terminal.print(rows);
    lines.iter().for_each(|line| terminal.print(line));
    terminal.print_json(answer);
    let last = failures.pop();
    failures.iter().for_each(print_error);
    last.map_or(Ok(Conclusion::Good), Err)
}

/// The status of one outbox.
struct Found {
    outbox: Outbox,
    stats: Stats,
    delivering: Delivering,
    pauses: Vec<Pause>,
    relay: Option<RunningRelay>,
}

async fn query(source: Named) -> Result<Found, Failure> {
    let outbox = source.connect().await?;
    let of = |failure: Failure| failure.of(&format!("the source `{}`", outbox.name));
    let stats = outbox.store.stats().await.map_err(|error| of(error.into()))?;
    let delivering = Delivering::of(&outbox).await.map_err(of)?;
    let pauses = pause::pauses(&outbox).await.map_err(of)?;
    let relay = match &outbox.configured {
        Some(configured) => RunningRelay::of(&configured.config).await,
        None => None,
    };
    Ok(Found { outbox, stats, delivering, pauses, relay })
}

/// The status as JSON. `down` is `None` if no relay answers.
fn of(
    what: &str,
    stats: &Stats,
    (delivering, pauses, down): (&Delivering, &[Pause], Option<&[String]>),
) -> Value {
    json!({
        "database": what,
        "pending": stats.pending,
        "waiting": stats.waiting,
        "parked": stats.parked,
        "dead": stats.dead,
        "held_keys": stats.held_keys,
        "done": stats.done,
        "oldest_ms": stats.oldest.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        "instances": delivering.to_json(),
        "pauses": pauses.iter().map(pause::of).collect::<Vec<_>>(),
        "sinks_down": down,
    })
}

/// Cuts off what is less than a millisecond.
fn round(age: std::time::Duration) -> std::time::Duration {
    std::time::Duration::from_millis(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}
