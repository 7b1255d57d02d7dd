//! The store conformance suite: what a store must do, as tests that run on any of them.
//!
//! A store is proved by implementing [`StoreHarness`] for it and calling [`store_conformance!`](crate::store_conformance)
//! in a test file of its crate, which makes one test of each check:
//!
//! ```ignore
//! struct MyHarness { /* a database of its own for each test */ }
//! impl postrider_testkit::conformance::StoreHarness for MyHarness { /* … */ }
//! postrider_testkit::store_conformance!(MyHarness);
//! ```
//!
//! The crate needs `tokio` with `macros` and `rt` for its tests. No check sleeps: time passes through
//! [`StoreHarness::pass`].
//!
//! # Layout
//!
//! * [`harness`]: what the suite asks of a store's tests
//! * [`scene`]: a fresh store and one instance that holds its lanes, as every check begins
//! * [`atomicity`], [`round_trip`], [`undecodable`], [`claiming`], [`late`], [`late_commits`], [`admitting`], [`waiting`], [`holding`], [`settling`], [`fencing`], [`leasing`],
//!   [`locking`], [`going_back`], [`holes`], [`orphans`], [`operating`], [`listing`], [`pausing`], [`peeking`], [`refusing`]: the checks
//! * [`rights`]: what each role does, for tests of the printed rights
//! * `gate`: an admission that remembers what it was asked
//! * `suite`: the lists of them, as macros: [`store_conformance!`](crate::store_conformance) has all of them,
//!   [`writer_conformance!`](crate::writer_conformance) those about writing, for a further driver on a store that is proved already, and
//!   [`delivery_conformance!`](crate::delivery_conformance) those about delivering, for tables that others write to

pub mod admitting;
pub mod atomicity;
pub mod claiming;
pub mod fencing;
mod gate;
pub mod going_back;
pub mod harness;
pub mod holding;
pub mod holes;
pub mod late;
pub mod late_commits;
pub mod leasing;
pub mod listing;
pub mod locking;
pub mod operating;
pub mod orphans;
pub mod pausing;
pub mod peeking;
pub mod refusing;
pub mod rights;
pub mod round_trip;
pub mod scene;
pub mod settling;
pub mod sink;
mod suite;
pub mod undecodable;
pub mod waiting;

pub use harness::StoreHarness;
pub use scene::{Owner, Scene};

/// Why a check could not be carried through. A check that is carried through and finds a fault panics instead, by an
/// assertion.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a check ends with.
pub type Checked = Result<(), Failure>;
