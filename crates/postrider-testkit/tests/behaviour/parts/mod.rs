//! What the tests are made of: sites (a store and the ways to write to it), recorders (handlers that remember), gates,
//! a store with doors in front of its verbs, and a log that can be read.

mod doors;
mod gate;
mod log;
mod receiver;
mod recorder;
mod site;
mod tally;
mod time;

pub(crate) use doors::Doors;
pub(crate) use gate::Gate;
pub(crate) use log::Log;
use postrider::{Delivery, Event, EventBuilder, Outcome};
pub(crate) use receiver::{Receiver, at, limited};
pub(crate) use recorder::Recorder;
pub(crate) use site::{Database, Folder, Site};
pub(crate) use tally::Tally;
pub(crate) use time::{TIMEOUT, eventually, ms, pass, secs, settle_down};

/// An event without a key.
pub(crate) fn plain(event_type: &str) -> EventBuilder {
    Event::json_text(event_type, "{}")
}

/// An event of a key, with a number as its payload.
pub(crate) fn keyed(key: &str, number: usize) -> EventBuilder {
    Event::json_text("Tested", number.to_string()).key(key)
}

/// The numbers that these deliveries carry.
pub(crate) fn numbers(deliveries: &[Delivery]) -> Vec<usize> {
    deliveries.iter().map(number).collect()
}

/// The number that a delivery carries.
pub(crate) fn number(delivery: &Delivery) -> usize {
    delivery.read_json().unwrap()
}

/// Every attempt fails.
pub(crate) fn fails(_: &Delivery) -> Outcome {
    Outcome::retry("it failed")
}

/// Makes one test for each store of every behaviour that is named. In memory time is paused; SQLite has the host's.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod in_memory_with_one_lane {
            $(#[tokio::test(start_paused = true)] async fn $name() { super::$name(crate::parts::Site::memory(1)).await })*
        }
        mod in_memory_with_eight_lanes {
            $(#[tokio::test(start_paused = true)] async fn $name() { super::$name(crate::parts::Site::memory(8)).await })*
        }
        mod in_a_sqlite_file {
            $(#[tokio::test] async fn $name() { super::$name(crate::parts::Site::sqlite().await).await })*
        }
    };
}
pub(crate) use on_every_store;
