//! Kafka as a sink: every event is a record that all in-sync replicas have.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use postrider_kafka::{KafkaConfig, KafkaSink};
//!
//! let config = KafkaConfig::new("one.example:9092,two.example:9092", "shop.{aggregate_type}")?
//!     .property("security.protocol", "sasl_ssl")
//!     .property("sasl.password", "secret");
//! let sink = Arc::new(KafkaSink::new(config)?); // nothing is connected yet
//! // Outbox::builder().store(store).sink_otherwise(sink)
//! # let _ = sink;
//! # Ok(()) }
//! ```
//!
//! # What delivered means
//!
//! The partition's leader and all its in-sync replicas have the record (`acks=all`), once for each attempt of ours (the producer is
//! idempotent). How many replicas that must be is the topic's `min.insync.replicas`.
//!
//! # Order
//!
//! The key of a record is the event's key, so that the events of a key lie in one partition, in order. The order inside a batch is
//! [prefix](postrider_core::BatchOrder::Prefix): once an event of a key was not delivered, no later event of that key in the batch was
//! applied. The sink sees to it by itself: of each key one event is sent at a time, whatever topics they go to, and keys do not wait for
//! each other ([`batch`] says why it does not leave that to the producer). Keys are spread over partitions as Java's client does it
//! (`murmur2_random`), unless the property `partitioner` says otherwise.
//!
//! # What a record holds
//!
//! The payload as its value, the headers of the [format](KafkaConfig::format), and `content-type`. Its timestamp is when it was sent,
//! so that the retention of a topic does not drop what was delivered late; `occurred-at` is a header.
//!
//! # What it says when something fails
//!
//! | what happened | outcome |
//! | --- | --- |
//! | no broker can be reached; no such topic after `topic.metadata.propagation.max.ms` (10 s here); no right to it | unavailable (to an engine, while events of other keys get through, a failure of this one) |
//! | a partition without a leader, once a broker has said so: after 5 s, or half of the [`send_timeout`](KafkaConfig::send_timeout) | unavailable; what went to other partitions is delivered |
//! | no answer before the send ends, a little before its `send_timeout` | unknown; what was not sent by then is deferred |
//! | all brokers were lost before the answer | unknown; unavailable if none can be reached again |
//! | the record is larger than the producer (`message.max.bytes`) or the topic takes, or is refused for what it is | rejected, alone |
//! | a topic that cannot be named so | rejected, alone, before anything is sent |
//! | an earlier event of its key in the batch was not delivered | deferred |
//! | any other error of a broker's | retry |
//!
//! A broker that is asked too fast delays its answers by itself (quotas), and the client waits: nothing is deferred for that.
//!
//! # TLS
//!
//! librdkafka speaks TLS and SCRAM through OpenSSL alone. The feature `tls` of this crate builds it with one of its own, from source;
//! without it there is no OpenSSL in the program, and `security.protocol=ssl` is an error when the sink is made.
//!
//! # Layout
//!
//! * [`config`]: what can be set
//! * [`producer`]: how a producer is made, when it is over, and what became of each record
//! * [`message`]: an event as a record
//! * [`outcome`]: what Kafka answered as an outcome
//! * [`batch`]: which events of a batch can be sent now
//! * [`sending`]: one batch through one producer
//! * [`sink`]: batches, and health

pub mod batch;
pub mod config;
pub mod message;
pub mod outcome;
pub mod producer;
pub mod sending;
pub mod sink;

pub use config::KafkaConfig;
pub use sink::KafkaSink;
