//! The sink conformance suite: what a sink must do, as tests that run on any of them.
//!
//! A sink is proved by implementing [`SinkHarness`] for it and calling [`sink_conformance!`](crate::sink_conformance) in a test
//! file of its crate, which makes one test of each check:
//!
//! ```ignore
//! struct MyHarness { /* a receiver of its own for each test, and a sink that sends to it */ }
//! impl postrider_testkit::conformance::sink::SinkHarness for MyHarness { /* … */ }
//! postrider_testkit::sink_conformance!(MyHarness);
//! ```
//!
//! What a sink carries, and what its receiver can be made to do, is data ([`SinkFeatures`]): a check that needs more passes
//! without doing anything. The crate needs `tokio` with `macros`, `rt` and `time` for its tests. No check sleeps.
//!
//! # Layout
//!
//! * [`harness`]: what the suite asks of a sink's tests
//! * [`scene`]: a sink, its receiver, and the events that are sent
//! * [`outcomes`], [`content`], [`order`], [`failing`], [`dropping`], [`deadlines`]: the checks
//! * `suite`: the list of them, as a macro
//! * [`line`](mod@line): outages of a real server, by a proxy on the way to it
//! * [`retyped`]: for a receiver that refuses or ignores an event by its type
//! * [`broken_line`]: an engine before a sink whose connection breaks again and again

pub mod broken_line;
pub mod content;
pub mod deadlines;
pub mod dropping;
pub mod failing;
pub mod harness;
pub mod line;
pub mod order;
pub mod outcomes;
pub mod retyped;
pub mod scene;
mod suite;

pub use super::{Checked, Failure};
pub use broken_line::survives_a_broken_line;
pub use harness::{Payloads, Received, Receiver, SinkFeatures, SinkHarness};
pub use line::Line;
pub use retyped::Retyped;
pub use scene::Scene;
