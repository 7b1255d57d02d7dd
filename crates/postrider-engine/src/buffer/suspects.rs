//! Suspects in memory: each goes alone.

use super::*;

impl Buffer {
    /// Whether a suspect goes next. It goes alone, so that nobody is counted for what somebody else did; but it waits for
    /// others, and others wait for it, no longer than its patience: a slow one must not stop everything.
    pub(super) fn alone(&self, now: Instant, routes: &RouteTable) -> Alone {
        let lane = self.suspect_lane(now, routes);
        // Until its outcome is settled: if the process ended before, its attempt would stay counted.
        let under_way = self.lanes.values().any(|lane| lane.suspect_under_way);
        let until = self.alone_since.unwrap_or(now) + self.patience;
        match lane {
            None if !under_way => Alone::Nobody,
            Some(lane) if now >= until || (self.sending == 0 && !under_way) => Alone::Now(lane),
            _ if now < until && (self.sending > 0 || under_way) => Alone::Wait(until),
            _ => Alone::Nobody,
        }
    }

    /// Takes a suspect out to be sent.
    pub(super) fn take_suspect(
        &mut self,
        lane: Lane,
        now: Instant,
        routes: &RouteTable,
    ) -> Option<(Option<RouteId>, Item)> {
        let owned = self.lanes.get_mut(&lane)?;
        let item = owned.suspects.pop_front()?;
        owned.suspect_under_way = true;
        self.alone_since = Some(now);
        self.begin_sending(lane);
        let route = route_of(&item, routes);
        if let Some(breaker) = self.breakers.get_mut(route.map_or(0, |route| route + 1)) {
            breaker.sending();
        }
        Some((route, item))
    }

    pub(super) fn suspect_lane(&self, now: Instant, routes: &RouteTable) -> Option<Lane> {
        let ready = |lane: &OwnedLane| {
            let slot = lane.suspects.front().map(|item| route_of(item, routes).map_or(0, |route| route + 1));
            let open = slot
                .and_then(|slot| self.breakers.get(slot))
                .is_some_and(|breaker| breaker.lets_through(now));
            !lane.suspect_under_way && open
        };
        self.lanes.iter().find(|(_, lane)| !lane.suspects.is_empty() && ready(lane)).map(|(&lane, _)| lane)
    }

    /// An event that was to be sent was not: it is the first to be sent again.
    pub(crate) fn unsend(&mut self, item: Item) {
        self.sending = self.sending.saturating_sub(1);
        if let Some(lane) = self.lanes.get_mut(&item.lease.lane).filter(|lane| lane.lease == item.lease) {
            lane.busy = lane.busy.saturating_sub(1);
            lane.suspect_under_way = false;
            if !lane.draining {
                lane.suspects.push_front(item);
                return;
            }
        }
        // The lane may have been taken anew since: its claims have passed this event over, and what waits behind it.
        let (lane, seq) = (item.lease.lane, item.seq);
        self.look_again(lane, seq);
        self.untrack(seq);
        if let Some(key) = item.key {
            self.give_back_followers(lane, key);
        }
    }
}
