//! A batch that is refused is split, in order, until the bad event stands alone.

use postrider_core::{BatchOrder, Event, Sink, format::Destination};
use postrider_http::{BatchConfig, Endpoint, HttpBatchSink};

use crate::{
    batch_sink, events, letters, send,
    server::{Reply, Server},
};

/// Refuses a request that has one of these payloads.
fn refuse(server: &Server, status: u16, bad: &'static [&'static str]) {
    server.answers(move |asked| {
        let payloads: Vec<serde_json::Value> = serde_json::from_slice(&asked.body).unwrap();
        let refused = payloads.iter().any(|payload| bad.contains(&payload.to_string().as_str()));
        if refused { Reply::body(status, "look at it") } else { Reply::status(204) }
    });
}

fn took(server: &Server) -> Vec<String> {
    server.took().iter().map(|asked| asked.text().to_owned()).collect()
}

#[tokio::test]
async fn only_the_bad_event_is_rejected_whichever_it_is() {
    for status in [400, 413, 422] {
        for (bad, expected) in [("0", "xddddddd"), ("3", "dddxdddd"), ("7", "dddddddx")] {
            let server = Server::start().await;
            refuse(&server, status, Vec::leak(vec![bad]));
            let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
            let outcomes = send(&batch_sink(&server), &events(&keys)).await;
            assert_eq!(letters(&outcomes), expected, "{status} for {bad}");
            let error = outcomes.iter().find_map(|outcome| outcome.error()).unwrap();
            assert!(error.contains(&status.to_string()) && error.contains("look at it"), "{error}");
            // Of 8 the refused one is found in 3 steps down, with one request beside each.
            assert_eq!(server.asked().len(), 7);
        }
    }
}

#[tokio::test]
async fn several_bad_events_are_each_found() {
    let server = Server::start().await;
    refuse(&server, 422, &["1", "2", "6"]);
    let outcomes = send(&batch_sink(&server), &events(&["a", "b", "c", "d", "e", "f", "g"])).await;
    assert_eq!(letters(&outcomes), "dxxdddx");
    let delivered: Vec<i32> =
        took(&server).iter().flat_map(|body| serde_json::from_str::<Vec<i32>>(body).unwrap()).collect();
    assert_eq!(delivered, [0, 3, 4, 5], "once each, and in order");
}

#[tokio::test]
async fn once_an_event_of_a_key_was_refused_its_followers_are_held_back() {
    let server = Server::start().await;
    refuse(&server, 400, &["1"]);
    let sink = batch_sink(&server);
    assert_eq!(sink.traits().order, BatchOrder::Prefix);
    let outcomes = send(&sink, &events(&["a", "a", "b", "a", "b", "a"])).await;
    assert_eq!(letters(&outcomes), "dxd-d-");
    assert_eq!(took(&server), ["[0]", "[2]", "[4]"]);
}

#[tokio::test]
async fn a_failure_in_the_first_half_holds_back_its_keys_in_the_second_and_no_others() {
    let server = Server::start().await;
    server.answers(|asked| match asked.text() {
        "[0,1,2,3]" => Reply::status(400),
        "[0,1]" => Reply::status(500),
        _ => Reply::status(200),
    });
    let outcomes = send(&batch_sink(&server), &events(&["a", "b", "c", "a"])).await;
    assert_eq!(letters(&outcomes), "bbd-");
    assert_eq!(took(&server), ["[2]"]);
}

#[tokio::test]
async fn behind_an_outage_followers_are_unavailable_too() {
    let server = Server::start().await;
    server.answers(|asked| if asked.text().len() > 5 { Reply::status(413) } else { Reply::status(503) });
    let outcomes = send(&batch_sink(&server), &events(&["a", "b", "a", "b"])).await;
    assert_eq!(letters(&outcomes), "uuuu");
    assert_eq!(server.asked().len(), 2, "what is behind an outage is not tried");
}

#[tokio::test]
async fn a_payload_that_is_no_json_spoils_only_itself_and_what_waits_behind_it() {
    // S1-33
    let server = Server::start().await;
    let mut batch = events(&["a", "b", "a", "c", "b"]);
    batch[1] = Event::json_text("Broken", "{\"a\":").key("b").build().unwrap();
    let outcomes = send(&batch_sink(&server), &batch).await;
    assert_eq!(letters(&outcomes), "dxdd-");
    assert!(outcomes[1].error().unwrap().contains("not JSON"), "{outcomes:?}");
    assert_eq!(took(&server), ["[0,2,3]"]);
}

fn with_paths(server: &Server, paths: Destination) -> HttpBatchSink {
    HttpBatchSink::new(BatchConfig::new(Endpoint::new(server.url() + "/api/").path(paths))).unwrap()
}

#[tokio::test]
async fn events_of_different_paths_are_different_requests_and_a_key_keeps_its_order_over_them() {
    // S1-8
    let server = Server::start().await;
    let paths = Destination::new("/events/batch").unwrap().for_type("Job", "/dispatch/jobs/batch").unwrap();
    let event = |number: usize, event_type: &str, key: &str| {
        Event::json_text(event_type, number.to_string()).key(key).build().unwrap()
    };
    let batch = [
        event(0, "Placed", "a"),
        event(1, "Job", "b"),
        event(2, "Job", "a"),
        event(3, "Placed", "a"),
        event(4, "Placed", "c"),
    ];
    let outcomes = send(&with_paths(&server, paths), &batch).await;
    assert_eq!(letters(&outcomes), "ddddd");
    let asked: Vec<_> =
        server.asked().iter().map(|asked| (asked.path.clone(), asked.text().to_owned())).collect();
    let expected = [
        ("/api/events/batch", "[0,4]"),
        ("/api/dispatch/jobs/batch", "[1]"),
        ("/api/dispatch/jobs/batch", "[2]"),
        ("/api/events/batch", "[3]"),
    ];
    assert_eq!(asked, expected.map(|(path, body)| (path.to_owned(), body.to_owned())));
}

#[tokio::test]
async fn a_path_that_fails_holds_up_no_other_but_the_keys_that_failed() {
    let server = Server::start().await;
    let paths = Destination::new("/{event_type}").unwrap();
    server.answers(|asked| Reply::status(if asked.path == "/api/Bad" { 404 } else { 200 }));
    let event = |event_type: &str, key: &str| Event::json_text(event_type, "1").key(key).build().unwrap();
    let batch =
        [event("Bad", "a"), event("Good", "b"), event("Good", "a"), event("Bad", "c"), event("Good", "d")];
    let outcomes = send(&with_paths(&server, paths), &batch).await;
    assert_eq!(letters(&outcomes), "uduud");
}

#[tokio::test]
async fn an_event_that_lacks_what_its_path_uses_is_rejected_alone() {
    let server = Server::start().await;
    let sink = with_paths(&server, Destination::new("/t/{tenant_id}").unwrap());
    let with = Event::json_text("Tested", "1").tenant("acme").build().unwrap();
    let without = Event::json_text("Tested", "2").build().unwrap();
    let outcomes = send(&sink, &[without, with]).await;
    assert_eq!(letters(&outcomes), "xd");
    assert!(outcomes[0].error().unwrap().contains("no tenant_id"), "{outcomes:?}");
    assert_eq!(server.asked()[0].path, "/api/t/acme");
}
