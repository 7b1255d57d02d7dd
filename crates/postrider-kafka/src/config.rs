//! What can be set.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive, time::Duration};

use postrider_core::{
    ConfigError,
    format::{Destination, Format},
};
use postrider_net::deadline;
use rdkafka::ClientConfig;
use secrecy::{ExposeSecret, SecretString};

use crate::message;

/// How many events one `send` may take.
pub const BATCH_MAX: RangeInclusive<usize> = 1..=1_000;

/// What the promises of this sink rest on; these properties cannot be set.
const FIXED: [(&str, &str); 3] = [
    ("acks", "all"),
    ("enable.idempotence", "true"),
    // The client's own log says the name of a property and at times its value.
    ("log.queue", "false"),
];

/// Other names of the same properties, and what would make another kind of producer.
const FIXED_TOO: [&str; 5] = [
    "request.required.acks",
    MESSAGE_TIMEOUT,
    "delivery.timeout.ms",
    "transactional.id",
    "bootstrap.servers",
];

/// How long the client keeps a record: no longer than the send that handed it over.
const MESSAGE_TIMEOUT: &str = "message.timeout.ms";

/// The longest time that the client can be told, in milliseconds.
const MESSAGE_TIMEOUT_MS_MAX: u128 = i32::MAX as u128;

/// What is set unless a property says otherwise.
const DEFAULTS: [(&str, &str); 4] = [
    ("client.id", "postrider"),
    // The same partition for a key as Java's client.
    ("partitioner", "murmur2_random"),
    ("topic.metadata.propagation.max.ms", "10000"),
    // A send hands over a whole batch at once and waits for it: what is gained by waiting for more is little.
    ("linger.ms", "1"),
];

/// The properties that say which authorities certificates are checked against.
const AUTHORITIES: [&str; 2] = [AUTHORITIES_PLACE, "ssl.ca.pem"];

const AUTHORITIES_PLACE: &str = "ssl.ca.location";

/// The value of `ssl.ca.location` that looks for the authorities where operating systems keep them. An OpenSSL that is compiled with this
/// crate does not know these places.
const AUTHORITIES_OF_THE_SYSTEM: &str = "probe";

/// The variables that name the authorities for OpenSSL.
const AUTHORITIES_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Where events go, and how.
#[derive(Clone)]
#[non_exhaustive]
pub struct KafkaConfig {
    /// The brokers to begin with, `host:port` with commas between them.
    pub brokers: String,
    /// The topic that an event goes to.
    pub topic: Destination,
    /// How an event is put into a record.
    pub format: Format,
    /// Properties of librdkafka, TLS and SASL among them. Any of them may be a secret, so none is shown.
    pub properties: BTreeMap<String, SecretString>,
    /// Most events in one `send`.
    pub batch_max: usize,
    /// How long it may take until a broker answers.
    pub connect_timeout: Duration,
    /// How long a `send` may take before its outcome is unknown.
    pub send_timeout: Duration,
}

impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("format", &self.format)
            .field("properties", &self.properties.keys().collect::<Vec<_>>())
            .field("batch_max", &self.batch_max)
            .field("connect_timeout", &self.connect_timeout)
            .field("send_timeout", &self.send_timeout)
            .finish()
    }
}

impl KafkaConfig {
    /// The brokers to begin with, `host:port` with commas between them, and the template of a topic.
    pub fn new(brokers: &str, topic: &str) -> Result<Self, ConfigError> {
        let config = Self {
            brokers: brokers.to_owned(),
            topic: Destination::new(topic)?,
            format: Format::default(),
            properties: BTreeMap::new(),
            batch_max: 500,
            connect_timeout: Duration::from_secs(10),
            send_timeout: Duration::from_secs(120),
        };
        config.check()?;
        Ok(config)
    }

    /// The topic that an event goes to.
    pub fn topic(mut self, topic: Destination) -> Self {
        self.topic = topic;
        self
    }

    /// How an event is put into a record.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// A property of librdkafka's, by its name there.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into().into());
        self
    }

    /// Most events in one `send`; 500 if it is not set: the client makes one request for each partition of it.
    pub fn batch_max(mut self, events: usize) -> Self {
        self.batch_max = events;
        self
    }

    /// How long it may take until a broker answers; 10 s if it is not set.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long a `send` may take before its outcome is unknown; 120 s if it is not set.
    pub fn send_timeout(mut self, limit: Duration) -> Self {
        self.send_timeout = limit;
        self
    }

    /// What is wrong with it, if something is. What librdkafka thinks of the properties is found when the sink is made.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !BATCH_MAX.contains(&self.batch_max) {
            let allowed = format!("from {} to {}", BATCH_MAX.start(), BATCH_MAX.end());
            return Err(wrong("batch_max", self.batch_max, allowed));
        }
        for (setting, limit) in
            [("connect_timeout", self.connect_timeout), ("send_timeout", self.send_timeout)]
        {
            if limit.is_zero() {
                return Err(wrong(setting, format_args!("{limit:?}"), "longer than nothing"));
            }
        }
        if self.brokers.trim().is_empty() || self.brokers.contains('@') || self.brokers.contains("//") {
            return Err(wrong(
                "brokers",
                "not a list of brokers",
                "host:port, with commas between several of them",
            ));
        }
        for topic in self.topic.fixed() {
            message::check_topic(topic)
                .map_err(|reason| wrong("topic", format_args!("{topic:?}"), reason))?;
        }
        let fixed = |name: &str| FIXED.iter().any(|(fixed, _)| *fixed == name) || FIXED_TOO.contains(&name);
        if let Some(name) = self.properties.keys().find(|name| fixed(name)) {
            return Err(wrong(
                "properties",
                format_args!("with {name}"),
                "without it: the sink's promises rest on it",
            ));
        }
        Ok(())
    }

    /// All of it in librdkafka's words.
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
        let limit_ms = deadline::limit(self.send_timeout).as_millis().clamp(1, MESSAGE_TIMEOUT_MS_MAX);
        client.set(MESSAGE_TIMEOUT, limit_ms.to_string());
        client
    }
}

pub(crate) fn wrong(
    setting: &'static str,
    value: impl fmt::Display,
    allowed: impl Into<String>,
) -> ConfigError {
    ConfigError::OutOfRange { setting, value: value.to_string(), allowed: allowed.into() }
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
