//! The configuration of the Kafka sink.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive};

use postrider_core::{
    ConfigError,
    format::{Destination, Format},
};
use postrider_net::{Limits, deadline};
use rdkafka::ClientConfig;
use secrecy::{ExposeSecret, SecretString};

use crate::message;

/// The valid sizes of a batch.
pub const BATCH_MAX: RangeInclusive<usize> = 1..=1_000;

/// Properties that the sink's promises depend on. They cannot be set.
const FIXED: [(&str, &str); 3] = [
    ("acks", "all"),
    ("enable.idempotence", "true"),
    // librdkafka's own log contains names and sometimes values of properties.
    ("log.queue", "false"),
];

/// Aliases of these properties, and properties that would make a different kind of producer.
const FIXED_TOO: [&str; 5] = [
    "request.required.acks",
    MESSAGE_TIMEOUT,
    "delivery.timeout.ms",
    "transactional.id",
    "bootstrap.servers",
];

/// How long librdkafka keeps a record, which is no longer than the send that it belongs to.
const MESSAGE_TIMEOUT: &str = "message.timeout.ms";

/// The largest timeout that librdkafka accepts, in milliseconds.
const MESSAGE_TIMEOUT_MS_MAX: u128 = i32::MAX as u128;

/// Defaults that properties can override.
const DEFAULTS: [(&str, &str); 4] = [
    ("client.id", "postrider"),
    // The same partition for a key as Java's client.
    ("partitioner", "murmur2_random"),
    ("topic.metadata.propagation.max.ms", "10000"),
    // A send hands over a whole batch at once and waits for it, so a longer wait gains little.
    ("linger.ms", "1"),
];

/// The properties that name the authorities to check certificates against.
const AUTHORITIES: [&str; 2] = [AUTHORITIES_PLACE, "ssl.ca.pem"];

const AUTHORITIES_PLACE: &str = "ssl.ca.location";

/// The value of `ssl.ca.location` that searches the usual places of operating systems. The OpenSSL that is compiled with this crate does not
/// know them.
const AUTHORITIES_OF_THE_SYSTEM: &str = "probe";

/// The environment variables that name the authorities for OpenSSL.
const AUTHORITIES_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Where events go, and how.
#[derive(Clone)]
#[non_exhaustive]
pub struct KafkaConfig {
    /// The brokers to start with: `host:port`, several separated by commas.
    pub brokers: String,
    /// The topic of an event.
    pub topic: Destination,
    /// The format of a record.
    pub format: Format,
    /// Properties of librdkafka, such as those for TLS and SASL. Any of them may be a secret, so `Debug` shows only their names.
    pub properties: BTreeMap<String, SecretString>,
    /// The batch size and timeouts.
    pub limits: Limits,
}

impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("format", &self.format)
            .field("properties", &self.properties.keys().collect::<Vec<_>>())
            .field("limits", &self.limits)
            .finish()
    }
}

impl KafkaConfig {
    /// The brokers to start with, `host:port` separated by commas, and the template of the topic.
    pub fn new(brokers: &str, topic: &str) -> Result<Self, ConfigError> {
        let config = Self {
            brokers: brokers.to_owned(),
            topic: Destination::new(topic)?,
            format: Format::default(),
            properties: BTreeMap::new(),
            limits: Limits::new(500),
        };
        config.check()?;
        Ok(config)
    }

    /// Sets the topic of an event.
    pub fn topic(mut self, topic: Destination) -> Self {
        self.topic = topic;
        self
    }

    /// Sets the format of a record.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Sets a property of librdkafka by its name there.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into().into());
        self
    }

    postrider_net::limit_setters!(500);

    /// Checks the configuration. [`KafkaSink::new`](crate::KafkaSink::new) also lets librdkafka check the properties.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.limits.check(&BATCH_MAX)?;
        if self.brokers.trim().is_empty() || self.brokers.contains('@') || self.brokers.contains("//") {
            return Err(ConfigError::out_of_range(
                "brokers",
                "not a list of brokers",
                "host:port, with commas between several of them",
            ));
        }
        for topic in self.topic.fixed() {
            message::check_topic(topic)
                .map_err(|reason| ConfigError::out_of_range("topic", format_args!("{topic:?}"), reason))?;
        }
        let fixed = |name: &str| FIXED.iter().any(|(fixed, _)| *fixed == name) || FIXED_TOO.contains(&name);
        if let Some(name) = self.properties.keys().find(|name| fixed(name)) {
            return Err(ConfigError::out_of_range(
                "properties",
                format_args!("with {name}"),
                "without it: the sink's promises rest on it",
            ));
        }
        Ok(())
    }

    /// The configuration for librdkafka.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.brokers);
        for (name, value) in DEFAULTS {
            client.set(name, value);
        }
        for (name, value) in &self.properties {
            client.set(name, value.expose_secret());
        }
        for (name, value) in FIXED {
            client.set(name, value);
        }
        let by_variable = AUTHORITIES_VARIABLES.iter().any(|name| std::env::var_os(name).is_some());
        if cfg!(feature = "tls") && !by_variable && !AUTHORITIES.iter().any(|name| client.get(name).is_some())
        {
            client.set(AUTHORITIES_PLACE, AUTHORITIES_OF_THE_SYSTEM);
        }
        let limit_ms = deadline::limit(self.limits.send_timeout).as_millis().clamp(1, MESSAGE_TIMEOUT_MS_MAX);
        client.set(MESSAGE_TIMEOUT, limit_ms.to_string());
        client
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_checked_against_the_authorities_of_the_system_unless_others_are_named() {
        if AUTHORITIES_VARIABLES.iter().any(|name| std::env::var_os(name).is_some()) {
            return;
        }
        let location = |property: Option<(&str, &str)>| {
            let config = KafkaConfig::new("host:9092", "topic").unwrap();
            let config = match property {
                Some((name, value)) => config.property(name, value),
                None => config,
            };
            config.client().get(AUTHORITIES_PLACE).map(str::to_owned)
        };
        assert_eq!(location(None).as_deref(), Some("probe"));
        assert_eq!(location(Some((AUTHORITIES_PLACE, "/ca.pem"))).as_deref(), Some("/ca.pem"));
        assert_eq!(location(Some(("ssl.ca.pem", "-----BEGIN"))), None);
    }
}
