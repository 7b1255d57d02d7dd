//! The batch sink: many events in one request, as a JSON array.
//!
//! # Order
//!
//! If batches are acknowledged as a whole, the sink keeps the order of a key within a batch ([`BatchOrder::Prefix`]): a request contains the
//! events in order, a refused batch is split in order, and once an event of a key was not delivered its followers are held back. They are
//! `deferred`, or `unavailable` if the event was. Events of one key for different paths are sent one after the other. With a result for each
//! event the endpoint decides about each alone, so the sink is [`BatchOrder::Independent`].
//!
//! # A result for each event
//!
//! With [`BatchConfig::item_results`], the endpoint answers 2xx with
//!
//! ```json
//! {"results": [{"id": "01J…", "status": "SUCCESS"}, {"id": "01K…", "status": 422, "error": "no such customer"}]}
//! ```
//!
//! or with the array alone. `status` is a number from the table of HTTP statuses, or one of `SUCCESS`, `BAD_REQUEST`,
//! `UNAUTHORIZED`, `FORBIDDEN`, `INTERNAL_ERROR`, `GATEWAY_ERROR`.
//!
//! If any result has an `id`, all are matched by ID, exactly. A result without an ID, or with one that is not in the request, is then ignored.
//! Two results for one event count only if they agree. Results are matched by position only if none has an ID and there is one for each
//! event. An event without an unambiguous result is `unknown` and is sent again.
//!
//! # A batch that fails as a whole
//!
//! If a request with several events gets another status, or no response, any of its events may be the reason: each of them is
//! `batch_failed` and is sent again apart. The same holds if the results cannot be read.

mod body;
mod plan;
mod results;
mod sending;

use std::{fmt, time::Duration};

use postrider_core::{
    BatchOrder, BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits,
};

use crate::{Acknowledgement, BatchConfig, client::Client, health};

/// Sends events in batches by `POST`.
pub struct HttpBatchSink {
    config: BatchConfig,
    client: Client,
}

impl fmt::Debug for HttpBatchSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpBatchSink").field("client", &self.client).finish_non_exhaustive()
    }
}

impl HttpBatchSink {
    /// Reads the TLS files. The first event connects.
    pub fn new(config: BatchConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let client = Client::new(&config.endpoint)?;
        Ok(Self { config, client })
    }
}

impl Sink for HttpBatchSink {
    fn traits(&self) -> SinkTraits {
        let order = match self.config.acknowledgement {
            Acknowledgement::Whole => BatchOrder::Prefix,
            Acknowledgement::EachItem => BatchOrder::Independent,
        };
        let send_timeout = Some(send_timeout(self.config.endpoint.request_timeout));
        let (batch_max, one_destination) = (self.config.batch_max, true);
        SinkTraits { batch_max, order, send_timeout, one_destination, ..SinkTraits::SINK }
    }

    fn destination(&self, event: &Event) -> Option<String> {
        self.config.endpoint.destination(event)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(sending::send(&self.config, &self.client, batch))
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(health::ask(&self.client, self.config.endpoint.health_path.as_deref()))
    }

    /// The health path is one for all paths of the server.
    fn health_for<'a>(&'a self, _event: &'a Event) -> BoxFuture<'a, Health> {
        self.health()
    }
}

/// A send starts its last request before `request_timeout` is over and so ends before twice that. The engine waits a little longer, so that
/// the sink reports the outcome of each event.
pub(crate) fn send_timeout(request_timeout: Duration) -> Duration {
    request_timeout * 2 + Duration::from_secs(5)
}
