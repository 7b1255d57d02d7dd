//! Servers that are not as they should be: away, too old, without TLS or with it.
//!
//! * `away`: a server that goes away in every phase of an engine's life
//! * `hostile`: a server whose defaults are against us
//! * `idle`: what an idle outbox costs its server
//! * `opening`: a server that falls silent while a store is opened, and a role that has no time
//! * `replaced_file`: a SQLite file that is replaced or removed
//! * `rights`: every role can do its part with the rights that are printed for it
//! * `silent`: connections that are dead without a word, and locks of others
//! * `tls`: what is asked of a connection, and what it becomes
//! * `version`: a server that is too old, found by a pool of the program's own
//! * `database`: a database for one test

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says so by a panic"
)]

mod away;
mod database;
mod hostile;
mod idle;
#[path = "../behaviour/parts/log.rs"]
#[allow(dead_code, reason = "other tests read it in more ways")]
mod log;
mod opening;
mod replaced_file;
mod rights;
#[path = "../processes/server.rs"]
#[allow(dead_code, reason = "other tests restart it")]
mod server;
mod silent;
#[path = "../processes/time.rs"]
mod time;
mod tls;
mod version;
