//! Conformance suites, simulator and test parts for Postrider.

pub mod conformance;
pub mod outbox;
pub mod proxy;
pub mod sim;
