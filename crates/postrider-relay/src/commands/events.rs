//! `postrider events`: lists events with their status, and follows changes.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use clap::Args as ClapArgs;
use postrider::{Payload, Timestamp, store::ListedEvent};
use serde_json::{Map, Value, json};

use super::{
    filter_args::FilterArgs,
    paging::{Follower, StatusFilter, View, status_name},
    target::Target,
};
use crate::{
    Conclusion,
    failure::Failure,
    signal::Ending,
    terminal::{Terminal, plain, print_error, table},
};

/// How often a follower polls.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// List events, newest last
///
/// Delivered events are listed while they are kept. Payloads are business data and are shown only with --payload.
///
/// Example: postrider events --follow --status dead
#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Keep showing new events and changed statuses until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Show at most N events
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Select events in this status
    #[arg(long, value_enum)]
    status: Option<StatusFilter>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Show payloads
    #[arg(long)]
    payload: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<Conclusion, Failure> {
    let terminal = Terminal::new(args.json);
    let outbox = args.target.one().await?;
    let view =
        View { store: &*outbox.store, filter: args.filter, status: args.status, payloads: args.payload };
    // Begin before the list is read: an event that comes meanwhile is shown twice rather than never.
    let follower = if args.follow { Some(Follower::begin(&view).await?) } else { None };
    let events = view.newest(args.limit).await?;
    match follower {
        None => show_all(terminal, &events),
        Some(follower) => {
            events.iter().for_each(|event| show_line(terminal, event));
            follow(terminal, &view, follower).await?;
        }
    }
    Ok(Conclusion::Good)
}

async fn follow(terminal: Terminal, view: &View<'_>, mut follower: Follower) -> Result<(), Failure> {
    let ending = Ending::listen()?;
    let mut away = false;
    loop {
        tokio::select! {
            biased;
            () = ending.asked() => return Ok(()),
            () = tokio::time::sleep(POLL_EVERY) => {}
        }
        match follower.changes(view).await {
            Ok(changes) => {
                away = false;
                changes.iter().for_each(|event| show_line(terminal, event));
            }
            // A follower goes on once the database is back.
            Err(error) => {
                if !std::mem::replace(&mut away, true) {
                    print_error(&Failure::from(error));
                }
            }
        }
    }
}

fn show_all(terminal: Terminal, events: &[ListedEvent]) {
    for event in events {
        terminal.print_json(object(event));
    }
    if terminal.is_for_programs() {
        return;
    }
    let mut rows = table(["id", "type", "key", "status", "attempts", "age", "payload"], &[4, 5]);
    if events.iter().all(|event| event.payload.is_none())
        && let Some(column) = rows.column_mut(6)
    {
        column.set_constraint(comfy_table::ColumnConstraint::Hidden);
    }
    for event in events {
        rows.add_row(cells(event));
    }
    terminal.print(rows);
}

/// Prints one event in columns of a fixed width, since the width of later ones is unknown.
fn show_line(terminal: Terminal, event: &ListedEvent) {
    terminal.print_json(object(event));
    if !terminal.is_for_programs() {
        let [id, event_type, key, status, attempts, age, payload] = cells(event);
        terminal.print(
            format!("{id:<36} {event_type:<24} {key:<24} {status:<8} {attempts:>3} {age:>8} {payload}")
                .trim_end(),
        );
    }
}

fn cells(event: &ListedEvent) -> [String; 7] {
    let payload = event.payload.as_ref().map(|payload| match payload {
        Payload::Text(text) => plain(text),
        Payload::Bytes(bytes) => format!("{} bytes", bytes.len()),
    });
    [
        plain(event.id.as_str()),
        plain(&event.event_type),
        plain(event.key.as_deref().unwrap_or("-")),
        status_name(&event.status).to_owned(),
        event.attempts.to_string(),
        age(event.created_at),
        payload.unwrap_or_default(),
    ]
}

/// The age in whole seconds; `-` where the table does not record when an event was written.
fn age(created_at: Timestamp) -> String {
    if created_at <= Timestamp::EPOCH {
        return "-".to_owned();
    }
    let seconds = Timestamp::now().since(created_at).as_secs();
    humantime::format_duration(Duration::from_secs(seconds))
        .to_string()
        .split(' ')
        .take(2)
        .collect::<String>()
}

fn object(event: &ListedEvent) -> Map<String, Value> {
    let mut object = Map::from_iter([
        ("id".to_owned(), json!(event.id.as_str())),
        ("event_type".to_owned(), json!(event.event_type)),
        ("key".to_owned(), json!(event.key)),
        ("status".to_owned(), json!(status_name(&event.status))),
        ("attempts".to_owned(), json!(event.attempts)),
        ("created_at".to_owned(), json!(event.created_at.to_string())),
    ]);
    match &event.payload {
        // The names are those of the lines that a file sink writes.
        Some(Payload::Text(text)) => match serde_json::from_str::<Value>(text) {
            Ok(value) => object.insert("payload".to_owned(), value),
            Err(_) => object.insert("payload_text".to_owned(), json!(&**text)),
        },
        Some(Payload::Bytes(bytes)) => {
            object.insert("payload_base64".to_owned(), json!(BASE64_STANDARD.encode(bytes)))
        }
        None => None,
    };
    object
}
