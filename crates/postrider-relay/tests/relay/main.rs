//! The relay as an operator runs it: the program itself, a configuration, a database, a receiver.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what is not as it should be fails the test"
)]

mod checking;
mod ending;
mod instances;
mod lines;
mod listing;
mod making;
mod measuring;
mod once;
mod pausing;
mod place;
mod readiness;
mod rejecting;
mod routing;
mod running;
mod server;
mod settings;
mod time;
mod tls;
mod tracing;
