//! One event a request, signed as [Standard Webhooks](https://www.standardwebhooks.com) say.
//!
//! A request carries `webhook-id` (the event's id, the same at every attempt), `webhook-timestamp` (of this attempt) and
//! `webhook-signature`, one signature for each secret; what is known of the event by the names of
//! [`postrider_core::format::METADATA`], or as a CloudEvent; and the event's own headers. The requests of a batch are under way at
//! the same time, so a batch holds one event of a key at most ([`BatchOrder::Independent`]).

mod request;
mod sign;

use std::{fmt, sync::OnceLock, time::Duration};

use futures_util::{StreamExt, stream};
use postrider_core::{
    BatchOrder, BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits,
};
pub(crate) use sign::Signer;
use tokio::time::Instant;

use crate::{WebhookConfig, batch::send_timeout, client::Client, health, outcome::judge};

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
    /// A sink that connects when it has something to send. Reads the files of TLS.
    pub fn new(config: WebhookConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let (client, signer) = (Client::new(&config.endpoint)?, Signer::new(&config)?);
        Ok(Self { config, client, signer })
    }

    /// Sends one event, unless it is known before that it cannot be sent now.
    async fn deliver(
        &self,
        event: &Event,
        begin_until: Instant,
        no_connection: &OnceLock<Outcome>,
    ) -> Outcome {
        let path = match self.config.endpoint.path_of(event) {
            Ok(path) => path,
            Err(error) => return Outcome::rejected(error),
        };
        if let Some(outcome) = no_connection.get().cloned().or_else(|| self.client.hold_offs.outcome(&path)) {
            return outcome;
        }
        if Instant::now() >= begin_until {
            return Outcome::deferred(Duration::ZERO);
        }
        let request = match request::of(&self.config, &self.client, &self.signer, event, &path) {
            Ok(request) => request,
            Err(error) => return Outcome::rejected(error),
        };
        let judged = judge(&self.client, &path, 1, self.client.post(request).await);
        if judged.no_connection {
            // Those that have not begun need not find out for themselves.
            let _ = no_connection.set(judged.outcome.clone());
        }
        judged.outcome
    }
}

impl Sink for WebhookSink {
    fn traits(&self) -> SinkTraits {
        SinkTraits {
            batch_max: self.config.batch_max,
            order: BatchOrder::Independent,
            send_timeout: Some(send_timeout(self.config.endpoint.request_timeout)),
            one_request: false,
            ..SinkTraits::SINK
        }
    }

    fn destination(&self, event: &Event) -> Option<String> {
        self.config.endpoint.destination(event)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let begin_until = Instant::now() + self.config.endpoint.request_timeout;
            let no_connection = OnceLock::new();
            let deliver = |delivery: &'a Delivery| self.deliver(&delivery.event, begin_until, &no_connection);
            let sending: Vec<_> = batch.iter().map(deliver).collect();
            stream::iter(sending).buffered(self.config.concurrent_max).collect().await
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(health::ask(&self.client, self.config.endpoint.health_path.as_deref()))
    }
}
