//! What a store remembers of its claims, so that a transaction which commits late is found.
//!
//! A row draws its `seq` when it is inserted and can be seen when its transaction commits, so claims that read forward may pass
//! over it. Neither database says which transactions are open to whom may not ask. So what was met is remembered for a minute or
//! two, and claims look back at the rows of that time that are still fresh: what was not met is late. A transaction that stays open
//! longer after it wrote its event is found by the engine's look from the bottom.
//!
//! The rows that are looked back at are those in flight, as a rule: what is delivered has left the index.
//!
//! # Order
//!
//! If `a` committed before `b` of its key was inserted, no claim may return `b` first, though it stands beyond `a`. So a claim that
//! met a row which was inserted after the last look back looks back after it has read forward: whoever sees `b` then sees `a`. What is
//! older needs no look of its own, so a backlog is drained without.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use postrider_core::{Timestamp, store::Seq};

/// How long a transaction may stay open after it wrote an event, and be found by looking back.
const OPEN_MAX: Duration = Duration::from_secs(60);

/// How often to look back while there is something to read forward. While there is nothing, every claim looks back.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Looking back takes at most one part in so many of the time. Rows that were delivered a moment ago are walked over until the
/// database has cleared them away, so while a backlog is drained a look may take long.
const LOOK_SHARE: u32 = 20;

/// A look that took no longer than this is cheap.
const CHEAP: Duration = Duration::from_millis(5);

/// By how much the database's clock may have been set back between two events.
const CLOCK_STEP_MAX: Duration = Duration::from_secs(1);

/// The memory of one store; claims of several lanes and leases share it, because a row that was seen once is seen ever after.
#[derive(Debug, Default)]
pub(in super::super) struct Memory(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    met: Seqs,
    /// A `seq` that was drawn by then, and when that was.
    mark: Option<(Seq, Instant)>,
    low: Seq,
    look: Option<Look>,
}

/// The last look back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    /// When it was, on the database's clock: what had committed by then was seen.
    pub(super) at: Timestamp,
    pub(super) began: Instant,
    pub(super) ended: Instant,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing here can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the largest `seq` that there is, and gives one so old that what is not to be seen below it may be given up.
    pub(super) fn low(&self, tip: Seq, now: Instant) -> Seq {
        let mut inner = self.lock();
        match inner.mark {
            Some((_, at)) if now.duration_since(at) < OPEN_MAX => {}
            mark => {
                inner.low = inner.low.max(mark.map_or(0, |(seq, _)| seq));
                inner.mark = Some((tip, now));
                let low = inner.low;
                inner.met.forget(low);
            }
        }
        inner.low
    }

    /// Whether a claim should look back that found nothing new, or rows of which the newest was inserted then.
    pub(super) fn wants_look(&self, quiet: bool, newest: Option<Timestamp>, now: Instant) -> bool {
        self.lock().look.is_none_or(|look| {
            let took = look.ended.duration_since(look.began);
            (quiet && took < CHEAP)
                || newest.is_some_and(|newest| newest >= look.at.minus(CLOCK_STEP_MAX))
                || now.duration_since(look.ended) >= LOOK_EVERY.max(took * LOOK_SHARE)
        })
    }

    /// A look back has ended. Says which of the rows were never met.
    pub(super) fn looked<T>(&self, rows: Vec<(T, Seq)>, look: Look) -> Vec<(T, Seq)> {
        let mut inner = self.lock();
        inner.look = Some(look);
        rows.into_iter().filter(|(_, seq)| !inner.met.contains(*seq)).collect()
    }

    /// These rows were met.
    pub(super) fn met(&self, seqs: impl Iterator<Item = Seq>) {
        let mut inner = self.lock();
        let low = inner.low;
        seqs.filter(|seq| *seq > low).for_each(|seq| inner.met.insert(seq));
    }
}

/// A set of places in the order. They lie close together, so it is made of bits.
#[derive(Debug, Default)]
struct Seqs(BTreeMap<u64, [u64; WORDS]>);

/// Words in one page of bits.
const WORDS: usize = 64;
const PAGE: u64 = 64 * WORDS as u64;

fn place(seq: Seq) -> (u64, usize, u64) {
    let within = seq % PAGE;
    (seq / PAGE, usize::try_from(within / 64).unwrap_or_default(), 1 << (within % 64))
}

impl Seqs {
    fn insert(&mut self, seq: Seq) {
        let (page, word, bit) = place(seq);
        if let Some(word) = self.0.entry(page).or_insert([0; WORDS]).get_mut(word) {
            *word |= bit;
        }
    }

    fn contains(&self, seq: Seq) -> bool {
        let (page, word, bit) = place(seq);
        self.0.get(&page).and_then(|page| page.get(word)).is_some_and(|word| word & bit != 0)
    }

    /// Forgets what lies on pages below.
    fn forget(&mut self, below: Seq) {
        self.0 = self.0.split_off(&(below / PAGE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_stays_a_minute_behind_the_tip() {
        let (memory, start) = (Memory::default(), Instant::now());
        assert_eq!(memory.low(100, start), 0);
        assert_eq!(memory.low(200, start + OPEN_MAX / 2), 0);
        assert_eq!(memory.low(300, start + OPEN_MAX), 100);
        assert_eq!(memory.low(400, start + OPEN_MAX * 2), 300);
    }

    fn look(began: Instant, took: Duration) -> Look {
        Look { at: Timestamp::from_micros(1_000_000_000), began, ended: began + took }
    }

    #[test]
    fn what_was_met_is_not_late_and_is_forgotten_in_time() {
        let (memory, start) = (Memory::default(), Instant::now());
        memory.met([1, 63, 64, PAGE, 10 * PAGE].into_iter());
        let rows = [1, 2, 63, 64, 65, PAGE, PAGE + 1, 10 * PAGE].map(|seq| ((), seq)).to_vec();
        let late = memory.looked(rows, look(start, CHEAP));
        assert_eq!(late.iter().map(|(_, seq)| *seq).collect::<Vec<_>>(), [2, 65, PAGE + 1]);
        memory.low(5 * PAGE, start);
        memory.low(5 * PAGE, start + OPEN_MAX);
        let inner = memory.lock();
        assert!(!inner.met.contains(1) && inner.met.contains(10 * PAGE));
    }

    #[test]
    fn claims_look_back_when_nothing_is_new_or_something_is_very_new_and_else_at_intervals() {
        let (memory, start) = (Memory::default(), Instant::now());
        let nothing = Vec::<((), Seq)>::new;
        assert!(memory.wants_look(false, None, start));
        memory.looked(nothing(), look(start, CHEAP / 5));
        let soon = start + CHEAP;
        assert!(memory.wants_look(true, None, soon) && !memory.wants_look(false, None, soon));
        assert!(memory.wants_look(false, None, start + LOOK_EVERY * 2));
        let at = look(start, CHEAP).at;
        assert!(memory.wants_look(false, Some(at), soon));
        assert!(!memory.wants_look(false, Some(at.minus(CLOCK_STEP_MAX * 2)), soon));
        memory.looked(nothing(), look(start, CHEAP * 20));
        assert!(!memory.wants_look(true, None, start + CHEAP * 30));
        assert!(memory.wants_look(true, None, start + CHEAP * 420));
    }
}
