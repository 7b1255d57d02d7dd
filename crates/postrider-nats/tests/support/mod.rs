//! A stream of its own for each test on the real server, and a sink that reaches it through a line.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_nats::{
    ConnectOptions, Subscriber,
    jetstream::{self, stream},
};
use postrider_core::Sink;
use postrider_nats::{NatsConfig, NatsSink, config::SCHEMES};
use postrider_net::Address;
use postrider_testkit::conformance::{
    Failure,
    sink::{
        Line, Received, Receiver, Retyped, SinkFeatures, SinkHarness,
        line::{fresh_name, server_url},
        retyped::{IGNORED, REFUSED},
    },
};
use secrecy::ExposeSecret;

/// How long a hasty sink has for a send.
pub(crate) const HASTE: Duration = Duration::from_secs(3);
const VARIABLE: &str = "POSTRIDER_TEST_NATS_URL";

pub(crate) fn address() -> Result<Address, Failure> {
    Ok(Address::parse("url", &server_url(VARIABLE)?, SCHEMES)?)
}

/// The server's URL with another way to it.
pub(crate) fn url_by(scheme: &str, host: &str, port: u16) -> Result<String, Failure> {
    let address = address()?;
    let user = address.username.as_deref().unwrap_or_default();
    let password = address.password.as_ref().map_or("", |password| password.expose_secret());
    Ok(format!("{scheme}://{user}:{password}@{host}:{port}"))
}

/// A client beside the sink.
pub(crate) async fn client() -> Result<jetstream::Context, Failure> {
    let address = address()?;
    let password = address.password.as_ref().map_or("", |password| password.expose_secret()).to_owned();
    let options =
        ConnectOptions::with_user_and_password(address.username.clone().unwrap_or_default(), password);
    Ok(jetstream::new(options.connect(address.to_string()).await?))
}

/// The URL of the server by way of a line.
pub(crate) async fn line() -> Result<(Line, String), Failure> {
    let address = address()?;
    let line = Line::to(format!("{}:{}", address.host, address.port)).await?;
    let url = url_by("nats", "127.0.0.1", line.address().port())?;
    Ok((line, url))
}

/// A stream for all subjects below a name; gone when it is dropped.
pub(crate) struct Stream {
    pub(crate) name: String,
    context: jetstream::Context,
}

impl Stream {
    pub(crate) async fn new(config: stream::Config) -> Result<Self, Failure> {
        let name = fresh_name();
        let context = client().await?;
        let subjects = vec![format!("{name}.>")];
        let storage = stream::StorageType::Memory;
        context.create_stream(stream::Config { name: name.clone(), subjects, storage, ..config }).await?;
        Ok(Self { name, context })
    }

    pub(crate) fn subject(&self) -> String {
        format!("{}.events", self.name)
    }

    /// Everything in it, in its order.
    pub(crate) async fn messages(
        &self,
    ) -> Result<Vec<async_nats::jetstream::message::StreamMessage>, Failure> {
        let mut stream = self.context.get_stream(&self.name).await?;
        let state = stream.info().await?.state.clone();
        let mut messages = Vec::new();
        // An empty stream begins at 0, and no message has that number.
        for sequence in state.first_sequence.max(1)..=state.last_sequence {
            messages.push(stream.get_raw_message(sequence).await?);
        }
        Ok(messages)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let (context, name) = (self.context.clone(), self.name.clone());
        tokio::spawn(async move { context.delete_stream(name).await });
    }
}

fn received(message: async_nats::jetstream::message::StreamMessage) -> Received {
    let headers = message.headers.iter().map(|(name, values)| {
        let values: Vec<_> = values.iter().map(|value| value.as_str()).collect();
        (name.to_string(), values.join(", "))
    });
    let mut headers: BTreeMap<String, String> = headers.collect();
    Received {
        id: headers.remove("event-id"),
        event_type: headers.remove("event-type"),
        key: headers.remove("event-key"),
        headers,
        payload: message.payload.to_vec(),
    }
}

pub(crate) struct NatsHarness {
    pub(crate) sink: Arc<Retyped<NatsSink>>,
    hasty: Arc<Retyped<NatsSink>>,
    pub(crate) line: Line,
    pub(crate) stream: Stream,
    /// Takes no message, since its messages have headers at the least.
    _narrow: Stream,
    _silent: Subscriber,
}

impl SinkHarness for NatsHarness {
    const FEATURES: SinkFeatures = SinkFeatures::ALL;

    async fn fresh() -> Result<Self, Failure> {
        let (line, url) = line().await?;
        let stream = Stream::new(stream::Config::default()).await?;
        let narrow = Stream::new(stream::Config { max_message_size: 1, ..Default::default() }).await?;
        let mut config = NatsConfig::new(&url, &stream.subject())?;
        config.subject = config.subject.for_type(REFUSED, &narrow.subject())?;
        // Somebody listens here, so that the server does not say that nobody does, and never answers.
        let silent = client().await?.client().subscribe(format!("{}-silent", stream.name)).await?;
        config.subject = config.subject.for_type(IGNORED, &format!("{}-silent", stream.name))?;
        let hasty = Retyped::new(NatsSink::new(config.clone().send_timeout(HASTE))?);
        let sink = Retyped::new(NatsSink::new(config)?);
        Ok(Self { sink, hasty, line, stream, _narrow: narrow, _silent: silent })
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn hasty(&self) -> Option<Arc<dyn Sink>> {
        Some(self.hasty.clone())
    }

    async fn received(&self) -> Result<Vec<Received>, Failure> {
        Ok(self.stream.messages().await?.into_iter().map(received).collect())
    }

    async fn set_receiver(&self, receiver: Receiver) -> Result<(), Failure> {
        self.sink.set(&receiver)?;
        self.hasty.set(&receiver)?;
        self.line.set(&receiver);
        Ok(())
    }

    async fn stalled(&self) -> Result<(), Failure> {
        self.line.stalled().await
    }
}
