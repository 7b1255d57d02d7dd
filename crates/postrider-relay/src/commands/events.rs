//! `postrider events`: what was written, and where it is.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use clap::Args as ClapArgs;
use postrider::{Payload, Timestamp, store::ListedEvent};
use serde_json::{Map, Value, json};

use super::{
    shelves::{Followed, View, Wanted, word},
    target::Target,
    which::Which,
};
use crate::{
    Verdict,
    failure::Failure,
    signal::Ending,
    terminal::{Terminal, complain, plain, table},
};

/// How often is looked for more.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// List events, the newest last.
///
/// Of those that are delivered, the ones that are kept. Payloads are business data, and are not shown unless they are asked for.
#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Go on with those that come, and with what becomes of them, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Most of them
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 50)]
    limit: usize,
    /// Only those in this state
    #[arg(long, value_enum)]
    status: Option<Wanted>,
    #[command(flatten)]
    which: Which,
    /// Show payloads too
    #[arg(long)]
    payload: bool,
    /// A JSON object a line, for programs
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<Verdict, Failure> {
    let terminal = Terminal::new(args.json);
    let outbox = args.target.one().await?;
    let view = View { store: &*outbox.store, which: args.which, status: args.status, payloads: args.payload };
    // Before the list is read: what comes meanwhile is told twice rather than not at all.
    let followed = if args.follow { Some(Followed::begin(&view).await?) } else { None };
    let events = view.newest(args.limit).await?;
    match followed {
        None => show_all(terminal, &events),
        Some(followed) => {
            events.iter().for_each(|event| show_line(terminal, event));
            follow(terminal, &view, followed).await?;
        }
    }
    Ok(Verdict::Good)
}

async fn follow(terminal: Terminal, view: &View<'_>, mut followed: Followed) -> Result<(), Failure> {
    let ending = Ending::listen()?;
    let mut away = false;
    loop {
        tokio::select! {
            biased;
            () = ending.asked() => return Ok(()),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        match followed.news(view).await {
            Ok(news) => {
                away = false;
                news.iter().for_each(|event| show_line(terminal, event));
            }
            // Whoever follows wants to see what comes when the database is back.
            Err(error) => {
                if !std::mem::replace(&mut away, true) {
                    complain(&Failure::from(error));
                }
            }
        }
    }
}

fn show_all(terminal: Terminal, events: &[ListedEvent]) {
    for event in events {
        terminal.answer(object(event));
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
    terminal.say(rows);
}

/// One event that came, in columns of a fixed width: nobody knows how wide those to come will be.
fn show_line(terminal: Terminal, event: &ListedEvent) {
    terminal.answer(object(event));
    if !terminal.is_for_programs() {
        let [id, event_type, key, status, attempts, age, payload] = cells(event);
        terminal.say(
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
        word(&event.status).to_owned(),
        event.attempts.to_string(),
        age(event.created_at),
        payload.unwrap_or_default(),
    ]
}

/// How long ago, in whole seconds. Where a table does not say when an event was written, nobody knows.
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
        ("status".to_owned(), json!(word(&event.status))),
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
