//! What can be set.

use std::{ops::RangeInclusive, time::Duration};

use postrider_core::{
    ConfigError,
    format::{Destination, Format},
};
use postrider_net::{Address, Scheme, TlsFiles};

/// Ways to write the URL of a broker.
pub const SCHEMES: &[Scheme] =
    &[Scheme { name: "amqp", port: 5672, tls: false }, Scheme { name: "amqps", port: 5671, tls: true }];

/// How many events one `send` may take.
pub const BATCH_MAX: RangeInclusive<usize> = 1..=1_000;

/// Where events go, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RabbitConfig {
    /// The broker, who signs in, and the virtual host.
    pub address: Address,
    /// The files that TLS needs; used with a URL of `amqps://` alone.
    pub tls: TlsFiles,
    /// The exchange that an event goes to. None is the default exchange, for which the routing key is the name of a queue.
    pub exchange: Option<Destination>,
    /// The routing key of an event.
    pub routing_key: Destination,
    /// How an event is put into a message.
    pub format: Format,
    /// Most events in one `send`.
    pub batch_max: usize,
    /// How long a connection may take until it is ready.
    pub connect_timeout: Duration,
    /// How long a `send` may take before its outcome is unknown.
    pub send_timeout: Duration,
}

impl RabbitConfig {
    /// A broker by its URL, `amqp://[user[:password]]@host[:port][/virtual-host]` or `amqps://…` for TLS, and the template of a
    /// routing key. Without a virtual host it is `/`, without a user `guest` with the password `guest`, which brokers take from their
    /// own host alone.
    pub fn new(url: &str, routing_key: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            address: Address::parse("url", url, SCHEMES)?,
            tls: TlsFiles::default(),
            exchange: None,
            routing_key: Destination::new(routing_key)?,
            format: Format::default(),
            batch_max: 100,
            connect_timeout: Duration::from_secs(10),
            send_timeout: Duration::from_secs(120),
        })
    }

    /// The exchange that all events go to, or the template of its name.
    pub fn exchange(mut self, template: &str) -> Result<Self, ConfigError> {
        self.exchange = Some(Destination::new(template)?);
        Ok(self)
    }

    /// The routing key of an event.
    pub fn routing_key(mut self, routing_key: Destination) -> Self {
        self.routing_key = routing_key;
        self
    }

    /// The files that TLS needs.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = files;
        self
    }

    /// How an event is put into a message.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Most events in one `send`; 100 if it is not set.
    pub fn batch_max(mut self, events: usize) -> Self {
        self.batch_max = events;
        self
    }

    /// How long a connection may take until it is ready; 10 s if it is not set.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long a `send` may take before its outcome is unknown; 120 s if it is not set.
    pub fn send_timeout(mut self, limit: Duration) -> Self {
        self.send_timeout = limit;
        self
    }

    /// What is wrong with it, if something is.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong =
            |setting, value: String, allowed: String| ConfigError::OutOfRange { setting, value, allowed };
        if !BATCH_MAX.contains(&self.batch_max) {
            let allowed = format!("from {} to {}", BATCH_MAX.start(), BATCH_MAX.end());
            return Err(wrong("batch_max", self.batch_max.to_string(), allowed));
        }
        for (setting, limit) in
            [("connect_timeout", self.connect_timeout), ("send_timeout", self.send_timeout)]
        {
            if limit.is_zero() {
                return Err(wrong(setting, format!("{limit:?}"), "longer than nothing".to_owned()));
            }
        }
        Ok(())
    }
}
