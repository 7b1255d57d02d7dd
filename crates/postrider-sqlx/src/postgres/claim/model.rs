//! A model of PostgreSQL for the choice of a claim: numbers are drawn before the commit, transactions have ids, claims read at snapshots. It answers
//! as `claim.sql` does and drives what ships: [`Watermarks`](super::watermarks::Watermarks) and [`choose`](super::choose).

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{
    Timestamp,
    rng::Rng,
    select::Facts,
    store::{Claim, Claimed, Lane, LaneClaim, Lease, Position, Seq, Token},
};

use super::{
    Chosen, choose,
    history::Place,
    look::{LaneSeen, Limits, Look, Seen},
    moment::Moment,
    snapshot::Snapshot,
    watermarks::{Begun, Behind, Unfinished, Watermarks},
};

const LANES: Lane = 4;
const ALL: [Lane; 4] = [0, 1, 2, 3];
const KEYS: u64 = 9;
const LIMIT: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    Open,
    Committed,
    RolledBack,
}

/// An event in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    key: u64,
    written_in: i64,
    /// The steps of the run at which it was inserted and, once it is, committed.
    inserted_at: u64,
    committed_at: Option<u64>,
}

/// What goes wrong with a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mishap {
    None,
    AnswerIsLost,
    /// Its events are not sent and are to be read again; the lanes stand where they stood.
    IsGivenBack,
    /// Somebody else has taken the lane.
    LaneIsLost(Lane),
}

