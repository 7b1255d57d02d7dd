//! The HTTP sinks against a real server in this process, which can be down, stall, refuse and answer anything.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may")]

mod conformance;
mod connections;
mod destinations;
mod engine;
mod health;
mod item_results;
mod requests;
mod retry_after;
mod secrets;
mod server;
mod splitting;
mod statuses;
mod time;
mod tls;
mod whole_batches;

use postrider_core::{Delivery, Event, Outcome, Sink, Source};
use postrider_http::{BatchConfig, Endpoint, HttpBatchSink, WebhookConfig, WebhookSink};
use server::Server;
use time::eventually;

/// The secret of the reference libraries of Standard Webhooks.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn batch_sink(server: &Server) -> HttpBatchSink {
    HttpBatchSink::new(BatchConfig::new(Endpoint::new(server.url()))).unwrap()
}

fn webhook_sink(server: &Server) -> WebhookSink {
    WebhookSink::new(WebhookConfig::new(Endpoint::new(server.url())).secret(SECRET)).unwrap()
}

/// Events of these keys, in order, with payloads that tell them apart: their places.
fn events(keys: &[&str]) -> Vec<Event> {
    let event = |(number, key): (usize, &&str)| {
        Event::json_text("Tested", number.to_string()).id(format!("id-{number}")).key(*key).build().unwrap()
    };
    keys.iter().enumerate().map(event).collect()
}

async fn send(sink: &dyn Sink, events: &[Event]) -> Vec<Outcome> {
    let delivery =
        |event: &Event| Delivery { event: event.clone(), source: Source::Cold, attempt: 1, lane: 0 };
    let batch: Vec<_> = events.iter().map(delivery).collect();
    sink.send(&batch).await
}

/// One letter for each outcome: delivered, retry, rejected (x), deferred (-), later, unknown (?),
/// unavailable, batch failed.
fn letters(outcomes: &[Outcome]) -> String {
    let letter = |outcome: &Outcome| match outcome {
        Outcome::Delivered => 'd',
        Outcome::Retry { .. } => 'r',
        Outcome::Rejected { .. } => 'x',
        Outcome::Deferred { .. } => '-',
        Outcome::Later { .. } => 'l',
        Outcome::Unknown { .. } => '?',
        Outcome::Unavailable { .. } => 'u',
        Outcome::BatchFailed { .. } => 'b',
        _ => '!',
    };
    outcomes.iter().map(letter).collect()
}
