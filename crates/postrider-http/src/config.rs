//! What the sinks want to know beside the [`Endpoint`].

use postrider_core::{
    ConfigError,
    format::{CloudEvents, Format},
};
use secrecy::SecretString;

use crate::{Endpoint, limits};

/// What the body of a batch is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BatchBody {
    /// A JSON array of the payloads, each to the letter. The receiver sees nothing else of the events.
    #[default]
    Payloads,
    /// A CloudEvents batch: a JSON array of events in structured form.
    CloudEvents(CloudEvents),
}

/// What an answer of 2xx to a batch says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Acknowledgement {
    /// Every event of the batch has arrived. An endpoint of this kind takes the events of a request in order, and what it does not
    /// answer with 2xx it has applied up to some point or not at all; with that, the order of a key holds within a batch.
    #[default]
    Whole,
    /// The body says of each event what became of it, and the events are independent of each other. See [`crate::batch`] for its form.
    EachItem,
}

/// How batches are sent.
#[derive(Debug, Clone)]
pub struct BatchConfig {
    /// Where to.
    pub endpoint: Endpoint,
    /// What the body is.
    pub body: BatchBody,
    /// What 2xx says.
    pub acknowledgement: Acknowledgement,
    /// Most events in one request. Default [`limits::BATCH_EVENTS`].
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

    /// CloudEvents batches instead of arrays of payloads.
    pub fn cloud_events(mut self, format: CloudEvents) -> Self {
        self.body = BatchBody::CloudEvents(format);
        self
    }

    /// The endpoint says of each event what became of it.
    pub fn item_results(mut self) -> Self {
        self.acknowledgement = Acknowledgement::EachItem;
        self
    }

    /// Most events in one request.
    pub fn batch_max(mut self, events: usize) -> Self {
        self.batch_max = events;
        self
    }

    /// Says what is wrong, if something is.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.endpoint.check()?;
        at_least_one("batch_max", self.batch_max)
    }
}

/// How webhooks are sent.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// Where to.
    pub endpoint: Endpoint,
    /// How an event is put into a request.
    pub format: Format,
    /// The signing secrets, `whsec_` and base64. All of them sign, so that one can be changed without a gap.
    pub secrets: Vec<SecretString>,
    /// Whether to send without a signature. It has to be said, so that it is never forgotten.
    pub unsigned: bool,
    /// Most requests under way at a time. Default [`limits::CONCURRENT_REQUESTS`].
    pub concurrent_max: usize,
}

impl WebhookConfig {
    /// The payload as it is, with what is known of the event in headers. A secret has to be added.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            format: Format::Raw,
            secrets: Vec::new(),
            unsigned: false,
            concurrent_max: limits::CONCURRENT_REQUESTS,
        }
    }

    /// Signs with this secret too: `whsec_` and base64.
    pub fn secret(mut self, secret: impl Into<SecretString>) -> Self {
        self.secrets.push(secret.into());
        self
    }

    /// Sends without a signature, to a receiver that trusts its token or its network.
    pub fn unsigned(mut self) -> Self {
        self.unsigned = true;
        self
    }

    /// How an event is put into a request.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Most requests under way at a time.
    pub fn concurrent_max(mut self, requests: usize) -> Self {
        self.concurrent_max = requests;
        self
    }

    /// Says what is wrong, if something is.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.endpoint.check()?;
        at_least_one("concurrent_max", self.concurrent_max)?;
        crate::webhook::Signer::new(self).map(drop)
    }
}

pub(crate) fn wrong(
    setting: &'static str,
    value: impl Into<String>,
    allowed: impl Into<String>,
) -> ConfigError {
    ConfigError::OutOfRange { setting, value: value.into(), allowed: allowed.into() }
}

fn at_least_one(setting: &'static str, value: usize) -> Result<(), ConfigError> {
    if value == 0 { Err(wrong(setting, "0", "at least 1")) } else { Ok(()) }
}