/// A database with one writer's table, and an engine that claims from it.
struct World {
    rng: Rng,
    step: u64,
    last_seq: Seq,
    next_id: i64,
    /// The ids that were given, and what became of their transactions.
    transactions: BTreeMap<i64, Transaction>,
    /// The keys that an open transaction has locked: who writes to an aggregate locks it first.
    locks: BTreeMap<u64, i64>,
    rows: BTreeMap<Seq, Row>,
    watermarks: Watermarks,
    positions: BTreeMap<Lane, Position>,
    in_flight: BTreeSet<Seq>,
    delivered: BTreeSet<Seq>,
    /// What its claimer gave back, to be read again.
    again: BTreeSet<Seq>,
    /// What may come a second time, because the lane was lost or the answer of a claim was.
    excused: BTreeSet<Seq>,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::seeded(seed),
            step: 0,
            last_seq: 0,
            next_id: 700,
            transactions: BTreeMap::new(),
            locks: BTreeMap::new(),
            rows: BTreeMap::new(),
            watermarks: Watermarks::default(),
            positions: (0..LANES).map(|lane| (lane, Position::START)).collect(),
            in_flight: BTreeSet::new(),
            again: BTreeSet::new(),
            delivered: BTreeSet::new(),
            excused: BTreeSet::new(),
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = usize::try_from(self.rng.below(from.len() as u64)).ok()?;
        from.get(at).copied()
    }

    fn open(&self) -> Vec<i64> {
        let open = self.transactions.iter().filter(|(_, state)| **state == Transaction::Open);
        open.map(|(id, _)| *id).collect()
    }

    /// A transaction gets its id. What it inserts may come much later.
    fn begin(&mut self) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.transactions.insert(id, Transaction::Open);
        id
    }

    fn insert(&mut self, id: i64, rows: u64) {
        for _ in 0..rows {
            let key = self.rng.below(KEYS);
            if *self.locks.entry(key).or_insert(id) != id {
                continue;
            }
            // A hole now and then, as a rolled-back statement leaves it.
            self.last_seq += if self.rng.chance(0.1) { 30 } else { 1 };
            let row = Row { key, written_in: id, inserted_at: self.step, committed_at: None };
            self.rows.insert(self.last_seq, row);
        }
    }

    fn end(&mut self, id: i64, commits: bool) {
        self.transactions.insert(id, if commits { Transaction::Committed } else { Transaction::RolledBack });
        self.locks.retain(|_, owner| *owner != id);
        if commits {
            let step = self.step;
            self.rows
                .values_mut()
                .filter(|row| row.written_in == id)
                .for_each(|row| row.committed_at = Some(step));
        } else {
            self.rows.retain(|_, row| row.written_in != id);
        }
    }

    fn snapshot(&self) -> Snapshot {
        let over =
            self.transactions.iter().filter(|(_, state)| **state != Transaction::Open).map(|(id, _)| *id);
        let xmax = over.max().map_or(700, |last| last + 1);
        let running: Vec<i64> = self.open().into_iter().filter(|id| *id < xmax).collect();
        let xmin = running.first().copied().unwrap_or(xmax);
        let running: Vec<String> = running.iter().map(i64::to_string).collect();
        Snapshot::parse(&format!("{xmin}:{xmax}:{}", running.join(","))).unwrap()
    }

    /// A claim of these lanes: their own, or one that reads from the bottom up to where they stand.
    fn claim(&self, lanes: &[Lane], to: Seq) -> Claim {
        let positions = self.positions.iter().filter(|(lane, _)| lanes.contains(lane));
        let lanes = positions.map(|(lane, position)| {
            let lease = Lease { lane: *lane, token: Token { epoch: 1, nonce: 1 } };
            let (from, to) = match to {
                Seq::MAX => (*position, Seq::MAX),
                _ => (Position::at(0, Timestamp::EPOCH, 0, position), position.front()),
            };
            let is_of_lane = |seq: &&Seq| self.rows.get(seq).is_some_and(|row| lane_of(row) == *lane);
            let again = self.again.iter().filter(|_| to == Seq::MAX).filter(is_of_lane).copied().collect();
            LaneClaim { to, again, ..LaneClaim::after(lease, from) }
        });
        let lanes = lanes.collect();
        Claim { in_flight: self.in_flight.iter().copied().collect(), ..Claim::new(lanes, LIMIT) }
    }

    /// The rows that a statement sees, in order.
    fn visible(&self, claim: &Claim) -> Vec<(Seq, Row)> {
        let is_seen =
            |(seq, row): &(&Seq, &Row)| row.committed_at.is_some() && !claim.in_flight.contains(seq);
        self.rows.iter().filter(is_seen).map(|(seq, row)| (*seq, row.clone())).collect()
    }

    /// Answers as the careful claim does, where somebody else may hold one of the lanes by now.
    fn read(&self, claim: &Claim, begun: &Begun<'_>, lost: Option<Lane>) -> Look {
        let snapshot = self.snapshot();
        let limits = Limits::of(claim, LANES);
        let place = Place::of_transactions(snapshot.xmax());
        let moment = Moment { now: Timestamp::from_micros(1), snapshot: snapshot.clone(), place };
        let mut look = Look { limits, moment, ..Look::default() };
        let visible = self.visible(claim);
        let held = |lane: Lane| begun.cursor(lane).filter(|_| lost != Some(lane));

        let is_late = |seq: Seq, row: &Row| match &begun.behind {
            Behind::Nothing => false,
            Behind::Since(since) => {
                let ended = snapshot.ended_since(&since.snapshot).any(|id| id == row.written_in);
                ended || (since.snapshot.xmax()..snapshot.xmax()).contains(&row.written_in)
            }
            Behind::Rest { transactions, reached } => {
                transactions.contains(&row.written_in) && seq > *reached
            }
        };
        let late = visible
            .iter()
            .filter(|(seq, row)| *seq <= begun.front() && is_late(*seq, row) && held(lane_of(row)).is_some());
        let mut rows: Vec<(Seq, Row, bool)> =
            late.take(limits.fresh).map(|(seq, row)| (*seq, row.clone(), true)).collect();

        let begins = |lane: Lane| held(lane).filter(|cursor| cursor.forward);
        let ahead: Vec<&(Seq, Row)> = visible
            .iter()
            .filter(|(seq, row)| {
                begins(lane_of(row)).is_some_and(|cursor| *seq > cursor.front && *seq <= cursor.lane.to)
            })
            .collect();
        look.ceiling = ahead.first().map(|(seq, _)| seq.saturating_add(limits.width));
        let ceiling = look.ceiling.unwrap_or_default();
        for lane in ALL.into_iter().filter(|lane| held(*lane).is_some()) {
            let of_lane = || ahead.iter().filter(|(_, row)| lane_of(row) == lane);
            let below = of_lane().filter(|(seq, _)| *seq <= ceiling).take(limits.fresh_of_a_lane);
            rows.extend(below.map(|(seq, row)| (*seq, row.clone(), false)));
            let beyond = of_lane().any(|(seq, _)| *seq > ceiling);
            look.lanes.insert(lane, LaneSeen { beyond, next_due: None });
        }
        let again = |seq: Seq| claim.lanes.iter().any(|lane| lane.again.contains(&seq));
        let again = visible.iter().filter(|(seq, row)| again(*seq) && held(lane_of(row)).is_some());
        look.again.extend(again.map(|(seq, row)| seen(*seq, row)));
        for (seq, row, is_late) in rows {
            let mut seen = seen(seq, &row);
            if look.is_for_claim(&mut seen, row.written_in, is_late, begun) {
                look.fresh.push(seen);
            }
        }
        look.fresh.sort_unstable_by_key(Seen::seq);
        look
    }

    /// One claim: what it returns, and which events.
    fn make_claim(&mut self, claim: &Claim, lost: Option<Lane>) -> (Claimed, Vec<Seq>) {
        let begun = self.watermarks.begin(&claim.lanes);
        let look = self.read(claim, &begun, lost);
        assert_eq!(self.watermarks.notice(&begun, &look.moment), None);
        let Chosen { claimed, unread, .. } =
            choose(&mut self.watermarks, claim, &begun, look, Some(self.last_seq));
        if let Some(scan) = self.watermarks.begun_scan(&begun, &claimed.positions) {
            let beyond = self.late_transactions(&scan);
            self.watermarks.note_scan(&scan, &beyond);
        }
        (claimed, unread.into_keys().collect())
    }

    /// Claims and delivers. Says whether more is due.
    fn claim_and_deliver(&mut self, lanes: &[Lane], mishap: Mishap) -> bool {
        let claim = self.claim(lanes, Seq::MAX);
        let lost = if let Mishap::LaneIsLost(lane) = mishap { Some(lane) } else { None };
        let (claimed, events) = self.make_claim(&claim, lost);
        if mishap == Mishap::AnswerIsLost {
            return true;
        }
        if mishap == Mishap::IsGivenBack {
            self.again.extend(events);
            return true;
        }
        let met_again = claim.lanes.iter().flat_map(|lane| &lane.again);
        met_again.for_each(|seq| _ = self.again.remove(seq));
        self.again.extend(claimed.again.iter().map(|(_, seq)| *seq));
        self.positions.extend(claimed.positions);
        claimed.lost.into_iter().for_each(|lane| self.lose(lane));
        events.into_iter().for_each(|seq| self.deliver(seq));
        claimed.more
    }

    fn deliver(&mut self, seq: Seq) {
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
        self.in_flight.insert(seq);
    }

    /// What the lanes' own claims have met is in memory, so a read up to where they stand finds nothing.
    fn read_up_to_the_fronts(&mut self) {
        let claim = self.claim(&ALL, 1);
        let (_, events) = self.make_claim(&claim, None);
        let unmet: Vec<Seq> = events.into_iter().filter(|seq| !self.again.contains(seq)).collect();
        assert_eq!(unmet, Vec::<Seq>::new(), "the lanes' own claims have not met them");
    }

    fn settle(&mut self) {
        let in_flight: Vec<Seq> = self.in_flight.iter().copied().collect();
        for seq in in_flight {
            if self.rng.chance(0.5) {
                self.in_flight.remove(&seq);
                self.rows.remove(&seq);
            }
        }
    }

    /// Another instance had the lane for a while.
    fn lose(&mut self, lane: Lane) {
        self.positions.insert(lane, Position::START);
        let rows = self.rows.iter().filter(|(_, row)| lane_of(row) == lane).map(|(seq, _)| *seq);
        let lost: Vec<Seq> = rows.filter(|seq| self.in_flight.contains(seq)).collect();
        lost.iter().for_each(|seq| _ = self.in_flight.remove(seq));
        self.excused.extend(lost);
        self.again.retain(|seq| self.rows.get(seq).is_some_and(|row| lane_of(row) != lane));
    }

    fn act(&mut self) {
        self.step += 1;
        let open = self.open();
        match self.rng.below(20) {
            0..=3 if open.len() < 6 => {
                let id = self.begin();
                self.insert(id, 1);
            }
            0..=6 => {
                let rows = if self.rng.chance(0.1) { 25 } else { self.rng.below(4) };
                self.pick(&open).into_iter().for_each(|id| self.insert(id, rows));
            }
            7..=10 => {
                let commits = self.rng.chance(0.85);
                self.pick(&open).into_iter().for_each(|id| self.end(id, commits));
            }
            11 => self.settle(),
            12 if self.rng.chance(0.1) => {
                let lane = self.pick(&ALL).unwrap();
                self.lose(lane);
            }
            13 => self.read_up_to_the_fronts(),
            14 => {
                let some: Vec<Lane> = ALL.into_iter().filter(|_| self.rng.chance(0.5)).collect();
                if !some.is_empty() {
                    self.claim_and_deliver(&some, Mishap::None);
                }
            }
            _ => {
                let mishap = match self.rng.below(60) {
                    0 => Mishap::AnswerIsLost,
                    1 | 2 => Mishap::IsGivenBack,
                    3 => Mishap::LaneIsLost(self.pick(&ALL).unwrap()),
                    _ => Mishap::None,
                };
                self.claim_and_deliver(&ALL, mishap);
            }
        }
    }

    /// Ends all transactions and claims until nothing is left. Returns how many claims that took.
    fn come_to_rest(&mut self) -> usize {
        self.step += 1;
        self.open().into_iter().for_each(|id| self.end(id, true));
        let claims = (1..).find(|_| !self.claim_and_deliver(&ALL, Mishap::None)).unwrap();
        let left = self.rows.keys().find(|seq| !self.in_flight.contains(seq));
        assert_eq!(left, None, "it never came");
        claims
    }

    fn late_transactions(&self, scan: &Unfinished) -> Vec<i64> {
        let between = scan.since.snapshot.xmax()..scan.to.snapshot.xmax();
        let late = self.rows.iter().filter(|(seq, row)| **seq <= scan.front && row.committed_at.is_some());
        let ids: BTreeSet<i64> =
            late.map(|(_, row)| row.written_in).filter(|id| between.contains(id)).collect();
        ids.into_iter().collect()
    }
}

