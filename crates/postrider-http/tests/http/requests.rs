//! What is in a request.

use postrider_core::{Event, Payload, Sink, format::Destination};
use postrider_http::{BatchConfig, Endpoint, HttpBatchSink, WebhookConfig, WebhookSink};
use ring::hmac;

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::{SECRET, batch_sink, events, letters, send, server::Server, webhook_sink};

#[tokio::test]
async fn a_batch_is_the_payloads_to_the_letter() {
    // S1-30, S1-33
    let server = Server::start().await;
    let payload = |json: &str| Event::json_text("Tested", json).build().unwrap();
    let spelled = "{ \"b\" : 1.50,\"a\":[ ],\"n\":12345678901234567890 }";
    assert_eq!(
        letters(&send(&batch_sink(&server), &[payload(spelled), payload("null"), payload("\"é\"")]).await),
        "ddd"
    );
    let asked = server.asked();
    assert_eq!(asked[0].method, "POST");
    assert_eq!(asked[0].text(), format!("[{spelled},null,\"é\"]"));
}

#[tokio::test]
async fn the_token_and_the_further_headers_are_sent_and_nothing_is_where_none_is_set() {
    // S1-36
    let server = Server::start().await;
    let endpoint = Endpoint::new(server.url()).token("secret").header("X-Api-Key", "key");
    let sink = HttpBatchSink::new(BatchConfig::new(endpoint)).unwrap();
    send(&sink, &events(&["a"])).await;
    send(&batch_sink(&server), &events(&["a"])).await;
    let user = server.url().replace("http://", "http://shop:p%40ss@");
    send(&HttpBatchSink::new(BatchConfig::new(Endpoint::new(user))).unwrap(), &events(&["a"])).await;
    let asked = server.asked();
    assert_eq!(asked[0].header("authorization"), Some("Bearer secret"));
    assert_eq!(asked[0].header("x-api-key"), Some("key"));
    assert!(asked[0].header("user-agent").unwrap().starts_with("postrider/"));
    assert_eq!(asked[1].header("authorization"), None);
    assert_eq!(asked[2].header("authorization"), Some("Basic c2hvcDpwQHNz"));
}

#[tokio::test]
async fn a_webhook_is_signed_by_every_secret_over_id_time_and_body() {
    let server = Server::start().await;
    let (other, path) = (BASE64_STANDARD.encode([7; 32]), Destination::new("/in").unwrap());
    let config =
        WebhookConfig::new(Endpoint::new(server.url()).path(path)).secret(SECRET).secret(other.as_str());
    let event = Event::json_text("Tested", "{ \"a\": 1 }").id("shop.42").build().unwrap();
    assert_eq!(letters(&send(&WebhookSink::new(config).unwrap(), &[event]).await), "d");
    let asked = server.asked();
    let (id, timestamp) =
        (asked[0].header("webhook-id").unwrap(), asked[0].header("webhook-timestamp").unwrap());
    assert_eq!(id, "shop%2E42", "a full stop parts what is signed");
    assert_eq!(asked[0].header("event-id"), Some("shop.42"));
    let signatures: Vec<_> = asked[0].header("webhook-signature").unwrap().split(' ').collect();
    assert_eq!(signatures.len(), 2);
    for (signature, secret) in signatures.iter().zip([SECRET.trim_start_matches("whsec_"), &other]) {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &BASE64_STANDARD.decode(secret).unwrap());
        let signed = format!("{id}.{timestamp}.{}", asked[0].text());
        let signature = BASE64_STANDARD.decode(signature.strip_prefix("v1,").unwrap()).unwrap();
        assert!(hmac::verify(&key, signed.as_bytes(), &signature).is_ok());
    }
}

#[tokio::test]
async fn an_attempt_that_is_made_again_has_the_same_webhook_id() {
    let server = Server::start().await;
    let (sink, event) = (webhook_sink(&server), events(&["a"]));
    send(&sink, &event).await;
    send(&sink, &event).await;
    let asked = server.asked();
    assert_eq!(asked[0].header("webhook-id"), asked[1].header("webhook-id"));
}

#[tokio::test]
async fn what_http_cannot_say_is_rejected_before_anything_is_sent() {
    let server = Server::start().await;
    let endpoint = Endpoint::new(server.url()).header("x-api-key", "key");
    let sink = WebhookSink::new(WebhookConfig::new(endpoint).unsigned()).unwrap();
    let plain = || Event::json_text("Tested", "{}");
    let cases = [
        (plain().header("x y", "canary"), "letters, digits"),
        (plain().header("note", "canary\r\nx-admin: yes"), "line break"),
        (plain().header("note", " canary"), "a space at an end"),
        (plain().key("canary\n"), "line break"),
        (plain().header("Content-Length", "1"), "says itself"),
        (plain().header("X-Api-Key", "canary"), "says itself"),
        (plain().header("note", "canary").header("Note", "canary"), "two headers"),
        (plain().payload(Payload::Text("x".into()), "text/plain\ncanary"), "line break"),
    ];
    for (event, why) in cases {
        let outcomes = send(&sink, &[event.build().unwrap()]).await;
        assert_eq!(letters(&outcomes), "x", "{why}: {outcomes:?}");
        let error = outcomes[0].error().unwrap();
        assert!(error.contains(why) && !error.contains("canary"), "{error}");
    }
    assert!(server.asked().is_empty());
    let carried = plain().header("name", "Müller").key("ключ").build().unwrap();
    assert_eq!(letters(&send(&sink, &[carried]).await), "d");
    assert_eq!(server.asked()[0].header("name"), Some("Müller"));
}

#[test]
fn the_engine_waits_longer_than_the_sink_does() {
    // S1-35
    let sink = HttpBatchSink::new(BatchConfig::new(Endpoint::new("http://host"))).unwrap();
    let endpoint = Endpoint::new("http://host");
    assert_eq!((endpoint.connect_timeout.as_secs(), endpoint.request_timeout.as_secs()), (10, 30));
    assert!(sink.traits().send_timeout.unwrap() > 2 * endpoint.request_timeout);
    assert_eq!(sink.traits().batch_max, 100);
    let webhook = WebhookSink::new(WebhookConfig::new(endpoint).unsigned().concurrent_max(3)).unwrap();
    assert_eq!((webhook.traits().batch_max, webhook.traits().concurrent), (1, Some(3)));
}
