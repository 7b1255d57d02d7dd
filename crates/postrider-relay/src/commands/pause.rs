//! `postrider pause` and `postrider resume`: stop and restart the delivery of some events on every instance.

use clap::Args as ClapArgs;
use postrider::store::{Pause, Subject};
use serde_json::{Map, Value, json};

use super::target::{Outbox, Target};
use crate::{
    Conclusion,
    failure::Failure,
    terminal::{Terminal, plain},
};

/// Pause a type, a key, a sink or a whole source on every instance until it is resumed
///
/// Example: postrider pause --sink orders --reason "receiver is being upgraded"
#[derive(ClapArgs)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    what: What,
    /// The reason, which `status` and `why` show
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    reason: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Resume what was paused; its events are delivered in their order
///
/// Example: postrider resume --sink orders
#[derive(ClapArgs)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    what: What,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(ClapArgs)]
#[group(id = "what", required = true, multiple = false)]
struct What {
    /// Events of this type; * matches any text
    #[arg(long = "type", value_name = "PATTERN")]
    event_type: Option<String>,
    /// Events of this key, such as Order:42
    #[arg(long)]
    key: Option<String>,
    /// Events that go to this sink of the configuration
    #[arg(long, value_name = "NAME")]
    sink: Option<String>,
    /// All events of the source
    #[arg(long)]
    all: bool,
}

impl What {
    /// The subject that the arguments name. An invalid name, and a sink that no route goes to, are usage errors.
    fn subject(&self, outbox: &Outbox) -> Result<Subject, Failure> {
        let subject = match self {
            Self { event_type: Some(pattern), .. } => Subject::event_type(pattern.as_str()),
            Self { key: Some(key), .. } => Subject::key(key),
            Self { sink: Some(name), .. } => Subject::sink(name),
            Self { .. } => Subject::Source,
        };
        subject.check().map_err(postrider::Error::from)?;
        // Without a configuration the sinks are unknown.
        if let Subject::Sink(name) = &subject
            && !outbox.sinks.is_empty()
            && !outbox.sinks.contains(name)
        {
            let known: Vec<_> = outbox.sinks.iter().map(String::as_str).collect();
            return Err(Failure::usage(format!(
                "no route of the source `{}` goes to the sink {name:?}",
                outbox.name
            ))
            .hint(format!("its routes go to these sinks: {}", known.join(", "))));
        }
        Ok(subject)
    }
}

pub(crate) async fn pause(args: PauseArgs) -> Result<Conclusion, Failure> {
    let terminal = Terminal::new(args.json);
    let outbox = args.target.one().await?;
    let subject = args.what.subject(&outbox)?;
    let paused = outbox.store.pause(&subject, &args.reason).await?;
    terminal.print(if paused.new {
        format!(
            "{}: {subject} is paused; every instance follows within about a second, after the sends that are under way",
            outbox.name
        )
    } else {
        format!("{}: {} already", outbox.name, sentence(&paused.pause))
    });
    terminal.print_json(answer(&outbox, [("new", json!(paused.new)), ("pause", of(&paused.pause))]));
    Ok(Conclusion::Good)
}

pub(crate) async fn resume(args: ResumeArgs) -> Result<Conclusion, Failure> {
    let terminal = Terminal::new(args.json);
    let outbox = args.target.one().await?;
    let subject = args.what.subject(&outbox)?;
    let mut ended = outbox.store.resume(&subject).await?;
    let mut released = None;
    if let Subject::Sink(name) = &subject {
        released = release_brake(&outbox, name).await?;
    }
    match (&ended, &released) {
        (None, None) => terminal.print(format!("{}: {subject} was not paused", outbox.name)),
        (Some(pause), _) => {
            terminal
                .print(format!("{}: {subject} is resumed; it was paused since {}", outbox.name, pause.since));
        }
        (None, Some(_)) => {}
    }
    if released.is_some() {
        terminal.print(format!(
            "{}: for an hour, events that {subject} rejects become dead letters",
            outbox.name
        ));
    }
    ended = ended.or(released);
    let was = ended.as_ref().map_or(Value::Null, of);
    terminal.print_json(answer(&outbox, [("resumed", json!(ended.is_some())), ("pause", was)]));
    Ok(Conclusion::Good)
}

/// Releases the brake for an hour if the sink rejects everything and its events wait because of that.
async fn release_brake(outbox: &Outbox, sink: &str) -> Result<Option<Pause>, Failure> {
    let rejected = Subject::Rejected(sink.to_owned());
    if !pauses(outbox).await?.iter().any(|pause| pause.subject == rejected) {
        return Ok(None);
    }
    // In this order: an instance that found neither would report the sink again.
    outbox.store.pause(&Subject::Brake(sink.to_owned()), "postrider resume").await?;
    Ok(outbox.store.resume(&rejected).await?)
}

