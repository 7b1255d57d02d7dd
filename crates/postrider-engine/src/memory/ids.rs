//! Rows by the id of their event.

use std::collections::BTreeMap;

use postrider_core::{EventId, store::Seq};

use super::hash::FixedMap;

/// Fewer entries than this are not worth a sweep.
const SWEEP_MIN: usize = 1024;

/// Where the row of an id was put, by what the id hashes to. The rare id that shares its hash with another is kept whole.
///
/// A row that goes is not taken out here, because each would be a look at another corner of memory. What is found may be gone,
/// and anyone who asks has to look. When there are twice as many entries as there were rows, those that are gone are swept out.
#[derive(Clone, Default)]
pub(super) struct Ids {
    seqs: FixedMap<u64, Seq>,
    twins: BTreeMap<EventId, Seq>,
    /// How many entries the last sweep left.
    swept: usize,
}

impl Ids {
    /// The places that an event with this id may have.
    pub(super) fn find(&self, hash: u64, id: &str) -> impl Iterator<Item = Seq> {
        self.seqs.get(&hash).into_iter().chain(self.twins.get(id)).copied()
    }

    pub(super) fn insert(&mut self, hash: u64, id: &EventId, seq: Seq, is_there: impl Fn(Seq) -> bool) {
        if self.seqs.len() >= SWEEP_MIN.max(self.swept.saturating_mul(2)) {
            self.seqs.retain(|_, seq| is_there(*seq));
            self.twins.retain(|_, seq| is_there(*seq));
            self.swept = self.seqs.len();
        }
        let first = self.seqs.entry(hash).or_insert(seq);
        if *first != seq && is_there(*first) {
            self.twins.insert(id.clone(), seq);
        } else {
            *first = seq;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ids: &Ids, hash: u64, id: &str) -> Vec<Seq> {
        ids.find(hash, id).collect()
    }

    #[test]
    fn two_ids_of_one_hash_are_both_found() {
        let mut ids = Ids::default();
        ids.insert(7, &"a".into(), 1, |_| true);
        ids.insert(7, &"b".into(), 2, |_| true);
        assert_eq!((found(&ids, 7, "a"), found(&ids, 7, "b")), (vec![1], vec![1, 2]));
    }

    #[test]
    fn an_id_that_is_written_again_has_its_new_place() {
        let mut ids = Ids::default();
        ids.insert(7, &"a".into(), 1, |_| true);
        ids.insert(7, &"a".into(), 2, |_| false);
        assert_eq!(found(&ids, 7, "a"), [2]);
    }

    #[test]
    fn what_is_gone_takes_room_for_a_while_only() {
        let mut ids = Ids::default();
        let is_there = |seq| seq % 100 == 0;
        for seq in 0..100_000 {
            ids.insert(seq, &"a".into(), seq, is_there);
        }
        assert!(ids.seqs.len() < 3000, "{}", ids.seqs.len());
        assert!((0..1000).all(|n| found(&ids, n * 100, "a") == [n * 100]));
    }
}
