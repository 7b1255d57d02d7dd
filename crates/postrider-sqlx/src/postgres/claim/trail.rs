//! Late commits: what may still appear behind the forward read, and when to scan for it.
//!
//! A transaction takes the numbers of its events when it inserts them and shows them when it commits. So behind the last row that
//! a lane's forward read has met others may appear. They are found by a scan from a mark behind it, which the forward read then goes
//! on from: from a *near* mark in nearly every claim, from a *far* one now and then.
//!
//! A mark moves up to where the forward read stood once every transaction that had a number of its own at a later time is over
//! (`horizons`), and a scan has been made since. The far mark demands that this time lies a minute later, because a statement may take the
//! numbers of its events before its transaction gets one. Below the far mark nothing can appear any more. Both cost little: a scan returns only
//! what the scan before it could not see.
//!
//! A scan that meets more than a claim can take goes on in the next ones from where it ended, whatever it skipped, and is over when it has come
//! to the front. It meets what its first claim could see, and leaves the rest to the next scan. Between its steps the forward reads have their
//! turn. They leave what the last scan that is over could not see: an event of the same key that comes first may still lie behind the front,
//! because its transaction has committed since, or is the same.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use postrider_core::store::{Lane, LaneClaim, Position, Rescan, Seq, Trail};

use super::{
    history::{Place, WentBack},
    horizons::{Horizons, Over},
    sight::Sight,
};

/// How often to scan from the far mark.
const FAR_EVERY: Duration = Duration::from_secs(10);
/// How often to scan from the near mark while claims come back full, and latency is the backlog's.
const NEAR_EVERY: Duration = Duration::from_millis(50);
/// A scan may take this part of the time, if it takes long at all.
const LOOKS_ARE_ONE_OF: u32 = 10;
const LONG: Duration = Duration::from_millis(100);
/// So many numbers are scanned in no time.
const NARROW: Seq = 10_000;
/// How many sights of near and of far scans are remembered.
const NEAR_SIGHTS_MAX: usize = 64;
const FAR_SIGHTS_MAX: usize = 4;
const WROTE_MAX: usize = 64;
/// How many times as wide as usual a look gets: half of the rows, or all but one in eight, may be parked or somebody else's.
const WIDE_MAX: u64 = 8;

/// What a scan behind the forward read may leave out.
#[derive(Debug, Clone)]
pub(super) struct Behind {
    /// The number of the last scan...
    sight: u64,
    /// ...and what it could see.
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

/// Where a claim begins, as the store's memory of earlier ones has it.
#[derive(Debug)]
pub(in super::super) struct Begun {
    pub(super) from: From,
    /// Whether a scan is under way, which lanes that have come to their front take no more part in.
    pub(super) under_way: bool,
    pub(super) behind: Option<Behind>,
    /// Where the last claim ended and how wide to look, if this one goes on there.
    pub(super) goes_on: Option<(Seq, u64)>,
    /// The snapshot of the last scan that is over, or of the first claim of one that is under way. A forward read that goes beyond it has to
    /// wait for another scan. None if nothing lies behind, or all of it is read by this claim.
    pub(super) bound: Option<String>,
    /// Where the marks of any lane stood before.
    safe: Safe,
    /// Where the database stood before.
    known: Place,
    started: Instant,
}

impl Begun {
    /// A forward read that has met what the last scan could not see, while the scan that it demands was cut off: it stops before that, as it does while
    /// a scan is under way.
    pub(in super::super) fn without_its_scan(self) -> Self {
        Self { under_way: true, ..self }
    }

    /// Whether a scan begins with it.
    fn begins_scan(&self) -> bool {
        self.from != From::Front && !self.under_way
    }

    /// From where this claim scans a lane behind its front; from there if it does not.
    pub(super) fn scans_from(&self, position: &Position) -> Seq {
        let rescan = position.trail.rescan;
        match self.from {
            From::Front => front(position),
            _ if self.under_way && rescan.is_under_way() => rescan.reached.min(front(position)),
            _ if self.under_way => front(position),
            From::Near => near(position),
            From::Far => far(position),
        }
    }

    /// The scan that a lane takes part in: the one that is under way, or one that begins with the claim of this number.
    fn scan_of(&self, position: &Position, number: u64) -> Option<Rescan> {
        let reached = self.scans_from(position);
        let rescan = position.trail.rescan;
        match self.from {
            From::Front => None,
            _ if self.under_way && rescan.is_under_way() => Some(Rescan { reached, ..rescan }),
            _ if reached >= front(position) => None,
            from => Some(Rescan { reached, began: number, is_far: from == From::Far }),
        }
    }
}

/// What a claim has met of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Met {
    /// The last row of its forward read; 0 if there was none.
    pub(super) front: Seq,
    /// Up to where all that it scans behind the front was met.
    pub(super) scanned_to: Seq,
}

