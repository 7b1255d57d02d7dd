//! A model of MySQL for what a claim returns: numbers are drawn before the commit, and each statement sees what is committed by then. Transactions go on between
//! the statements of one claim. It drives what ships: [`LateCommits`] and [`LookBack`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use postrider_core::{
    rng::Rng,
    store::{Lane, LaneClaim, Lease, Position, Seq, Token},
};

use super::{
    back_scan::BackScan,
    late_commits::{Done, LateCommits},
    look_back::{Forward, Limits, LookBack},
    places::Places,
};

const LANES: Lane = 4;
const KEYS: u64 = 9;
const LIMIT: usize = 4;
const OWNERS: usize = 2;

/// What is open for longer is promised nothing.
const OPEN_MAX: Duration = Duration::from_secs(50);

/// Few rows and pages, so that a scan takes several claims.
const LIMITS: Limits = Limits { late: LIMIT, pages: 1, page_rows: 600, ahead_rows: 80, spread: 1 };

/// An event in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    key: u64,
    written_in: u64,
    inserted_at: u64,
    committed_at: Option<u64>,
}

impl Row {
    fn lane(&self) -> Lane {
        Lane::try_from(self.key).unwrap() % LANES
    }
}

/// An engine that claims from the table, and what its store remembers.
#[derive(Default)]
struct Owner {
    late: Arc<LateCommits>,
    lanes: BTreeMap<Lane, (Lease, Position)>,
    in_flight: BTreeSet<Seq>,
    /// What its claimer gave back, to be read again.
    again: BTreeSet<Seq>,
}

/// How often what is to be tried has come to pass.
#[derive(Debug, Default)]
struct Tally {
    late: usize,
    unfinished: usize,
    given_up: usize,
}

struct World {
    rng: Rng,
    /// Each change of the table has a place in time of its own.
    tick: u64,
    now: Instant,
    last_seq: Seq,
    /// How often numbers lie far apart, and how often many rows are written at once; of a thousand and of a hundred.
    wide: u64,
    bursts: u64,
    /// How many pages of a scan a claim reads.
    pages: usize,
    /// Nobody writes any more.
    is_over: bool,
    transactions: u64,
    open: BTreeMap<u64, Instant>,
    /// The keys that an open transaction has locked: who writes to an aggregate locks it first.
    locks: BTreeMap<u64, u64>,
    rows: BTreeMap<Seq, Row>,
    owners: [Owner; OWNERS],
    epoch: u64,
    delivered: BTreeSet<Seq>,
    /// What may come a second time, because its lane was lost.
    excused: BTreeSet<Seq>,
    tally: Tally,
}

/// The table as the statements of one claim see it. The last of so many is given up.
struct Statements<'a> {
    world: &'a mut World,
    left: u32,
}

impl Statements<'_> {
    fn rows(&mut self, is_asked: impl Fn(Lane, Seq) -> bool) -> sqlx::Result<Vec<(Lane, Seq)>> {
        self.left = self.left.checked_sub(1).ok_or(sqlx::Error::PoolTimedOut)?;
        self.world.go_on();
        let rows = self.world.rows.iter().filter(|(_, row)| row.committed_at.is_some());
        let places = rows.map(|(seq, row)| (row.lane(), *seq));
        Ok(places.filter(|(lane, seq)| is_asked(*lane, *seq)).collect())
    }
}

impl Places for Statements<'_> {
    async fn within(
        &mut self,
        lanes: &[Lane],
        (after, to): (Seq, Seq),
        most: usize,
    ) -> sqlx::Result<Vec<(Lane, Seq)>> {
        let mut rows = self.rows(|lane, seq| lanes.contains(&lane) && seq > after && seq <= to)?;
        rows.sort_unstable();
        rows.truncate(most);
        Ok(rows)
    }

    async fn among(&mut self, seqs: &[Seq]) -> sqlx::Result<Vec<(Lane, Seq)>> {
        let seqs: BTreeSet<Seq> = seqs.iter().copied().collect();
        self.rows(|_, seq| seqs.contains(&seq))
    }
}

