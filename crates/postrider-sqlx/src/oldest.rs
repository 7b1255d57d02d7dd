//! The oldest pending events: what a look along the order of the outbox, page by page, takes and where it ends.

use postrider_core::store::{Oldest, OldestEvent, Seq};

/// Most rows that a look passes. Only dead ones are passed without being taken.
const ROWS_MAX: usize = 20_000;

/// A look, between two of its pages.
pub(crate) struct Look {
    found: Oldest,
    wanted: usize,
    after: Seq,
    rows: usize,
    ended: bool,
}

impl Look {
    /// A look for so many of them behind this place.
    pub(crate) fn new(after: Seq, wanted: usize) -> Self {
        Self { found: Oldest::default(), wanted, after, rows: 0, ended: wanted == 0 }
    }

    /// After which place the next page begins; none at the end. A page has as many rows as are wanted in all.
    pub(crate) fn next(&self) -> Option<Seq> {
        (!self.ended).then_some(self.after)
    }

    /// Takes a page: the place of each row, and the event unless it is dead.
    pub(crate) fn add(&mut self, page: Vec<(Seq, Option<OldestEvent>)>) {
        let (rows, is_last) = (page.len(), page.len() < self.wanted);
        self.rows += rows;
        self.found.more = !is_last;
        for (seq, event) in page {
            if self.found.events.len() == self.wanted {
                self.found.more = true;
                break;
            }
            self.after = seq;
            self.found.events.extend(event);
        }
        self.ended = is_last || self.found.events.len() == self.wanted || self.rows >= ROWS_MAX;
    }

    pub(crate) fn end(self) -> Oldest {
        Oldest { read_to: Some(self.after), ..self.found }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn page(rows: impl Iterator<Item = (Seq, bool)>) -> Vec<(Seq, Option<OldestEvent>)> {
        let event = |seq: Seq| OldestEvent {
            event_type: seq.to_string(),
            aggregate_type: String::new(),
            age: Duration::ZERO,
        };
        rows.map(|(seq, dead)| (seq, (!dead).then(|| event(seq)))).collect()
    }

    /// Looks for two, behind a place, at a table of so many dead rows and then so many pending ones.
    fn looked_after(after: Seq, dead: Seq, pending: Seq) -> (Vec<String>, bool, Option<Seq>) {
        let mut look = Look::new(after, 2);
        while let Some(after) = look.next() {
            look.add(page((after + 1..=dead + pending).take(2).map(|seq| (seq, seq <= dead))));
        }
        let Oldest { events, more, read_to } = look.end();
        (events.into_iter().map(|event| event.event_type).collect(), more, read_to)
    }

    fn looked(dead: Seq, pending: Seq) -> (Vec<String>, bool) {
        let (events, more, _) = looked_after(0, dead, pending);
        (events, more)
    }

    #[test]
    fn the_next_look_begins_behind_what_was_taken() {
        // The page that the fourth row is on has a fifth one, which is not taken.
        assert_eq!(looked_after(0, 2, 9), (vec!["3".to_owned(), "4".to_owned()], true, Some(4)));
        assert_eq!(looked_after(0, 1, 9), (vec!["2".to_owned(), "3".to_owned()], true, Some(3)));
        assert_eq!(looked_after(3, 1, 4), (vec!["4".to_owned(), "5".to_owned()], true, Some(5)));
        assert_eq!(looked_after(5, 1, 4), (vec![], false, Some(5)));
    }

    #[test]
    fn dead_ones_are_passed_and_whether_there_are_more_is_told() {
        assert_eq!(looked(0, 0), (vec![], false));
        assert_eq!(looked(3, 1), (vec!["4".to_owned()], false));
        assert_eq!(looked(3, 5), (vec!["4".to_owned(), "5".to_owned()], true));
        assert_eq!(looked(100_000, 5), (vec![], true), "it does not read all of the dead");
    }
}
