//! Queues: what lines up, and what is sent next.

use super::*;

impl Buffer {
    pub(super) fn enter(&mut self, item: Item, routes: &RouteTable) {
        self.track(&item);
        if let Some(key) = &item.key {
            match self.keys.entry((item.lease.lane, key.clone())) {
                std::collections::hash_map::Entry::Occupied(mut busy) => {
                    busy.get_mut().push_back(item);
                    return;
                }
                std::collections::hash_map::Entry::Vacant(free) => free.insert(VecDeque::new()),
            };
        }
        self.line_up(item, routes);
    }

    pub(super) fn line_up(&mut self, item: Item, routes: &RouteTable) {
        if let Some(lane) = self.lanes.get_mut(&item.lease.lane).filter(|lane| item.seq <= lane.suspect_to) {
            lane.suspects.push_back(item);
            self.alone_since.get_or_insert(Instant::now());
            return;
        }
        let slot = route_of(&item, routes).map_or(0, |route| route + 1);
        match item.source {
            Source::Hot => self.hot.push(slot, item),
            Source::Cold => self.cold.push(slot, item),
        }
    }

    /// What to send next: hot and cold in turn, two to one, routes in turn within each.
    pub(crate) fn next(&mut self, now: Instant, routes: &RouteTable) -> Next {
        if self.is_expired(now) {
            return Next::Wait(None);
        }
        match self.alone(now, routes) {
            Alone::Nobody => {}
            Alone::Wait(until) => return Next::Wait(Some(until)),
            Alone::Now(lane) => {
                if let Some((route, item)) = self.take_suspect(lane, now, routes) {
                    return Next::Suspect(route, item);
                }
            }
        }
        let (breakers, batch_max) = (&self.breakers, &self.batch_max);
        let open = |slot: usize| breakers.get(slot).is_some_and(|breaker| breaker.lets_through(now));
        let most = |slot: usize| match breakers.get(slot) {
            Some(breaker) if breaker.is_closed() => batch_max.get(slot).copied().unwrap_or(1),
            _ => 1,
        };
        let hot_first = self.turn < 2;
        let (first, second) =
            if hot_first { (&mut self.hot, &mut self.cold) } else { (&mut self.cold, &mut self.hot) };
        let Some((slot, items)) = first.pop(open, most).or_else(|| second.pop(open, most)) else {
            return Next::Wait(self.breakers.iter().filter_map(|breaker| breaker.opens_at(now)).min());
        };
        self.turn = (self.turn + 1) % 3;
        for item in &items {
            self.begin_sending(item.lease.lane);
        }
        if let Some(breaker) = self.breakers.get_mut(slot) {
            breaker.sending();
        }
        Next::Send(slot.checked_sub(1), items)
    }

    pub(super) fn begin_sending(&mut self, lane: Lane) {
        self.sending += 1;
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.busy += 1;
        }
    }

    /// Whether anything can be sent now.
    pub(crate) fn has_work(&self, now: Instant, routes: &RouteTable) -> bool {
        let open = |slot: usize| self.breakers.get(slot).is_some_and(|breaker| breaker.lets_through(now));
        !self.is_expired(now)
            && match self.alone(now, routes) {
                Alone::Now(_) => true,
                Alone::Wait(_) => false,
                Alone::Nobody => self.hot.has(open) || self.cold.has(open),
            }
    }
}
