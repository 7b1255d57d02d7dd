//! What an outbox does, seen from outside: each test is a sentence of behaviour, on every store where that makes sense.
//!
//! # Layout
//!
//! * `parts`: what the tests are made of
//! * `poller`: wake-ups, polls and their pace
//! * `outcomes`: what each outcome does to an event
//! * `ordering`: order within a key

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says so by a panic"
)]

mod ordering;
mod outcomes;
mod parts;
mod poller;
mod queues;
mod shutdown;
