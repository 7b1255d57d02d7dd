//! Tells idle workers which moment to wait for: the end of a pause, a send that is known to hang by then, or
//! the end of a suspect's turn.
//!
//! An idle worker waits for the next such moment. A moment may also come up when a busy worker takes something
//! while all others sleep without a timer; then one of them has to be woken.

use super::*;

impl Buffer {
    /// Returns when something may be sent that may not be now, whatever else happens.
    pub(super) fn next_moment(&self, turn: &SuspectTurn, now: Instant) -> Option<Instant> {
        let turn_until = match turn {
            SuspectTurn::Wait { until, .. } => Some(*until),
            SuspectTurn::NotNeeded => self.others_go_until(now),
            SuspectTurn::Now(..) => None,
        };
        self.receivers.next_opening(now).into_iter().chain(turn_until).min()
    }

    /// Records that an idle worker waits until this moment.
    pub(crate) fn wait_begins(&mut self, until: Option<Instant>) {
        self.awaited_until = self.awaited_until.into_iter().chain(until).min();
    }

    /// Records that a worker that waited has woken up. It is unknown what the others wait for.
    pub(crate) fn wait_ended(&mut self) {
        self.awaited_until = None;
    }

    /// Whether there is a moment to wait for that no worker is known to wait for.
    pub(crate) fn needs_waiter(&self, now: Instant) -> bool {
        let moment = self.next_moment(&self.suspect_turn(now), now);
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
