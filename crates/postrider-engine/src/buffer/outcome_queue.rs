//! Owns the outcomes that wait for a settle, and knows how many the running settle writes.

use postrider_core::store::Settlement;
use tokio::time::Instant;

use super::{PendingSettlements, SettlementOrigin, postponed::PostponedOutcomes};

/// Outcomes on their way to the table, but for the [postponed](PostponedOutcomes) ones.
#[derive(Debug, Default)]
pub(super) struct OutcomeQueue {
    waiting: PendingSettlements,
    /// Empty, with the capacity of the last batch: growing anew for each batch would copy it several times.
    spare: PendingSettlements,
    /// When the oldest of them came in.
    since: Option<Instant>,
    /// How many the running settle writes.
    settling: usize,
    postponed_turn: bool,
}

impl OutcomeQueue {
    pub(super) fn push(&mut self, origin: SettlementOrigin, settlement: Settlement, now: Instant) {
        self.waiting.push(origin, settlement);
        self.since.get_or_insert(now);
    }

    pub(super) fn append(&mut self, settlements: &mut PendingSettlements, now: Instant) {
        self.waiting.append(settlements);
        self.since.get_or_insert(now);
    }

    /// Takes outcomes to settle. Postponed ones go separately and in turn with the others, so that neither
    /// waits for the other.
    pub(super) fn take(
        &mut self,
        postponed: &mut PostponedOutcomes,
        most: usize,
        now: Instant,
    ) -> PendingSettlements {
        self.postponed_turn = !self.postponed_turn || self.waiting.is_empty();
        let due = if self.postponed_turn { postponed.take_due(now) } else { PendingSettlements::default() };
        let taken =
            if due.is_empty() { self.waiting.take(most, std::mem::take(&mut self.spare)) } else { due };
        if self.waiting.is_empty() {
            self.since = None;
        }
        taken
    }

    /// Begins a settle of this many outcomes.
    pub(super) fn settle_begins(&mut self, count: usize) {
        self.settling = count;
    }

    /// Ends the running settle, and keeps the capacity of its batch.
    pub(super) fn settle_ends(&mut self, mut spare: PendingSettlements) {
        spare.clear();
        self.spare = spare;
        self.settling = 0;
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many wait or are being written.
    pub(super) fn unwritten(&self) -> usize {
        self.waiting.len() + self.settling
    }

    /// When the oldest of those that wait came in.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        (self.since, self.settling) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::{
        EventId,
        store::{Change, Lease, Seq, Token},
    };

    use super::*;

    fn outcome(seq: Seq) -> (SettlementOrigin, Settlement) {
        let lease = Lease { lane: 0, token: Token { epoch: 1, nonce: 1 } };
        let origin = SettlementOrigin::new(lease, seq, None, false, None);
        let event_id = EventId::from(format!("event-{seq}"));
        (origin, Settlement { lane: 0, seq, event_id, key: None, held: false, change: Change::Done })
    }

    #[test]
    fn outcomes_are_unwritten_until_their_settle_has_ended() {
        let (mut queue, now) = (OutcomeQueue::default(), Instant::now());
        for seq in 1..=3 {
            let (origin, settlement) = outcome(seq);
            queue.push(origin, settlement, now);
        }
        let taken = queue.take(&mut PostponedOutcomes::default(), 2, now);
        assert_eq!((taken.len(), queue.len(), queue.since()), (2, 1, Some(now)));
        queue.settle_begins(taken.len());
        assert_eq!(queue.unwritten(), 3);
        queue.settle_ends(taken);
        assert_eq!(queue.unwritten(), 1);
        assert_eq!(queue.take(&mut PostponedOutcomes::default(), 2, now).len(), 1);
        assert_eq!(queue.since(), None);
    }
}
