//! The conformance suite: batches of payloads and of CloudEvents, with a result for all or for each, and webhooks.

use std::{collections::BTreeMap, marker::PhantomData, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use percent_encoding::percent_decode_str;
use postrider_core::{
    Event, Sink,
    format::{CloudEvents, Format},
};
use postrider_http::{BatchConfig, Endpoint, HttpBatchSink, WebhookConfig, WebhookSink};
use postrider_testkit::{
    conformance::{
        Checked, Failure,
        sink::{Payloads, Received, Receiver, SinkFeatures, SinkHarness},
    },
    sink_conformance,
};
use serde_json::value::RawValue;

use crate::{
    SECRET,
    server::{Asked, Reply, Server},
};

/// How long a request of a hasty sink may take.
const HASTE: Duration = Duration::from_secs(1);

/// One way to send.
trait Way: Send + Sync + 'static {
    const FEATURES: SinkFeatures;
    fn sink(endpoint: Endpoint) -> Arc<dyn Sink>;
    /// The events of a request.
    fn read(asked: &Asked) -> Vec<Received>;
    /// What a receiver says that takes all of these but, if it is there, the refused one.
    fn answer(received: &[Received], refused: Option<&Event>) -> Reply {
        if received.iter().any(|received| is(received, refused)) {
            Reply::status(422)
        } else {
            Reply::status(200)
        }
    }
    /// What of a request a receiver has taken.
    fn taken(received: Vec<Received>, _: Option<&Event>) -> Vec<Received> {
        received
    }
}

fn is(received: &Received, event: Option<&Event>) -> bool {
    event.is_some_and(|event| received.payload == event.payload().as_bytes())
}

struct Harness<W> {
    server: Server,
    sink: Arc<dyn Sink>,
    refused: std::sync::Mutex<Option<Event>>,
    way: PhantomData<W>,
}

impl<W: Way> SinkHarness for Harness<W> {
    const FEATURES: SinkFeatures = W::FEATURES;

    async fn fresh() -> Result<Self, Failure> {
        // Without keep-alive a server that is down is known to be: no request is lost on a connection that just ended.
        let server = Server::with(false, None).await;
        server.answers(|asked| W::answer(&W::read(asked), None));
        let sink = W::sink(Endpoint::new(server.url()));
        Ok(Self { server, sink, refused: Default::default(), way: PhantomData })
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn hasty(&self) -> Option<Arc<dyn Sink>> {
        Some(W::sink(Endpoint::new(self.server.url()).timeouts(HASTE, HASTE)))
    }

    async fn received(&self) -> Result<Vec<Received>, Failure> {
        let refused = self.refused.lock().unwrap().clone();
        let took = self.server.took();
        Ok(took.iter().flat_map(|asked| W::taken(W::read(asked), refused.as_ref())).collect())
    }

    async fn set_receiver(&self, receiver: Receiver) -> Checked {
        match receiver {
            Receiver::Well => self.server.answers(|asked| W::answer(&W::read(asked), None)),
            Receiver::Refuses(event) => {
                *self.refused.lock().unwrap() = Some(event.clone());
                self.server.answers(move |asked| W::answer(&W::read(asked), Some(&event)));
            }
            Receiver::Stalls => self.server.answers(|_| Reply::Stalls),
            Receiver::Ignores(event) => self.server.answers(move |asked| {
                let received = W::read(asked);
                let ignored = received.iter().any(|received| is(received, Some(&event)));
                if ignored { Reply::Stalls } else { W::answer(&received, None) }
            }),
            Receiver::Down => {
                self.server.stop().await;
                return Ok(());
            }
        }
        self.server.resume().await;
        Ok(())
    }

    async fn stalled(&self) -> Checked {
        self.server.stalled().await;
        Ok(())
    }
}

fn raw(asked: &Asked) -> Vec<Received> {
    let payloads: Vec<Box<RawValue>> = serde_json::from_slice(&asked.body).unwrap();
    let received = |payload: Box<RawValue>| Received { payload: payload.get().into(), ..Default::default() };
    payloads.into_iter().map(received).collect()
}

/// Nothing but JSON goes in, and nothing but the payload.
const RAW: SinkFeatures = SinkFeatures {
    id: false,
    event_type: false,
    key: false,
    headers: false,
    payloads: Payloads::Json,
    ignore: false,
    ..SinkFeatures::ALL
};

struct RawBatch;

impl Way for RawBatch {
    const FEATURES: SinkFeatures = RAW;

    fn sink(endpoint: Endpoint) -> Arc<dyn Sink> {
        Arc::new(HttpBatchSink::new(BatchConfig::new(endpoint)).unwrap())
    }

    fn read(asked: &Asked) -> Vec<Received> {
        assert_eq!(asked.header("content-type"), Some("application/json"));
        raw(asked)
    }
}

/// The endpoint takes what it can, and says so of each.
struct ItemResults;

impl Way for ItemResults {
    const FEATURES: SinkFeatures = RAW;

    fn sink(endpoint: Endpoint) -> Arc<dyn Sink> {
        Arc::new(HttpBatchSink::new(BatchConfig::new(endpoint).item_results()).unwrap())
    }

    fn read(asked: &Asked) -> Vec<Received> {
        raw(asked)
    }

