//! The relay from end to end: the program itself between real databases and real receivers, as its users run it.
//!
//! # Layout
//!
//! - `place`, `relay`, `time`: a folder, the program, and waiting for what is to come
//! - `database`, `server`, `endpoint`, `topics`: what stands on either side of it
//! - the others: a subject each
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "what is not as it should be fails the test"
)]

mod database;
mod documents;
mod endpoint;
mod flowcatalyst;
mod instances;
mod languages;
mod memory;
mod outages;
mod payloads;
mod place;
mod readme;
mod rejecting;
mod relay;
mod secrets;
mod server;
mod spring_outbox;
mod time;
mod tls;
mod topics;
