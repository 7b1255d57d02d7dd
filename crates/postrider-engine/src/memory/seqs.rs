//! A set of places in the order, as bits of neighbours.

use std::collections::BTreeMap;

use postrider_core::store::Seq;

/// How many seqs one chunk stands for.
const CHUNK_SEQS: u64 = u128::BITS as u64;

/// A set of seqs. Chunks without any are not kept.
#[derive(Clone, Default)]
pub(super) struct Seqs {
    /// All chunks but the one that was changed last.
    chunks: BTreeMap<u64, u128>,
    /// The number and the bits of the chunk that was changed last. Neighbours come and go together, and are not looked for one by one.
    last: (u64, u128),
}

impl Seqs {
    pub(super) fn insert(&mut self, seq: Seq) {
        *self.bits_of(seq) |= bit(seq);
    }

    pub(super) fn remove(&mut self, seq: Seq) {
        *self.bits_of(seq) &= !bit(seq);
    }

    /// The bits of a seq's chunk, to be changed.
    fn bits_of(&mut self, seq: Seq) -> &mut u128 {
        let number = chunk_of(seq);
        if self.last.0 != number {
            let bits = self.chunks.remove(&number).unwrap_or_default();
            let (before, bits_before) = std::mem::replace(&mut self.last, (number, bits));
            if bits_before != 0 {
                self.chunks.insert(before, bits_before);
            }
        }
        &mut self.last.1
    }

    /// The first chunk that begins with this one and has something in it.
    pub(super) fn chunk_from(&self, number: u64) -> Option<(u64, u128)> {
        let last = Some(self.last).filter(|(last, bits)| *last >= number && *bits != 0);
        let other = self.chunks.range(number..).next().map(|(number, bits)| (*number, *bits));
        last.into_iter().chain(other).min_by_key(|(number, _)| *number)
    }
}

/// The chunk that a seq is in.
pub(super) fn chunk_of(seq: Seq) -> u64 {
    seq / CHUNK_SEQS
}

/// The first seq of a chunk.
pub(super) fn first_of(number: u64) -> Seq {
    number.saturating_mul(CHUNK_SEQS)
}

/// The bit of a seq in its chunk.
pub(super) fn bit(seq: Seq) -> u128 {
    1 << (seq % CHUNK_SEQS)
}

/// The bits of a chunk that stand for seqs up to this one, and itself.
pub(super) fn bits_to(number: u64, seq: Seq) -> u128 {
    match chunk_of(seq).cmp(&number) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => bit(seq) | (bit(seq) - 1),
        std::cmp::Ordering::Greater => u128::MAX,
    }
}

/// The seqs of a chunk, in order.
pub(super) fn seqs_of(number: u64, mut bits: u128) -> impl Iterator<Item = Seq> {
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let seq = number * CHUNK_SEQS + u64::from(bits.trailing_zeros());
        bits &= bits - 1;
        Some(seq)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(set: &Seqs) -> Vec<Seq> {
        let (mut seqs, mut next) = (Vec::new(), 0);
        while let Some((number, bits)) = set.chunk_from(next) {
            seqs.extend(seqs_of(number, bits));
            next = number + 1;
        }
        seqs
    }

    #[test]
    fn what_was_put_in_comes_out_in_order_until_it_is_taken_out() {
        let mut set = Seqs::default();
        for seq in [1000, 0, 127, 128, 5, 255] {
            set.insert(seq);
        }
        assert_eq!(all(&set), [0, 5, 127, 128, 255, 1000]);
        for seq in [5, 6, 1000, 0, 127] {
            set.remove(seq);
        }
        assert_eq!(all(&set), [128, 255]);
        set.insert(0);
        assert_eq!((all(&set), set.chunks.len()), (vec![0, 128, 255], 1));
        for seq in [0, 128, 255, 0] {
            set.remove(seq);
        }
        assert_eq!((all(&set), set.chunks.len()), (vec![], 0), "nothing is kept of a chunk without any");
    }

    #[test]
    fn bits_up_to_a_seq_include_it_and_leave_out_later_ones() {
        assert_eq!(seqs_of(1, bits_to(1, 130)).collect::<Vec<_>>(), [128, 129, 130]);
        assert_eq!((bits_to(1, 127), bits_to(1, 255), bits_to(1, 256)), (0, u128::MAX, u128::MAX));
    }
}
