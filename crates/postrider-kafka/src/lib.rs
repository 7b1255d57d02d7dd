//! The Kafka sink: an event becomes a record that all in-sync replicas have.
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
//! # What *delivered* means
//!
//! The partition's leader and all its in-sync replicas have the record (`acks=all`), once per attempt (the producer is idempotent). The
//! topic's `min.insync.replicas` sets how many replicas that must be.
//!
//! # Order
//!
//! The key of a record is the event's key, so that the events of a key are in one partition, in order. The order within a batch is
//! [prefix](postrider_core::BatchOrder::Prefix): once an event of a key was not delivered, no later event of that key in the batch is
//! applied. The sink ensures it by sending one event of each key at a time, whatever their topics are; keys do not wait for each other
//! ([`batch`] says why the producer cannot do this). Keys go to the same partitions as with Java's client (`murmur2_random`), unless the
//! property `partitioner` is set.
//!
//! # What a record holds
//!
//! The payload as its value, the headers of the [format](KafkaConfig::format), and `content-type`. Its timestamp is the time of
//! sending, so that a topic's retention does not drop late deliveries; `occurred-at` is a header.
//!
//! # Outcomes of failures
//!
//! | what happened | outcome |
//! | --- | --- |
//! | no broker can be reached; no such topic after `topic.metadata.propagation.max.ms` (10 s here); no permission for it | unavailable (the engine counts it as a failure of the event while events of other keys are delivered) |
//! | a partition without a leader, as reported by a broker after 5 s or half of the [`send_timeout`](KafkaConfig::send_timeout) | unavailable; events for other partitions are delivered |
//! | no answer before the send ends, a little before its `send_timeout` | unknown; events not sent by then are deferred |
//! | all brokers were lost before the answer | unknown; unavailable if none can be reached again |
//! | the record is larger than the producer (`message.max.bytes`) or the topic takes, or is refused for its content | rejected, alone |
//! | an invalid topic name | rejected, alone, before anything is sent |
//! | an earlier event of its key in the batch was not delivered | deferred |
//! | any other error of a broker | retry |
//!
//! A broker that throttles (quotas) delays its answers and the client waits; nothing is deferred.
//!
//! # TLS
//!
//! librdkafka supports TLS, SCRAM and OAUTHBEARER only through OpenSSL. The feature `tls` compiles OpenSSL from source; without it,
//! `security.protocol=ssl` is an error when the sink is created. Certificates are checked against the system's authorities unless
//! `ssl.ca.location` or `ssl.ca.pem` is set.
//!
//! # Layout
//!
//! * [`config`]: its settings
//! * [`producer`]: creates a producer, notices its end, and collects reports
//! * [`message`]: turns an event into a record
//! * [`outcome`]: turns Kafka's reports into outcomes
//! * [`batch`]: decides which events of a batch can be sent now
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
