//! A canary in every secret setting is nowhere to be seen.

use postrider_core::Sink;
use postrider_http::{BatchConfig, Endpoint, HttpBatchSink, WebhookConfig, WebhookSink};

use crate::{
    events, send,
    server::{Reply, Server},
};

const CANARY: &str = "canary-5c1e";
/// The canary in base64, as it is in a signing secret of enough bytes.
const SIGNING_CANARY: &str = "whsec_Y2FuYXJ5LTVjMWVjYW5hcnktNWMxZWNhbmFyeQ==";

/// Repeats everything that it was told, as receivers that help with debugging do.
fn repeats(server: &Server, status: u16) {
    server.answers(move |asked| Reply::body(status, format!("{:?} {:?}", asked.headers, asked.path)));
}

fn endpoints(server: &Server) -> [Endpoint; 3] {
    let host = server.address();
    [
        Endpoint::new(format!("http://{host}/?key={CANARY}")).token(CANARY).header("x-api-key", CANARY),
        Endpoint::new(format!("http://{CANARY}:{CANARY}@{host}/")).header("x-api-key", CANARY),
        Endpoint::new(format!("http://{host}/")).token(format!("{CANARY}\"x")),
    ]
}

#[tokio::test]
async fn no_secret_is_in_debug_errors_outcomes_or_health() {
    let server = Server::start().await;
    let mut seen = String::new();
    for endpoint in endpoints(&server) {
        let batches = BatchConfig::new(endpoint.clone());
        let webhook = WebhookConfig::new(endpoint).secret(SIGNING_CANARY);
        seen += &format!("{batches:?} {webhook:?}");
        let (batches, webhook) = (HttpBatchSink::new(batches).unwrap(), WebhookSink::new(webhook).unwrap());
        seen += &format!("{batches:?} {webhook:?}");
        for sink in [&batches as &dyn Sink, &webhook] {
            server.resume().await;
            seen += &format!("{:?}", sink.destination(&events(&["a"])[0]));
            for status in [400, 401, 408, 500, 503] {
                repeats(&server, status);
                seen += &format!("{:?}", send(sink, &events(&["a", "b"])).await);
                seen += &format!("{:?}", sink.health().await);
            }
            server.answers(|_| Reply::Cuts);
            seen += &format!("{:?}", send(sink, &events(&["a"])).await);
            server.stop().await;
            seen += &format!("{:?} {:?}", send(sink, &events(&["a"])).await, sink.health().await);
        }
    }
    assert!(seen.contains("answered 500") && seen.contains("[hidden]"), "the receiver was heard");
    for secret in [CANARY, "Y2FuYXJ5", SIGNING_CANARY] {
        let at = seen.find(secret).map(|at| &seen[at.saturating_sub(200)..(at + 40).min(seen.len())]);
        assert_eq!(at, None);
    }
}
