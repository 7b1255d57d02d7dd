//! Claiming: look at what is due, choose, read what is heavy, and write down what was met on the way.
//!
//! The reads are statements of their own, without locks, in an order that makes them add up: what comes back is read before
//! what is new, so that nothing which was parked meanwhile is overtaken, and what was passed by is looked for after it. Whatever the engine settles while a claim runs, it
//! knows; and nobody else changes the events of a lane. The writing is a transaction under the lane's token, and asks
//! again whether its reasons still hold.

mod forward;
mod memory;
mod queues;
mod read;
mod returning;
mod scan;
mod waiting;
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

pub(super) use self::memory::Memory;
use self::{
    forward::{Fresh, Stretch, Wanted},
    memory::Look,
    queues::{Queue, Queues},
    read::{Gate, Reader},
    returning::Returning,
    scan::{Judge, Met, Verdict},
    waiting::Waiting,
    write::{Findings, Writer},
};
use super::{hold, lease};
use crate::choose::Budget;

/// Least number of rows that one statement may read.
const ROWS_MIN: usize = 128;

/// Least number of rows that a claim looks at where they may not be wanted.
const GLANCED_MIN: usize = 1000;

/// Most rows that one statement of a look back reads, of the index alone.
const LOOK_BACK_MAX: usize = 50_000;

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
    pub(super) memory: &'a Memory,
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

/// What a look back has found.
#[derive(Default)]
struct Back {
    late: Vec<Seq>,
    /// The lanes that were looked at.
    lanes: Vec<Lease>,
    look: Option<Look>,
}

