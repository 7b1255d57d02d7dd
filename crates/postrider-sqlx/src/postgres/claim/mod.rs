//! Claiming: look at what is due, choose, read what was not read yet, and write down what was met on the way.
//!
//! The look is one statement and brings the payloads of fresh events with it, so that the common claim is a single round trip; where
//! nothing waits or comes back it is a cheaper one (`quick`), and the cheapest where the outbox is idle (`idle`). Payloads of other events, and of all where a claim is told which rows
//! are wanted, are read by a second one when it is known which of them come. The writing is a transaction of its own, under the lanes'
//! tokens, and asks again whether its reasons still hold.

mod history;
mod idle;
mod look;
#[cfg(test)]
mod model;
mod moment;
mod quick;
mod snapshot;
pub(super) mod watermarks;
mod write;

use std::collections::{BTreeMap, HashSet};

use postrider_core::{
    select::{List, Rules, Selection, Selector},
    store::{Claim, Claimed, ClaimedEvent, Lane, LaneClaim, LateCommits, Position, Seq},
};
use sqlx::{PgConnection, Row};

use self::{
    history::Placed,
    look::{Cut, Look, Seen, Strays},
    quick::Reach,
    watermarks::{Begun, Reached, TRANSACTIONS_MAX, Unfinished, Watermarks},
};
pub(super) use self::{
    history::WentBack,
    look::Scale,
    write::{Writes, Written},
};
use super::{
    row,
    statement::{Shape, Statement, integer, natural},
};
use crate::connections::renewal::Locked;

/// At most $4 transactions that lie between the ends of two snapshots and have inserted something up to $3 into the lanes $5.
const LATE: &str = "
    SELECT e.written_in::text::bigint FROM (
        SELECT DISTINCT e.written_in FROM {p}event AS e
        WHERE e.written_in >= (SELECT pg_snapshot_xmax($1::text::pg_snapshot))
          AND e.written_in < (SELECT pg_snapshot_xmax($2::text::pg_snapshot))
          AND e.seq <= $3 AND e.status = 0 AND NOT e.parked AND e.lane = ANY ($5::integer[])
        ORDER BY e.written_in LIMIT $4) AS e";

/// The statements of this folder.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) idle: Placed,
    pub(super) quick: Placed,
    pub(super) look: Placed,
    pub(super) read: Statement,
    pub(super) write: write::Statements,
    /// Names the transactions that a scan of several claims is about.
    pub(super) late: Statement,
    /// Fails where the position of the log may not be asked for.
    pub(super) probe: Statement,
}

impl Statements {
    pub(super) fn new(shape: &Shape) -> Self {
        let read = "SELECT NULL, e.lane, e.seq, e.status, e.available_at, e.created_at, NULL, NULL, NULL, {key} AS key,
                           e.event_type, e.aggregate_type, NULL, e.attempts, e.event_id, e.aggregate_id, e.ordering_key,
                           e.tenant_id, e.content_type, e.occurred_at, {sizes},
                           {headers} AS headers, {payload} AS payload, {payload_bytes} AS payload_bytes
                    FROM {p}event AS e WHERE e.seq = ANY ($1::bigint[]) AND e.status IN (0, 2)";
        Self {
            idle: idle::statement(shape),
            quick: quick::statement(shape),
            look: look::statement(shape),
            read: Statement::new(&row::spell(read), shape),
            write: write::Statements::new(shape),
            late: Statement::new(LATE, shape),
            probe: Statement::new(history::PROBE, shape),
        }
    }
}

/// A claim that has looked and chosen.
pub(super) struct Chosen {
    pub(super) claimed: Claimed,
    /// What comes and was not read yet, and whether its key is held.
    pub(super) unread: BTreeMap<Seq, bool>,
    /// What has to be written; of a usual claim nothing.
    pub(super) writes: Option<Writes>,
}