fn lane_of(row: &Row) -> Lane {
    Lane::try_from(row.key).unwrap() % LANES
}

fn seen(seq: Seq, row: &Row) -> Seen {
    let facts = Facts {
        lane: lane_of(row),
        seq,
        is_fresh: true,
        due_at: None,
        hold: None,
        bytes: 1,
        is_for_another_claim: false,
    };
    Seen { facts, words: None }
}

#[test]
fn every_event_is_delivered_once_and_in_order_whatever_commits_late() {
    for seed in 0..3_000 {
        let mut world = World::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..300).for_each(|_| world.act());
            world.come_to_rest();
        }));
        assert!(run.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_claim_costs_nothing_for_a_transaction_that_stays_open() {
    let mut world = World::new(1);
    let open = world.begin();
    world.insert(open, 1);
    for _ in 0..500 {
        world.step += 1;
        let id = world.begin();
        world.insert(id, 2);
        world.end(id, true);
        world.claim_and_deliver(&ALL, Mishap::None);
        world.settle();
    }
    world.come_to_rest();
    // Nothing is read from the bottom again: all claims know since when.
    let claim = world.claim(&ALL, Seq::MAX);
    assert!(world.watermarks.begin(&claim.lanes).since().is_some());
}

#[test]
fn rows_of_another_server_are_read_once_by_their_number() {
    let mut world = World::new(2);
    let writer = world.begin();
    world.insert(writer, 40);
    world.end(writer, true);
    // Restored: their transactions lie far in the future of this server.
    world.rows.values_mut().for_each(|row| row.written_in = 1_000_000);
    while world.claim_and_deliver(&ALL, Mishap::None) {}
    assert!(world.rows.keys().all(|seq| world.in_flight.contains(seq)));
    // What was skipped is found by those who read up to where the lanes stand.
    world.in_flight.clear();
    let claim = world.claim(&ALL, 1);
    assert_eq!(world.make_claim(&claim, None).1.len(), LIMIT);
    assert!(!world.make_claim(&world.claim(&ALL, Seq::MAX), None).0.more);
}
