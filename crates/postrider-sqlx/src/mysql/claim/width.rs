//! How many numbers one statement of a back scan covers. Does no I/O.
//!
//! The database walks over rows that were deleted a moment ago and over rows that are not committed, and nobody can tell how many there are: so the
//! width follows the time that statements take. A hole in the numbers costs the database nothing, and there the width grows until one statement
//! covers the rest of it. A server that is slow whatever is asked must not keep it from growing.

use std::time::Duration;

/// The width to begin with. No two rows share a number, so a page has at most as many rows as it is wide.
const FIRST: u64 = 8192;

/// The smallest width.
const LEAST: u64 = FIRST / 16;

/// A statement that took no longer than this is followed by one of sixteen times its width...
const QUICK: Duration = Duration::from_millis(2);

/// ...and one that took longer than this by one of a quarter, unless its width is not what took the time.
const SLOW: Duration = Duration::from_millis(25);

/// The width of the next statement, and how the last one fared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Width {
    next: u64,
    last: Option<(u64, Duration)>,
}

impl Width {
    pub(super) fn new() -> Self {
        Self { next: FIRST, last: None }
    }

    pub(super) fn get(self) -> u64 {
        self.next
    }

    /// Reads no more numbers at once than so many.
    pub(super) fn narrow_to(&mut self, width: u64) {
        self.next = self.next.min(width).max(LEAST);
    }

    /// A statement over so many numbers took so long.
    pub(super) fn took(&mut self, width: u64, time: Duration) {
        let last = self.last.replace((width, time));
        let grown = match time {
            quick if quick <= QUICK => width.saturating_mul(16),
            slow if slow > SLOW && !last.is_some_and(|last| costs_alike(last, (width, time))) => width / 4,
            _ => width.saturating_mul(4),
        };
        self.next = grown.max(LEAST);
    }
}

/// The width after a statement that was given up: it may have met more than the database can walk over in the time of a verb.
pub(super) fn after_giving_up(width: u64) -> u64 {
    (width / 16).max(LEAST)
}

/// Whether the wider of two statements took less than twice as long as the narrower one.
fn costs_alike(one: (u64, Duration), other: (u64, Duration)) -> bool {
    let (narrow, wide) = if one.0 <= other.0 { (one, other) } else { (other, one) };
    wide.0 / 2 > narrow.0 && wide.1 < narrow.1 * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statements that it takes to cover so many numbers, where each takes as long as this says.
    fn statements(numbers: u64, time: impl Fn(u64) -> Duration) -> usize {
        let (mut width, mut left, mut statements) = (Width::new(), numbers, 0);
        while left > 0 && statements < 100_000 {
            let covered = width.get().min(left);
            left -= covered;
            width.took(covered, time(covered));
            statements += 1;
        }
        statements
    }

    #[test]
    fn a_hole_takes_few_statements_however_wide_it_is_and_however_slow_the_server() {
        for ms in [0, 1, 10, 60, 500] {
            for numbers in [1_000_000_000, 1_000_000_000_000, u64::MAX] {
                let taken = statements(numbers, |_| Duration::from_millis(ms));
                assert!(taken <= 64, "{taken} statements of {ms} ms for {numbers} numbers");
            }
        }
    }

    #[test]
    fn where_numbers_cost_time_no_statement_takes_long() {
        let mut width = Width::new();
        let cost = |numbers: u64| Duration::from_micros(numbers);
        for _ in 0..100 {
            let covered = width.get();
            assert!(cost(covered) <= SLOW * 8, "{covered}");
            width.took(covered, cost(covered));
        }
    }
}
