//! Reads the result of each event from the body of a response.
//!
//! Results are matched by ID as soon as one of them has an ID, and by position only if none has and there is one for each event. IDs are compared
//! exactly. An event without an unambiguous result is `unknown` and is sent again; a result that may belong to another event never counts.

use std::collections::HashMap;

use postrider_core::{Delivery, Outcome};
use reqwest::StatusCode;
use serde::Deserialize;

use crate::{
    client::{Client, Received},
    outcome::Meaning,
};

#[derive(Deserialize)]
#[serde(untagged)]
enum Body {
    Named { results: Vec<ItemResult> },
    Bare(Vec<ItemResult>),
}

#[derive(Deserialize)]
struct ItemResult {
    #[serde(default)]
    id: Option<String>,
    status: ItemStatus,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ItemStatus {
    Number(u16),
    Name(String),
}

impl ItemStatus {
    fn http(&self) -> Option<StatusCode> {
        let number = match self {
            Self::Number(number) => *number,
            Self::Name(name) => match name.as_str() {
                "SUCCESS" => 200,
                "BAD_REQUEST" => 400,
                "UNAUTHORIZED" => 401,
                "FORBIDDEN" => 403,
                "INTERNAL_ERROR" => 500,
                "GATEWAY_ERROR" => 502,
                _ => return None,
            },
        };
        StatusCode::from_u16(number).ok()
    }

    fn meaning(&self) -> Option<Meaning> {
        self.http().map(|status| Meaning::of(status, None))
    }
}

/// The results of these events of the batch.
pub(super) fn read(
    client: &Client,
    received: &Received,
    batch: &[Delivery],
    places: &[usize],
) -> Vec<Outcome> {
    let nothing = |why: String| {
        let error = format!(
            "{}, and what became of each event is not to be read from it: {why}",
            client.describe(received)
        );
        let outcome = if places.len() > 1 { Outcome::batch_failed(error) } else { Outcome::unknown(error) };
        vec![outcome; places.len()]
    };
    if !received.whole {
        return nothing("it is longer than can be read, or was cut off".to_owned());
    }
    let results = match serde_json::from_slice::<Body>(&received.body) {
        Ok(Body::Named { results } | Body::Bare(results)) => results,
        // The error of an untagged enum does not help.
        Err(_) => return nothing("it is no JSON with a list of results".to_owned()),
    };
    let has_ids = results.iter().any(|result| result.id.is_some());
    if !has_ids && results.len() != places.len() {
        return nothing(format!("it has {} results for {} events", results.len(), places.len()));
    }
    if !has_ids {
        return results.iter().map(|result| outcome(client, Matched::One(result))).collect();
    }
    let by_id = by_id(&results);
    let id = |place: &usize| batch.get(*place).map(|delivery| delivery.event.id().as_str());
    let matched = |place| id(place).and_then(|id| by_id.get(id)).copied().unwrap_or(Matched::None);
    places.iter().map(|place| outcome(client, matched(place))).collect()
}

/// The result of one event.
#[derive(Clone, Copy)]
enum Matched<'a> {
    None,
    One(&'a ItemResult),
    /// Several results that disagree.
    Contradicting,
}

fn by_id(results: &[ItemResult]) -> HashMap<&str, Matched<'_>> {
    let mut by_id = HashMap::with_capacity(results.len());
    for result in results {
        let Some(id) = result.id.as_deref() else { continue };
        let matched = by_id.entry(id).or_insert(Matched::One(result));
        if matches!(matched, Matched::One(first) if first.status.meaning() != result.status.meaning()) {
            *matched = Matched::Contradicting;
        }
    }
    by_id
}

fn outcome(client: &Client, matched: Matched<'_>) -> Outcome {
    let result = match matched {
        Matched::One(result) => result,
        Matched::None => return Outcome::unknown("the answer has no result with the ID of this event"),
        Matched::Contradicting => {
            return Outcome::unknown("the answer has results for this event that contradict each other");
        }
    };
    let Some(status) = result.status.http() else {
        return Outcome::unknown("the answer has a result for this event with a status that means nothing");
    };
    let error = client.clean(result.error.as_deref().unwrap_or_default());
    let colon = if error.is_empty() { "" } else { ": " };
    let received = Received { status, retry_after: None, body: Vec::new(), whole: true };
    Meaning::of(status, None)
        .outcome(&received, format!("the receiver returned {status} for this event{colon}{error}"))
}
