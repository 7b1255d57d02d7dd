//! The RabbitMQ sink: an event becomes a persistent message that the broker has confirmed and put into a queue.
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
//! # What *delivered* means
//!
//! The broker has confirmed the message, and it went to at least one queue (it is sent as mandatory). It is persistent: for a
//! durable queue the confirm means that it is on disk, for a quorum queue that a majority has it. A queue that is not durable loses
//! it with the broker. The operator of the broker creates exchange, queue and binding.
//!
//! # What a message holds
//!
//! The payload as its body; the properties `message_id` (the event ID), `type`, `content_type`, `timestamp` and `delivery_mode` 2; the
//! headers of the [format](RabbitConfig::format). A type of more than 255 bytes is only in the headers.
//!
//! # Outcomes of failures
//!
//! | what happened | outcome |
//! | --- | --- |
//! | no connection, failed authentication, no such exchange, no permission for it, a broker that blocks publishers, a queue that refuses (`reject-publish`) | unavailable |
//! | no confirm before the send ends, a little before its [`send_timeout`](RabbitConfig::send_timeout) | unknown, or unavailable if the broker blocks publishers by then; events not sent are deferred |
//! | the connection was lost before the confirm | unknown; unavailable if the sink cannot reconnect |
//! | the message can be routed to no queue, is larger than the broker accepts, or has a header that commands the broker (`CC`, `BCC`) | rejected |
//! | a name longer than 255 bytes | rejected, alone, before anything is sent |
//!
//! A broker that blocks publishers (`connection.blocked`) is short of memory or disk until an operator helps. It asks for no slower
//! pace and answers nothing on this connection, so the outcome is unavailable and not deferred.
//!
//! A failed message does not stop later ones, so the order within a batch is
//! [independent](postrider_core::BatchOrder::Independent): a batch holds at most one event of a key.
//!
//! The client logs each unroutable message with its payload, as a warning of the target `lapin::returned_messages`. Switch that target off
//! where payloads must not be logged.
//!
//! # Layout
//!
//! * [`config`]: its settings
//! * [`connection`]: connects, and manages channels
//! * [`message`]: turns an event into a message
//! * [`outcome`]: turns the broker's answers into outcomes
//! * [`publish`]: publishes one exchange's part of a batch
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
