//! How long the tests watch.

use std::{future::Future, time::Duration};

/// Lets time pass in which nothing happens: what an idle process takes is the one thing that only time can tell.
pub(crate) fn pass(time: Duration) -> impl Future<Output = ()> {
    tokio::time::sleep(time)
}
