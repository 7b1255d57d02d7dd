//! An endpoint that says of each event what became of it.

use postrider_core::{BatchOrder, Outcome, Sink};
use postrider_http::{BatchConfig, Endpoint, HttpBatchSink, limits};

use crate::{
    events, letters, send,
    server::{Reply, Server},
};

async fn outcomes_of(answer: &str) -> Vec<Outcome> {
    let server = Server::start().await;
    let answer = answer.to_owned();
    server.answers(move |_| Reply::body(200, answer.clone()));
    let sink = HttpBatchSink::new(BatchConfig::new(Endpoint::new(server.url())).item_results()).unwrap();
    assert_eq!(sink.traits().order, BatchOrder::Independent);
    send(&sink, &events(&["a", "b", "c"])).await
}

#[tokio::test]
async fn each_event_has_the_outcome_of_its_own_result() {
    let named = r#"{"results":[{"status":"SUCCESS"},{"status":"BAD_REQUEST","error":"no such customer"},{"status":"INTERNAL_ERROR"}]}"#;
    let outcomes = outcomes_of(named).await;
    assert_eq!(letters(&outcomes), "dxr");
    assert!(
        outcomes[1].error().unwrap().ends_with("400 Bad Request for this event: no such customer"),
        "{outcomes:?}"
    );
    let numbers = r#"[{"status":207},{"status":503},{"status":408}]"#;
    assert_eq!(letters(&outcomes_of(numbers).await), "du?");
    let names = r#"[{"status":"UNAUTHORIZED"},{"status":"FORBIDDEN"},{"status":"GATEWAY_ERROR"}]"#;
    assert_eq!(letters(&outcomes_of(names).await), "uur");
}

#[tokio::test]
async fn results_with_event_ids_may_come_in_any_order() {
    let answer =
        r#"{"results":[{"id":"id-2","status":500},{"id":"id-0","status":200},{"id":"id-1","status":422}]}"#;
    assert_eq!(letters(&outcomes_of(answer).await), "dxr");
    let partial = r#"{"results":[{"id":"id-2","status":200}]}"#;
    assert_eq!(letters(&outcomes_of(partial).await), "??d");
}

#[tokio::test]
async fn a_result_that_cannot_be_matched_says_nothing_of_any_event() {
    for (strange, expected) in [
        // One result carries an ID of the batch, so none is matched by its position.
        (r#"[{"id":"id-1","status":200},{"id":null,"status":200},{"id":"id-0","status":422}]"#, "xd?"),
        (r#"[{"id":"id-1","status":200},{"status":200},{"id":"id-0","status":422}]"#, "xd?"),
        (r#"[{"id":"id-1","status":200},{"id":"ID-2","status":200},{"id":"id-0","status":422}]"#, "xd?"),
        (r#"[{"id":"id-1","status":200},{"id":"other","status":200},{"id":"id-0","status":422}]"#, "xd?"),
        (r#"[{"id":"ID-0","status":200},{"status":422},{"id":"id-2","status":200}]"#, "??d"),
        // IDs are compared exactly.
        (r#"[{"id":"ID-0","status":200},{"id":" id-1","status":200},{"id":"id-2","status":200}]"#, "??d"),
        // No ID is known, and an ID is no position.
        (r#"[{"id":"x","status":200},{"id":"y","status":422},{"id":"z","status":200}]"#, "???"),
        (r#"[{"id":"x","status":200},{"status":422},{"status":200}]"#, "???"),
        (r#"[{"id":"x","status":200}]"#, "???"),
    ] {
        assert_eq!(letters(&outcomes_of(strange).await), expected, "{strange}");
    }
}

#[tokio::test]
async fn two_results_of_one_event_count_only_if_they_agree() {
    for (twice, expected) in [
        (r#"[{"id":"id-0","status":200},{"id":"id-0","status":422},{"id":"id-1","status":200}]"#, "?d?"),
        (r#"[{"id":"id-0","status":422},{"id":"id-0","status":200},{"id":"id-1","status":200}]"#, "?d?"),
        (r#"[{"id":"id-0","status":"FINE"},{"id":"id-0","status":200},{"id":"id-1","status":200}]"#, "?d?"),
        (
            r#"[{"id":"id-0","status":200},{"id":"id-0","status":"SUCCESS"},{"id":"id-1","status":500},{"id":"id-1","status":500},{"id":"id-2","status":422}]"#,
            "drx",
        ),
    ] {
        assert_eq!(letters(&outcomes_of(twice).await), expected, "{twice}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_say_it_is_a_failure_of_the_whole_batch() {
    let too_long =
        format!(r#"{{"results":[{{"status":200,"error":"{}"}}]}}"#, "x".repeat(limits::RESULTS_BYTES_MAX));
    for answer in
        ["", "OK", "{}", r#"{"results":[{"status":200}]}"#, r#"{"results":[{}, {}, {}]}"#, &too_long]
    {
        let outcomes = outcomes_of(answer).await;
        assert_eq!(letters(&outcomes), "bbb", "{answer:.40}");
    }
    assert_eq!(letters(&outcomes_of(r#"[{"status":"FINE"},{"status":200},{"status":9}]"#).await), "?d?");
}

#[tokio::test]
async fn a_status_for_the_whole_still_is_one() {
    let server = Server::start().await;
    let sink = HttpBatchSink::new(BatchConfig::new(Endpoint::new(server.url())).item_results()).unwrap();
    server.answers(|_| Reply::status(503));
    assert_eq!(letters(&send(&sink, &events(&["a", "b"])).await), "uu");
    server.answers(|asked| match asked.text() {
        "[1]" | "[0,1]" => Reply::status(400),
        _ => Reply::body(200, r#"[{"status":200}]"#),
    });
    assert_eq!(letters(&send(&sink, &events(&["a", "b"])).await), "dx");
}
