//! Redis Streams as a sink: every event is an entry that `XADD` appends.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use postrider_redis::{RedisConfig, RedisSink};
//!
//! let config = RedisConfig::new("redis://:secret@cache.example", "shop:{aggregate_type}")?.stream_len_max(1_000_000);
//! let sink = Arc::new(RedisSink::new(config)?); // nothing is connected yet
//! // Outbox::builder().store(store).sink_otherwise(sink)
//! # let _ = sink;
//! # Ok(()) }
//! ```
//!
//! # What delivered means
//!
//! Redis has answered the `XADD` of the event with an id. Whether the entry survives a crash of Redis is what its own persistence
//! gives: with `appendonly yes` and `appendfsync always` it was on disk, with `everysec` up to a second of answered entries can be
//! lost, without `appendonly` everything since the last snapshot. A failover to a replica can lose entries too, since replication
//! is asynchronous. With [`stream_len_max`](RedisConfig::stream_len_max) Redis drops the oldest entries, read or not.
//!
//! # What an entry holds
//!
//! The fields of an entry are the headers of the [format](RedisConfig::format), then `content-type`, then the payload in the field
//! that [`payload_field`](RedisConfig::payload_field) names. Values are any bytes. An event is told from a duplicate of itself by
//! its `event-id`; the id of the entry is Redis's own and differs.
//!
//! # What it says when something fails
//!
//! | what happened | outcome |
//! | --- | --- |
//! | no connection, a refused password, a server that loads, runs a script (`BUSY`), is full (`OOM`), read-only, or without a right that is needed; a key that is no stream (`WRONGTYPE`); a cluster that sends elsewhere | unavailable |
//! | no answer before the send ends, a little before its [`send_timeout`](RedisConfig::send_timeout) | unknown; what was not sent by then is deferred |
//! | the connection was lost before the answer | unknown; unavailable if no new one can be made |
//! | any other error of Redis's about one entry | retry |
//! | a stream cannot be named, or a header has the name of the payload's field | rejected, alone, before anything is sent |
//!
//! A failed `XADD` does not stop the ones behind it, so the order inside a batch is
//! [independent](postrider_core::BatchOrder::Independent): a batch holds at most one event of a key.
//!
//! Redis Cluster is not supported: a server of a cluster answers for streams of its own only.
//!
//! # Layout
//!
//! * [`config`]: what can be set
//! * [`connection`]: how a connection is made: TCP or TLS, then Redis's own greeting
//! * [`message`]: an event as a command
//! * [`outcome`]: what Redis answered as an outcome
//! * [`sink`]: batches through one connection, and health

pub mod config;
pub mod connection;
pub mod message;
pub mod outcome;
pub mod sink;

pub use config::RedisConfig;
pub use postrider_net::TlsFiles;
pub use sink::RedisSink;
