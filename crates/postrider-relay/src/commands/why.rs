//! `postrider why`: explains what an event or a key waits for.
//!
//! The table tells where the event is, who delivers and what is paused; the configuration tells where the event goes. Only a running relay
//! knows whether it believes the sink to be down, so this command asks the relay of the configuration, and the sink itself.

use clap::Args as ClapArgs;
use postrider::{
    EventId,
    store::{EventStatus, Hold, ListCursor, ListFrom, ListScope, ListedEvent, Listing, Pause},
};
use serde_json::{Map, Value, json};

use super::{
    explain::{self, Explanation},
    health::Answer,
    instances::Delivering,
    pause::{self, Waiting},
    running_relay::RunningRelay,
    target::{Configured, Outbox, Target},
};
use crate::{
    Conclusion,
    failure::Failure,
    relay,
    terminal::{Terminal, plain},
};

/// Events of a key that one page of the search for a pending one reads.
const PAGE: usize = 20;

/// Explain what an event or a key waits for
///
/// With a configuration, this command also asks the relay that runs on this machine whether the event's sink is down, and checks the sink's
/// health as `check --connect` does.
///
/// Example: postrider why --key Order:42
#[derive(ClapArgs)]
#[group(id = "about", required = true, multiple = false, args = ["id", "key"])]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Event ID
    #[arg(long)]
    id: Option<String>,
    /// A key, such as Order:42
    #[arg(long)]
    key: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<Conclusion, Failure> {
    let terminal = Terminal::new(args.json);
    let outbox = args.target.one().await?;
    let (Explanation { sentence, mut answer }, event) = match (&args.id, &args.key) {
        (Some(id), _) => {
            let event = by_id(&outbox, &EventId::from(id.as_str())).await?;
            (explain::of_event(id, event.as_ref()), event)
        }
        (None, Some(key)) => {
            let hold = outbox.store.why(key).await?;
            let event = head(&outbox, key, hold.as_ref()).await?;
            (explain::of_key(key, hold.as_ref(), event.as_ref()), event)
        }
        (None, None) => return Err(Failure::usage("name an event with --id, or a key with --key")),
    };
    terminal.print(sentence);
    if let Some(event) = &event {
        answer.insert("event_type".to_owned(), json!(event.event_type));
        answer.insert("key".to_owned(), json!(event.key));
        // Delivered and dead events are not sent.
        if explain::is_pending(&event.status) {
            surroundings(terminal, &outbox, event, &mut answer).await?;
        }
    }
    terminal.print_json(answer);
    Ok(Conclusion::Good)
}

/// Looks up an event by its ID in every list.
async fn by_id(outbox: &Outbox, id: &EventId) -> postrider::Result<Option<ListedEvent>> {
    // In this order: an event that is delivered between the two queries is found by the second.
    for scope in [ListScope::Undelivered, ListScope::Delivered] {
        let listing = Listing { id: Some(id.clone()), ..Listing::newest(scope, 1) };
        if let Some(event) = outbox.store.list(&listing).await?.pop() {
            return Ok(Some(event));
        }
    }
    Ok(None)
}

/// The event that a held key waits for; for a key that is not held, its first pending event.
async fn head(outbox: &Outbox, key: &str, hold: Option<&Hold>) -> postrider::Result<Option<ListedEvent>> {
    let before = hold.map_or(0, |hold| hold.seq.saturating_sub(1));
    let limit = if hold.is_some() { 1 } else { PAGE };
    let mut from = ListCursor { seq: before, ..ListCursor::default() };
    loop {
        let newest = Listing::newest(ListScope::Undelivered, limit);
        let listing = Listing { from: ListFrom::After(from), key: Some(key.to_owned()), ..newest };
        let page = outbox.store.list(&listing).await?;
        if let Some(hold) = hold {
            return Ok(page.into_iter().find(|event| event.cursor.seq == hold.seq));
        }
        let Some(last) = page.last().map(|last| last.cursor.clone()) else { return Ok(None) };
        if let Some(event) = page.into_iter().find(|event| !matches!(event.status, EventStatus::Dead { .. }))
        {
            return Ok(Some(event));
        }
        from = last;
    }
}