/// Looks at all lanes at once: in the cheapest way that is enough for what is there.
pub(super) async fn look(
    sql: &Statements,
    conn: &mut PgConnection,
    claim: &Claim,
    begun: &Begun<'_>,
    scale: Scale,
) -> sqlx::Result<Look> {
    if idle::is_likely(claim, begun, scale)
        && let Some(look) = idle::look(&sql.idle, conn, claim, begun, scale).await?
    {
        return Ok(look);
    }
    if let Some(reach) = Reach::of(claim, begun, scale.lanes)
        && let Some(look) = quick::look(&sql.quick, conn, claim, begun, (reach, scale)).await?
    {
        return Ok(look);
    }
    look::look(&sql.look, conn, claim, begun, scale).await
}

/// Whether the database has gone back in time. If it has, nothing that was seen counts, and all that was remembered is forgotten.
pub(super) fn notice(watermarks: &mut Watermarks, begun: &Begun<'_>, look: &Look) -> Option<WentBack> {
    watermarks.notice(begun, &look.moment)
}

/// Chooses from what was seen, fairly, and says where each lane stands now. `drawn` is the last number that the sequence is known to have given.
pub(super) fn choose(
    watermarks: &mut Watermarks,
    claim: &Claim,
    begun: &Begun<'_>,
    mut look: Look,
    drawn: Option<Seq>,
) -> Chosen {
    let mut claimed = Claimed { now: look.moment.now, ..Claimed::default() };
    let is_lost = |lane: &Lane| !look.lanes.contains_key(lane);
    claimed.lost = claim.lanes.iter().map(|lane| lane.lease.lane).filter(is_lost).collect();

    let fresh_seen = look.fresh.len();
    let is_late = |seen: &&Seen| begun.cursor(seen.lane()).is_some_and(|cursor| seen.seq() <= cursor.front);
    let last_late = look.fresh.iter().rev().find(is_late).map(Seen::seq);
    let cut = look.cut_fresh(begun);
    // Only now: they were among the rows that a lane was read for.
    let already: HashSet<Seq> = look.again.iter().map(Seen::seq).collect();
    look.fresh.retain(|seen| !already.contains(&seen.seq()));
    let fresh_full = cut != Cut::Nowhere;
    let strays = drawn.map_or(Strays::None, |drawn| look.set_strays_aside(drawn, fresh_full));
    let waiting_full = full_lanes(&look);

    let mut selector = Selector::new(claim, Rules { now: look.moment.now, in_flight: &claim.in_flight });
    let met: BTreeMap<Lane, Seq> = claim.lanes.iter().map(|lane| (lane.lease.lane, lane.from.met)).collect();
    selector.freed(std::mem::take(&mut look.freed), |lane| met.get(&lane).copied().unwrap_or_default());
    selector.recheck(std::mem::take(&mut look.again));
    selector.extend(List::Fresh, std::mem::take(&mut look.fresh), true);
    selector.extend(List::Waiting, std::mem::take(&mut look.waiting), true);
    _ = selector.run();
    let mut selection = selector.finish();

    claimed.again = selection.recheck_left().collect();
    let beyond = look.lanes.values().any(|lane| lane.beyond);
    claimed.more =
        selection.more || strays == Strays::Wait || fresh_full || beyond || !waiting_full.is_empty();
    let until = selection.next_due.into_iter().chain(look.lanes.values().filter_map(|lane| lane.next_due));
    claimed.next_due = until.min().map(|due| due.since(look.moment.now));

    let last = selection.fresh.last().map_or(0, Seen::seq);
    let met_to = match cut {
        Cut::Nowhere if selection.fresh.is_done => Seq::MAX,
        Cut::BehindTheLate(end) if selection.fresh.is_done => end,
        _ => last,
    };
    let met_all_late = look.late_end().is_none() && last_late.is_none_or(|last| last <= met_to);
    let reached = Reached {
        late: if met_all_late { Seq::MAX } else { met_to },
        forward: match begun.reads_forward() {
            false => 0,
            true if beyond => met_to.min(look.ceiling.unwrap_or(Seq::MAX)),
            true => met_to,
        },
        last,
    };
    let moved = watermarks.ended(begun, &look.moment, reached, |lane| look.lanes.contains_key(&lane));
    let starts_over = waiting_full.is_empty() && claim.admission.is_none();
    claimed.positions = positions(claim, &selection, reached, moved, starts_over);
    claimed.more |= !begun.reads_forward();
    claimed.more |= claimed.positions.iter().any(|(_, position)| position.late.rescan.is_under_way());
    if !begun.is_bounded() {
        // Where a stray was met, or a scan goes on, the next claim has to seek each lane.
        let to = (strays == Strays::None && begun.reads_forward()).then_some(reached.forward);
        watermarks.note_end(&claimed.positions, to, (fresh_seen, look.limits.fresh), claimed.more);
    }

    let writes = Writes::of(claim, &mut selection, &look);
    let mut unread = BTreeMap::new();
    for (seen, held) in selection.into_chosen() {
        match look.read.remove(&seen.seq()) {
            Some(event) => claimed.events.push(event),
            None => _ = unread.insert(seen.seq(), held),
        }
    }
    Chosen { claimed, unread, writes }
}

