//! The configuration of the RabbitMQ sink.

use std::ops::RangeInclusive;

use postrider_core::{
    ConfigError,
    format::{Destination, Format},
};
use postrider_net::{Address, Limits, Scheme, TlsFiles};

/// The schemes of a broker's URL.
pub const SCHEMES: &[Scheme] =
    &[Scheme { name: "amqp", port: 5672, tls: false }, Scheme { name: "amqps", port: 5671, tls: true }];

/// The valid sizes of a batch.
pub const BATCH_MAX: RangeInclusive<usize> = 1..=1_000;

/// Where events go, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RabbitConfig {
    /// The broker, the credentials and the virtual host.
    pub address: Address,
    /// The TLS files, used with `amqps://`.
    pub tls: TlsFiles,
    /// The exchange of an event. `None` is the default exchange, whose routing key is the name of a queue.
    pub exchange: Option<Destination>,
    /// The routing key of an event.
    pub routing_key: Destination,
    /// The format of a message.
    pub format: Format,
    /// The batch size and timeouts.
    pub limits: Limits,
}

impl RabbitConfig {
    /// A broker by its URL, `amqp://[user[:password]]@host[:port][/virtual-host]` or `amqps://…` for TLS, and the template of the
    /// routing key. The default virtual host is `/`; the default user is `guest` with the password `guest`, which brokers accept only from their
    /// own host.
    pub fn new(url: &str, routing_key: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            address: Address::parse("url", url, SCHEMES)?,
            tls: TlsFiles::default(),
            exchange: None,
            routing_key: Destination::new(routing_key)?,
            format: Format::default(),
            limits: Limits::new(100),
        })
    }

    /// Sets the exchange, or its template.
    pub fn exchange(mut self, template: &str) -> Result<Self, ConfigError> {
        self.exchange = Some(Destination::new(template)?);
        Ok(self)
    }

    /// Sets the routing key of an event.
    pub fn routing_key(mut self, routing_key: Destination) -> Self {
        self.routing_key = routing_key;
        self
    }

    /// Sets the TLS files.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = files;
        self
    }

    /// Sets the format of a message.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    postrider_net::limit_setters!(100);

    /// Checks the configuration.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.limits.check(&BATCH_MAX)
    }
}
