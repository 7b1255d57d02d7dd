//! The results of single events, out of the body of an answer.

use std::collections::HashMap;

use postrider_core::{Delivery, Outcome};
use reqwest::StatusCode;
use serde::Deserialize;

use crate::{
    client::{Client, Said},
    outcome::Verdict,
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
}

/// What an answer says of each of these events of the batch.
pub(super) fn read(client: &Client, said: &Said, batch: &[Delivery], places: &[usize]) -> Vec<Outcome> {
    let nothing = |why: String| {
        let error = format!(
            "{}, and what became of each event is not to be read from it: {why}",
            client.describe(said)
        );
        let outcome = if places.len() > 1 { Outcome::batch_failed(error) } else { Outcome::unknown(error) };
        vec![outcome; places.len()]
    };
    if !said.whole {
        return nothing("it is longer than can be read, or was cut off".to_owned());
    }
    let results = match serde_json::from_slice::<Body>(&said.body) {
        Ok(Body::Named { results } | Body::Bare(results)) => results,
        // The reason of an untagged enum says nothing that helps.
        Err(_) => return nothing("it is no JSON with a list of results".to_owned()),
    };
    let ids: Vec<&str> = places
        .iter()
        .map(|place| batch.get(*place).map_or("", |delivery| delivery.event.id().as_str()))
        .collect();
    let by_id: Option<HashMap<&str, &ItemResult>> = results
        .iter()
        .map(|result| Some((result.id.as_deref().filter(|id| ids.contains(id))?, result)))
        .collect();
    match by_id {
        Some(by_id) => ids.iter().map(|id| outcome(client, by_id.get(id).copied())).collect(),
        None if results.len() == places.len() => {
            results.iter().map(|result| outcome(client, Some(result))).collect()
        }
        None => nothing(format!("it has {} results for {} events", results.len(), places.len())),
    }
}

fn outcome(client: &Client, result: Option<&ItemResult>) -> Outcome {
    let Some(result) = result else {
        return Outcome::unknown("the answer has no result for this event");
    };
    let Some(status) = result.status.http() else {
        return Outcome::unknown("the answer has a result for this event with a status that means nothing");
    };
    let error = client.clean(result.error.as_deref().unwrap_or_default());
    let colon = if error.is_empty() { "" } else { ": " };
    let said = Said { status, retry_after: None, body: Vec::new(), whole: true };
    Verdict::of(status, None)
        .outcome(&said, format!("the receiver said {status} of this event{colon}{error}"))
}
