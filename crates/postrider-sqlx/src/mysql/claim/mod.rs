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
    select::{Disposition, FreedKey, List, Rules, Selector},
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
    read::{Gate, Reader},
    scan::Row,
    waiting::Waiting,
    write::{Writer, Writes},
};
pub(super) use self::{forward::TypicalRow, late_commits::LateCommits};
use super::{
    hold::{self, Key},
    lease,
};
use crate::connections::LockedLanes;

/// Least number of rows that one statement may read.
const ROWS_MIN: usize = 128;

/// Least number of rows that a claim looks at where they may not be wanted.
const SCANNED_MIN: usize = 1000;

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

/// What was read, list by list.
struct Lists {
    recheck: Vec<Row>,
    fresh: Fresh,
    waiting: Waiting,
    /// Freed keys, and whether there are more of them.
    freed: (Vec<FreedKey<Row, Key>>, bool),
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
        let rules = Rules { now: gate.now, in_flight: &claim.in_flight };

        let lists = self.read(&reader, &rules, conn, &lanes, &gate, claim).await?;
        let chosen = self.choose(lists, rules, &lanes, &gate, claim, &mut claimed);
        read_heavy(&reader, conn, chosen.events, &mut claimed.events).await?;
        let Self { lease, hold, locked_lanes, .. } = self;
        let writer = Writer { sql: &self.sql.write, lease, hold, locked_lanes };
        writer.write(conn, &chosen.writes, lanes.iter().map(|lane| lane.lease), &mut claimed).await?;

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
        rules: &Rules<'_>,
        conn: &mut MySqlConnection,
        lanes: &[&LaneClaim],
        gate: &Gate,
        claim: &Claim,
    ) -> sqlx::Result<Lists> {
        // Of what may not be wanted, more is read than could be returned.
        let limit = if claim.admission.is_some() { claim.limit.max(SCANNED_MIN) } else { claim.limit };
        let numbers: Vec<Lane> = lanes.iter().map(|lane| lane.lease.lane).collect();
        let freed = match gate.returning {
            true => returning::read(reader, rules, conn, lanes, limit).await?,
            false => (Vec::new(), false),
        };
        let stretches: Vec<Stretch> = lanes.iter().map(|lane| Stretch::of(lane)).collect();
        let spread = u64::from(self.lanes).div_ceil(lanes.len() as u64).max(1);
        let rows_max = limit.saturating_mul(2).max(ROWS_MIN);
        let (typical, holds) = (self.typical, gate.holds);
        let wanted =
            Wanted { candidates_max: limit, bytes_max: claim.bytes, typical, rows_max, spread, holds };
        let look_back = (!is_bounded(lanes)).then(|| LookBack::new(self.late, lanes));
        let tip = look_back.as_ref().map_or(gate.tip, |look_back| look_back.end().min(gate.tip));
        let mut fresh = forward::read(reader, rules, conn, &stretches, tip, wanted).await?;
        let back = match look_back {
            Some(back) => {
                let (forward, now) = (fresh.places(gate.tip), Instant::now());
                let mut table = Table { reader, conn };
                back.look(&mut table, rules.in_flight, &forward, Limits::new(limit, spread), now).await?
            }
            None => {
                // What the lanes' own claims have not met is late, and comes there first.
                fresh.rows.retain(|row| self.late.is_met(row.seq));
                Back::NONE
            }
        };
        fresh.end_at(back.end);
        let mut recheck: Vec<Seq> = lanes.iter().flat_map(|lane| lane.again.iter().copied()).collect();
        recheck.extend(&back.late);
        recheck.sort_unstable();
        recheck.dedup();
        let mut recheck = reader.again(conn, &recheck).await?;
        recheck.retain(|row| numbers.contains(&row.lane));
        let waiting = match gate.waiting {
            true => waiting::read(reader, rules, conn, lanes, limit).await?,
            false => Waiting { ended: true, ..Waiting::default() },
        };
        Ok(Lists { recheck, fresh, waiting, freed, back })
    }

    /// Chooses what is returned, and notes where the next claim begins.
    fn choose(
        &self,
        lists: Lists,
        rules: Rules<'_>,
        lanes: &[&LaneClaim],
        gate: &Gate,
        claim: &Claim,
        claimed: &mut Claimed,
    ) -> Chosen {
        let Lists { recheck, fresh, waiting, freed: (freed, more_keys), mut back } = lists;
        let mut selector = Selector::new(claim, rules);
        let met_of = |number| lanes.iter().find(|lane| lane.lease.lane == number).map(|lane| lane.from.met);
        selector.freed(freed, |lane| met_of(lane).unwrap_or_default());
        if more_keys {
            selector.more_returns();
        }
        selector.recheck(recheck);
        selector.extend(List::Fresh, fresh.rows, true);
        selector.extend(List::Waiting, waiting.rows, true);
        _ = selector.run();
        let mut selection = selector.finish();

        // Late rows that did not fit are left to the back scan, which goes on with them.
        let given: HashSet<Seq> = lanes.iter().flat_map(|lane| lane.again.iter().copied()).collect();
        let (left, late_left): (Vec<Row>, Vec<Row>) =
            std::mem::take(&mut selection.recheck.left).into_iter().partition(|row| given.contains(&row.seq));
        back.met(&late_left);
        claimed.again.extend(left.iter().map(|row| (row.lane, row.seq)));
        let first_left = selection.fresh.left.first();
        let reached = first_left.map_or(fresh.reached, |first| first.seq.saturating_sub(1));

        let low = self.late.low(gate.tip, back.scan.as_ref(), Instant::now());
        let starts_over = waiting.ended && claim.admission.is_none();
        for lane in lanes {
            let Stretch { from, to, .. } = Stretch::of(lane);
            let met = from.max(reached.min(to));
            let seq = lane.from.seq.max(met.min(low));
            let (due_at, due_seq) = selection.waiting_from(lane.lease.lane, lane.from, starts_over);
            let position = Position { seq, met, due_at, due_seq, ..Position::START };
            claimed.positions.push((lane.lease.lane, position));
        }
        let fresh_ended = reached >= gate.tip.min(furthest(lanes));
        claimed.more = selection.more || !fresh_ended || !waiting.ended;
        claimed.more |= back.scan.as_ref().is_some_and(|scan| !scan.ends_with(0));
        let next_due = selection.next_due.into_iter().chain(waiting.next_due).min();
        claimed.next_due = next_due.map(|due| due.since(gate.now));

        // Rows that wait are left out: no back scan reads them. And a claim up to a place leaves to the lanes' own claims what committed late.
        let lists = [&selection.recheck, &selection.fresh, &selection.returning];
        let returned = |disposition| matches!(disposition, Disposition::Deliver { .. });
        let met = lists.into_iter().flat_map(|list| &list.met);
        let met = met.filter(|(_, disposition)| returned(*disposition) || !is_bounded(lanes));
        let met = met.map(|(row, _)| row).chain(&left).map(|row| (row.lane, row.seq)).collect();
        let writes = Writes::of(&mut selection);
        Chosen { events: selection.into_chosen().collect(), writes, met, scan: back.scan }
    }
}

