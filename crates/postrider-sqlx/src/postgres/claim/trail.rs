//! Late commits: what may still appear behind the forward read, and when to look for it.
//!
//! A transaction takes the numbers of its events when it inserts them and shows them when it commits. So behind the last row that
//! a lane's forward read has met others may appear. They are found by a look from a mark behind it, which the forward read then goes
//! on from: from a *near* mark in nearly every claim, from a *far* one now and then.
//!
//! A mark moves up to where the forward read stood once every transaction that had a number of its own at a later time is over,
//! and a look has been made since. The far mark demands that this time lies a minute later, because a statement takes the numbers of
//! its events before its transaction gets one. Below the far mark nothing can appear any more. Both cost little: a look returns only
//! what the look before it could not see.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use postrider_core::{
    Timestamp,
    store::{Lane, LaneClaim, Position, Seq, Trail},
};
use sqlx::{Row, postgres::PgRow};

use super::super::{row::column, statement::time};

/// How long a statement may take from the numbers of its events to that of its transaction.
const GRACE: Duration = Duration::from_secs(60);
/// How often to look from the far mark.
const FAR_EVERY: Duration = Duration::from_secs(10);
/// How often to look from the near mark while claims come back full, and latency is the backlog's.
const NEAR_EVERY: Duration = Duration::from_millis(50);
/// A look may take this part of the time, if it takes long at all.
const LOOKS_ARE_ONE_OF: u32 = 10;
const LONG: Duration = Duration::from_millis(100);
/// So many numbers are looked through in no time.
const NARROW: Seq = 10_000;
/// How many sights of near and of far looks are remembered, and how far apart those are that marks move by.
const NEAR_SIGHTS_MAX: usize = 64;
const FAR_SIGHTS_MAX: usize = 4;
const WROTE_MAX: usize = 64;
/// How many times as wide as usual a look gets: half of the rows, or all but one in eight, may be parked or somebody else's.
const WIDE_MAX: u64 = 8;
const HORIZONS_MAX: usize = 256;
const HORIZON_EVERY: Duration = Duration::from_millis(500);

/// What a claim knows of the moment that it read at.
#[derive(Debug, Clone, Default)]
pub(super) struct Sight {
    /// The database's clock.
    pub(super) now: Timestamp,
    /// A time that is not later than the snapshot.
    at: Timestamp,
    /// Every transaction with a smaller number is over.
    xmin: i64,
    /// No transaction has a number as large.
    xmax: i64,
    pub(super) snapshot: String,
}

impl Sight {
    pub(super) fn of(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            now: time(row, column::CREATED_AT)?,
            at: time(row, column::AVAILABLE_AT)?,
            xmin: row.try_get(column::SEQ)?,
            xmax: row.try_get(column::HEAD)?,
            snapshot: row.try_get(column::KEY)?,
        })
    }
}

/// What a look behind the forward read may leave out.
#[derive(Debug, Clone)]
pub(super) struct Behind {
    /// What the last look could see.
    pub(super) snapshot: String,
    /// What claims have changed since then.
    pub(super) wrote: Vec<i64>,
}

/// Where a claim reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// Where the last one stood.
    Front,
    /// The near mark.
    Near,
    /// The far mark.
    Far,
}

/// What a store remembers of its claims. None of it decides what is met, only when to look and what to leave out of it.
#[derive(Debug, Default)]
pub(in super::super) struct Looks {
    /// Apart from one another, so that many claims between two looks do not make the first of these forgotten.
    front: VecDeque<(u64, Sight)>,
    near: VecDeque<(u64, Sight)>,
    far: VecDeque<(u64, Sight)>,
    last_sight: u64,
    /// The transactions in which claims wrote: what they changed they have met.
    wrote: VecDeque<i64>,
    /// At these times no transaction had a number as large.
    horizons: VecDeque<(Timestamp, i64)>,
    /// The last of these times whose transactions were all seen to be over.
    passed: (Timestamp, i64),
    last_near: Option<(Instant, Duration)>,
    last_far: Option<(Instant, Duration)>,
    /// Whether the last claim left something.
    full: bool,
    /// Where it ended.
    ended: Ended,
    /// How many times as wide as usual the next look is, because much of what lies there is not to be seen.
    wide: u64,
}

