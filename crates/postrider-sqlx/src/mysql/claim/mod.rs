//! Claiming: read summaries of what is due, choose, read the payloads of what was chosen, and write down what was met on the way.
//!
//! The reads are statements of their own, without locks, in an order that makes them add up: what comes back is read before
//! what is new, so that nothing which was parked meanwhile is overtaken, and what committed late is looked up after what is new, so that nothing new is returned
//! before it. Whatever the engine settles while a claim runs, it knows; and nobody else changes the events of a lane. The writing is a
//! transaction under the lane's token, and asks again whether its reasons still hold.
//!
//! A claim holds the payloads that it returns, a part as many again that came with their rows, and a bounded number of row summaries.

mod ahead;
mod back_scan;
mod forward;
mod late_commits;
mod look_ahead;
mod look_back;
#[cfg(test)]
mod model;
mod places;
mod queues;
mod read;
mod read_back;
mod returning;
mod scan;
mod seqs;
mod waiting;
mod width;
mod write;

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use postrider_core::{
    store::{Claim, Claimed, ClaimedEvent, Lane, LaneClaim, Lease, Position, Seq},
    tx::Prefix,
};
use sqlx::MySqlConnection;

use self::{
    back_scan::BackScan,
    forward::{Fresh, Stretch, Wanted},
    late_commits::Done,
    look_back::{Back, Limits, LookBack},
    places::Table,
    queues::{Queue, Queues},
    read::{Gate, Reader},
    returning::Returning,
    scan::{Judge, Met, Verdict},
    waiting::Waiting,
    write::{Findings, Writer},
};
pub(super) use self::{forward::TypicalRow, late_commits::LateCommits};
use super::{hold, lease};
use crate::{choose::Budget, connections::LockedLanes};

/// Least number of rows that one statement may read.
const ROWS_MIN: usize = 128;

/// Least number of rows that a claim looks at where they may not be wanted.
const GLANCED_MIN: usize = 1000;

/// Payloads that come with their rows, before it is known which are wanted, may take one part in so many of a claim's bytes in each statement.
const INLINE_SHARE: usize = 4;

/// The statements of this folder.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) read: read::Statements,
    pub(super) write: write::Statements,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        Self { read: read::Statements::new(prefix), write: write::Statements::new(prefix) }
    }
}

/// What a claim works with.
pub(super) struct Claiming<'a> {
    pub(super) sql: &'a Statements,
    pub(super) lease: &'a lease::Statements,
    pub(super) hold: &'a hold::Statements,
    pub(super) late: &'a LateCommits,
    pub(super) locked_lanes: &'a LockedLanes,
    pub(super) typical: &'a TypicalRow,
    /// How many lanes the outbox has.
    pub(super) lanes: u32,
}

/// What was met, list by list.
struct Lists {
    again: Vec<Met>,
    fresh: Fresh,
    waiting: Waiting,
    returning: Returning,
    back: Back,
}

