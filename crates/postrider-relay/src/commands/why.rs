//! `postrider why`: what an event or a key waits for.

use clap::Args as ClapArgs;
use postrider::{
    EventId,
    store::{EventStatus, Hold},
};
use serde_json::{Map, Value, json};

use super::target::Target;
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
    let (sentence, answer) = match (&args.id, &args.key) {
        (Some(id), _) => {
            let status = outbox.store.status(&EventId::from(id.as_str())).await?;
            of_event(id, &status)
        }
        (None, Some(key)) => of_key(key, outbox.store.why(key).await?.as_ref()),
        (None, None) => return Err(Failure::usage("name an event with --id, or a key with --key")),
    };
    terminal.say(sentence);
    terminal.answer(answer);
    Ok(Verdict::Good)
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
