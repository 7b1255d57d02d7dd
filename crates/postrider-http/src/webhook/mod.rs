//! The webhook sink: one event in each request, signed as [Standard Webhooks](https://www.standardwebhooks.com) demands.
//!
//! A request has `webhook-id` (the event ID, the same at every attempt), `webhook-timestamp` (of this attempt) and
//! `webhook-signature`, one signature for each secret; the event's fields under the names of [`postrider_core::format::METADATA`], or as a
//! CloudEvent; and the event's own headers. Each event is a send of its own, so that a path that hangs does not delay others, and many are under
//! way at a time.

mod request;
mod sign;

use std::fmt;

use postrider_core::{
    BatchOrder, BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits,
};
pub(crate) use sign::Signer;

use crate::{
    WebhookConfig, batch::send_timeout, client::Client, health, hold_off::HoldOffs, outcome::interpret,
};

/// Sends each event in a request of its own.
pub struct WebhookSink {
    config: WebhookConfig,
    client: Client,
    signer: Signer,
}

impl fmt::Debug for WebhookSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSink").field("client", &self.client).finish_non_exhaustive()
    }
}

impl WebhookSink {
    /// Reads the TLS files. The first event connects.
    pub fn new(config: WebhookConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let (client, signer) = (Client::new(&config.endpoint)?, Signer::new(&config)?);
        Ok(Self { config, client, signer })
    }

    /// Sends one event, unless it is known before that it cannot be sent now.
    async fn deliver(&self, event: &Event, hold_offs: &mut HoldOffs) -> Outcome {
        let path = match self.config.endpoint.path_of(event) {
            Ok(path) => path,
            Err(error) => return Outcome::rejected(error),
        };
        if let Some(outcome) = hold_offs.outcome(&path) {
            return outcome;
        }
        let request = match request::of(&self.config, &self.client, &self.signer, event, &path) {
            Ok(request) => request,
            Err(error) => return Outcome::rejected(error),
        };
        let answer = self.client.post(request).await;
        interpret(&self.client, hold_offs, &path, (1, answer)).outcome
    }
}

impl Sink for WebhookSink {
    fn traits(&self) -> SinkTraits {
        SinkTraits {
            batch_max: 1,
            order: BatchOrder::Independent,
            send_timeout: Some(send_timeout(self.config.endpoint.request_timeout)),
            concurrent: Some(self.config.concurrent_max),
            one_destination: true,
            ..SinkTraits::SINK
        }
    }

    fn destination(&self, event: &Event) -> Option<String> {
        self.config.endpoint.destination(event)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let (mut outcomes, mut hold_offs) = (Vec::with_capacity(batch.len()), HoldOffs::default());
            for delivery in batch {
                outcomes.push(self.deliver(&delivery.event, &mut hold_offs).await);
            }
            outcomes
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(health::ask(&self.client, self.config.endpoint.health_path.as_deref()))
    }

    /// The health path is one for all paths of the server.
    fn health_for<'a>(&'a self, _event: &'a Event) -> BoxFuture<'a, Health> {
        self.health()
    }
}
