//! `Retry-After`, obeyed.

use std::time::{Duration, SystemTime};

use postrider_core::{Event, Outcome, Sink, format::Destination};
use postrider_http::{Endpoint, WebhookConfig, WebhookSink, limits};

use crate::{
    batch_sink, events, letters, send,
    server::{Reply, Server},
    webhook_sink,
};

/// Statuses that one event can cause.
const OF_ONE_EVENT: [u16; 7] = [408, 409, 413, 418, 500, 502, 504];

#[tokio::test]
async fn an_event_alone_that_fails_with_a_time_comes_again_then_and_holds_up_no_other() {
    for status in OF_ONE_EVENT {
        for (value, expected) in [("7", 7), ("0", 0), ("999999", limits::RETRY_AFTER_MAX.as_secs())] {
            let server = Server::start().await;
            server.answers(move |asked| match asked.text().contains('0') {
                true => Reply::body(status, "look at it").header("retry-after", value),
                false => Reply::status(200),
            });
            let (batches, webhook) = (batch_sink(&server), webhook_sink(&server));
            for sink in [&batches as &dyn Sink, &webhook] {
                let batch = events(&["a", "b"]);
                let outcomes = send(sink, &batch[..1]).await;
                let Outcome::Later { error, after } = &outcomes[0] else { panic!("{status}: {outcomes:?}") };
                assert!(error.contains("look at it"), "{error}");
                assert_eq!(after.as_secs(), expected, "{status} {value}");
                assert_eq!(letters(&send(sink, &batch[1..]).await), "d", "{status}: its path takes others");
            }
        }
    }
}

#[tokio::test]
async fn a_date_is_as_good_as_seconds() {
    let server = Server::start().await;
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
    server.answers(move |_| Reply::status(429).header("retry-after", date.clone()));
    let outcomes = send(&webhook_sink(&server), &events(&["a"])).await;
    let Outcome::Deferred { after } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!((90..=100).contains(&after.as_secs()), "{after:?}");
}

#[tokio::test]
async fn a_status_that_blames_the_event_or_the_way_there_is_the_same_with_a_time() {
    for (status, expected) in [(400, "x"), (422, "x"), (401, "u"), (404, "u"), (410, "u")] {
        let server = Server::start().await;
        server.answers(move |_| Reply::status(status).header("retry-after", "3600"));
        let sink = webhook_sink(&server);
        assert_eq!(letters(&send(&sink, &events(&["a"])).await), expected, "{status}");
        server.answers(|_| Reply::status(200));
        assert_eq!(letters(&send(&sink, &events(&["b"])).await), "d", "{status}: its path takes others");
    }
}

/// How long the events are deferred, in seconds.
fn deferred_s(outcomes: &[Outcome]) -> Vec<u64> {
    let seconds = |outcome: &Outcome| match outcome {
        Outcome::Deferred { after } if !after.is_zero() => after.as_secs_f32().ceil() as u64,
        _ => panic!("{outcomes:?}"),
    };
    outcomes.iter().map(seconds).collect()
}

#[tokio::test]
async fn too_fast_is_deferred_for_as_long_as_the_receiver_says_or_a_second() {
    for (status, said, expected) in [
        (429, None, 1),
        (429, Some("0"), 1),
        (429, Some("soon"), 1),
        (429, Some("7"), 7),
        (429, Some("999999"), limits::RETRY_AFTER_MAX.as_secs()),
        (503, Some("7"), 7),
    ] {
        let server = Server::start().await;
        server.answers(move |_| match said {
            Some(said) => Reply::status(status).header("retry-after", said),
            None => Reply::status(status),
        });
        let (batches, webhook) = (batch_sink(&server), webhook_sink(&server));
        for sink in [&batches as &dyn Sink, &webhook] {
            let outcomes = send(sink, &events(&["a", "b"])).await;
            assert_eq!(deferred_s(&outcomes), [expected; 2], "{status} {said:?}");
        }
    }
}

#[tokio::test]
async fn a_receiver_that_is_down_and_says_nothing_of_time_is_unavailable() {
    for said in [None, Some("soon")] {
        let server = Server::start().await;
        server.answers(move |_| match said {
            Some(said) => Reply::status(503).header("retry-after", said),
            None => Reply::status(503),
        });
        assert_eq!(letters(&send(&batch_sink(&server), &events(&["a", "b"])).await), "uu", "{said:?}");
    }
}

#[tokio::test]
async fn a_pause_that_a_receiver_asks_for_holds_for_the_rest_of_its_send_and_no_longer() {
    // One event may be the reason. Whether the path is left alone is for the engine to say, which sees what becomes of others.
    for status in [429, 503] {
        let server = Server::start().await;
        server.answers(move |asked| match asked.text().contains('0') {
            true => Reply::status(status).header("retry-after", "3600"),
            false => Reply::status(200),
        });
        let (batches, webhook) = (batch_sink(&server), webhook_sink(&server));
        let batch = events(&["a", "b"]);
        assert_eq!(deferred_s(&send(&webhook, &batch).await), [3600; 2]);
        assert_eq!(server.asked().len(), 1);
        for sink in [&batches as &dyn Sink, &webhook] {
            assert_eq!(deferred_s(&send(sink, &batch[..1]).await), [3600]);
            assert_eq!(letters(&send(sink, &batch[1..]).await), "d", "{status}");
        }
    }
}

#[tokio::test]
async fn a_path_that_asked_for_a_pause_holds_up_no_other_and_its_events_count_no_attempt() {
    let server = Server::start().await;
    server.answers(|asked| match asked.path.as_str() {
        "/busy" => Reply::status(429).header("retry-after", "3600"),
        _ => Reply::status(200),
    });
    let endpoint = Endpoint::new(server.url()).path(Destination::new("/{tenant_id}").unwrap());
    let sink = WebhookSink::new(WebhookConfig::new(endpoint).unsigned()).unwrap();
    let of = |tenant: &str| Event::json_text("Tested", "1").tenant(tenant).build().unwrap();
    assert_eq!(letters(&send(&sink, &[of("busy"), of("idle")]).await), "-d");
    assert_eq!(letters(&send(&sink, &[of("idle")]).await), "d");
    let outcomes = send(&sink, &[of("busy"), of("idle")]).await;
    assert_eq!(letters(&outcomes), "-d");
    assert!(matches!(outcomes[0], Outcome::Deferred { after } if after > Duration::from_secs(3500)));
}