/// What had ended when somebody set out to draw a transaction id.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct After {
    claim: u64,
    at: Instant,
}

/// How far marks have come in any lane. They tell which transactions are over, so what one lane has learned holds for all: one that is read from the
/// start has nothing to wait for below them.
#[derive(Debug, Clone, Copy, Default)]
struct Safe {
    near: Seq,
    far: Seq,
}

/// A claim among the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered {
    number: u64,
    over: Over,
}

#[derive(Debug, Clone)]
struct Remembered {
    number: u64,
    sight: Sight,
    over: Over,
}

/// What a store remembers of its claims. None of it decides what is met, only when to scan and what to leave out of it.
#[derive(Debug, Default)]
pub(in super::super) struct Looks {
    /// Apart from one another, so that many claims between two scans do not make the first of these forgotten.
    front: VecDeque<Remembered>,
    near: VecDeque<Remembered>,
    far: VecDeque<Remembered>,
    /// What the scan that is under way leaves out.
    left_out: Option<Remembered>,
    last_number: u64,
    /// The transactions in which claims wrote: what they changed they have met.
    wrote: VecDeque<i64>,
    horizons: Horizons,
    last_near: Option<(Instant, Duration)>,
    last_far: Option<(Instant, Duration)>,
    /// Whether the last claim left something.
    full: bool,
    /// Where it ended.
    ended: Ended,
    /// How many times as wide as usual the next look is, because much of what lies there is not to be seen.
    wide: u64,
    /// Whether the forward reads have the next turn, because the last was that of a scan which is not over or was cut off.
    forward_turn: bool,
    /// Whether they had nothing to do in their last turn, and wait for the end of the scan.
    forward_waits: bool,
    safe: Safe,
    /// Where the database stood.
    place: Place,
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