impl Claiming<'_> {
    /// Reads due events of the lanes that one holds.
    pub(super) async fn claim(&self, conn: &mut MySqlConnection, claim: &Claim) -> sqlx::Result<Claimed> {
        let rows_max = claim.limit.saturating_mul(2).max(ROWS_MIN);
        // With an admission most of what is met may not be wanted: payloads are read of what was chosen.
        let inline_bytes = if claim.admission.is_some() { 0 } else { claim.bytes / INLINE_SHARE };
        let reader = Reader { sql: &self.sql.read, inline_bytes, rows_max };
        let all: Vec<Lane> = claim.lanes.iter().map(|lane| lane.lease.lane).collect();
        let after = claim.lanes.iter().map(|lane| Stretch::of(lane).from).min().unwrap_or_default();
        let gate = reader.gate(conn, &all, after).await?;
        let mut claimed = Claimed { now: gate.now, ..Claimed::default() };
        let (lanes, lost): (Vec<&LaneClaim>, Vec<_>) =
            claim.lanes.iter().partition(|lane| gate.held.contains(&lane.lease));
        claimed.lost = lost.iter().map(|lane| lane.lease.lane).collect();
        if lanes.is_empty() {
            return Ok(claimed);
        }
        let judge =
            Judge { now: gate.now, in_flight: &claim.in_flight, admission: claim.admission.as_deref() };

        let lists = self.read(&reader, &judge, conn, &lanes, &gate, (claim.limit, claim.bytes)).await?;
        let chosen = self.choose(lists, &judge, &lanes, &gate, claim, &mut claimed);
        read_heavy(&reader, conn, chosen.events, &mut claimed.events).await?;
        let Self { lease, hold, locked_lanes, .. } = self;
        let writer = Writer { sql: &self.sql.write, lease, hold, locked_lanes };
        writer.write(conn, &chosen.findings, lanes.iter().map(|lane| lane.lease), &mut claimed).await?;

        let lost = &claimed.lost;
        claimed.events.retain(|event| !lost.contains(&event.lane));
        claimed.positions.retain(|(lane, _)| !lost.contains(lane));
        claimed.again.retain(|(lane, _)| !lost.contains(lane));
        // At the very end: a claim that failed has met nothing.
        let met = chosen.met.into_iter().filter(|(lane, _)| !lost.contains(lane)).map(|(_, seq)| seq);
        let held = |lease: &Lease| !lost.contains(&lease.lane);
        let done = Done { met, held, scan: chosen.scan };
        self.late.succeeded(done, Instant::now());
        Ok(claimed)
    }

    async fn read(
        &self,
        reader: &Reader<'_>,
        judge: &Judge<'_>,
        conn: &mut MySqlConnection,
        lanes: &[&LaneClaim],
        gate: &Gate,
        (limit, bytes_max): (usize, usize),
    ) -> sqlx::Result<Lists> {
        // Of what may not be wanted, more is looked at than could be returned.
        let limit = if judge.admission.is_some() { limit.max(GLANCED_MIN) } else { limit };
        let returning = match gate.returning {
            true => returning::read(reader, judge, conn, lanes, limit).await?,
            false => Returning::default(),
        };
        let stretches: Vec<Stretch> = lanes.iter().map(|lane| Stretch::of(lane)).collect();
        let spread = u64::from(self.lanes).div_ceil(lanes.len() as u64).max(1);
        let rows_max = limit.saturating_mul(2).max(ROWS_MIN);
        let (typical, holds) = (self.typical, gate.holds);
        let wanted = Wanted { candidates_max: limit, bytes_max, typical, rows_max, spread, holds };
        let look_back = (!walks(lanes)).then(|| LookBack::new(self.late, lanes));
        let tip = look_back.as_ref().map_or(gate.tip, |look_back| look_back.end().min(gate.tip));
        let mut fresh = forward::read(reader, judge, conn, &stretches, tip, wanted).await?;
        let back = match look_back {
            Some(back) => {
                let (forward, now) = (fresh.places(gate.tip), Instant::now());
                let mut table = Table { reader, conn };
                back.look(&mut table, judge.in_flight, &forward, Limits::new(limit, spread), now).await?
            }
            None => {
                // What the lanes' own claims have not met is late, and comes there first.
                fresh.met.retain(|met| self.late.is_met(met.row.seq));
                Back::NONE
            }
        };
        fresh.end_at(back.end);
        let mut again: Vec<Seq> = lanes.iter().flat_map(|lane| lane.again.iter().copied()).collect();
        again.extend(&back.late);
        again.sort_unstable();
        again.dedup();
        // All of them, or those beyond the limit would be forgotten.
        let again = reader.again(conn, &again).await?.into_iter().filter(|row| is_ours(lanes, row.lane));
        let again: Vec<Met> = again.map(|row| judge.judge(row, &HashSet::new())).collect();
        let already: HashSet<Seq> = again.iter().map(|met| met.row.seq).collect();
        let waiting = match gate.waiting {
            true => waiting::read(reader, judge, conn, lanes, &already, limit).await?,
            false => Waiting { ended: true, ..Waiting::default() },
        };
        let mut lists = Lists { again, fresh, waiting, returning, back };
        // What is looked at once more may lie where a walk goes by.
        lists.fresh.met.retain(|met| !already.contains(&met.row.seq));
        if walks(lanes) {
            let Lists { again, fresh, waiting, returning, .. } = &mut lists;
            let met = again.iter_mut().chain(&mut fresh.met).chain(&mut waiting.met);
            met.for_each(|met| returning.let_out(met));
        }
        Ok(lists)
    }

    /// Chooses what is returned, cuts the lists where the limits are, and notes where the next claim begins.
    fn choose(
        &self,
        lists: Lists,
        judge: &Judge<'_>,
        lanes: &[&LaneClaim],
        gate: &Gate,
        claim: &Claim,
        claimed: &mut Claimed,
    ) -> Chosen {
        let Lists { again, fresh, mut waiting, mut returning, mut back } = lists;
        // What is about to be parked behind a key that comes back may be the first of its events that do: the next claim sees it.
        let parking = again.iter().filter(|met| met.verdict == Verdict::Park { returning: true });
        let parking: HashSet<(Lane, &str)> = parking.filter_map(Met::key_of_lane).collect();
        let before = returning.met.len();
        returning.met.retain(|met| met.key_of_lane().is_none_or(|key| !parking.contains(&key)));
        returning.more |= returning.met.len() < before;
        let mut queues = Queues {
            again: Queue::new(again),
            fresh: Queue::new(fresh.met),
            waiting: Queue::new(std::mem::take(&mut waiting.met)),
            returning: Queue::new(returning.met),
        };
        queues.choose(&mut Budget::new(claim.limit, claim.bytes), judge);
        let ((again, again_left), (fresh_met, fresh_left)) = (queues.again.cut(), queues.fresh.cut());
        let ((waiting_met, waiting_left), (returned, returning_left)) =
            (queues.waiting.cut(), queues.returning.cut());
        // Late rows that did not fit are left to the back scan, which goes on with them.
        let given: HashSet<Seq> = lanes.iter().flat_map(|lane| lane.again.iter().copied()).collect();
        let (again_left, late_left): (Vec<Met>, Vec<Met>) =
            again_left.into_iter().partition(|met| given.contains(&met.row.seq));
        back.met(&late_left);
        claimed.again.extend(again_left.iter().map(|met| (met.row.lane, met.row.seq)));
        let reached = fresh_left.first().map_or(fresh.reached, |first| first.row.seq.saturating_sub(1));
        waiting.met = waiting_met;
        waiting.ended &= waiting_left.is_empty();

        let low = self.late.low(gate.tip, back.scan.as_ref(), Instant::now());
        let to_the_start = waiting.ended && claim.admission.is_none();
        for lane in lanes {
            let Stretch { from, to, .. } = Stretch::of(lane);
            let met = from.max(reached.min(to));
            let seq = lane.from.seq.max(met.min(low));
            let due = waiting.reached(lane.lease.lane, lane.from);
            let (due_at, due_seq) = if to_the_start { (Position::START.due_at, 0) } else { due };
            claimed
                .positions
                .push((lane.lease.lane, Position { seq, met, due_at, due_seq, ..Position::START }));
        }

        let met = || again.iter().chain(&fresh_met).chain(&waiting.met);
        let unwanted = returned.iter().filter(|met| met.verdict == Verdict::PassOver);
        let unwanted = unwanted.filter_map(|met| {
            let (lane, key) = met.key_of_lane()?;
            Some((hold::Key { lane, key: key.to_owned() }, met.row.seq))
        });
        let mut findings =
            Findings { unwanted: unwanted.collect(), empty: returning.empty, ..Findings::default() };
        met().for_each(|met| findings.add(met));
        let fresh_ended = reached >= gate.tip.min(furthest(lanes));
        claimed.more = !(again_left.is_empty() && fresh_ended && waiting.ended && returning_left.is_empty());
        claimed.more |= returning.more || back.scan.as_ref().is_some_and(|scan| !scan.ends_with(0));
        // What is parked behind a key that is free already is due as soon as it is parked.
        claimed.more |= met().any(|met| matches!(met.verdict, Verdict::Park { returning: true }));
        let turned = met().filter(|met| met.verdict == Verdict::Turn).map(|met| met.row.available_at);
        claimed.next_due = turned.chain(waiting.next_due).min().map(|due| due.since(gate.now));

        // Rows that wait are left out: no back scan reads them. And a claim up to a place leaves to the lanes' own claims what committed late.
        let met = again.iter().chain(&again_left).chain(&fresh_met).chain(&returned);
        let met = met.filter(|met| met.is_candidate() || !walks(lanes));
        let met = met.map(|met| (met.row.lane, met.row.seq)).collect();
        let lists = [again, fresh_met, waiting.met, returned];
        let events = lists.into_iter().flatten().filter(Met::is_candidate).collect();
        Chosen { events, findings, met, scan: back.scan }
    }
}

