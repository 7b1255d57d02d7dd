//! `postrider dead`: lists, shows, redrives and discards dead letters.

use clap::{Args as ClapArgs, Subcommand};
use postrider::{
    EventId, Store,
    store::{DeadLetter, EventStatus, HoldReason, ListScope, ListedEvent, Listing},
};
use serde_json::{Map, Value, json};

use super::{
    filter_args::FilterArgs,
    target::{Outbox, Target},
};
use crate::{
    Conclusion,
    failure::Failure,
    terminal::{Terminal, count, plain, table},
};

/// Dead letters that are read or changed in one call.
const PAGE: usize = 500;

/// List dead letters, retry them, or discard them
///
/// Example: postrider dead list --type OrderPlaced; postrider dead redrive --all --type OrderPlaced
#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// List dead letters, oldest first
    List {
        #[command(flatten)]
        filter: FilterArgs,
        /// Show at most N dead letters
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Show everything that is known of one dead letter
    Show(One),
    /// Retry dead letters; their attempts are counted from 0 again
    Redrive(Chosen),
    /// Delete dead letters for good; their keys go on
    Discard {
        #[command(flatten)]
        chosen: Chosen,
        /// Delete them. Without this option, only print how many would be deleted
        #[arg(long)]
        yes: bool,
    },
}