    /// Where the next claim of these lanes begins.
    pub(super) fn begin<'a>(
        &self,
        lanes: impl Iterator<Item = &'a LaneClaim> + Clone,
        now: Instant,
    ) -> Begun {
        let positions = lanes.clone().map(|lane| &lane.from);
        let rescans = positions.clone().map(|position| position.trail.rescan);
        let rescan = rescans.filter(Rescan::is_under_way).min_by_key(|rescan| rescan.began);
        // One whose beginning is forgotten begins anew.
        let rescan = rescan.and_then(|rescan| Some((rescan.is_far, self.find(rescan.began)?)));
        let from = match rescan {
            _ if self.forward_turn && !self.forward_waits => From::Front,
            Some((true, _)) => From::Far,
            Some((false, _)) => From::Near,
            None => self.starts_from(positions.clone(), now),
        };
        let bound = match (from, rescan) {
            (From::Front, _) => self.scanned(positions.clone()),
            (_, Some((_, first))) => Some(first.sight.snapshot.clone()),
            (_, None) => None,
        };
        let under_way = rescan.is_some();
        let (goes_on, safe, known) = (self.goes_on(lanes), self.safe, self.place);
        let mut begun = Begun { from, under_way, behind: None, goes_on, bound, safe, known, started: now };
        if from != From::Front {
            begun.behind = self.behind(positions, &begun);
        }
        begun
    }

    /// The same claim with a scan behind the front, because it has met what the last scan could not see. Most rows of a backlog were seen.
    pub(super) fn begin_behind<'a>(
        &self,
        lanes: impl Iterator<Item = &'a LaneClaim> + Clone,
        begun: &Begun,
    ) -> Option<Begun> {
        if begun.from != From::Front || begun.under_way {
            return None;
        }
        let (from, goes_on) = (From::Near, begun.goes_on);
        let mut behind = Begun { from, behind: None, goes_on, bound: None, ..*begun };
        behind.behind = self.behind(lanes.map(|lane| &lane.from), &behind);
        Some(behind)
    }

    fn starts_from<'a>(&self, positions: impl Iterator<Item = &'a Position> + Clone, now: Instant) -> From {
        // A narrow scan that took long was held up by something else.
        let wide = positions.clone().any(|position| front(position) - near(position) > NARROW);
        let rested = |last: Option<(Instant, Duration)>, pause: Duration| {
            last.is_none_or(|(at, took)| {
                let took = if took < LONG || !wide { Duration::ZERO } else { took * LOOKS_ARE_ONE_OF };
                now.saturating_duration_since(at) >= pause.max(took)
            })
        };
        let near_pause = if self.full { NEAR_EVERY } else { Duration::ZERO };
        if self.last_far.is_some()
            && positions.clone().any(|position| far(position) < near(position))
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
    fn goes_on<'a>(&self, mut lanes: impl Iterator<Item = &'a LaneClaim>) -> Option<(Seq, u64)> {
        let known = |lane: &LaneClaim| self.ended.fronts.get(&lane.lease.lane) == Some(&front(&lane.from));
        lanes.all(known).then_some((self.ended.reached, self.wide.max(1)))
    }

    /// Notes where a claim ended that met so many of the rows that it could have met, and whether it left some that it saw.
    pub(super) fn ended(
        &mut self,
        positions: &[(Lane, Position)],
        reached: Seq,
        (met, most): (usize, usize),
        left: bool,
    ) {
        let fronts: BTreeMap<Lane, Seq> =
            positions.iter().map(|(lane, position)| (*lane, front(position))).collect();
        // One that was cut short behind the front, and saw nothing beyond it, forgets nothing of what others have. What was seen and left is not
        // late to any scan from then on, so the next claim has to seek it.
        if reached < self.ended.reached && fronts == self.ended.fronts && !left {
            return;
        }
        self.ended = Ended { fronts, reached };
        self.wide = match self.wide.max(1) {
            _ if reached == Seq::MAX => 1,
            wide if met < most => (wide * 2).min(WIDE_MAX),
            wide if met > most + most / 2 => (wide / 2).max(1),
            wide => wide,
        };
    }

    /// What the last scan saw, if it is still known: of the lanes that are scanned, the one whose last scan was the first.
    fn behind<'a>(&self, positions: impl Iterator<Item = &'a Position>, begun: &Begun) -> Option<Behind> {
        let sight_of = |position: &Position| {
            let scan = begun.scan_of(position, self.last_number)?;
            let sight = if scan.is_far { position.trail.far_sight } else { position.trail.near_sight };
            (scan.reached < front(position)).then_some(sight)
        };
        let last = self.find(positions.filter_map(sight_of).min()?)?;
        let wrote = self.wrote.iter().copied().collect();
        Some(Behind { sight: last.number, snapshot: last.sight.snapshot.clone(), wrote })
    }

    fn find(&self, number: u64) -> Option<&Remembered> {
        let mut all = self.front.iter().chain(&self.near).chain(&self.far).chain(&self.left_out);
        all.find(|known| known.number == number)
    }

    /// Where something lies behind the front: the snapshot of the last scan, or one that shows nothing if it is forgotten.
    fn scanned<'a>(&self, positions: impl Iterator<Item = &'a Position>) -> Option<String> {
        let open = positions.filter(|position| near(position) < front(position));
        let last = open.map(|position| position.trail.near_sight).min()?;
        Some(self.find(last).map_or("1:1:".to_owned(), |last| last.sight.snapshot.clone()))
    }

    /// Compares where the database stands with where it stood before the claim began. If it has gone back, everything is forgotten that was
    /// remembered of it, and the next claim begins anew.
    pub(super) fn notice(&mut self, begun: &Begun, sight: &Sight) -> Option<WentBack> {
        let went_back = sight.place.went_back_from(&begun.known);
        if went_back.is_some() {
            self.place = sight.place;
            self.forget();
        } else {
            self.place = self.place.or_later(sight.place);
        }
        went_back
    }

    /// Forgets everything that was remembered of the events, and where the database stood: that it went back has been told.
    pub(in super::super) fn forget(&mut self) {
        // Numbers are not given again: a position from before must find nothing.
        *self = Self { last_number: self.last_number, ..Self::default() };
    }

    /// Notes what a claim saw, and gives it a number.
    pub(super) fn saw(&mut self, sight: &Sight, begun: &Begun, full: bool) -> Numbered {
        self.full = full;
        self.note_scan(begun);
        // The first one is made when there is something that a near scan may have missed.
        self.last_far.get_or_insert((begun.started, Duration::ZERO));
        self.last_number += 1;
        let (number, over) = (self.last_number, self.horizons.over(sight.xmin));
        let remembered = Remembered { number, sight: sight.clone(), over };
        // Marks move by the claim that a scan began with, so that is the one to be remembered for longer.
        if begun.begins_scan() {
            self.left_out = begun.behind.as_ref().and_then(|behind| self.find(behind.sight)).cloned();
        }
        if begun.begins_scan() && begun.from == From::Far || self.far.is_empty() {
            push(&mut self.far, FAR_SIGHTS_MAX, remembered.clone());
        }
        let like_it = if begun.begins_scan() { &mut self.near } else { &mut self.front };
        push(like_it, NEAR_SIGHTS_MAX, remembered);
        Numbered { number, over }
    }

    /// Notes when a claim scanned behind the front, and how long that took.
    fn note_scan(&mut self, begun: &Begun) {
        // A scan of several claims has taken as long as all of them.
        let before = self.last_near.filter(|_| begun.under_way).map_or(Duration::ZERO, |(_, took)| took);
        let scan = Some((Instant::now(), before + begun.started.elapsed()));
        match begun.from {
            From::Front => {}
            From::Near => self.last_near = scan,
            From::Far => (self.last_near, self.last_far) = (scan, scan),
        }
    }

    /// Notes that the database has cut a claim off. One that scanned counts as made: the forward reads have the next turn, or none would ever come to
    /// its end where scans take longer than they may.
    pub(in super::super) fn cut_off(&mut self, begun: &Begun) {
        if begun.from != From::Front {
            self.note_scan(begun);
            (self.forward_turn, self.forward_waits) = (true, false);
        }
    }

    /// Where a lane stands after a claim.
    pub(super) fn next(&self, was: &Position, met: Met, begun: &Begun, this: Numbered) -> (Seq, Trail) {
        let (mut seq, mut trail) = (far(was), was.trail);
        (trail.front, trail.near) = (met.front.max(front(was)), near(was));
        let scan = begun.scan_of(was, this.number);
        let over = scan.filter(|scan| met.scanned_to.max(scan.reached) >= front(was));
        trail.rescan = match scan {
            Some(_) if over.is_some() => Rescan::NONE,
            Some(scan) => Rescan { reached: met.scanned_to.max(scan.reached), ..scan },
            None => was.trail.rescan,
        };
        // Where nothing lies behind, what this claim could see was met by its forward read.
        let near_from = if near(was) >= front(was) { Some(this.number) } else { over.map(|scan| scan.began) };
        if near(was) >= front(was) {
            trail.near = trail.near.max(begun.safe.near.min(trail.front));
        }
        if let Some(began) = near_from {
            trail.near_sight = began;
            if trail.near_claim <= self.over(began, this).near {
                trail.near = trail.near.max(trail.near_next);
            }
        }
        let far_from = if far(was) >= front(was) {
            Some(this.number)
        } else {
            over.filter(|scan| scan.is_far).map(|scan| scan.began)
        };
        if far(was) >= front(was) {
            seq = seq.max(begun.safe.far.min(trail.front));
        }
        if let Some(began) = far_from {
            trail.far_sight = began;
            if trail.far_claim <= self.over(began, this).far {
                seq = seq.max(trail.far_next);
                (trail.far_next, trail.far_claim) = (trail.front, this.number);
            }
        }
        if trail.near >= trail.near_next {
            (trail.near_next, trail.near_claim) = (trail.front, this.number);
        }
        if trail.far_next == 0 {
            (trail.far_next, trail.far_claim) = (trail.front, this.number);
        }
        (seq, trail)
    }

    /// Notes how far the marks of lanes have come that stood there before.
    pub(super) fn learn<'a>(&mut self, lanes: impl Iterator<Item = (&'a Position, &'a Position)>) {
        for (was, now) in lanes {
            // Only claims of ours set a mark's next place with a number.
            if was.trail.near_claim > 0 && near(now) > near(was) {
                self.safe.near = self.safe.near.max(near(now));
            }
            if was.trail.far_claim > 0 && far(now) > far(was) {
                self.safe.far = self.safe.far.max(far(now));
            }
        }
    }

    /// What was over when the claim of this number read, as far as is known.
    fn over(&self, number: u64, this: Numbered) -> Over {
        if number == this.number {
            this.over
        } else {
            self.find(number).map_or(Over::default(), |known| known.over)
        }
    }

    /// Gives the next turn to the scan that is under way, or to the forward reads: by turns while both have something to do.
    pub(super) fn take_turns(&mut self, begun: &Begun, positions: &[(Lane, Position)], forward_met: bool) {
        if !begun.under_way && begun.from == From::Front {
            self.forward_turn = false;
            return;
        }
        let goes_on = positions.iter().any(|(_, position)| position.trail.rescan.is_under_way());
        self.forward_turn = goes_on && begun.from != From::Front;
        self.forward_waits = goes_on && (self.forward_waits || begun.from == From::Front && !forward_met);
    }

    /// Notes in which transaction a claim wrote.
    pub(in super::super) fn wrote(&mut self, xid: i64) {
        self.wrote.push_back(xid);
        if self.wrote.len() > WROTE_MAX {
            self.wrote.pop_front();
        }
    }

    /// Whether a transaction id is to be drawn for lanes that stand there; if so, after what.
    pub(in super::super) fn wants_horizon(&mut self, positions: &[(Lane, Position)]) -> Option<After> {
        let now = Instant::now();
        let wants = self.horizons.wants(positions.iter().map(|(_, position)| position), now);
        wants.then(|| {
            self.horizons.tries(now);
            After { claim: self.last_number, at: now }
        })
    }

    /// Notes an id that was drawn.
    pub(in super::super) fn drew_horizon(&mut self, xid: i64, after: After) {
        self.horizons.drew(xid, after.claim, after.at);
    }
}

fn push(remembered: &mut VecDeque<Remembered>, most: usize, sight: Remembered) {
    remembered.push_back(sight);
    if remembered.len() > most {
        remembered.pop_front();
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