/// The lanes that had more waiting rows than were looked at, with the last of those.
fn full_lanes(look: &Look) -> HashSet<Lane> {
    let mut counts: BTreeMap<Lane, usize> = BTreeMap::new();
    look.waiting.iter().for_each(|seen| *counts.entry(seen.lane()).or_default() += 1);
    counts
        .into_iter()
        .filter(|(_, count)| *count >= look.limits.waiting_of_a_lane)
        .map(|(lane, _)| lane)
        .collect()
}

/// Where each lane stands now, with the watermarks as they have moved.
fn positions(
    claim: &Claim,
    selection: &Selection<Seen, String>,
    reached: Reached,
    moved: Vec<(Lane, Seq, LateCommits)>,
    starts_over: bool,
) -> Vec<(Lane, Position)> {
    let was: BTreeMap<Lane, &LaneClaim> = claim.lanes.iter().map(|lane| (lane.lease.lane, lane)).collect();
    let position = |(number, seq, late): (Lane, Seq, LateCommits)| {
        let lane = was.get(&number)?;
        let ended = reached.forward == Seq::MAX && !late.rescan.is_under_way();
        let met = if ended { lane.to } else { seq };
        let (due_at, due_seq) = selection.waiting_from(number, lane.from, starts_over);
        Some((number, Position { seq, met: met.max(lane.from.met), due_at, due_seq, late }))
    };
    moved.into_iter().filter_map(position).collect()
}

/// Reads the events that were chosen without having been read.
pub(super) async fn read(
    sql: &Statements,
    conn: &mut PgConnection,
    unread: &BTreeMap<Seq, bool>,
) -> sqlx::Result<Vec<ClaimedEvent>> {
    let seqs: Vec<i64> = unread.keys().map(|seq| integer(*seq)).collect();
    let mut events = Vec::with_capacity(seqs.len());
    for row in sql.read.query().bind(seqs).fetch_all(conn).await? {
        let held = unread.get(&natural(row.try_get(row::column::SEQ)?)).copied().unwrap_or_default();
        events.push(row::claimed(&row, held)?);
    }
    Ok(events)
}

/// The transactions beyond the end of a snapshot that a scan of several claims is about.
pub(super) async fn late_transactions(
    sql: &Statements,
    conn: &mut PgConnection,
    scan: &Unfinished,
) -> sqlx::Result<Vec<i64>> {
    let query = sql.late.query().bind(scan.since.snapshot.text().to_owned());
    let query = query.bind(scan.to.snapshot.text().to_owned()).bind(integer(scan.front));
    let query = query.bind(integer(TRANSACTIONS_MAX + 1)).bind(scan.lanes.clone());
    let rows = query.fetch_all(conn).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Asks for the position of the log.
pub(super) async fn probe(sql: &Statements, conn: &mut PgConnection) -> sqlx::Result<()> {
    sql.probe.query().execute(conn).await.map(|_| ())
}

/// Writes what was found; see [`write::write`].
pub(super) async fn write(
    sql: &Statements,
    leases: &super::lease::Statements,
    conn: &mut PgConnection,
    writes: &Writes,
    locked: Locked,
) -> sqlx::Result<Written> {
    write::write(&sql.write, leases, conn, writes, locked).await
}