/// Where a claim ended: a claim that goes on from there knows how far to look without asking where the rows are.
#[derive(Debug, Clone, Default)]
struct Ended {
    /// Where its forward reads stood.
    fronts: BTreeMap<Lane, Seq>,
    /// Up to where all its lanes were read; [`Seq::MAX`] if there was nothing more.
    reached: Seq,
}

impl Looks {
    /// Whether the last claim left something, so that much may be in the table.
    pub(in super::super) fn is_flood(&self) -> bool {
        self.full
    }

    /// Where the next claim of these lanes reads from.
    pub(super) fn begin<'a>(
        &self,
        positions: impl Iterator<Item = &'a Position> + Clone,
        now: Instant,
    ) -> From {
        // A narrow look that took long was held up by something else.
        let wide = positions.clone().any(|position| front(position) - near(position) > NARROW);
        let rested = |last: Option<(Instant, Duration)>, pause: Duration| {
            last.is_none_or(|(at, took)| {
                let took = if took < LONG || !wide { Duration::ZERO } else { took * LOOKS_ARE_ONE_OF };
                now.saturating_duration_since(at) >= pause.max(took)
            })
        };
        let near_pause = if self.full { NEAR_EVERY } else { Duration::ZERO };
        if positions.clone().any(|position| far(position) < near(position))
            && rested(self.last_far, FAR_EVERY)
        {
            From::Far
        } else if positions.into_iter().any(|position| near(position) < front(position))
            && rested(self.last_near, near_pause)
        {
            From::Near
        } else {
            From::Front
        }
    }

    /// Up to where the last claim has read all of these lanes, and how many times as wide as usual to look, if they go on where it
    /// ended.
    pub(super) fn goes_on<'a>(&self, mut lanes: impl Iterator<Item = &'a LaneClaim>) -> Option<(Seq, u64)> {
        let known = |lane: &LaneClaim| self.ended.fronts.get(&lane.lease.lane) == Some(&front(&lane.from));
        lanes.all(known).then_some((self.ended.reached, self.wide.max(1)))
    }

    /// Notes where a claim ended that met so many of the rows that it could have met.
    pub(super) fn ended(
        &mut self,
        positions: &[(Lane, Position)],
        reached: Seq,
        (met, most): (usize, usize),
    ) {
        let fronts = positions.iter().map(|(lane, position)| (*lane, front(position))).collect();
        self.ended = Ended { fronts, reached };
        self.wide = match self.wide.max(1) {
            _ if reached == Seq::MAX => 1,
            wide if met < most => (wide * 2).min(WIDE_MAX),
            wide if met > most + most / 2 => (wide / 2).max(1),
            wide => wide,
        };
    }

    /// What the last look from there saw, if all lanes have it in common and it is still known.
    pub(super) fn behind<'a>(
        &self,
        positions: impl Iterator<Item = &'a Position>,
        from: From,
    ) -> Option<Behind> {
        let sight = self.last_from(positions, from)?;
        Some(Behind { snapshot: sight.snapshot.clone(), wrote: self.wrote.iter().copied().collect() })
    }

    fn last_from<'a>(&self, positions: impl Iterator<Item = &'a Position>, from: From) -> Option<&Sight> {
        let sight = |position: &Position| {
            if from == From::Far { position.trail.far_sight } else { position.trail.near_sight }
        };
        let oldest = positions.filter(|position| front(position) > 0).map(sight).min()?;
        self.front
            .iter()
            .chain(&self.near)
            .chain(&self.far)
            .find(|(number, _)| *number == oldest)
            .map(|(_, sight)| sight)
    }

    /// Whether a claim that read on from the front has to look behind it after all, because it met a row that was inserted then: one of
    /// the same key that committed before that, behind the front, would come after it. Rows of a backlog are older than the last look.
    pub(super) fn must_look<'a>(
        &self,
        positions: impl Iterator<Item = &'a Position> + Clone,
        inserted_at: Timestamp,
    ) -> bool {
        positions.clone().any(|position| near(position) < front(position))
            && self.last_from(positions, From::Near).is_none_or(|sight| inserted_at >= sight.at)
    }

    /// Notes what a claim saw. Gives it a number, and says at what time, at the latest, every transaction that then had a number
    /// is over in it.
    pub(super) fn saw(
        &mut self,
        sight: &Sight,
        from: From,
        started: Instant,
        full: bool,
    ) -> (u64, Timestamp) {
        self.passed = self.over(sight);
        self.full = full;
        let look = Some((Instant::now(), started.elapsed()));
        match from {
            From::Front => {}
            From::Near => self.last_near = look,
            From::Far => (self.last_near, self.last_far) = (look, look),
        }
        match self.horizons.back_mut() {
            // The last one is the newest there can be, so that marks are not kept waiting for the next.
            Some(last)
                if sight.at.since(last.0) < HORIZON_EVERY
                    && (last.1 == sight.xmax || last.1 <= sight.xmin) =>
            {
                *last = (sight.at, sight.xmax);
            }
            Some(last) if sight.at.since(last.0) < HORIZON_EVERY => {}
            _ => self.horizons.push_back((sight.at, sight.xmax)),
        }
        if self.horizons.len() > HORIZONS_MAX {
            self.horizons.pop_front();
        }
        self.last_sight += 1;
        if from == From::Far || self.far.is_empty() {
            self.far.push_back((self.last_sight, sight.clone()));
        }
        let near = if from == From::Front { &mut self.front } else { &mut self.near };
        near.push_back((self.last_sight, sight.clone()));
        if near.len() > NEAR_SIGHTS_MAX {
            near.pop_front();
        }
        if self.far.len() > FAR_SIGHTS_MAX {
            self.far.pop_front();
        }
        (self.last_sight, self.passed.0)
    }

    /// The latest time that is known at which every transaction that then had a number is over in this sight, and the number.
    fn over(&self, sight: &Sight) -> (Timestamp, i64) {
        let known = self.horizons.iter().rev().chain([&self.passed]);
        let over = known.filter(|(_, xmax)| *xmax <= sight.xmin);
        // The last by number: a clock can be set back.
        over.copied().max_by_key(|(at, xmax)| (*xmax, *at)).unwrap_or_default()
    }

    /// Where a lane stands after a claim: `front_now` is the last row that it has met, and `looked` says whether everything
    /// behind the forward read was.
    pub(super) fn next(
        was: &Position,
        (front_now, looked, from): (Seq, bool, From),
        now: Timestamp,
        (number, over_at): (u64, Timestamp),
    ) -> (Seq, Trail) {
        let (mut seq, mut trail) = (far(was), was.trail);
        (trail.front, trail.near) = (front_now.max(front(was)), near(was));
        let empty = near(was) >= front(was);
        if (looked && from != From::Front) || empty {
            trail.near_sight = number;
            if trail.near_at < over_at {
                trail.near = trail.near.max(trail.near_next);
            }
        }
        if looked && from == From::Far || far(was) >= front(was) {
            trail.far_sight = number;
            if trail.far_at.plus(GRACE) < over_at {
                seq = seq.max(trail.far_next);
                (trail.far_next, trail.far_at) = (trail.front, now);
            }
        }
        if trail.near >= trail.near_next {
            (trail.near_next, trail.near_at) = (trail.front, now);
        }
        if trail.far_next == 0 {
            (trail.far_next, trail.far_at) = (trail.front, now);
        }
        (seq, trail)
    }

    /// Notes in which transaction a claim wrote.
    pub(in super::super) fn wrote(&mut self, xid: i64) {
        self.wrote.push_back(xid);
        if self.wrote.len() > WROTE_MAX {
            self.wrote.pop_front();
        }
    }
}

/// Everything up to here was met, for ever.
pub(super) fn far(position: &Position) -> Seq {
    position.seq
}

pub(super) fn near(position: &Position) -> Seq {
    position.trail.near.max(position.seq)
}

pub(super) fn front(position: &Position) -> Seq {
    position.trail.front.max(near(position))
}

#[cfg(test)]
mod tests;
