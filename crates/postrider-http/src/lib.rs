//! HTTP sinks: batches by `POST`, and webhooks that are signed.
//!
//! ```
//! use postrider_core::format::Destination;
//! use postrider_http::{BatchConfig, Endpoint, HttpBatchSink, WebhookConfig, WebhookSink};
//!
//! // A JSON array of payloads, a path for each class of events.
//! let paths = Destination::new("/events/batch")?.for_type("JobPlanned", "/dispatch/jobs/batch")?;
//! let endpoint = Endpoint::new("https://flow.example/api").path(paths).token("a secret");
//! let batches = HttpBatchSink::new(BatchConfig::new(endpoint))?;
//!
//! // One event a request, signed so that the receiver knows who sent it.
//! let endpoint = Endpoint::new("https://hooks.example/in");
//! let webhook = WebhookSink::new(WebhookConfig::new(endpoint).secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))?;
//! # let _ = (batches, webhook);
//! # Ok::<(), postrider_core::ConfigError>(())
//! ```
//!
//! # What a status means
//!
//! | status | outcome |
//! | --- | --- |
//! | 2xx | delivered |
//! | 400, 422 | a batch is split, in order; an event alone is rejected |
//! | 401, 403, 404, 405, 407, 410, 415, 425, redirects | unavailable; redirects are not followed |
//! | 429, and 503 with `Retry-After` | deferred: the receiver works, and is asked too fast; no attempt is counted |
//! | 503 | unavailable |
//! | all others below with `Retry-After` | later: this event is sent again then, and no attempt is counted; of several events in a request: batch failed |
//! | 413 | as 400 |
//! | 408, and a request that was sent and not answered | unknown; of several events in a request: batch failed |
//! | no connection | unavailable |
//! | everything else | retry; of several events in a request: batch failed |
//!
//! `Retry-After` is obeyed, in seconds and as a date, for at most [`limits::RETRY_AFTER_MAX`]. With 429 and 503 it speaks for the events of the
//! request, for what is left of the send to the same path, and to the engine for the pace of the path: that sends nothing else there for five
//! seconds at most, and for longer with each further key that draws it while nothing is taken there. One event whose tenant has used up its quota
//! does not stop the others so. A 429 without `Retry-After` asks for [`limits::TOO_FAST_PAUSE`]. With any other failure, which one event may have
//! caused, it speaks for that event alone.
//!
//! # How long a send takes
//!
//! No request takes longer than [`Endpoint::request_timeout`], and none begins after a send has lasted that long: what is left is
//! deferred. The `send_timeout` that the sinks declare is more than twice that, so a send says what became of each event before it.
//!
//! # Layout
//!
//! * [`endpoint`]: where requests go and what they carry; [`config`]: what else the two sinks want to know
//! * [`batch`]: many events a request; [`webhook`]: one event a request
//! * `client`, `outcome`, `hold_off`, `health`: what both share
//! * [`limits`]: every limit by name

pub mod batch;
mod client;
pub mod config;
pub mod endpoint;
mod health;
mod hold_off;
pub mod limits;
mod outcome;
pub mod webhook;

pub use batch::HttpBatchSink;
pub use config::{Acknowledgement, BatchBody, BatchConfig, WebhookConfig};
pub use endpoint::Endpoint;
pub use webhook::WebhookSink;
