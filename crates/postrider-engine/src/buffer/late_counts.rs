//! Corrects rows whose attempt was counted late. The database may carry out an unanswered count after the
//! outcome took the attempt back; the row then has one attempt too many.
//!
//! Only the owner of a lane writes attempts in it. It remembers what it wrote while it holds the lane.

use super::*;

/// The events whose count was not answered, with their attempts before it.
#[derive(Debug, Default)]
pub(super) struct LateCounts(BTreeMap<Seq, u32>);

impl LateCounts {
    /// Records a count that was not answered.
    fn expect(&mut self, seq: Seq, before: u32) {
        self.0.insert(seq, before);
    }

    /// Records a committed settle. A late count changes nothing in a row that has as many attempts or more, or
    /// that is delivered or dead.
    fn settled(&mut self, seq: Seq, change: &Change) {
        let stays = |before: &u32| matches!(change, Change::Wait { attempts, .. } if attempts <= before);
        if self.0.get(&seq).is_some_and(|before| !stays(before)) {
            self.0.remove(&seq);
        }
    }

    /// Returns how many attempts were made, given those in the row.
    fn attempts(&self, seq: Seq, in_row: u32) -> u32 {
        self.0.get(&seq).map_or(in_row, |before| in_row.min(*before))
    }
}

impl Buffer {
    /// Records that the count of an attempt was not answered.
    pub(crate) fn count_may_come_late(&mut self, item: &Item) {
        if let Some(lane) = self.lanes.under_mut(item.lease) {
            lane.late_counts.expect(item.seq, item.attempts);
        }
    }

    /// Records a committed settle.
    pub(super) fn note_settled(&mut self, lease: Lease, settlement: &Settlement) {
        if let Some(lane) = self.lanes.under_mut(lease) {
            lane.late_counts.settled(settlement.seq, &settlement.change);
        }
    }

    /// Returns how many attempts were made of a claimed event.
    pub(super) fn attempts_of(&self, item: &Item) -> u32 {
        let lane = self.lanes.under(item.lease);
        lane.map_or(item.attempts, |lane| lane.late_counts.attempts(item.seq, item.attempts))
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::store::HoldReason;

    use super::*;

    fn wait(attempts: u32) -> Change {
        Change::Wait { after: Duration::ZERO, attempts, error: None, reason: HoldReason::Deferred }
    }

    #[test]
    fn a_late_count_is_told_from_an_attempt_that_failed() {
        let mut counts = LateCounts::default();
        assert_eq!(counts.attempts(7, 3), 3, "nothing is known of it");
        counts.expect(7, 2);
        counts.settled(7, &wait(2));
        assert_eq!(counts.attempts(7, 3), 2, "the attempt was taken back");
        assert_eq!(counts.attempts(7, 0), 0, "it was redriven");
        counts.settled(7, &wait(3));
        assert_eq!(counts.attempts(7, 3), 3, "the attempt was made");
        for change in [Change::Done, Change::Dead { attempts: 3, error: String::new(), block: false }] {
            counts.expect(8, 2);
            counts.settled(8, &change);
        }
        assert!(counts.0.is_empty(), "{counts:?}");
    }
}
