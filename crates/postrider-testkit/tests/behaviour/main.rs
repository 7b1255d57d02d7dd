//! What an outbox does, seen from outside: each test is a sentence of behaviour, on every store where that makes sense.
//!
//! # Layout
//!
//! * `parts`: what the tests are made of
//! * `acceptance`: the acceptance tests of the source system, by their names
//! * `writing`: into the caller's transaction, or one that the outbox owns
//! * `hints`: where events without a key lie
//! * `poller`, `peeking`, `queues`: from the table into memory, and what waits there
//! * `routing`, `interceptors`, `outcomes`, `outages`, `health`, `limits`, `ordering`, `batches`, `fairness`, `neighbours`: delivery
//! * `settling`: what stands in the way of a settle
//! * `leases`, `suspects`, `draining`, `shutdown`: the right to deliver, who waits for those who have it, and its end
//! * `metrics`, `databases`: what is measured; several outboxes in one program

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says so by a panic"
)]

mod acceptance;
mod batches;
mod braking;
mod culprits;
mod databases;
mod destinations;
mod draining;
mod fairness;
mod health;
mod hints;
mod interceptors;
mod leases;
mod limits;
mod metrics;
mod neighbours;
mod ordering;
mod outages;
mod outcomes;
mod parts;
mod pauses;
mod peeking;
mod poller;
mod queues;
mod receivers;
mod routing;
mod settling;
mod shutdown;
mod suspects;
mod writing;
