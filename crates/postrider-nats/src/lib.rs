//! NATS JetStream as a sink: every event is a message that a stream has stored.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use postrider_nats::{NatsConfig, NatsSink};
//!
//! let config = NatsConfig::new("nats://shop:secret@nats.example", "shop.{aggregate_type}.{event_type}")?;
//! let sink = Arc::new(NatsSink::new(config)?); // nothing is connected yet
//! // Outbox::builder().store(store).sink_otherwise(sink)
//! # let _ = sink;
//! # Ok(()) }
//! ```
//!
//! # What delivered means
//!
//! A stream that takes the event's subject has acknowledged it: every replica that it needs for a majority has it. Whether that
//! survives the loss of power is what the server's `sync_interval` gives: with `always` the message was written to disk first; by
//! default it is after two minutes, so a stream of one replica can lose the last minutes then, and one of three only what all three lose
//! at once. A stream in memory keeps nothing. The stream is made by whoever runs the server; a subject that no stream takes is an outage.
//!
//! # What a message holds
//!
//! The payload as its body; the headers of the [format](NatsConfig::format), `content-type`, and `Nats-Msg-Id` with the event's id and
//! the microsecond in which it happened, by which the stream drops a duplicate that comes within its `duplicate_window` (two minutes by default).
//!
//! # What it says when something fails
//!
//! | what happened | outcome |
//! | --- | --- |
//! | no connection, a refused password, no stream for the subject, a stream that is full or sealed, no JetStream | unavailable |
//! | no acknowledgement before the send ends, a little before its [`send_timeout`](NatsConfig::send_timeout) | unknown; what was not sent by then is deferred |
//! | the connection was lost before the acknowledgement | unknown; unavailable if no new one can be made |
//! | the message is larger than the server or the stream takes | rejected |
//! | a subject or a header that cannot be said; a header that begins with `Nats-`, since it would command the server | rejected, alone, before anything is sent |
//! | any other error of the stream's | retry |
//!
//! A message that fails does not stop the ones behind it, so the order inside a batch is
//! [independent](postrider_core::BatchOrder::Independent): a batch holds at most one event of a key.
//!
//! # Layout
//!
//! * [`config`]: what can be set
//! * [`connection`]: how a connection is made, and when it is over
//! * [`message`]: an event as a message
//! * [`outcome`]: what the stream answered as an outcome
//! * [`sink`]: batches through one connection, and health

pub mod config;
pub mod connection;
pub mod message;
pub mod outcome;
pub mod sink;

pub use config::NatsConfig;
pub use postrider_net::TlsFiles;
pub use sink::NatsSink;