/// What a claim is about to return.
struct Claimed {
    events: Vec<Seq>,
    again: Vec<Seq>,
    positions: Vec<(Lane, Position)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            rng: Rng::seeded(seed),
            tick: 0,
            now: Instant::now(),
            last_seq: 0,
            wide: [5, 30, 100][usize::try_from(seed % 3).unwrap()],
            bursts: [2, 5, 15, 25][usize::try_from(seed % 4).unwrap()],
            pages: 1 + usize::try_from(seed % 5).unwrap(),
            is_over: false,
            transactions: 0,
            open: BTreeMap::new(),
            locks: BTreeMap::new(),
            rows: BTreeMap::new(),
            owners: Default::default(),
            epoch: 0,
            delivered: BTreeSet::new(),
            excused: BTreeSet::new(),
            tally: Tally::default(),
        };
        // One owner has most of the lanes, so that its numbers lie between the other's.
        (0..LANES).for_each(|lane| world.take(lane, usize::from(lane == 3)));
        world
    }

    fn pick_open(&mut self) -> Option<u64> {
        let at = usize::try_from(self.rng.below(self.open.len() as u64)).ok()?;
        self.open.keys().copied().nth(at)
    }

    fn insert(&mut self, id: u64, rows: u64) {
        for _ in 0..rows {
            let its_own = self.locks.iter().find(|(_, owner)| **owner == id).map(|(key, _)| *key);
            let key = its_own.filter(|_| self.rng.chance(0.3)).unwrap_or_else(|| self.rng.below(KEYS));
            if *self.locks.entry(key).or_insert(id) != id {
                continue;
            }
            self.last_seq += match self.rng.below(1000) {
                0..=1 => 100_000,
                wide if wide < self.wide => 5000,
                200..=300 => 30,
                _ => 1,
            };
            let row = Row { key, written_in: id, inserted_at: self.tick, committed_at: None };
            self.rows.insert(self.last_seq, row);
        }
    }

    fn end(&mut self, id: u64, commits: bool) {
        let tick = self.tick;
        self.open.remove(&id);
        self.locks.retain(|_, owner| *owner != id);
        if commits {
            let of_it = self.rows.values_mut().filter(|row| row.written_in == id);
            of_it.for_each(|row| row.committed_at = Some(tick));
        } else {
            self.rows.retain(|_, row| row.written_in != id);
        }
    }

    /// What writers do between two statements.
    fn go_on(&mut self) {
        self.tick += 1;
        if self.is_over {
            return;
        }
        let old = self.open.iter().find(|(_, since)| self.now - **since > OPEN_MAX).map(|(id, _)| *id);
        old.into_iter().for_each(|id| self.end(id, true));
        match self.rng.below(12) {
            0 if self.open.len() < 6 => {
                self.transactions += 1;
                self.open.insert(self.transactions, self.now);
                self.insert(self.transactions, 1);
            }
            1..=3 => {
                let rows = if self.rng.below(100) < self.bursts { 15 } else { self.rng.below(4) };
                self.pick_open().into_iter().for_each(|id| self.insert(id, rows));
            }
            4 | 5 => {
                let commits = self.rng.chance(0.9);
                self.pick_open().into_iter().for_each(|id| self.end(id, commits));
            }
            _ => {}
        }
    }

    /// Reads forward as a claim does: window by window, each with a statement of its own.
    fn read_forward(
        statements: &mut Statements<'_>,
        lanes: &[LaneClaim],
        (end, tip): (Seq, Seq),
    ) -> sqlx::Result<Forward> {
        let from = |lane: &LaneClaim| lane.from.seq.max(lane.from.met);
        let start = lanes.iter().map(from).min().unwrap();
        let mut read = Forward { rows: Vec::new(), reached: start, tip, is_of_one_moment: true };
        let mut width = 1 + statements.world.rng.below(20);
        for window in 0..48 {
            if read.reached >= end.min(tip) || read.rows.len() >= LIMIT {
                break;
            }
            let (after, to) = (read.reached, read.reached.saturating_add(width).min(end).min(tip));
            let is_ahead = |lane, seq| lanes.iter().any(|of| of.lease.lane == lane && seq > from(of));
            let rows = statements.rows(|lane, seq| seq > after && seq <= to && is_ahead(lane, seq))?;
            width = if rows.is_empty() { width * 8 } else { width };
            read.rows.extend(rows);
            read.reached = to;
            read.is_of_one_moment = window == 0;
        }
        Ok(read)
    }

    fn lanes(&mut self, owner: usize) -> Vec<LaneClaim> {
        let all = self.rng.chance(0.9);
        let mut lanes = Vec::new();
        let owner = &self.owners[owner];
        for (lane, (lease, from)) in &owner.lanes {
            if all || self.rng.chance(0.5) {
                let is_of_lane = |seq: &&Seq| self.rows.get(seq).is_some_and(|row| row.lane() == *lane);
                let again = owner.again.iter().filter(is_of_lane).copied().collect();
                lanes.push(LaneClaim { again, ..LaneClaim::after(*lease, *from) });
            }
        }
        lanes
    }

    /// One claim, as [`super::Claiming`] makes it. Fails where a statement is given up.
    fn make_claim(&mut self, owner: usize, lanes: &[LaneClaim], statements: u32) -> sqlx::Result<Claimed> {
        let late = Arc::clone(&self.owners[owner].late);
        let in_flight: Vec<Seq> = self.owners[owner].in_flight.iter().copied().collect();
        let (now, of_claim): (_, Vec<&LaneClaim>) = (self.now, lanes.iter().collect());
        let limits = Limits { pages: self.pages, ..LIMITS };
        let mut statements = Statements { world: self, left: statements };
        let gate = statements.rows(|_, _| true)?;
        let tip = gate.last().map_or(0, |(_, seq)| *seq);
        let look_back = LookBack::new(&late, &of_claim);
        let mut read = Self::read_forward(&mut statements, lanes, (look_back.end(), tip))?;
        let looking = look_back.look(&mut statements, &in_flight, &read, limits, now);
        let mut back = looking.now_or_never().unwrap()?;
        read.reached = read.reached.min(back.end);
        read.rows.retain(|(_, seq)| *seq <= back.end);
        // What is given back, and what is late, is read once more, with a statement of its own.
        let given: BTreeSet<Seq> = lanes.iter().flat_map(|lane| lane.again.iter().copied()).collect();
        let is_ours = |lane| lanes.iter().any(|of| of.lease.lane == lane);
        let again = statements
            .rows(|lane, seq| is_ours(lane) && (given.contains(&seq) || back.late.contains(&seq)))?;
        let already: BTreeSet<Seq> = again.iter().map(|(_, seq)| *seq).collect();
        read.rows.retain(|(_, seq)| !already.contains(seq));

        let mut left = LIMIT;
        let mut take = |seq: &Seq| {
            let takes = in_flight.contains(seq) || left > 0;
            left -= usize::from(takes && !in_flight.contains(seq));
            takes
        };
        let first = again.iter().position(|(_, seq)| !take(seq)).unwrap_or(again.len());
        let (again_met, again_left) = again.split_at(first);
        let first = if again_left.is_empty() {
            read.rows.iter().position(|(_, seq)| !take(seq)).unwrap_or(read.rows.len())
        } else {
            read.rows.iter().position(|_| true).unwrap_or(0)
        };
        let (fresh_met, fresh_left) = read.rows.split_at(first);
        let reached = fresh_left.first().map_or(read.reached, |(_, seq)| seq - 1);
        let (again_left, late_left): (Vec<_>, Vec<_>) =
            again_left.iter().map(|(_, seq)| *seq).partition(|seq| given.contains(seq));
        if let Some(scan) = &mut back.scan {
            scan.met(back.late.len(), |seq| late_left.contains(&seq));
        }
        let low = late.low(tip, back.scan.as_ref(), now);
        let position = |lane: &LaneClaim| {
            let met = lane.from.seq.max(lane.from.met).max(reached);
            let seq = lane.from.seq.max(met.min(low));
            (lane.lease.lane, Position { seq, met, ..Position::START })
        };
        let met = || again_met.iter().chain(fresh_met).map(|(_, seq)| *seq);
        let events: Vec<Seq> = met().filter(|seq| !in_flight.contains(seq)).collect();
        let claimed = Claimed { events, again: again_left, positions: lanes.iter().map(position).collect() };
        let tally = &mut statements.world.tally;
        tally.late += back.late.len();
        tally.unfinished += usize::from(back.scan.as_ref().is_some_and(|scan: &BackScan| !scan.is_through()));
        let met = met().chain(claimed.again.iter().copied());
        late.succeeded(Done { met, held: |_: &Lease| true, scan: back.scan }, now);
        Ok(claimed)
    }

    fn claim_and_deliver(&mut self, owner: usize) {
        let lanes = self.lanes(owner);
        if lanes.is_empty() {
            return;
        }
        let statements = if self.rng.chance(0.03) { 3 } else { u32::MAX };
        let Ok(claimed) = self.make_claim(owner, &lanes, statements) else {
            self.tally.given_up += 1;
            return;
        };
        let of = &mut self.owners[owner];
        if self.rng.chance(0.03) {
            // Its events are not sent and are to be read again; the lanes stand where they stood.
            of.again.extend(claimed.events);
            return;
        }
        lanes.iter().flat_map(|lane| &lane.again).for_each(|seq| _ = of.again.remove(seq));
        of.again.extend(claimed.again);
        for (lane, position) in claimed.positions {
            of.lanes.entry(lane).and_modify(|(_, at)| *at = position);
        }
        claimed.events.into_iter().for_each(|seq| self.deliver(owner, seq));
    }

    fn deliver(&mut self, owner: usize, seq: Seq) {
        let row = self.rows[&seq].clone();
        let is_before = |(other, a): &(&Seq, &Row)| {
            **other < seq
                && a.key == row.key
                && (a.written_in == row.written_in || a.committed_at.is_some_and(|at| at < row.inserted_at))
        };
        let overtaken = self.rows.iter().filter(is_before).find(|(other, _)| !self.delivered.contains(other));
        assert_eq!(overtaken, None, "{seq} {row:?} was delivered before it");
        let is_new = self.delivered.insert(seq);
        assert!(is_new || self.excused.remove(&seq), "{seq} was delivered twice");
        self.owners[owner].in_flight.insert(seq);
    }

    fn settle(&mut self) {
        for owner in &mut self.owners {
            let settled: Vec<Seq> =
                owner.in_flight.iter().copied().filter(|_| self.rng.chance(0.5)).collect();
            settled.iter().for_each(|seq| _ = (owner.in_flight.remove(seq), self.rows.remove(seq)));
        }
    }

    /// A lane goes to an owner, which may have lost it a moment ago.
    fn take(&mut self, lane: Lane, owner: usize) {
        for before in &mut self.owners {
            before.lanes.remove(&lane);
            let is_of_lane = |seq: &Seq| self.rows.get(seq).is_none_or(|row| row.lane() == lane);
            let lost: Vec<Seq> = before.in_flight.iter().copied().filter(is_of_lane).collect();
            lost.iter().for_each(|seq| _ = before.in_flight.remove(seq));
            self.excused.extend(lost);
            before.again.retain(|seq| !is_of_lane(seq));
        }
        self.epoch += 1;
        let lease = Lease { lane, token: Token { epoch: self.epoch, nonce: 1 } };
        self.owners[owner].lanes.insert(lane, (lease, Position::START));
    }

    /// What the lanes' own claims have met is in memory, so a read up to where they stand finds nothing.
    fn read_up_to_the_fronts(&self, owner: usize) {
        let owner = &self.owners[owner];
        let is_met = |(seq, row): &(&Seq, &Row)| {
            let stands = owner.lanes.get(&row.lane()).map(|(_, position)| position.front());
            row.committed_at.is_some()
                && stands.is_some_and(|front| **seq <= front)
                && owner.late.is_met(**seq)
                && !owner.in_flight.contains(seq)
                && !owner.again.contains(seq)
        };
        assert_eq!(self.rows.iter().find(is_met), None, "the lane's own claims have not met it");
    }

    fn act(&mut self) {
        self.now += Duration::from_millis(if self.rng.chance(0.02) { 5000 } else { self.rng.below(150) });
        let owner = usize::from(self.rng.chance(0.3));
        match self.rng.below(20) {
            0..=9 => self.go_on(),
            10 | 11 => self.settle(),
            12 => self.read_up_to_the_fronts(owner),
            13 if self.rng.chance(0.1) => {
                let lane = Lane::try_from(self.rng.below(u64::from(LANES))).unwrap();
                self.take(lane, owner);
            }
            13 if self.rng.chance(0.1) => {
                // The engine looks from the bottom.
                self.owners[owner].lanes.values_mut().for_each(|(_, position)| *position = Position::START);
            }
            _ => self.claim_and_deliver(owner),
        }
    }

    /// Ends all transactions and claims until nothing is left.
    fn come_to_rest(&mut self) {
        self.tick += 1;
        self.is_over = true;
        let open: Vec<u64> = self.open.keys().copied().collect();
        open.into_iter().for_each(|id| self.end(id, true));
        let left = |world: &Self| {
            let is_left = |seq: &&Seq| !world.delivered.contains(seq) || world.excused.contains(seq);
            world.rows.keys().find(is_left).copied()
        };
        for _ in 0..3000 {
            if left(self).is_none() {
                return;
            }
            self.now += Duration::from_millis(200);
            (0..OWNERS).for_each(|owner| self.claim_and_deliver(owner));
            self.settle();
        }
        assert_eq!(left(self), None, "it never came");
    }
}

#[test]
fn every_event_is_delivered_once_and_in_order_whatever_commits_between_two_statements() {
    let mut tally = Tally::default();
    for seed in 0..300 {
        let mut world = World::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..300).for_each(|_| world.act());
            world.come_to_rest();
        }));
        assert!(run.is_ok(), "seed {seed}");
        tally.late += world.tally.late;
        tally.unfinished += world.tally.unfinished;
        tally.given_up += world.tally.given_up;
    }
    let Tally { late, unfinished, given_up } = tally;
    assert!(late > 500 && unfinished > 500 && given_up > 100, "{tally:?}");
}
