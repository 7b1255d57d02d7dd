//! Rows by the id of their event.

use std::collections::BTreeMap;

use postrider_core::{EventId, store::Seq};

use super::hash::FixedMap;

/// Where the row of an id was put, by what the id hashes to. The rare id that shares its hash with another is kept whole.
///
/// A row that goes is not taken out here, because each would be a look at another corner of memory: [`forget`](Self::forget)
/// takes out a page's rows together. Until then what is found may be gone, and whoever asks has to look.
#[derive(Default)]
pub(super) struct Ids {
    seqs: FixedMap<u64, Seq>,
    twins: BTreeMap<EventId, Seq>,
}

impl Ids {
    /// The place that was put first for a hash.
    pub(super) fn first(&self, hash: u64) -> Option<Seq> {
        self.seqs.get(&hash).copied()
    }

    /// Puts a place in; for the id alone if another row has this hash already.
    pub(super) fn insert(&mut self, hash: u64, seq: Seq, twin: Option<&EventId>) {
        match twin {
            Some(id) => _ = self.twins.insert(id.clone(), seq),
            None => _ = self.seqs.insert(hash, seq),
        }
    }

    /// The places that an event with this id may have.
    pub(super) fn find(&self, hash: u64, id: &str) -> impl Iterator<Item = Seq> {
        self.first(hash).into_iter().chain(self.twins.get(id).copied())
    }

    /// Takes out rows that are gone: what their ids hash to, and their places.
    pub(super) fn forget(&mut self, rows: impl Iterator<Item = (u64, Seq)>) {
        for (hash, seq) in rows {
            if self.first(hash) == Some(seq) {
                self.seqs.remove(&hash);
            } else {
                self.twins.retain(|_, twin| *twin != seq);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ids_of_one_hash_are_both_found_until_they_are_forgotten() {
        let mut ids = Ids::default();
        ids.insert(7, 1, None);
        ids.insert(7, 2, Some(&"b".into()));
        let found = |ids: &Ids, id| ids.find(7, id).collect::<Vec<_>>();
        assert_eq!((found(&ids, "a"), found(&ids, "b")), (vec![1], vec![1, 2]));
        ids.forget([(7, 1)].into_iter());
        assert_eq!(found(&ids, "b"), [2]);
        ids.forget([(7, 2)].into_iter());
        assert_eq!(found(&ids, "b"), []);
    }

    #[test]
    fn an_id_that_is_written_again_has_its_new_place() {
        let mut ids = Ids::default();
        ids.insert(7, 1, None);
        ids.insert(7, 2, None);
        ids.forget([(7, 1)].into_iter());
        assert_eq!(ids.find(7, "a").collect::<Vec<_>>(), [2]);
    }
}
