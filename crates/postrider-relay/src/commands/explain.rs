//! Explains where an event or a key is and what it waits for, in a sentence and as JSON.

use postrider::store::{EventStatus, Hold, HoldReason, ListedEvent};
use serde_json::{Map, Value, json};

use crate::terminal::{count, plain};

/// An explanation for people and for programs.
pub(super) struct Explanation {
    pub(super) sentence: String,
    pub(super) answer: Map<String, Value>,
}

impl Explanation {
    fn new(sentence: String, answer: Value) -> Self {
        let answer = match answer {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        Self { sentence, answer }
    }
}

/// Whether an event will change its status without an operator's help.
pub(super) fn is_pending(status: &EventStatus) -> bool {
    matches!(status, EventStatus::New | EventStatus::Parked | EventStatus::Waiting { .. })
}

/// Explains an event that was looked up by its ID.
pub(super) fn of_event(id: &str, event: Option<&ListedEvent>) -> Explanation {
    let status = event.map_or(&EventStatus::Absent, |event| &event.status);
    let key = event.and_then(|event| event.key.as_deref());
    let mut explanation =
        Explanation::new(format!("{} {}", plain(id), describe(id, status, key)), of_status(status));
    explanation.answer.insert("id".to_owned(), json!(id));
    explanation
}

/// Where an event is: the rest of a sentence that begins with its ID.
fn describe(id: &str, status: &EventStatus, key: Option<&str>) -> String {
    let tried = |attempts: &u32| match attempts {
        0 => String::new(),
        attempts => format!(", after {}", count((*attempts).into(), "attempt")),
    };
    match status {
        EventStatus::Absent => {
            "is not in this outbox: never written, rolled back, discarded, or delivered and past its retention"
                .to_owned()
        }
        EventStatus::New => "waits for its first attempt".to_owned(),
        EventStatus::Parked => {
            let key = key.map(|key| format!(": ask for that with `--key {}`", plain(key))).unwrap_or_default();
            format!("waits behind the head of its key{key}")
        }
        EventStatus::Waiting { attempts, available_at, error } => {
            format!("waits until {available_at}{}{}", tried(attempts), last(error.as_deref()))
        }
        EventStatus::Done { done_at } => format!("was delivered at {done_at}"),
        EventStatus::Dead { attempts, error } => {
            format!("is dead{}: {}\n  hint: {}", tried(attempts), plain(error), remedy(id))
        }
        other => format!("has a status that this version does not know: {other:?}"),
    }
}

/// The error of the last attempt, if it failed.
fn last(error: Option<&str>) -> String {
    error.map(|error| format!("; last error: {}", plain(error))).unwrap_or_default()
}

/// What an operator can do about a dead event.
fn remedy(id: &str) -> String {
    format!(
        "retry it with `postrider dead redrive --id {0}`, or delete it with `postrider dead discard --id {0} --yes`",
        plain(id)
    )
}

fn of_status(status: &EventStatus) -> Value {
    match status {
        EventStatus::Absent => json!({ "status": "absent" }),
        EventStatus::New => json!({ "status": "new" }),
        EventStatus::Parked => json!({ "status": "parked" }),
        EventStatus::Waiting { attempts, available_at, error } => {
            json!({ "status": "waiting", "attempts": attempts, "available_at": available_at.to_string(), "error": error })
        }
        EventStatus::Done { done_at } => json!({ "status": "done", "done_at": done_at.to_string() }),
        EventStatus::Dead { attempts, error } => {
            json!({ "status": "dead", "attempts": attempts, "error": error })
        }
        _ => json!({ "status": "unknown" }),
    }
}

/// Explains a key by the event that it waits for or, if it is not held, by its next event.
pub(super) fn of_key(key: &str, hold: Option<&Hold>, event: Option<&ListedEvent>) -> Explanation {
    let id = event.map(|event| event.id.as_str());
    let sentence = match (hold, event) {
        (Some(hold), event) => held(hold, event),
        (None, Some(event)) => {
            let state = describe(event.id.as_str(), &event.status, None);
            format!("is not held; its next event {} {state}", plain(event.id.as_str()))
        }
        (None, None) => "waits for nothing: all of its events are delivered, discarded or dead".to_owned(),
    };
    let mut explanation = Explanation::new(
        format!("{} {sentence}", plain(key)),
        event.map_or_else(|| json!({}), |event| of_status(&event.status)),
    );
    let of_hold = match hold {
        Some(hold) => json!({
            "held": true,
            "seq": hold.seq,
            "reason": hold.reason.as_str(),
            "until": hold.until.map(|until| until.to_string()),
            "parked": hold.parked,
            "lane": hold.lane,
        }),
        None => json!({ "held": false }),
    };
    explanation.answer.extend([("key".to_owned(), json!(key)), ("id".to_owned(), json!(id))]);
    explanation.answer.extend(Explanation::new(String::new(), of_hold).answer);
    explanation
}

/// What a held key waits for: the rest of a sentence that begins with the key.
fn held(hold: &Hold, head: Option<&ListedEvent>) -> String {
    let behind = match hold.parked {
        1 => "1 event waits behind it".to_owned(),
        parked => format!("{} wait behind it", count(parked, "event")),
    };
    if hold.reason == HoldReason::Returning {
        // Its head was delivered or discarded.
        let back = if hold.parked == 1 { "comes" } else { "come" };
        return format!("was freed, and {} that waited {back} back", count(hold.parked, "event"));
    }
    let Some(head) = head else {
        return format!(
            "waits for an event that was deleted from the table; {behind}\n  hint: a running relay frees the key within a minute"
        );
    };
    let id = plain(head.id.as_str());
    let until = hold.until.map(|until| format!(" until {until}")).unwrap_or_default();
    let last = match &head.status {
        EventStatus::Waiting { error, .. } => last(error.as_deref()),
        _ => String::new(),
    };
    match hold.reason {
        HoldReason::Dead => {
            let EventStatus::Dead { error, .. } = &head.status else {
                return format!("waits for {id}, which was dead; {behind}");
            };
            format!(
                "waits for {id}, which is dead: {}; {behind}\n  hint: {}",
                plain(error),
                remedy(head.id.as_str())
            )
        }
        HoldReason::Deferred => format!("waits for {id}, which was deferred{until}{last}; {behind}"),
        _ => format!("waits for {id}, which failed and is retried{until}{last}; {behind}"),
    }
}

#[cfg(test)]
mod tests {
    use postrider::{Timestamp, store::ListCursor};

