//! Which of the events that are due go into a claim, fairly.

use postrider_core::store::Seq;

/// An event that could be returned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) seq: Seq,
    /// The size of its payload.
    pub(super) bytes: usize,
    /// Whether its key is held because of it, or because others stand behind it.
    pub(super) held: bool,
}

/// What is left of a claim's limits.
#[derive(Debug)]
pub(super) struct Budget {
    events: usize,
    bytes: usize,
    untouched: bool,
}

impl Budget {
    pub(super) fn new(events: usize, bytes: usize) -> Self {
        Self { events, bytes, untouched: true }
    }

    /// How many more events fit.
    pub(super) fn events(&self) -> usize {
        self.events
    }

    /// Takes one event out of the budget, if it fits. The first fits whatever its size, or it would never come.
    fn admit(&mut self, candidate: &Candidate) -> bool {
        let fits = self.events > 0 && (self.untouched || candidate.bytes <= self.bytes);
        if fits {
            self.events -= 1;
            self.bytes = self.bytes.saturating_sub(candidate.bytes);
            self.untouched = false;
        }
        fits
    }
}

/// How many were taken from the front of each list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) fresh: usize,
    pub(super) waiting: usize,
    pub(super) returning: usize,
}

/// A list and how much of it was taken. Only ever from the front: the lists are in the order of their keys.
struct Queue<'a> {
    rest: std::iter::Peekable<std::slice::Iter<'a, Candidate>>,
    taken: usize,
}

impl<'a> Queue<'a> {
    fn new(list: &'a [Candidate]) -> Self {
        Self { rest: list.iter().peekable(), taken: 0 }
    }

    fn oldest(&mut self) -> Seq {
        self.rest.peek().map_or(Seq::MAX, |candidate| candidate.seq)
    }

    fn take(&mut self, budget: &mut Budget) -> bool {
        let took = self.rest.next_if(|candidate| budget.admit(candidate)).is_some();
        self.taken += usize::from(took);
        took
    }
}

/// Takes from the fresh ones and from the others by turns, so that neither keeps the other out: each has half of the
/// limit, and what it does not use goes to the other.
pub(super) fn choose(
    fresh: &[Candidate],
    waiting: &[Candidate],
    returning: &[Candidate],
    budget: &mut Budget,
) -> Taken {
    let (mut fresh, mut waiting, mut returning) =
        (Queue::new(fresh), Queue::new(waiting), Queue::new(returning));
    // Whoever is older goes first; with room for a single event that is the one that has waited longest.
    let mut turn_of_fresh = fresh.oldest() < waiting.oldest().min(returning.oldest());
    let mut turn_of_returning = false;
    loop {
        let mut others = |budget: &mut Budget| {
            turn_of_returning = !turn_of_returning;
            match turn_of_returning {
                true => returning.take(budget) || waiting.take(budget),
                false => waiting.take(budget) || returning.take(budget),
            }
        };
        let took = match turn_of_fresh {
            true => fresh.take(budget) || others(budget),
            false => others(budget) || fresh.take(budget),
        };
        if !took {
            return Taken { fresh: fresh.taken, waiting: waiting.taken, returning: returning.taken };
        }
        turn_of_fresh = !turn_of_fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(seqs: std::ops::Range<Seq>, bytes: usize) -> Vec<Candidate> {
        seqs.map(|seq| Candidate { seq, bytes, held: false }).collect()
    }

    fn chosen(lists: [&[Candidate]; 3], events: usize, bytes: usize) -> (usize, usize, usize) {
        let [fresh, waiting, returning] = lists;
        let taken = choose(fresh, waiting, returning, &mut Budget::new(events, bytes));
        (taken.fresh, taken.waiting, taken.returning)
    }

    #[test]
    fn fresh_events_and_the_others_have_half_of_the_limit_each() {
        let (fresh, waiting, returning) = (list(200..300, 1), list(0..100, 1), list(100..200, 1));
        assert_eq!(chosen([&fresh, &waiting, &returning], 40, 1000), (20, 10, 10));
        assert_eq!(chosen([&fresh, &waiting, &[]], 40, 1000), (20, 20, 0));
    }

    #[test]
    fn an_unused_half_goes_to_the_others() {
        let (many, few) = (list(200..300, 1), list(0..3, 1));
        assert_eq!(chosen([&many, &few, &[]], 40, 1000), (37, 3, 0));
        assert_eq!(chosen([&few, &[], &many], 40, 1000), (3, 0, 37));
        assert_eq!(chosen([&few, &few, &few], 40, 1000), (3, 3, 3));
    }

    #[test]
    fn the_first_event_comes_whatever_its_size_and_no_other() {
        let large = list(0..5, 100);
        assert_eq!(chosen([&large, &[], &[]], 40, 10), (1, 0, 0));
        assert_eq!(chosen([&large, &[], &[]], 40, 250), (2, 0, 0));
        assert_eq!(chosen([&large, &[], &[]], 0, 250), (0, 0, 0));
    }

    #[test]
    fn with_room_for_one_the_oldest_comes() {
        let (old, young) = (list(0..5, 1), list(5..9, 1));
        assert_eq!(chosen([&old, &young, &[]], 1, 10), (1, 0, 0));
        assert_eq!(chosen([&young, &[], &old], 1, 10), (0, 0, 1));
    }
}
