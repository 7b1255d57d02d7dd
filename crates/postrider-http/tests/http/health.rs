//! The health check.

use postrider_core::{Health, Sink};
use postrider_http::{BatchConfig, Endpoint, HttpBatchSink};

use crate::{
    batch_sink,
    server::{Reply, Server},
    webhook_sink,
};

#[tokio::test]
async fn a_health_path_tells_whether_the_receiver_is_up() {
    let server = Server::start().await;
    let endpoint = Endpoint::new(server.url() + "/api").health_path("/health?deep=1").token("secret");
    let sink = HttpBatchSink::new(BatchConfig::new(endpoint)).unwrap();
    assert_eq!(sink.health().await, Health::Up);
    let asked = server.asked()[0].clone();
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("GET", "/api/health?deep=1"));
    assert_eq!(asked.header("authorization"), Some("Bearer secret"));
    server.answers(|_| Reply::body(500, "the disk is full"));
    let Health::Down { error } = sink.health().await else { panic!("up") };
    assert!(error.ends_with("answered 500 Internal Server Error: the disk is full"), "{error}");
}

#[tokio::test]
async fn without_one_an_answer_shows_only_that_something_is_there() {
    let server = Server::start().await;
    for sink in [&batch_sink(&server) as &dyn Sink, &webhook_sink(&server)] {
        server.resume().await;
        for status in [200, 204, 404, 405, 500] {
            server.answers(move |_| Reply::status(status));
            assert_eq!(sink.health().await, Health::Unknown, "{status}");
        }
        for status in [401, 403, 429, 502, 503, 504] {
            server.answers(move |_| Reply::status(status));
            assert!(matches!(sink.health().await, Health::Down { .. }), "{status}");
        }
        server.stop().await;
        assert!(matches!(sink.health().await, Health::Down { .. }));
    }
    assert!(server.took().is_empty(), "no event was sent");
}
