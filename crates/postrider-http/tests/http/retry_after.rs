//! `Retry-After`, obeyed.

use std::time::{Duration, SystemTime};

use postrider_core::{Event, Outcome, format::Destination};
use postrider_http::{Endpoint, WebhookConfig, WebhookSink, limits};

use crate::{
    batch_sink, events, letters, send,
    server::{Reply, Server},
    webhook_sink,
};

#[tokio::test]
async fn a_retry_waits_for_as_long_as_the_receiver_says() {
    let server = Server::start().await;
    let sink = batch_sink(&server);
    for (said, expected) in
        [("7", Some(7)), ("0", Some(0)), ("soon", None), ("999999", Some(limits::RETRY_AFTER_MAX.as_secs()))]
    {
        server.answers(move |_| Reply::status(500).header("retry-after", said));
        let outcomes = send(&sink, &events(&["a", "b"])).await;
        for outcome in &outcomes {
            let Outcome::Retry { after, .. } = outcome else { panic!("{outcomes:?}") };
            assert_eq!(after.map(|after| after.as_secs()), expected, "{said}");
        }
    }
}

#[tokio::test]
async fn a_date_is_as_good_as_seconds() {
    let server = Server::start().await;
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
    server.answers(move |_| Reply::status(502).header("retry-after", date.clone()));
    let outcomes = send(&webhook_sink(&server), &events(&["a"])).await;
    let Outcome::Retry { after: Some(after), .. } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!((90..=100).contains(&after.as_secs()), "{after:?}");
}

#[tokio::test]
async fn nothing_is_sent_to_a_receiver_that_asked_to_be_left_alone() {
    for status in [429, 503] {
        let server = Server::start().await;
        server.answers(move |_| Reply::status(status).header("retry-after", "3600"));
        let (batches, webhook) = (batch_sink(&server), webhook_sink(&server));
        for sink in [&batches as &dyn postrider_core::Sink, &webhook] {
            server.asked().clear();
            assert_eq!(letters(&send(sink, &events(&["a"])).await), "u");
            for _ in 0..3 {
                let outcomes = send(sink, &events(&["b", "c"])).await;
                assert_eq!(letters(&outcomes), "uu");
                assert!(
                    outcomes[0].error().unwrap().contains("left alone for another 3600 s"),
                    "{outcomes:?}"
                );
            }
            assert_eq!(server.asked().len(), 1);
        }
    }
}

#[tokio::test]
async fn it_is_asked_again_when_the_time_is_over() {
    let server = Server::start().await;
    let sink = webhook_sink(&server);
    server.answers(|_| Reply::status(429).header("retry-after", "0"));
    assert_eq!(letters(&send(&sink, &events(&["a"])).await), "u");
    server.answers(|_| Reply::status(200));
    assert_eq!(letters(&send(&sink, &events(&["a"])).await), "d");
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
    assert_eq!(letters(&send(&sink, &[of("busy"), of("idle")]).await), "ud");
    assert_eq!(letters(&send(&sink, &[of("idle")]).await), "d");
    let outcomes = send(&sink, &[of("busy"), of("idle")]).await;
    assert_eq!(letters(&outcomes), "-d");
    assert!(matches!(outcomes[0], Outcome::Deferred { after } if after > Duration::from_secs(3500)));
}
