//! The tracker: which events are in memory, and how many and how heavy they are. Every event has one way in and one way
//! out.

use super::*;

impl Buffer {
    pub(super) fn track(&mut self, item: &Item) {
        // A place that was given again after a rollback may still be tracked.
        self.uncount(item.seq);
        let weight = item.cargo.as_ref().map_or(EVENT_FLAT_BYTES, Event::weight_bytes);
        match item.source {
            Source::Hot => self.hot_count += 1,
            Source::Cold => self.cold_count += 1,
        }
        self.bytes += weight;
        self.slot_counts.get_mut(item.slot).into_iter().for_each(|count| *count += 1);
        self.tracked.insert(item.seq, Tracked { source: item.source, weight, slot: item.slot });
    }

    pub(super) fn untrack(&mut self, seq: Seq) {
        self.uncount(seq);
        self.tracked.remove(&seq);
    }

    /// Takes an event out of the counts while it may stay tracked. Counting out twice does nothing.
    pub(super) fn uncount(&mut self, seq: Seq) {
        let Some(tracked) = self.tracked.get_mut(&seq).filter(|tracked| tracked.weight > 0) else { return };
        self.bytes = self.bytes.saturating_sub(std::mem::take(&mut tracked.weight));
        self.slot_counts.get_mut(tracked.slot).into_iter().for_each(|count| *count = count.saturating_sub(1));
        let count = match tracked.source {
            Source::Hot => &mut self.hot_count,
            Source::Cold => &mut self.cold_count,
        };
        *count = count.saturating_sub(1);
    }
}