/// What a claim has decided.
struct Chosen {
    events: Vec<Met>,
    findings: Findings,
    /// All fresh rows that were met.
    met: Vec<(Lane, Seq)>,
    scan: Option<BackScan>,
}

fn is_ours(lanes: &[&LaneClaim], lane: Lane) -> bool {
    lanes.iter().any(|ours| ours.lease.lane == lane)
}

/// Whether the claim reads up to a place that others have come to.
fn walks(lanes: &[&LaneClaim]) -> bool {
    lanes.iter().any(|lane| lane.to < Seq::MAX)
}

/// The furthest place that any lane is to be read to.
fn furthest(lanes: &[&LaneClaim]) -> Seq {
    lanes.iter().map(|lane| lane.to).max().unwrap_or_default()
}

/// Makes events of what was chosen, in order, and reads what is heavy of those that came without it.
async fn read_heavy(
    reader: &Reader<'_>,
    conn: &mut MySqlConnection,
    mut chosen: Vec<Met>,
    events: &mut Vec<ClaimedEvent>,
) -> sqlx::Result<()> {
    chosen.sort_unstable_by_key(|met| met.row.seq);
    chosen.dedup_by_key(|met| met.row.seq);
    let heavy: Vec<Seq> =
        chosen.iter().filter(|met| met.row.cargo.is_none()).map(|met| met.row.seq).collect();
    let mut cargo: HashMap<Seq, _> = reader.cargo(conn, &heavy).await?.into_iter().collect();
    for Met { row, verdict, .. } in chosen {
        // Gone meanwhile: somebody else delivered it, so the lane was lost.
        let Some(cargo) = row.cargo.or_else(|| cargo.remove(&row.seq)) else { continue };
        events.push(ClaimedEvent {
            lane: row.lane,
            seq: row.seq,
            attempts: row.stored.attempts,
            held: matches!(verdict, Verdict::Return { held: true }),
            created_at: row.stored.created_at,
            event: row.stored.event(row.event_type, cargo),
        });
    }
    Ok(())
}
