//! Runs workers: each takes what is ready and sends it, or waits.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    assignment::ActiveAssignment, buffer::NextWork, deliver, lock, shared::Shared, sleep_until, suspect,
};

/// Runs one worker: takes ready events, delivers them and hands their outcomes over.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut watched = false;
    loop {
        let next = {
            let mut buffer = lock(&shared.buffer);
            let now = Instant::now();
            if std::mem::take(&mut watched) {
                buffer.wait_ended();
            }
            let next = buffer.next(now);
            if buffer.take_deferred() {
                shared.outcomes.notify_one();
            }
            // One wake-up may stand for several events, so it is passed on before this worker is busy. If there
            // is a moment to wait for, another worker has to wait for it.
            match next {
                NextWork::Wait(until) => {
                    watched = until.is_some();
                    buffer.wait_begins(until);
                }
                NextWork::Send(_) | NextWork::Suspect(_)
                    if buffer.has_work(now) || buffer.needs_waiter(now) =>
                {
                    shared.work.notify_one();
                }
                NextWork::Send(_) | NextWork::Suspect(_) => {}
            }
            next
        };
        match next {
            NextWork::Send(assignment) => {
                // A task that was woken may need this thread, and a handler that never waits would not release
                // it.
                if deliver::deliver(ActiveAssignment::new(&shared, assignment)).await {
                    tokio::task::yield_now().await;
                }
            }
            NextWork::Suspect(assignment) => {
                suspect::deliver(ActiveAssignment::new(&shared, assignment)).await
            }
            NextWork::Wait(until) => {
                tokio::select! {
                    biased;
                    () = shared.work.notified() => {}
                    () = sleep_until(until) => {}
                }
            }
        }
    }
}
