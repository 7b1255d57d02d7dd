//! The Redis Streams sink: an event becomes an entry that `XADD` appends.
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
//! # What *delivered* means
//!
//! Redis has answered the event's `XADD` with an ID. Whether the entry survives a crash depends on Redis's persistence: with
//! `appendonly yes` and `appendfsync always` it is on disk, with `everysec` up to a second of answered entries can be lost, without
//! `appendonly` everything since the last snapshot. A failover to a replica can lose entries too, because replication is asynchronous. With [`stream_len_max`](RedisConfig::stream_len_max) Redis drops the oldest entries, read or not.
//!
//! # What an entry holds
//!
//! The fields of an entry are the headers of the [format](RedisConfig::format), then `content-type`, then the payload in the field
//! that [`payload_field`](RedisConfig::payload_field) names. Values are any bytes. Duplicates have the same `event-id`;
//! the ID of the entry is Redis's own and differs.
//!
//! # Outcomes of failures
//!
//! | what happened | outcome |
//! | --- | --- |
//! | no connection, failed authentication, a server that is loading, runs a script (`BUSY`), is full (`OOM`) or read-only, a missing permission; a key that is not a stream (`WRONGTYPE`); a redirect of a cluster | unavailable |
//! | no answer before the send ends, a little before its [`send_timeout`](RedisConfig::send_timeout) | unknown; events not sent by then are deferred |
//! | the connection was lost before the answer | unknown; unavailable if the sink cannot reconnect |
//! | any other error of Redis about one entry | retry |
//! | an invalid stream name, or a header with the name of the payload's field | rejected, alone, before anything is sent |
//!
//! A failed `XADD` does not stop later ones, so the order within a batch is
//! [independent](postrider_core::BatchOrder::Independent): a batch holds at most one event of a key.
//!
//! Redis Cluster is not supported: a server of a cluster answers only for its own streams.
//!
//! # Layout
//!
//! * [`config`]: its settings
//! * [`connection`]: connects: TCP or TLS, then Redis's own handshake
//! * [`message`]: turns an event into a command
//! * [`outcome`]: turns Redis's replies into outcomes
//! * [`sink`]: batches through one connection, and health

pub mod config;
pub mod connection;
pub mod message;
pub mod outcome;
pub mod sink;

pub use config::RedisConfig;
pub use postrider_net::TlsFiles;
pub use sink::RedisSink;
