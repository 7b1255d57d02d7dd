//! `postrider why`: what an event or a key waits for.

use clap::Args as ClapArgs;
use postrider::{
    EventId,
    store::{EventStatus, Hold, Pause, Subject},
};
use serde_json::{Map, Value, json};

use super::{pause, target::Target};
use crate::{Verdict, failure::Failure, terminal::Terminal};

/// Say what an event or a key waits for.
#[derive(ClapArgs)]
#[group(id = "about", required = true, multiple = false, args = ["id", "key"])]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// The id of an event
    #[arg(long)]
    id: Option<String>,
    /// A key, such as Order:42
    #[arg(long)]
    key: Option<String>,
    /// One JSON object for programs
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<Verdict, Failure> {
    let terminal = Terminal::new(args.json);
    let outbox = args.target.one().await?;
    let (sentence, mut answer) = match (&args.id, &args.key) {
        (Some(id), _) => {
            let status = outbox.store.status(&EventId::from(id.as_str())).await?;
            of_event(id, &status)
        }
        (None, Some(key)) => of_key(key, outbox.store.why(key).await?.as_ref()),
        (None, None) => return Err(Failure::usage("name an event with --id, or a key with --key")),
    };
    terminal.say(sentence);
    let pauses = pause::pauses(&outbox).await?;
    let (stop, may_stop) = apart(&pauses, args.key.as_deref());
    stop.iter().for_each(|pause| terminal.say(format!("  {}", pause::sentence(pause))));
    let may = |pause: &&Pause| format!("  it waits also if it is of this: {}", pause::sentence(pause));
    may_stop.iter().for_each(|pause| terminal.say(may(pause)));
    let list = |pauses: Vec<&Pause>| Value::Array(pauses.into_iter().map(pause::of).collect());
    answer.insert("paused".to_owned(), list(stop));
    answer.insert("may_be_paused".to_owned(), list(may_stop));
    terminal.answer(answer);
    Ok(Verdict::Good)
}

/// The pauses that certainly stop what was asked for, and those that do if it is of them: the types and sinks of events are not looked up.
fn apart<'a>(pauses: &'a [Pause], key: Option<&str>) -> (Vec<&'a Pause>, Vec<&'a Pause>) {
    let others = |pause: &&Pause| matches!((&pause.subject, key), (Subject::Key(of), Some(key)) if of != key);
    pauses.iter().filter(|pause| !others(pause)).partition(|pause| match &pause.subject {
        Subject::Source => true,
        Subject::Key(of) => key == Some(of),
        _ => false,
    })
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn of_event(id: &str, status: &EventStatus) -> (String, Map<String, Value>) {
    let (sentence, answer) = match status {
        EventStatus::Absent => (
            "is not in this outbox: never written, rolled back, or delivered and past its retention"
                .to_owned(),
            json!({ "status": "absent" }),
        ),
        EventStatus::New => ("waits for its first attempt".to_owned(), json!({ "status": "new" })),
        EventStatus::Parked => (
            "waits behind the head of its key: ask for that with --key".to_owned(),
            json!({ "status": "parked" }),
        ),
        EventStatus::Waiting { attempts, available_at, error } => (
            format!(
                "waits until {available_at}, after {attempts} attempts{}",
                error.as_ref().map(|error| format!("; the last one said: {error}")).unwrap_or_default()
            ),
            json!({ "status": "waiting", "attempts": attempts, "available_at": available_at.to_string(), "error": error }),
        ),
        EventStatus::Done { done_at } => (
            format!("was delivered at {done_at}"),
            json!({ "status": "done", "done_at": done_at.to_string() }),
        ),
        EventStatus::Dead { attempts, error } => (
            format!(
                "is dead after {attempts} attempts: {error}\n  hint: `postrider dead redrive --id {id}` tries it again"
            ),
            json!({ "status": "dead", "attempts": attempts, "error": error }),
        ),
        other => (
            format!("is in a state that this program does not know: {other:?}"),
            json!({ "status": "unknown" }),
        ),
    };
    let mut answer = object(answer);
    answer.insert("id".to_owned(), json!(id));
    (format!("{id} {sentence}"), answer)
}

fn of_key(key: &str, hold: Option<&Hold>) -> (String, Map<String, Value>) {
    let Some(hold) = hold else {
        return (format!("{key} waits for nothing"), object(json!({ "key": key, "held": false })));
    };
    let until = hold.until.map(|until| format!(" until {until}")).unwrap_or_default();
    let sentence = format!(
        "{key} waits for event number {} ({}){until}; {} events are parked behind it",
        hold.seq, hold.reason, hold.parked
    );
    let answer = json!({
        "key": key,
        "held": true,
        "seq": hold.seq,
        "reason": hold.reason.as_str(),
        "until": hold.until.map(|until| until.to_string()),
        "parked": hold.parked,
        "lane": hold.lane,
    });
    (sentence, object(answer))
}

#[cfg(test)]
mod tests {
    use postrider::{Timestamp, store::HoldReason};

    use super::*;

    #[test]
    fn every_state_of_an_event_is_a_sentence_and_an_object() {
        for (status, word) in [
            (EventStatus::Absent, "absent"),
            (EventStatus::New, "new"),
            (EventStatus::Parked, "parked"),
            (
                EventStatus::Waiting {
                    attempts: 2,
                    available_at: Timestamp::EPOCH,
                    error: Some("no".to_owned()),
                },
                "waiting",
            ),
            (EventStatus::Done { done_at: Timestamp::EPOCH }, "done"),
            (EventStatus::Dead { attempts: 3, error: "never".to_owned() }, "dead"),
        ] {
            let (sentence, answer) = of_event("e-1", &status);
            assert!(sentence.starts_with("e-1 "), "{sentence}");
            assert_eq!((&answer["status"], &answer["id"]), (&json!(word), &json!("e-1")));
        }
    }

    #[test]
    fn a_pause_of_another_key_is_nobodys_business_and_one_of_a_type_may_be() {
        let pause = |subject| Pause { subject, since: Timestamp::EPOCH, reason: String::new() };
        let all =
            [Subject::Source, Subject::key("a"), Subject::key("b"), Subject::event_type("T")].map(pause);
        let [source, a, _, of_type] = &all;
        assert_eq!(apart(&all, Some("a")), (vec![source, a], vec![of_type]));
        assert_eq!(apart(&all, None).0, [source]);
    }

    #[test]
    fn a_held_key_says_what_it_waits_for() {
        let hold = Hold {
            lane: 3,
            key: "Order:1".to_owned(),
            seq: 7,
            reason: HoldReason::Dead,
            until: None,
            parked: 12,
        };
        let (sentence, answer) = of_key("Order:1", Some(&hold));
        assert_eq!(sentence, "Order:1 waits for event number 7 (dead); 12 events are parked behind it");
        assert_eq!(answer["parked"], 12);
        assert_eq!(of_key("Order:2", None).0, "Order:2 waits for nothing");
    }
}
