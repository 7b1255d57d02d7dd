//! Every status, and what is no status at all.

use std::time::Duration;

use postrider_core::Outcome;
use postrider_http::{BatchConfig, Endpoint, HttpBatchSink, WebhookConfig, WebhookSink};

use crate::{
    batch_sink, events, letters, send,
    server::{Reply, Server},
    webhook_sink,
};

/// What stands in the documentation, for an event alone. A number that is not here is a retry.
fn letter_of(status: u16) -> &'static str {
    match status {
        200..=299 => "d",
        400 | 413 | 422 => "x",
        300..=399 | 401 | 403 | 404 | 405 | 407 | 410 | 415 | 425 | 503 => "u",
        408 => "?",
        429 => "-",
        _ => "r",
    }
}

#[tokio::test]
async fn every_status_is_the_outcome_that_the_documentation_says() {
    // S1-34
    let server = Server::start().await;
    let alone = events(&["a"]);
    for status in 200..=599 {
        // Each time a new one, which does not remember that it was too fast.
        let (batches, webhook) = (batch_sink(&server), webhook_sink(&server));
        server.answers(move |_| Reply::status(status));
        assert_eq!(letters(&send(&batches, &alone).await), letter_of(status), "a batch, {status}");
        assert_eq!(letters(&send(&webhook, &alone).await), letter_of(status), "a webhook, {status}");
    }
}

#[tokio::test]
async fn a_status_that_is_no_refusal_is_for_the_whole_batch_and_is_not_split() {
    let server = Server::start().await;
    let sink = batch_sink(&server);
    for (status, expected) in
        [(200, "ddd"), (401, "uuu"), (408, "bbb"), (409, "bbb"), (500, "bbb"), (503, "uuu")]
    {
        server.answers(move |_| Reply::status(status));
        assert_eq!(letters(&send(&sink, &events(&["a", "b", "a"])).await), expected, "{status}");
    }
    assert_eq!(server.asked().len(), 6);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let server = Server::start().await;
    let elsewhere = Server::start().await;
    let location = elsewhere.url();
    for status in [301, 302, 303, 307, 308] {
        let location = location.clone();
        server.answers(move |_| Reply::status(status).header("location", location.clone()));
        for outcomes in [
            send(&batch_sink(&server), &events(&["a", "b"])).await,
            send(&webhook_sink(&server), &events(&["a"])).await,
        ] {
            assert!(letters(&outcomes).chars().all(|letter| letter == 'u'), "{status}: {outcomes:?}");
        }
    }
    assert!(elsewhere.asked().is_empty());
}

#[tokio::test]
async fn without_a_connection_the_receiver_is_unavailable_and_named() {
    let server = Server::start().await;
    let (batches, webhook) = (batch_sink(&server), webhook_sink(&server));
    server.stop().await;
    for sink in [&batches as &dyn postrider_core::Sink, &webhook] {
        let outcomes = send(sink, &events(&["a", "b", "c"])).await;
        assert_eq!(letters(&outcomes), "uuu");
        let error = outcomes[0].error().unwrap();
        assert!(error.contains(&server.url()) && error.contains("refused"), "{error}");
    }
}

#[tokio::test]
async fn a_connection_that_ends_before_the_answer_leaves_the_outcome_unknown() {
    let server = Server::start().await;
    server.answers(|_| Reply::Cuts);
    assert_eq!(letters(&send(&batch_sink(&server), &events(&["a"])).await), "?");
    assert_eq!(letters(&send(&webhook_sink(&server), &events(&["a", "b"])).await), "??");
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_leaves_the_outcome_unknown() {
    let server = Server::start().await;
    server.answers(|_| Reply::Stalls);
    let endpoint =
        || Endpoint::new(server.url()).timeouts(Duration::from_millis(50), Duration::from_millis(50));
    let batches = HttpBatchSink::new(BatchConfig::new(endpoint())).unwrap();
    let webhook = WebhookSink::new(WebhookConfig::new(endpoint()).unsigned()).unwrap();
    for sink in [&batches as &dyn postrider_core::Sink, &webhook] {
        let outcomes = send(sink, &events(&["a"])).await;
        assert_eq!(letters(&outcomes), "?", "{outcomes:?}");
        assert!(outcomes[0].error().unwrap().contains("timed out"), "{outcomes:?}");
    }
}

#[tokio::test]
async fn an_error_says_what_the_receiver_said_in_one_short_line() {
    let server = Server::start().await;
    let long = format!("no\r\n\u{1b}[31m such\0 customer {}", "x".repeat(100_000));
    server.answers(move |_| Reply::body(500, long.clone()));
    let outcomes = send(&webhook_sink(&server), &events(&["a"])).await;
    let Outcome::Retry { error, after: None } = &outcomes[0] else { panic!("{outcomes:?}") };
    let expected = format!("{} answered 500 Internal Server Error: no [31m such customer xxx", server.url());
    assert!(error.starts_with(&expected), "{error}");
    assert!(
        error.chars().count() < expected.len() + 520 && error.ends_with('…'),
        "{} characters",
        error.len()
    );
}