#[derive(ClapArgs)]
#[group(id = "one", required = true, multiple = false)]
struct One {
    /// Event ID
    #[arg(value_name = "ID")]
    plain: Option<String>,
    /// Event ID, as an option
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

#[derive(ClapArgs)]
#[group(id = "chosen", required = true, multiple = true, args = ["plain", "ids", "all", "event_type", "key"])]
struct Chosen {
    /// Event IDs
    #[arg(value_name = "ID")]
    plain: Vec<String>,
    /// Event ID, as an option; can be given several times
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<String>,
    /// All dead letters that --type and --key select, or all there are
    #[arg(long, conflicts_with_all = ["plain", "ids"])]
    all: bool,
    #[command(flatten)]
    filter: FilterArgs,
}

impl Chosen {
    fn ids(&self) -> impl Iterator<Item = &String> {
        self.plain.iter().chain(&self.ids)
    }
}

pub(crate) async fn run(args: Args) -> Result<Conclusion, Failure> {
    let terminal = Terminal::new(args.json);
    let outbox = args.target.one().await?;
    match args.action {
        Action::List { filter, limit } => list(terminal, &outbox, &filter, limit).await,
        Action::Show(One { plain, id }) => show(terminal, &outbox, &plain.or(id).unwrap_or_default()).await,
        Action::Redrive(chosen) => change(terminal, &outbox, &chosen, Change::Redrive).await,
        Action::Discard { chosen, yes: true } => change(terminal, &outbox, &chosen, Change::Discard).await,
        Action::Discard { chosen, yes: false } => {
            let number = selected(&*outbox.store, &chosen).await?.len() as u64;
            let letters = count(number, "dead letter");
            terminal.print(format!("{letters} would be deleted for good; add --yes to delete"));
            terminal.print_json(answer("would_discard", number));
            Ok(Conclusion::Good)
        }
    }
}

async fn list(
    terminal: Terminal,
    outbox: &Outbox,
    filter: &FilterArgs,
    limit: usize,
) -> Result<Conclusion, Failure> {
    let letters = letters(&*outbox.store, filter, limit).await?;
    let mut rows = table(["id", "type", "key", "attempts", "blocks", "dead since", "error"], &[3]);
    for letter in &letters {
        rows.add_row([
            plain(letter.id.as_str()),
            plain(&letter.event_type),
            plain(letter.key.as_deref().unwrap_or("-")),
            letter.attempts.to_string(),
            if letter.blocks { "its key" } else { "-" }.to_owned(),
            letter.died_at.map_or_else(|| "-".to_owned(), |died_at| died_at.to_string()),
            cut(&letter.error),
        ]);
    }
    terminal.print(rows);
    let list = letters.iter().map(of).collect();
    terminal.print_json(Map::from_iter([("dead".to_owned(), Value::Array(list))]));
    Ok(Conclusion::Good)
}

async fn show(terminal: Terminal, outbox: &Outbox, id: &str) -> Result<Conclusion, Failure> {
    let Some(letter) = one(&*outbox.store, id).await? else {
        return Err(Failure::bad(format!("the event {id} is not dead"))
            .hint(format!("`postrider why --id {id}` shows where it is")));
    };
    let mut rows = table(["", ""], &[]);
    let Value::Object(mut fields) = of(&letter) else { return Ok(Conclusion::Good) };
    if !outbox.store.features().keeps.places {
        // There it is a position in the list, which this command has not counted.
        fields.remove("seq");
    }
    for (name, value) in &fields {
        rows.add_row([name.clone(), value.as_str().map_or_else(|| value.to_string(), plain)]);
    }
    terminal.print(rows);
    terminal.print_json(fields);
    Ok(Conclusion::Good)
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Redrive,
    Discard,
}

async fn change(
    terminal: Terminal,
    outbox: &Outbox,
    chosen: &Chosen,
    change: Change,
) -> Result<Conclusion, Failure> {
    let ids = selected(&*outbox.store, chosen).await?;
    let missing = chosen.ids().filter(|id| !ids.iter().any(|found| found.as_str() == id.as_str()));
    let missing: Vec<_> = missing.cloned().collect();
    let progress = terminal.progress(ids.len() as u64);
    let mut changed = 0;
    for ids in ids.chunks(PAGE) {
        changed += match change {
            Change::Redrive => outbox.store.redrive(ids).await?,
            Change::Discard => outbox.store.discard(ids).await?,
        };
        progress.inc(ids.len() as u64);
    }
    progress.finish_and_clear();
    outbox.store.notify_others();
    let word = match change {
        Change::Redrive => "redriven",
        Change::Discard => "discarded",
    };
    terminal.print(format!("{} {word}", count(changed, "dead letter")));
    terminal.print_json(answer(word, changed));
    if !missing.is_empty() {
        return Err(Failure::bad(format!("these events are not dead: {}", missing.join(", "))));
    }
    Ok(Conclusion::Good)
}

/// The IDs of the dead letters that the arguments select. Those that are named are looked up by ID, however many letters there are.
async fn selected(store: &dyn Store, chosen: &Chosen) -> Result<Vec<EventId>, Failure> {
    if chosen.ids().next().is_none() {
        let letters = letters(store, &chosen.filter, usize::MAX).await?;
        return Ok(letters.into_iter().map(|letter| letter.id).collect());
    }
    let mut ids = Vec::new();
    for id in chosen.ids() {
        let fits = |event: &ListedEvent| chosen.filter.matches(&event.event_type, event.key.as_deref());
        ids.extend(find(store, id).await?.filter(fits).map(|event| event.id));
    }
    Ok(ids)
}

/// Looks up a dead event by its ID.
async fn find(store: &dyn Store, id: &str) -> Result<Option<ListedEvent>, Failure> {
    let one = Listing { id: Some(id.into()), ..Listing::newest(ListScope::Dead, 1) };
    Ok(store.list(&one).await?.pop())
}

/// Looks up a dead letter by its ID.
async fn one(store: &dyn Store, id: &str) -> Result<Option<DeadLetter>, Failure> {
    let Some(event) = find(store, id).await? else { return Ok(None) };
    let seq = event.cursor.seq;
    let hold = match &event.key {
        Some(key) => store.why(key).await?,
        None => None,
    };
    let EventStatus::Dead { attempts, error } = event.status else { return Ok(None) };
    Ok(Some(DeadLetter {
        seq,
        id: event.id,
        event_type: event.event_type,
        key: event.key,
        attempts,
        error,
        blocks: hold.is_some_and(|hold| hold.seq == seq && hold.reason == HoldReason::Dead),
        created_at: event.created_at,
        died_at: event.died_at,
    }))
}

/// The dead letters that the filter selects, oldest first.
async fn letters(store: &dyn Store, filter: &FilterArgs, limit: usize) -> Result<Vec<DeadLetter>, Failure> {
    let wanted = |letter: &DeadLetter| filter.matches(&letter.event_type, letter.key.as_deref());
    let (mut found, mut after) = (Vec::new(), 0);
    loop {
        let page = store.dead(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = last.seq;
        for letter in page.into_iter().filter(wanted) {
            found.push(letter);
            if found.len() >= limit {
                return Ok(found);
            }
        }
    }
}

fn of(letter: &DeadLetter) -> Value {
    json!({
        "id": letter.id.as_str(),
        "event_type": letter.event_type,
        "key": letter.key,
        "attempts": letter.attempts,
        "error": letter.error,
        "blocks": letter.blocks,
        "created_at": letter.created_at.to_string(),
        "died_at": letter.died_at.map(|died_at| died_at.to_string()),
        "seq": letter.seq,
    })
}

fn answer(word: &str, count: u64) -> Map<String, Value> {
    Map::from_iter([(word.to_owned(), json!(count))])
}

/// The first line of an error, shortened for a table.
fn cut(error: &str) -> String {
    const CHARS_MAX: usize = 80;
    let line = plain(error.lines().next().unwrap_or_default());
    match line.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