    fn answer(received: &[Received], refused: Option<&Event>) -> Reply {
        let result = |received: &Received| match is(received, refused) {
            true => r#"{"status":"BAD_REQUEST","error":"no"}"#,
            false => r#"{"status":"SUCCESS"}"#,
        };
        let results: Vec<_> = received.iter().map(result).collect();
        Reply::body(200, format!(r#"{{"results":[{}]}}"#, results.join(",")))
    }

    fn taken(mut received: Vec<Received>, refused: Option<&Event>) -> Vec<Received> {
        received.retain(|received| !is(received, refused));
        received
    }
}

#[derive(serde::Deserialize)]
struct CloudEvent {
    id: String,
    r#type: String,
    partitionkey: Option<String>,
    datacontenttype: String,
    data: Option<Box<RawValue>>,
    data_base64: Option<String>,
}

impl CloudEvent {
    fn received(self) -> Received {
        let payload = match (self.data, self.data_base64) {
            (Some(json), _) if self.datacontenttype == "application/json" => json.get().into(),
            (Some(text), _) => serde_json::from_str::<String>(text.get()).unwrap().into_bytes(),
            (None, Some(bytes)) => BASE64_STANDARD.decode(bytes).unwrap(),
            (None, None) => Vec::new(),
        };
        let (id, event_type) = (Some(self.id), Some(self.r#type));
        Received { id, event_type, key: self.partitionkey, payload, ..Default::default() }
    }
}

struct CloudEventsBatch;

impl Way for CloudEventsBatch {
    const FEATURES: SinkFeatures = SinkFeatures { headers: false, ignore: false, ..SinkFeatures::ALL };

    fn sink(endpoint: Endpoint) -> Arc<dyn Sink> {
        let config = BatchConfig::new(endpoint).cloud_events(CloudEvents::new("/tests"));
        Arc::new(HttpBatchSink::new(config).unwrap())
    }

    fn read(asked: &Asked) -> Vec<Received> {
        assert_eq!(asked.header("content-type"), Some("application/cloudevents-batch+json"));
        let events: Vec<CloudEvent> = serde_json::from_slice(&asked.body).unwrap();
        events.into_iter().map(CloudEvent::received).collect()
    }
}

fn webhook(endpoint: Endpoint, format: Format) -> Arc<dyn Sink> {
    Arc::new(WebhookSink::new(WebhookConfig::new(endpoint).format(format).secret(SECRET)).unwrap())
}

fn all_headers(asked: &Asked) -> BTreeMap<String, String> {
    asked
        .headers
        .keys()
        .map(|name| (name.to_string(), asked.header(name.as_str()).unwrap().to_owned()))
        .collect()
}

struct RawWebhook;

impl Way for RawWebhook {
    const FEATURES: SinkFeatures = SinkFeatures::ALL;

    fn sink(endpoint: Endpoint) -> Arc<dyn Sink> {
        webhook(endpoint, Format::Raw)
    }

    fn read(asked: &Asked) -> Vec<Received> {
        let said = |name| asked.header(name).map(str::to_owned);
        vec![Received {
            id: said("event-id"),
            event_type: said("event-type"),
            key: said("event-key"),
            headers: all_headers(asked),
            payload: asked.body.clone(),
        }]
    }
}

struct BinaryWebhook;

impl Way for BinaryWebhook {
    const FEATURES: SinkFeatures = SinkFeatures::ALL;

    fn sink(endpoint: Endpoint) -> Arc<dyn Sink> {
        webhook(endpoint, Format::CloudEventsBinary(CloudEvents::new("/tests")))
    }

    fn read(asked: &Asked) -> Vec<Received> {
        let said = |name| Some(percent_decode_str(asked.header(name)?).decode_utf8().unwrap().into_owned());
        vec![Received {
            id: said("ce-id"),
            event_type: said("ce-type"),
            key: said("ce-partitionkey"),
            headers: all_headers(asked),
            payload: asked.body.clone(),
        }]
    }
}

struct StructuredWebhook;

impl Way for StructuredWebhook {
    const FEATURES: SinkFeatures = SinkFeatures::ALL;

    fn sink(endpoint: Endpoint) -> Arc<dyn Sink> {
        webhook(endpoint, Format::CloudEventsStructured(CloudEvents::new("/tests")))
    }

    fn read(asked: &Asked) -> Vec<Received> {
        assert_eq!(asked.header("content-type"), Some("application/cloudevents+json"));
        let event: CloudEvent = serde_json::from_slice(&asked.body).unwrap();
        vec![Received { headers: all_headers(asked), ..event.received() }]
    }
}

mod batches {
    use super::*;
    sink_conformance!(Harness<RawBatch>);
}

mod batches_with_item_results {
    use super::*;
    sink_conformance!(Harness<ItemResults>);
}

mod cloud_events_batches {
    use super::*;
    sink_conformance!(Harness<CloudEventsBatch>);
}

mod webhooks {
    use super::*;
    sink_conformance!(Harness<RawWebhook>);
}

mod binary_cloud_event_webhooks {
    use super::*;
    sink_conformance!(Harness<BinaryWebhook>);
}

mod structured_cloud_event_webhooks {
    use super::*;
    sink_conformance!(Harness<StructuredWebhook>);
}