/// Describes what a pending event waits for besides its own status: an instance, a pause, or its sink.
async fn surroundings(
    terminal: Terminal,
    outbox: &Outbox,
    event: &ListedEvent,
    answer: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let way = Way::of(outbox, event);
    let key = event.key.as_ref().map(|key| format!(", key {}", plain(key))).unwrap_or_default();
    terminal.print(format!("  type {}{key}{}", plain(&event.event_type), way.describe()));
    let delivering = Delivering::of(outbox).await?;
    if let Some(hindrance) = delivering.hindrance() {
        terminal.print(format!("  waits: {hindrance}"));
    }
    answer.insert("instances".to_owned(), delivering.to_json());
    let pauses = pause::pauses(outbox).await?;
    let waiting = Waiting { event_type: &event.event_type, key: event.key.as_deref(), sink: way.sink() };
    let (stop, may_stop) = pause::apart(&pauses, waiting);
    stop.iter().for_each(|pause| terminal.print(format!("  waits: {}", pause::sentence(pause))));
    for pause in &may_stop {
        terminal.print(format!(
            "  also waits if it goes there, which only a configuration can tell: {}",
            pause::sentence(pause)
        ));
    }
    let list = |pauses: Vec<&Pause>| Value::Array(pauses.into_iter().map(pause::of).collect());
    answer.insert("paused".to_owned(), list(stop));
    answer.insert("may_be_paused".to_owned(), list(may_stop));
    answer.insert("sink".to_owned(), way.ask(terminal, outbox).await);
    Ok(())
}

/// Where an event goes.
enum Way<'a> {
    /// Unknown without a configuration.
    Unknown,
    NoRoute,
    /// To this sink, but something is disabled.
    Off {
        sink: &'a str,
        what: &'static str,
    },
    To {
        sink: &'a str,
        configured: &'a Configured,
    },
}

impl<'a> Way<'a> {
    fn of(outbox: &'a Outbox, event: &ListedEvent) -> Self {
        let Some(configured) = &outbox.configured else { return Self::Unknown };
        let routes = &configured.source.routes;
        let Some(route) = relay::winner(routes, &event.event_type, &event.aggregate_type) else {
            return Self::NoRoute;
        };
        let sink = route.sink.value.as_str();
        if !route.enabled {
            return Self::Off { sink, what: "its route" };
        }
        match configured.config.sinks.get(sink).is_some_and(|sink| sink.enabled) {
            true => Self::To { sink, configured },
            false => Self::Off { sink, what: "that sink" },
        }
    }

    fn sink(&self) -> Option<&'a str> {
        match self {
            Self::Unknown => None,
            // It goes to no sink, so pauses of sinks do not stop it.
            Self::NoRoute => Some(""),
            Self::Off { sink, .. } | Self::To { sink, .. } => Some(sink),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Unknown => String::new(),
            Self::NoRoute => "; no route matches it: it becomes a dead letter when its turn comes".to_owned(),
            Self::Off { sink, what } => {
                format!(", to sink `{sink}`\n  waits: the configuration disables {what}")
            }
            Self::To { sink, .. } => format!(", to sink `{sink}`"),
        }
    }

    /// Asks the running relay and the sink itself how the sink is, and prints the answers.
    async fn ask(&self, terminal: Terminal, outbox: &Outbox) -> Value {
        let Self::To { sink: name, configured } = self else {
            return self
                .sink()
                .filter(|name| !name.is_empty())
                .map_or(Value::Null, |name| json!({ "name": name }));
        };
        let Configured { config, source } = configured;
        let running = RunningRelay::of(config).await;
        let is_down =
            running.as_ref().map(|running| running.down(&outbox.name).iter().any(|down| down == name));
        if let Some(running) = running.filter(|_| is_down == Some(true)) {
            terminal.print(format!("  waits: {}", running.sentence(name)));
        }
        let plan = relay::Instruments::idle()
            .and_then(|instruments| relay::plan(config, &outbox.name, source, &instruments));
        let sink = plan.as_ref().map(|plan| plan.sinks.iter().find(|(known, _)| known == name));
        let answer = match sink {
            Ok(Some((_, sink))) => Answer::of(sink).await,
            Ok(None) => Answer::CannotBeAsked,
            Err(failure) => Answer::NotWell(failure.to_string()),
        };
        terminal.print(match &answer {
            Answer::Well => format!("  sink `{name}` passed its health check just now"),
            Answer::CannotBeAsked => format!("  sink `{name}` has no health check"),
            Answer::NotWell(error) => {
                format!("  sink `{name}` failed its health check just now: {}", plain(error))
            }
        });
        json!({ "name": name, "well": answer.is_well(), "answer": answer.describe(), "relay_takes_it_for_down": is_down })
    }
}