impl Claiming<'_> {
    /// Reads due events of the lanes that one holds.
    pub(super) async fn claim(&self, conn: &mut MySqlConnection, claim: &Claim) -> sqlx::Result<Claimed> {
        let rows_max = claim.limit.saturating_mul(2).max(ROWS_MIN);
        // With an admission most of what is met may not be wanted: look first, and read what was chosen.
        let inline_bytes_max = if claim.admission.is_some() { 0 } else { claim.bytes / rows_max };
        let reader = Reader { sql: &self.sql.read, inline_bytes_max };
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

        let lists = self.read(&reader, &judge, conn, &lanes, &gate, claim.limit).await?;
        let chosen = self.choose(lists, &judge, &lanes, &gate, claim, &mut claimed);
        read_heavy(&reader, conn, chosen.events, &mut claimed.events).await?;
        let writer = Writer { sql: &self.sql.write, lease: self.lease, hold: self.hold };
        writer.write(conn, &chosen.findings, lanes.iter().map(|lane| lane.lease), &mut claimed).await?;

        let lost = &claimed.lost;
        claimed.events.retain(|event| !lost.contains(&event.lane));
        claimed.positions.retain(|(lane, _)| !lost.contains(lane));
        claimed.again.retain(|(lane, _)| !lost.contains(lane));
        // At the very end: a claim that failed has met nothing, and has not looked.
        let met = chosen.met.into_iter().filter(|(lane, _)| !lost.contains(lane)).map(|(_, seq)| seq);
        let looked = chosen.back.lanes.into_iter().filter(|lease| !lost.contains(&lease.lane));
        self.memory.succeeded(met, looked, chosen.back.look);
        Ok(claimed)
    }

    async fn read(
        &self,
        reader: &Reader<'_>,
        judge: &Judge<'_>,
        conn: &mut MySqlConnection,
        lanes: &[&LaneClaim],
        gate: &Gate,
        limit: usize,
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
        let wanted = Wanted { candidates_max: limit, rows_max, spread, holds: gate.holds };
        let fresh = forward::read(reader, judge, conn, &stretches, gate.tip, wanted).await?;
        let mut again: Vec<Seq> = lanes.iter().flat_map(|lane| lane.again.iter().copied()).collect();
        // After what is new was read: whoever committed before that was inserted is seen now.
        let back = self.look_back(reader, judge, conn, lanes, gate, &fresh).await?;
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
        if lanes.iter().any(|lane| lane.to < Seq::MAX) {
            let Lists { again, fresh, waiting, returning, .. } = &mut lists;
            let met = again.iter_mut().chain(&mut fresh.met).chain(&mut waiting.met);
            met.for_each(|met| returning.let_out(met));
        }
        Ok(lists)
    }

    /// The rows that no claim has met though claims have passed by: their transactions have committed since.
    async fn look_back(
        &self,
        reader: &Reader<'_>,
        judge: &Judge<'_>,
        conn: &mut MySqlConnection,
        lanes: &[&LaneClaim],
        gate: &Gate,
        fresh: &Fresh,
    ) -> sqlx::Result<Back> {
        let began = Instant::now();
        let passed: Vec<&LaneClaim> =
            lanes.iter().copied().filter(|lane| lane.from.seq < lane.from.met).collect();
        let quiet = lanes.iter().all(|lane| lane.from.met >= gate.tip);
        let newest = fresh.met.iter().map(|met| met.row.stored.created_at).max();
        let leases = || passed.iter().map(|lane| lane.lease);
        if !self.memory.wants_look(leases(), quiet, newest, began) {
            return Ok(Back::default());
        }
        let was_passed = |&(lane, seq): &(Lane, Seq)| {
            let of_lane = passed.iter().find(|passed| passed.lease.lane == lane);
            of_lane.is_some_and(|lane| seq > lane.from.seq && seq <= lane.from.met)
                && !judge.is_in_flight(seq)
        };
        let late_of =
            |rows: Vec<_>| self.memory.late(rows.into_iter().filter(was_passed).map(|(_, seq)| seq));
        let all: Vec<Lane> = passed.iter().map(|lane| lane.lease.lane).collect();
        let after = passed.iter().map(|lane| lane.from.seq).min().unwrap_or_default();
        let to = passed.iter().map(|lane| lane.from.met).max().unwrap_or_default();
        let rows = reader.look_back(conn, &all, (after, to), LOOK_BACK_MAX).await?;
        let mut late = Vec::new();
        if rows.len() < LOOK_BACK_MAX {
            late = late_of(rows);
        } else {
            // Which rows were left out depends on their lanes, so each is asked alone, until it has no more.
            for LaneClaim { lease, from, .. } in &passed {
                let mut after = from.seq;
                loop {
                    let rows =
                        reader.look_back(conn, &[lease.lane], (after, from.met), LOOK_BACK_MAX).await?;
                    let was_full = rows.len() >= LOOK_BACK_MAX;
                    after = rows.iter().map(|(_, seq)| *seq).max().unwrap_or(from.met);
                    late.extend(late_of(rows));
                    if !was_full {
                        break;
                    }
                }
            }
        }
        let look = Look { at: gate.now, began, ended: Instant::now() };
        Ok(Back { late, lanes: leases().collect(), look: Some(look) })
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
        let Lists { again, fresh, mut waiting, mut returning, back } = lists;
        // What is about to be parked behind a key that comes back may be the first of what does: the next claim sees it.
        if again.iter().any(|met| matches!(met.verdict, Verdict::Park { returning: true })) {
            returning.more |= !returning.met.is_empty();
            returning.met.clear();
        }
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
        claimed.again.extend(again_left.iter().map(|met| (met.row.lane, met.row.seq)));
        let reached = fresh_left.first().map_or(fresh.reached, |first| first.row.seq.saturating_sub(1));
        waiting.met = waiting_met;
        waiting.ended &= waiting_left.is_empty();

        let low = self.memory.low(gate.tip, Instant::now());
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
        let mut findings = Findings {
            unwanted: unwanted.map(|met| (met.row.lane, met.row.seq)).collect(),
            empty: returning.empty,
            ..Findings::default()
        };
        met().for_each(|met| findings.add(met));
        let fresh_ended = reached >= gate.tip.min(furthest(lanes));
        claimed.more = !(again_left.is_empty() && fresh_ended && waiting.ended && returning_left.is_empty());
        claimed.more |= returning.more;
        // What is parked behind a key that is free already is due as soon as it is parked.
        claimed.more |= met().any(|met| matches!(met.verdict, Verdict::Park { returning: true }));
        let turned = met().filter(|met| met.verdict == Verdict::Turn).map(|met| met.row.available_at);
        claimed.next_due = turned.chain(waiting.next_due).min().map(|due| due.since(gate.now));

        // Rows that wait are left out: nobody looks back for them.
        let met = again
            .iter()
            .chain(&again_left)
            .chain(&fresh_met)
            .chain(&returned)
            .map(|met| (met.row.lane, met.row.seq))
            .collect();
        let lists = [again, fresh_met, waiting.met, returned];
        let events = lists.into_iter().flatten().filter(Met::is_candidate).collect();
        Chosen { events, findings, met, back }
    }
}

/// What a claim has decided.
struct Chosen {
    events: Vec<Met>,
    findings: Findings,
    /// All fresh rows that were met.
    met: Vec<(Lane, Seq)>,
    back: Back,
}

fn is_ours(lanes: &[&LaneClaim], lane: Lane) -> bool {
    lanes.iter().any(|ours| ours.lease.lane == lane)
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
    let is_light = |met: &Met| met.row.stored.came_whole(reader.inline_bytes_max);
    let heavy: Vec<Seq> = chosen.iter().filter(|met| !is_light(met)).map(|met| met.row.seq).collect();
    let mut cargo: HashMap<Seq, _> = reader.cargo(conn, &heavy).await?.into_iter().collect();
    for met in chosen {
        let light = is_light(&met);
        let Met { row, verdict, .. } = met;
        let cargo = match light {
            true => Some(row.cargo),
            // Gone meanwhile: somebody else delivered it, so the lane was lost.
            false => cargo.remove(&row.seq),
        };
        let Some(cargo) = cargo else { continue };
        events.push(ClaimedEvent {
            lane: row.lane,
            seq: row.seq,
            attempts: row.stored.attempts,
            held: matches!(verdict, Verdict::Return { held: true }),
            created_at: row.stored.created_at,
            event: row.stored.event(cargo),
        });
    }
    Ok(())
}
