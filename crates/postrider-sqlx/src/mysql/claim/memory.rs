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
//! older needs no look of its own, so a backlog is drained without. That a claim has looked counts for the lanes that it looked at, under the
//! leases that it held them by, and only once it has succeeded: one that is tried again must find the same.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use postrider_core::{
    Timestamp,
    store::{Lane, Lease, Seq, Token},
};

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
    /// The last look back at each lane, and under which token.
    looks: HashMap<Lane, (Token, Look)>,
}

/// A look back.
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

    /// Forgets everything: numbers are given again.
    pub(in super::super) fn forget(&self) {
        *self.lock() = Inner::default();
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

    /// Whether a claim should look back at these lanes that found nothing new, or rows of which the newest was inserted then.
    pub(super) fn wants_look(
        &self,
        mut lanes: impl Iterator<Item = Lease>,
        quiet: bool,
        newest: Option<Timestamp>,
        now: Instant,
    ) -> bool {
        let inner = self.lock();
        lanes.any(|Lease { lane, token }| {
            let look = inner.looks.get(&lane).filter(|(looked, _)| *looked == token);
            look.is_none_or(|(_, look)| {
                let took = look.ended.duration_since(look.began);
                (quiet && took < CHEAP)
                    || newest.is_some_and(|newest| newest >= look.at.minus(CLOCK_STEP_MAX))
                    || now.duration_since(look.ended) >= LOOK_EVERY.max(took * LOOK_SHARE)
            })
        })
    }

    /// Which of these rows no claim has met.
    pub(super) fn late(&self, rows: impl Iterator<Item = Seq>) -> Vec<Seq> {
        let inner = self.lock();
        rows.filter(|seq| !inner.met.contains(*seq)).collect()
    }

    /// A claim has succeeded: it met these rows, and looked back at these lanes.
    pub(super) fn succeeded(
        &self,
        met: impl Iterator<Item = Seq>,
        lanes: impl Iterator<Item = Lease>,
        look: Option<Look>,
    ) {
        let mut inner = self.lock();
        let low = inner.low;
        met.filter(|seq| *seq > low).for_each(|seq| inner.met.insert(seq));
        if let Some(look) = look {
            inner.looks.extend(lanes.map(|Lease { lane, token }| (lane, (token, look))));
        }
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

    fn lease(lane: Lane, epoch: u64) -> Lease {
        Lease { lane, token: Token { epoch, nonce: 7 } }
    }

    fn looked(memory: &Memory, lease: Lease, look: Look) {
        memory.succeeded([].into_iter(), [lease].into_iter(), Some(look));
    }

    #[test]
    fn what_was_met_is_not_late_and_is_forgotten_in_time() {
        let (memory, start) = (Memory::default(), Instant::now());
        memory.succeeded([1, 63, 64, PAGE, 10 * PAGE].into_iter(), [].into_iter(), None);
        let rows = [1, 2, 63, 64, 65, PAGE, PAGE + 1, 10 * PAGE];
        assert_eq!(memory.late(rows.into_iter()), [2, 65, PAGE + 1]);
        memory.low(5 * PAGE, start);
        memory.low(5 * PAGE, start + OPEN_MAX);
        let inner = memory.lock();
        assert!(!inner.met.contains(1) && inner.met.contains(10 * PAGE));
    }

    #[test]
    fn claims_look_back_when_nothing_is_new_or_something_is_very_new_and_else_at_intervals() {
        let (memory, start, ours) = (Memory::default(), Instant::now(), lease(1, 1));
        let wants = |quiet, newest, now| memory.wants_look([ours].into_iter(), quiet, newest, now);
        assert!(wants(false, None, start));
        looked(&memory, ours, look(start, CHEAP / 5));
        let soon = start + CHEAP;
        assert!(wants(true, None, soon) && !wants(false, None, soon));
        assert!(wants(false, None, start + LOOK_EVERY * 2));
        let at = look(start, CHEAP).at;
        assert!(wants(false, Some(at), soon));
        assert!(!wants(false, Some(at.minus(CLOCK_STEP_MAX * 2)), soon));
        looked(&memory, ours, look(start, CHEAP * 20));
        assert!(!wants(true, None, start + CHEAP * 30));
        assert!(wants(true, None, start + CHEAP * 420));
    }

    #[test]
    fn a_look_counts_for_its_lanes_and_leases_alone() {
        let (memory, start) = (Memory::default(), Instant::now());
        looked(&memory, lease(1, 1), look(start, CHEAP / 5));
        let wants = |leases: &[Lease]| memory.wants_look(leases.iter().copied(), false, None, start + CHEAP);
        assert!(!wants(&[lease(1, 1)]));
        assert!(wants(&[lease(2, 1)]) && wants(&[lease(1, 2)]) && wants(&[lease(1, 1), lease(2, 1)]));
    }
}
