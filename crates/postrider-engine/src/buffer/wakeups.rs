//! Moments that somebody has to wait for: a pause ends, a send is known to hang, a suspect has hung for long enough.
//!
//! A worker that has nothing to do waits for the next one. Such a moment may come up when a worker takes something, though, and all others have gone
//! to sleep before that.

use super::*;

impl Buffer {
    /// When something may be sent that may not be now, whatever else happens.
    pub(super) fn next_moment(&self, alone: &SuspectTurn, now: Instant) -> Option<Instant> {
        let alone_until = match alone {
            SuspectTurn::Wait { until, .. } => Some(*until),
            SuspectTurn::NotNeeded => self.others_go_until(now),
            SuspectTurn::Now(..) => None,
        };
        self.receivers.next_opening(now).into_iter().chain(alone_until).min()
    }

    /// A worker has nothing to do, and waits until this moment.
    pub(crate) fn wait_begins(&mut self, until: Option<Instant>) {
        self.awaited_until = self.awaited_until.into_iter().chain(until).min();
    }

    /// One of those that waited for a moment has woken up. Nobody knows for what the others wait.
    pub(crate) fn wait_ended(&mut self) {
        self.awaited_until = None;
    }

    /// Whether there is a moment to wait for that comes before the one that somebody is known to wait for.
    pub(crate) fn needs_waiter(&self, now: Instant) -> bool {
        let moment = self.next_moment(&self.alone(now), now);
        moment.is_some_and(|moment| self.awaited_until.is_none_or(|until| moment < until))
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::Outcome;

    use super::*;
    use crate::Routes;

    #[tokio::test(start_paused = true)]
    async fn a_moment_that_comes_up_is_unwatched_until_somebody_waits_for_it() {
        let routes = Arc::new(Routes::new().on("A", async |_| Outcome::Delivered).build().unwrap());
        let (settings, now) = (Settings::default(), Instant::now());
        let mut buffer = Buffer::new(&routes, &settings);
        assert!(!buffer.needs_waiter(now), "there is nothing to wait for");
        let moment = now + Duration::from_secs(10);
        buffer.receivers.saturate(RouteSlot::at(1), Some(moment));
        assert!(buffer.needs_waiter(now));
        buffer.wait_begins(Some(moment + Duration::from_secs(1)));
        assert!(buffer.needs_waiter(now), "that is too late");
        buffer.wait_begins(Some(moment));
        buffer.wait_begins(None);
        assert!(!buffer.needs_waiter(now));
        buffer.wait_ended();
        assert!(buffer.needs_waiter(now));
        assert!(!buffer.needs_waiter(moment), "it is over");
    }
}
