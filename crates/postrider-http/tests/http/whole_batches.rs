//! A request with several events that fails as a whole: any of them may be the reason.

use std::time::Duration;

use postrider_http::{BatchConfig, Endpoint, HttpBatchSink};

use crate::{
    batch_sink, events, letters, send,
    server::{Reply, Server},
};

#[tokio::test]
async fn a_batch_that_is_answered_with_an_error_has_failed_and_an_event_alone_is_tried_again() {
    for status in [500, 502, 504] {
        let server = Server::start().await;
        server.answers(move |_| Reply::body(status, "look at it"));
        let sink = batch_sink(&server);
        let outcomes = send(&sink, &events(&["a", "b", "a"])).await;
        assert_eq!(letters(&outcomes), "bbb", "{status}");
        assert!(outcomes[0].error().unwrap().contains("look at it"), "{outcomes:?}");
        assert_eq!(letters(&send(&sink, &events(&["a"])).await), "r", "{status}");
    }
}

#[tokio::test]
async fn a_batch_that_fails_with_a_time_has_failed_and_its_events_can_be_sent_apart_at_once() {
    for status in [408, 409, 413, 500, 502, 504] {
        let server = Server::start().await;
        server.answers(move |asked| match asked.text().contains('1') {
            true => Reply::status(status).header("retry-after", "3600"),
            false => Reply::status(200),
        });
        let (sink, batch) = (batch_sink(&server), events(&["a", "b", "c"]));
        assert_eq!(letters(&send(&sink, &batch).await), "bbb", "{status}");
        assert_eq!(letters(&send(&sink, &batch[..1]).await), "d", "{status}");
        assert_eq!(letters(&send(&sink, &batch[1..2]).await), "l", "{status}");
        assert_eq!(letters(&send(&sink, &batch[2..]).await), "d", "{status}");
    }
}

#[tokio::test]
async fn a_batch_that_is_not_answered_has_failed_and_an_event_alone_is_unknown() {
    let server = Server::start().await;
    let endpoint = Endpoint::new(server.url()).timeouts(Duration::from_millis(50), Duration::from_millis(50));
    let sink = HttpBatchSink::new(BatchConfig::new(endpoint)).unwrap();
    for reply in [Reply::Stalls, Reply::Cuts, Reply::status(408)] {
        let said = reply.clone();
        server.answers(move |_| said.clone());
        assert_eq!(letters(&send(&sink, &events(&["a", "b"])).await), "bb", "{reply:?}");
        assert_eq!(letters(&send(&sink, &events(&["a"])).await), "?", "{reply:?}");
    }
}
