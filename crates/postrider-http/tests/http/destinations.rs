//! What a sink calls the place that an event goes to.

use postrider_core::{Event, Sink, format::Destination};
use postrider_http::{BatchConfig, Endpoint, HttpBatchSink, WebhookConfig, WebhookSink};

/// By both sinks, which say the same.
fn destination(path: Option<Destination>, event: &Event) -> Option<String> {
    // The URL may be a secret.
    let mut endpoint = Endpoint::new("https://user:canary@host.example/canary?key=canary");
    if let Some(path) = path {
        endpoint = endpoint.path(path);
    }
    let batches = HttpBatchSink::new(BatchConfig::new(endpoint.clone())).unwrap();
    let webhook = WebhookSink::new(WebhookConfig::new(endpoint).unsigned()).unwrap();
    assert_eq!(batches.destination(event), webhook.destination(event));
    batches.destination(event)
}

#[test]
fn it_is_the_path_with_what_the_event_says_filled_in() {
    let path = || Destination::new("/t/{tenant_id}/{event_type}").unwrap();
    let of = |tenant: &str| Event::json_text("Placed", "{}").tenant(tenant).build().unwrap();
    assert_eq!(destination(Some(path()), &of("acme")).as_deref(), Some("/t/acme/Placed"));
    assert_eq!(destination(Some(path()), &of("a/b")).as_deref(), Some("/t/a%2Fb/Placed"));
    let without_tenant = Event::json_text("Placed", "{}").build().unwrap();
    assert_eq!(destination(Some(path()), &without_tenant), None, "it goes nowhere");
}

#[test]
fn paths_of_event_types_are_told_apart() {
    let paths = Destination::new("/events").unwrap().for_type("Job", "/jobs").unwrap();
    let of = |event_type: &str| Event::json_text(event_type, "{}").build().unwrap();
    assert_eq!(destination(Some(paths.clone()), &of("Job")).as_deref(), Some("/jobs"));
    assert_eq!(destination(Some(paths), &of("Placed")).as_deref(), Some("/events"));
}

#[test]
fn there_is_none_where_all_events_go_to_one_place() {
    let event = Event::json_text("Placed", "{}").build().unwrap();
    assert_eq!(destination(None, &event), None);
    assert_eq!(destination(Some(Destination::new("/events").unwrap()), &event), None);
}
