//! A stream of its own for each test on the real server, and a sink that reaches it through a proxy.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use postrider_core::Sink;
use postrider_net::Address;
use postrider_redis::{RedisConfig, RedisSink, config::SCHEMES};
use postrider_testkit::conformance::{
    Failure,
    sink::{
        Line, Received, Receiver, Retyped, SinkFeatures, SinkHarness,
        line::{fresh_name, server_url},
        retyped::REFUSED,
    },
};
use redis::{Commands, Connection, Value, streams::StreamRangeReply};
use secrecy::ExposeSecret;

/// How long a hasty sink has for a send.
pub(crate) const HASTE: Duration = Duration::from_secs(3);
const VARIABLE: &str = "POSTRIDER_TEST_REDIS_URL";

pub(crate) fn address() -> Result<Address, Failure> {
    Ok(Address::parse("url", &server_url(VARIABLE)?, SCHEMES)?)
}

/// The server's URL with another way to it.
pub(crate) fn url_by(scheme: &str, host: &str, port: u16) -> Result<String, Failure> {
    let address = address()?;
    let password = address.password.as_ref().map_or("", |password| password.expose_secret());
    Ok(format!("{scheme}://:{password}@{host}:{port}"))
}

/// A client beside the sink.
pub(crate) fn client() -> Result<Connection, Failure> {
    Ok(redis::Client::open(server_url(VARIABLE)?)?.get_connection()?)
}

/// The URL of the server by way of a line.
pub(crate) async fn line() -> Result<(Line, String), Failure> {
    let address = address()?;
    let line = Line::to(format!("{}:{}", address.host, address.port)).await?;
    let url = url_by("redis", "127.0.0.1", line.address().port())?;
    Ok((line, url))
}

/// Everything in a stream, in its order.
pub(crate) fn entries(stream: &str) -> Result<Vec<BTreeMap<String, Vec<u8>>>, Failure> {
    let entries: StreamRangeReply = client()?.xrange_all(stream)?;
    let fields = |(name, value)| match value {
        Value::BulkString(bytes) => Ok((name, bytes)),
        other => Err(Failure::from(format!("{name} is {other:?}"))),
    };
    entries.ids.into_iter().map(|entry| entry.map.into_iter().map(fields).collect()).collect()
}

fn received(mut entry: BTreeMap<String, Vec<u8>>) -> Result<Received, Failure> {
    let payload = entry.remove("payload").ok_or("an entry without a payload")?;
    let texts = entry.into_iter().map(|(name, value)| Ok((name, String::from_utf8(value)?)));
    let mut headers = texts.collect::<Result<BTreeMap<_, _>, Failure>>()?;
    Ok(Received {
        id: headers.remove("event-id"),
        event_type: headers.remove("event-type"),
        key: headers.remove("event-key"),
        headers,
        payload,
    })
}

pub(crate) struct RedisHarness {
    pub(crate) sink: Arc<Retyped<RedisSink>>,
    hasty: Arc<RedisSink>,
    pub(crate) line: Line,
    pub(crate) stream: String,
}

impl RedisHarness {
    fn exhausted(&self) -> String {
        format!("{}-exhausted", self.stream)
    }
}

impl Drop for RedisHarness {
    fn drop(&mut self) {
        if let Ok(mut client) = client() {
            let _: Result<(), _> = client.del(&[&self.stream, &self.exhausted()]);
        }
    }
}

impl SinkHarness for RedisHarness {
    const FEATURES: SinkFeatures = SinkFeatures { ignore: false, ..SinkFeatures::ALL };

    async fn fresh() -> Result<Self, Failure> {
        let (line, url) = line().await?;
        let stream = fresh_name();
        let mut config = RedisConfig::new(&url, &stream)?;
        config.stream = config.stream.for_type(REFUSED, &format!("{stream}-exhausted"))?;
        let hasty = Arc::new(RedisSink::new(config.clone().send_timeout(HASTE))?);
        let harness = Self { sink: Retyped::new(RedisSink::new(config)?), hasty, line, stream };
        // No id is left behind the greatest one, so that this stream refuses every entry.
        let last = format!("{0}-{0}", u64::MAX);
        let _: String = client()?.xadd(harness.exhausted(), last, &[("the", "last")])?;
        Ok(harness)
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn hasty(&self) -> Option<Arc<dyn Sink>> {
        Some(self.hasty.clone())
    }

    async fn received(&self) -> Result<Vec<Received>, Failure> {
        entries(&self.stream)?.into_iter().map(received).collect()
    }

    async fn set_receiver(&self, receiver: Receiver) -> Result<(), Failure> {
        self.sink.set(&receiver)?;
        self.line.set(&receiver);
        Ok(())
    }

    async fn stalled(&self) -> Result<(), Failure> {
        self.line.stalled().await
    }
}
