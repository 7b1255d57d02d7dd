//! Waiting for the end of a process, with a deadline.

use std::{
    process::Child,
    time::{Duration, Instant},
};

const BETWEEN: Duration = Duration::from_millis(10);

/// Waits until a process has ended by itself, and gives its exit status; none if it is still there after so long, or was killed by a signal.
pub(crate) fn ended_within(child: &mut Child, limit: Duration) -> Option<i32> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(BETWEEN);
    }
}
