//! Whose turn it is in a claim, and what still fits: the same for every store.

/// What is left of a claim's limits.
#[derive(Debug)]
pub(crate) struct Budget {
    events: usize,
    bytes: usize,
    untouched: bool,
}

impl Budget {
    pub(crate) fn new(events: usize, bytes: usize) -> Self {
        Self { events, bytes, untouched: true }
    }

    /// How many more events fit.
    #[cfg(feature = "sqlite")]
    pub(crate) fn events(&self) -> usize {
        self.events
    }

    /// Whether an event of this weight fits. The first does whatever its size, or it would never come.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        self.events > 0 && (self.untouched || bytes <= self.bytes)
    }

    /// Takes an event of this weight out of the budget.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.events = self.events.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.untouched = false;
    }
}

/// The kinds of events that share a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Fresh,
    Waiting,
    Returning,
}

/// Takes from the fresh ones and from the others by turns, so that neither keeps the other out: each has half of the
/// limit, and what it does not use goes to the other.
#[derive(Debug)]
pub(crate) struct Turns {
    fresh: bool,
    returning: bool,
}

impl Turns {
    /// Whoever is older goes first; with room for a single event that is the one that has waited longest.
    pub(crate) fn new(fresh_first: bool) -> Self {
        Self { fresh: fresh_first, returning: true }
    }

    /// Who is asked for the next event, one after the other until one has it.
    pub(crate) fn order(&self) -> [Kind; 3] {
        let others = match self.returning {
            true => (Kind::Returning, Kind::Waiting),
            false => (Kind::Waiting, Kind::Returning),
        };
        match self.fresh {
            true => [Kind::Fresh, others.0, others.1],
            false => [others.0, others.1, Kind::Fresh],
        }
    }

    /// Notes who had it.
    pub(crate) fn took(&mut self, kind: Kind) {
        self.fresh = !self.fresh;
        self.returning ^= kind != Kind::Fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of each kind come if there are so many of them.
    fn chosen(fresh_first: bool, there: [usize; 3], events: usize) -> [usize; 3] {
        let (mut turns, mut left, mut budget) = (Turns::new(fresh_first), there, Budget::new(events, 1000));
        while budget.fits(1) {
            let Some(kind) = turns.order().into_iter().find(|kind| left[*kind as usize] > 0) else { break };
            left[kind as usize] -= 1;
            turns.took(kind);
            budget.take(1);
        }
        [there[0] - left[0], there[1] - left[1], there[2] - left[2]]
    }

    #[test]
    fn fresh_events_and_the_others_have_half_of_the_limit_each() {
        assert_eq!(chosen(false, [100, 100, 100], 40), [20, 10, 10]);
        assert_eq!(chosen(false, [100, 100, 0], 40), [20, 20, 0]);
    }

    #[test]
    fn an_unused_half_goes_to_the_others() {
        assert_eq!(chosen(false, [100, 3, 0], 40), [37, 3, 0]);
        assert_eq!(chosen(true, [3, 0, 100], 40), [3, 0, 37]);
        assert_eq!(chosen(true, [3, 3, 3], 40), [3, 3, 3]);
    }

    #[test]
    fn the_first_event_fits_whatever_its_size_and_no_other() {
        let mut budget = Budget::new(40, 10);
        assert!(budget.fits(100));
        budget.take(100);
        assert!(!budget.fits(1));
        assert!(!Budget::new(0, 250).fits(1));
    }

    #[test]
    fn with_room_for_one_whoever_is_older_comes() {
        assert_eq!(chosen(true, [5, 5, 0], 1), [1, 0, 0]);
        assert_eq!(chosen(false, [5, 0, 5], 1), [0, 0, 1]);
    }
}
