//! The configuration of the HTTP sinks, apart from the [`Endpoint`].

use postrider_core::{
    ConfigError,
    format::{CloudEvents, Format},
};
use secrecy::SecretString;

use crate::{Endpoint, limits};

/// The body of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BatchBody {
    /// A JSON array of the unchanged payloads. The receiver sees nothing else of the events.
    #[default]
    Payloads,
    /// A CloudEvents batch: a JSON array of events in structured form.
    CloudEvents(CloudEvents),
}

/// What a 2xx response to a batch means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Acknowledgement {
    /// Every event of the batch has arrived. Such an endpoint processes the events of a request in order, and after any other response it has
    /// applied a prefix of them or none; so the order of a key holds within a batch.
    #[default]
    Whole,
    /// The body has a result for each event, and events are independent of each other. [`crate::batch`] describes its form.
    EachItem,
}

/// The configuration of the batch sink.
#[derive(Debug, Clone)]
pub struct BatchConfig {
    /// The receiver.
    pub endpoint: Endpoint,
    /// The form of the body.
    pub body: BatchBody,
    /// What 2xx means.
    pub acknowledgement: Acknowledgement,
    /// Maximum number of events in one request. Default [`limits::BATCH_EVENTS`].
    pub batch_max: usize,
}

impl BatchConfig {
    /// Arrays of payloads, acknowledged as a whole.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            body: BatchBody::default(),
            acknowledgement: Acknowledgement::default(),
            batch_max: limits::BATCH_EVENTS,
        }
    }

    /// Sends CloudEvents batches instead of arrays of payloads.
    pub fn cloud_events(mut self, format: CloudEvents) -> Self {
        self.body = BatchBody::CloudEvents(format);
        self
    }

    /// Expects a result for each event.
    pub fn item_results(mut self) -> Self {
        self.acknowledgement = Acknowledgement::EachItem;
        self
    }

    /// Maximum number of events in one request.
    pub fn batch_max(mut self, events: usize) -> Self {
        self.batch_max = events;
        self
    }

    /// Checks the configuration.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.endpoint.check()?;
        at_least_one("batch_max", self.batch_max)
    }
}

/// The configuration of the webhook sink.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// The receiver.
    pub endpoint: Endpoint,
    /// The format of a request.
    pub format: Format,
    /// The signing secrets, `whsec_` and base64. Every secret signs, so that secrets can be rotated without a gap.
    pub secrets: Vec<SecretString>,
    /// Whether to send without a signature. It must be explicit, so that secrets are not forgotten.
    pub unsigned: bool,
    /// Maximum number of requests at a time. Default [`limits::CONCURRENT_REQUESTS`].
    pub concurrent_max: usize,
}

impl WebhookConfig {
    /// The unchanged payload, with the event's other fields in headers. A secret must be added.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            format: Format::Raw,
            secrets: Vec::new(),
            unsigned: false,
            concurrent_max: limits::CONCURRENT_REQUESTS,
        }
    }

    /// Adds a signing secret: `whsec_` and base64.
    pub fn secret(mut self, secret: impl Into<SecretString>) -> Self {
        self.secrets.push(secret.into());
        self
    }

    /// Sends without a signature, to a receiver that trusts its token or its network.
    pub fn unsigned(mut self) -> Self {
        self.unsigned = true;
        self
    }

    /// Sets the format of a request.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Maximum number of requests at a time.
    pub fn concurrent_max(mut self, requests: usize) -> Self {
        self.concurrent_max = requests;
        self
    }

    /// Checks the configuration.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.endpoint.check()?;
        at_least_one("concurrent_max", self.concurrent_max)?;
        crate::webhook::Signer::new(self).map(drop)
    }
}

fn at_least_one(setting: &'static str, value: usize) -> Result<(), ConfigError> {
    if value == 0 { Err(ConfigError::out_of_range(setting, "0", "at least 1")) } else { Ok(()) }
}