    use super::*;

    fn event(status: EventStatus) -> ListedEvent {
        ListedEvent {
            cursor: ListCursor::default(),
            id: "e-1".into(),
            event_type: "OrderPlaced".to_owned(),
            aggregate_type: "Order".to_owned(),
            key: Some("Order:1".to_owned()),
            status,
            attempts: 0,
            created_at: Timestamp::EPOCH,
            died_at: None,
            payload: None,
        }
    }

    #[test]
    fn every_status_of_an_event_is_a_sentence_and_an_object() {
        let waiting = EventStatus::Waiting {
            attempts: 1,
            available_at: Timestamp::EPOCH,
            error: Some("no".to_owned()),
        };
        for (status, word, text) in [
            (EventStatus::New, "new", "first attempt"),
            (EventStatus::Parked, "parked", "--key Order:1"),
            (waiting, "waiting", "after 1 attempt; last error: no"),
            (EventStatus::Done { done_at: Timestamp::EPOCH }, "done", "1970"),
            (
                EventStatus::Dead { attempts: 3, error: "never".to_owned() },
                "dead",
                "after 3 attempts: never\n  hint: retry it with `postrider dead redrive --id e-1`",
            ),
        ] {
            let explanation = of_event("e-1", Some(&event(status)));
            assert!(
                explanation.sentence.starts_with("e-1 ") && explanation.sentence.contains(text),
                "{}",
                explanation.sentence
            );
            assert_eq!(
                (&explanation.answer["status"], &explanation.answer["id"]),
                (&json!(word), &json!("e-1"))
            );
        }
        let absent = of_event("e-1", None);
        assert_eq!(absent.answer["status"], "absent");
        assert!(absent.sentence.contains("rolled back, discarded, or delivered"), "{}", absent.sentence);
    }

    #[test]
    fn a_held_key_names_its_head_by_the_id_that_other_commands_take() {
        let hold =
            |reason, parked| Hold { lane: 3, key: "Order:1".to_owned(), seq: 7, reason, until: None, parked };
        let dead = event(EventStatus::Dead { attempts: 3, error: "never".to_owned() });
        let explanation = of_key("Order:1", Some(&hold(HoldReason::Dead, 12)), Some(&dead));
        let text = "Order:1 waits for e-1, which is dead: never; 12 events wait behind it\n  hint: retry it with `postrider dead redrive --id e-1`";
        assert!(explanation.sentence.starts_with(text), "{}", explanation.sentence);
        assert_eq!((&explanation.answer["parked"], &explanation.answer["id"]), (&json!(12), &json!("e-1")));
        let waiting = EventStatus::Waiting {
            attempts: 1,
            available_at: Timestamp::EPOCH,
            error: Some("no".to_owned()),
        };
        let retry = of_key("Order:1", Some(&hold(HoldReason::Retry, 1)), Some(&event(waiting)));
        let text = "which failed and is retried; last error: no; 1 event waits behind it";
        assert!(retry.sentence.ends_with(text), "{}", retry.sentence);
    }

    #[test]
    fn a_key_whose_head_was_discarded_or_delivered_says_that_it_was_freed() {
        let hold = Hold {
            lane: 3,
            key: "Order:1".to_owned(),
            seq: 7,
            reason: HoldReason::Returning,
            until: None,
            parked: 1,
        };
        let explanation = of_key("Order:1", Some(&hold), None);
        assert_eq!(explanation.sentence, "Order:1 was freed, and 1 event that waited comes back");
        assert_eq!(explanation.answer["id"], Value::Null);
    }

    #[test]
    fn a_key_whose_head_was_deleted_says_that_it_waits_and_how_long() {
        let hold = Hold {
            lane: 3,
            key: "Order:1".to_owned(),
            seq: 7,
            reason: HoldReason::Dead,
            until: None,
            parked: 6,
        };
        let explanation = of_key("Order:1", Some(&hold), None);
        let text =
            "Order:1 waits for an event that was deleted from the table; 6 events wait behind it\n  hint: ";
        assert!(
            explanation.sentence.starts_with(text) && explanation.sentence.contains("within a minute"),
            "{}",
            explanation.sentence
        );
        assert_eq!((&explanation.answer["held"], &explanation.answer["id"]), (&json!(true), &Value::Null));
    }

    #[test]
    fn a_key_that_is_not_held_shows_its_next_event() {
        let explanation = of_key("Order:1", None, Some(&event(EventStatus::New)));
        assert_eq!(
            explanation.sentence,
            "Order:1 is not held; its next event e-1 waits for its first attempt"
        );
        assert!(of_key("Order:2", None, None).sentence.starts_with("Order:2 waits for nothing"));
    }
}