/// What a claim has decided.
struct Chosen {
    /// What is returned, and whether its key is held.
    events: Vec<(Row, bool)>,
    writes: Writes,
    /// All fresh rows that were met.
    met: Vec<(Lane, Seq)>,
    scan: Option<BackScan>,
}

/// Whether the claim reads up to a place that others have reached.
fn is_bounded(lanes: &[&LaneClaim]) -> bool {
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
    mut chosen: Vec<(Row, bool)>,
    events: &mut Vec<ClaimedEvent>,
) -> sqlx::Result<()> {
    chosen.sort_unstable_by_key(|(row, _)| row.seq);
    chosen.dedup_by_key(|(row, _)| row.seq);
    let heavy: Vec<Seq> =
        chosen.iter().filter(|(row, _)| row.cargo.is_none()).map(|(row, _)| row.seq).collect();
    let mut cargo: HashMap<Seq, _> = reader.cargo(conn, &heavy).await?.into_iter().collect();
    for (row, held) in chosen {
        // Gone meanwhile: somebody else delivered it, so the lane was lost.
        let Some(cargo) = row.cargo.or_else(|| cargo.remove(&row.seq)) else { continue };
        events.push(ClaimedEvent {
            lane: row.lane,
            seq: row.seq,
            attempts: row.stored.attempts,
            held,
            created_at: row.stored.created_at,
            event: row.stored.event(row.event_type, cargo),
        });
    }
    Ok(())
}
