//! The NATS JetStream sink: an event becomes a message that a stream has stored.
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
//! # What *delivered* means
//!
//! A stream with the event's subject has acknowledged the message: a majority of its replicas has it. Whether it survives a loss of power
//! depends on the server's `sync_interval`: with `always` the message is on disk first. By default that happens every two minutes, so a
//! stream with one replica can lose the last two minutes, and one with three only what all three lose at once. A stream in memory keeps
//! nothing. The operator of the server creates the stream; a subject without a stream is an outage.
//!
//! # What a message holds
//!
//! The payload as its body; the headers of the [format](NatsConfig::format), `content-type`, and `Nats-Msg-Id` with the event ID and
//! the event's time in microseconds, by which the stream drops a duplicate within its `duplicate_window` (two minutes by default).
//!
//! # Outcomes of failures
//!
//! | what happened | outcome |
//! | --- | --- |
//! | no connection, failed authentication, no stream for the subject, a stream that is full or sealed, no JetStream | unavailable |
//! | no acknowledgement before the send ends, a little before its [`send_timeout`](NatsConfig::send_timeout) | unknown; events not sent by then are deferred |
//! | the connection was lost before the acknowledgement | unknown; unavailable if the sink cannot reconnect |
//! | the message is larger than the server or the stream accepts | rejected |
//! | an invalid subject or header; a header that begins with `Nats-`, because it would command the server | rejected, alone, before anything is sent |
//! | any other error of the stream | retry |
//!
//! A failed message does not stop later ones, so the order within a batch is
//! [independent](postrider_core::BatchOrder::Independent): a batch holds at most one event of a key.
//!
//! # Layout
//!
//! * [`config`]: its settings
//! * [`connection`]: connects, and notices the end of a connection
//! * [`message`]: turns an event into a message
//! * [`outcome`]: turns JetStream's answers into outcomes
//! * [`sink`]: batches through one connection, and health

pub mod config;
pub mod connection;
pub mod message;
pub mod outcome;
pub mod sink;

pub use config::NatsConfig;
pub use postrider_net::TlsFiles;
pub use sink::NatsSink;