fn answer(outbox: &Outbox, fields: [(&str, Value); 2]) -> Map<String, Value> {
    let source = ("source".to_owned(), json!(outbox.name));
    std::iter::once(source).chain(fields.map(|(name, value)| (name.to_owned(), value))).collect()
}

/// Describes a pause for people.
pub(super) fn sentence(pause: &Pause) -> String {
    let reason = if pause.reason.is_empty() { String::new() } else { format!(" ({})", plain(&pause.reason)) };
    let hint = hint(pause).map(|hint| format!("\n  hint: {hint}")).unwrap_or_default();
    let (subject, since) = (plain(&pause.subject.to_string()), pause.since);
    match &pause.subject {
        Subject::Rejected(name) => {
            format!("the sink {} has rejected everything since {since}{reason}{hint}", plain(name))
        }
        Subject::Brake(name) => format!(
            "the brake of the sink {} is released since {since}, for an hour: rejected events become dead letters{reason}",
            plain(name)
        ),
        _ => format!("{subject} is paused since {since}{reason}"),
    }
}

/// What an operator can do about a pause that an instance set.
fn hint(pause: &Pause) -> Option<String> {
    let Subject::Rejected(name) = &pause.subject else { return None };
    Some(format!(
        "repair the receiver and the waiting events are delivered, or let rejected events die with `postrider resume --sink {}`",
        plain(name)
    ))
}

/// What is known of a waiting event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting<'a> {
    pub(super) event_type: &'a str,
    pub(super) key: Option<&'a str>,
    /// The name of its sink; `None` without a configuration.
    pub(super) sink: Option<&'a str>,
}

/// The pauses that stop an event, and those of sinks that stop it only if it goes there. A sink that rejects everything counts as paused.
pub(super) fn apart<'a>(pauses: &'a [Pause], event: Waiting<'_>) -> (Vec<&'a Pause>, Vec<&'a Pause>) {
    let stops = |pause: &&Pause| match (&pause.subject, event.sink) {
        (Subject::Source, _) => true,
        (Subject::Type(pattern), _) => pattern.matches(event.event_type),
        (Subject::Key(key), _) => event.key == Some(key),
        (Subject::Sink(name) | Subject::Rejected(name), Some(sink)) => name == sink,
        (Subject::Sink(_) | Subject::Rejected(_), None) | (Subject::Brake(_), _) => false,
    };
    let is_of_a_sink = |pause: &Pause| matches!(pause.subject, Subject::Sink(_) | Subject::Rejected(_));
    let unknown = |pause: &&Pause| event.sink.is_none() && is_of_a_sink(pause);
    (pauses.iter().filter(stops).collect(), pauses.iter().filter(unknown).collect())
}

/// A pause as JSON.
pub(super) fn of(pause: &Pause) -> Value {
    json!({
        "kind": pause.subject.kind(),
        "name": pause.subject.name(),
        "since": pause.since.to_string(),
        "reason": pause.reason,
        "hint": hint(pause),
    })
}

/// All pauses; none where the store has no room for any.
pub(super) async fn pauses(outbox: &Outbox) -> Result<Vec<Pause>, Failure> {
    match outbox.store.features().keeps.pauses {
        true => Ok(outbox.store.pauses().await?),
        false => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use postrider::Timestamp;

    use super::*;

    #[test]
    fn an_event_is_stopped_by_the_pauses_of_its_source_type_key_and_sink_and_by_no_others() {
        let pause = |subject| Pause { subject, since: Timestamp::EPOCH, reason: String::new() };
        let all = [
            Subject::Source,
            Subject::key("a"),
            Subject::key("b"),
            Subject::event_type("Order*"),
            Subject::event_type("Invoice*"),
            Subject::sink("orders"),
            Subject::sink("audit"),
            Subject::Rejected("orders".to_owned()),
            Subject::Rejected("audit".to_owned()),
            Subject::Brake("orders".to_owned()),
        ]
        .map(pause);
        let [source, key, _, of_type, _, orders, audit, rejected, rejected_audit, _] = &all;
        let event = Waiting { event_type: "OrderPlaced", key: Some("a"), sink: Some("orders") };
        assert_eq!(apart(&all, event), (vec![source, key, of_type, orders, rejected], vec![]));
        let unknown = apart(&all, Waiting { sink: None, ..event });
        assert_eq!(unknown, (vec![source, key, of_type], vec![orders, audit, rejected, rejected_audit]));
    }
}
