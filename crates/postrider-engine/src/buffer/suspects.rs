//! Suspects in memory: each goes alone.

use super::*;

impl Buffer {
    /// Whether a suspect goes next. It goes alone, so that nobody is counted for what somebody else did; but it waits for
    /// others, and others wait for it, no longer than its patience: a slow one must not stop everything.
    pub(super) fn alone(&self, now: Instant) -> Alone {
        // Until its outcome is settled: if the process ended before, its attempt would stay counted.
        let under_way = self.lanes.values().any(|lane| lane.suspect_under_way);
        let suspect = self.suspect(now);
        if suspect.is_none() && !under_way {
            return Alone::Nobody;
        }
        let until = self.alone_since.unwrap_or(now) + self.patience;
        match suspect {
            Some((lane, place)) if now >= until || (self.sending == 0 && !under_way) => {
                Alone::Now(lane, place)
            }
            _ if now < until && (self.sending > 0 || under_way) => Alone::Wait(until),
            _ => Alone::Nobody,
        }
    }

    /// Takes a suspect out to be sent.
    pub(super) fn take_suspect(&mut self, lane: Lane, place: usize, now: Instant) -> Option<Hand> {
        let owned = self.lanes.get_mut(&lane)?;
        let item = owned.suspects.remove(place)?;
        owned.suspect_under_way = true;
        self.suspect_turn = lane;
        self.alone_since = Some(now);
        let slot = item.slot;
        let hand = self.hand(slot, VecDeque::from([item]), now);
        self.receiver_mut(slot).into_iter().for_each(|receiver| receiver.suspect_went_last = true);
        Some(hand)
    }

    /// The first suspect that could be sent. Lanes have turns: one that its receiver refuses for good must not be all that it is asked for.
    fn suspect(&self, now: Instant) -> Option<(Lane, usize)> {
        let (after, before) = (self.lanes.range(self.suspect_turn.saturating_add(1)..), ..=self.suspect_turn);
        after
            .chain(self.lanes.range(before))
            .filter(|(_, lane)| !lane.suspect_under_way && !lane.suspects.is_empty())
            .find_map(|(&lane, owned)| {
                let mut suspects = owned.suspects.iter();
                let place =
                    suspects.position(|item| self.is_open(item.slot, now) && !self.gives_way(item.slot))?;
                Some((lane, place))
            })
    }

    /// A receiver that is down is asked for a suspect and for others in turn.
    fn gives_way(&self, slot: usize) -> bool {
        let Some(receiver) = self.receiver_of.get(slot) else { return false };
        let same = |slot: usize| self.receiver_of.get(slot) == Some(receiver);
        self.receiver(slot).is_some_and(|receiver| !receiver.is_up() && receiver.suspect_went_last)
            && (self.hot.has(same) || self.cold.has(same))
    }
}
