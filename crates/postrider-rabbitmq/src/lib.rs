//! RabbitMQ as a sink: every event is a persistent message that the broker has confirmed and put into a queue.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use postrider_rabbitmq::{RabbitConfig, RabbitSink};
//!
//! let config = RabbitConfig::new("amqp://shop:secret@rabbit.example/orders", "{event_type}")?.exchange("shop-events")?;
//! let sink = Arc::new(RabbitSink::new(config)?); // nothing is connected yet
//! // Outbox::builder().store(store).sink_otherwise(sink)
//! # let _ = sink;
//! # Ok(()) }
//! ```
//!
//! # What delivered means
//!
//! The broker has confirmed the message, and it went to at least one queue (it is sent as mandatory). It is sent as persistent: for a
//! durable queue the confirm says that it is on disk, for a quorum queue that a majority has it. A queue that is not durable keeps
//! nothing. Exchange, queue and binding are made by whoever runs the broker.
//!
//! # What a message holds
//!
//! The payload as its body; the properties `message_id` (the event's id), `type`, `content_type`, `timestamp` and `delivery_mode` 2; the
//! headers of the [format](RabbitConfig::format) in the table of headers. A type of more than 255 bytes is in the headers alone.
//!
//! # What it says when something fails
//!
//! | what happened | outcome |
//! | --- | --- |
//! | no connection, a refused password, no such exchange, no right to it, a broker that blocks publishers, a queue that refuses (`reject-publish`) | unavailable |
//! | no confirm before the send ends, a little before its [`send_timeout`](RabbitConfig::send_timeout) | unknown, or unavailable if the broker blocks publishers by then; what was not sent is deferred |
//! | the connection was lost before the confirm | unknown; unavailable if no new one can be made |
//! | the message can be routed to no queue; it is larger than the broker takes, or has a header that the broker reads as a command (`CC`, `BCC`) | rejected |
//! | a name that does not fit into 255 bytes | rejected, alone, before anything is sent |
//!
//! A broker that blocks publishers (`connection.blocked`) is short of memory or disk until somebody helps it. It does not ask for a slower
//! pace, and it would answer nothing on this connection: so it is unavailable, and not deferred.
//!
//! A message that fails does not stop the ones behind it, so the order inside a batch is
//! [independent](postrider_core::BatchOrder::Independent): a batch holds at most one event of a key.
//!
//! The client logs a message that comes back as unroutable, with its payload, as a warning of the target `lapin::returned_messages`:
//! turn that target off where payloads must not be logged.
//!
//! # Layout
//!
//! * [`config`]: what can be set
//! * [`connection`]: how a connection is made, and its channels
//! * [`message`]: an event as a message
//! * [`outcome`]: what the broker answered as an outcome
//! * [`publish`]: one exchange's part of a batch on a channel of its own
//! * [`sink`]: batches by exchange, and health

pub mod config;
pub mod connection;
pub mod message;
pub mod outcome;
pub mod publish;
pub mod sink;

pub use config::RabbitConfig;
pub use postrider_net::TlsFiles;
pub use sink::RabbitSink;
