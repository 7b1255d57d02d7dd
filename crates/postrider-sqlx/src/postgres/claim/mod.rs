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
mod stream;
pub(super) mod watermarks;
mod write;

use std::collections::{BTreeMap, HashSet};

use postrider_core::{
    Timestamp,
    store::{Claim, Claimed, ClaimedEvent, Lane, LaneClaim, LateCommits, Position, Seq},
};
use sqlx::{PgConnection, Row};

use self::{
    history::Placed,
    look::{Cut, Freed, Look, RETURNING_KEYS_MAX, RETURNING_OF_A_KEY_MAX, Seen, State, Strays},
    quick::Reach,
    stream::Stream,
    watermarks::{Begun, Reached, TRANSACTIONS_MAX, Unfinished, Watermarks},
};
pub(super) use self::{
    history::WentBack,
    look::Scale,
    write::{Findings, Written},
};
use super::{
    row,
    statement::{Shape, Statement, integer, natural},
};
use crate::{
    choose::{Budget, Kind, Turns},
    connections::renewal::Locked,
};

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
    pub(super) findings: Vec<Findings>,
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

    if claim.lanes.iter().any(|lane| lane.to < Seq::MAX) {
        look.let_out();
    }
    let fresh_seen = look.fresh.len();
    let is_late = |seen: &&Seen| begun.cursor(seen.lane).is_some_and(|cursor| seen.seq <= cursor.front);
    let last_late = look.fresh.iter().rev().find(is_late).map(|seen| seen.seq);
    let cut = look.cut_fresh(begun);
    // Only now: they were among the rows that a lane was read for.
    let already: HashSet<Seq> = look.again.iter().map(|seen| seen.seq).collect();
    look.fresh.retain(|seen| !already.contains(&seen.seq));
    let fresh_full = cut != Cut::Nowhere;
    let strays = drawn.map_or(Strays::None, |drawn| look.set_strays_aside(drawn, fresh_full));
    let waiting_full = full_lanes(&look);
    look.waiting.retain(|seen| !already.contains(&seen.seq));
    let (returning, empty, mut more) = returning(claim, &mut look);

    // Those that are looked at once more lie below the fresh ones, so one after the other they are in order.
    let mut again = Stream::new(std::mem::take(&mut look.again));
    let mut fresh = Stream::new(std::mem::take(&mut look.fresh));
    let mut waiting = Stream::new(std::mem::take(&mut look.waiting));
    let mut returning = Stream::new(returning);
    let mut budget = Budget::new(claim.limit, claim.bytes);
    let oldest = again.oldest().min(fresh.oldest());
    let mut turns = Turns::new(oldest < waiting.oldest().min(returning.oldest()));
    let admission = claim.admission.as_deref();
    loop {
        let took = turns.order().into_iter().find(|kind| match kind {
            // What is looked at once more comes first, and what follows it must not overtake it.
            Kind::Fresh => {
                again.take(&mut budget, admission) || again.is_done() && fresh.take(&mut budget, admission)
            }
            Kind::Waiting => waiting.take(&mut budget, admission),
            Kind::Returning => returning.take(&mut budget, admission),
        });
        match took {
            Some(kind) => turns.took(kind),
            None => break,
        }
    }
    if !again.is_done() {
        fresh.stop();
    }
    claimed.again = again.left().map(|seen| (seen.lane, seen.seq)).collect();

    let streams = [&again, &fresh, &waiting];
    let parks_behind_freed = streams
        .iter()
        .flat_map(|stream| stream.met())
        .any(|seen| matches!(seen.state, State::Follower { returning: true }));
    // What is parked behind a key that is free already is due as soon as it is parked.
    more |= parks_behind_freed || streams.iter().any(|stream| !stream.is_done()) || !returning.is_done();
    let beyond = look.lanes.values().any(|lane| lane.beyond);
    more |= strays == Strays::Wait || fresh_full || beyond || !waiting_full.is_empty();
    claimed.more = more;

    let until = streams.iter().flat_map(|stream| stream.met()).filter(|seen| seen.state == State::Delayed);
    let until =
        until.map(|seen| seen.available_at).chain(look.lanes.values().filter_map(|lane| lane.next_due));
    claimed.next_due = until.min().map(|due| due.since(look.moment.now));

    let ends = Ends { fresh: &fresh, waiting: &waiting, cut, waiting_full };
    let met_to = ends.met_to();
    let met_all_late = look.late_end().is_none() && last_late.is_none_or(|last| last <= met_to);
    let reached = Reached {
        late: if met_all_late { Seq::MAX } else { met_to },
        forward: match begun.reads_forward() {
            false => 0,
            true if beyond => met_to.min(look.ceiling.unwrap_or(Seq::MAX)),
            true => met_to,
        },
        last: fresh.met().last().map_or(0, |seen| seen.seq),
    };
    let moved = watermarks.ended(begun, &look.moment, reached, |lane| look.lanes.contains_key(&lane));
    claimed.positions = ends.positions(claim, reached, moved);
    claimed.more |= !begun.reads_forward();
    claimed.more |= claimed.positions.iter().any(|(_, position)| position.late.rescan.is_under_way());
    if !begun.is_bounded() {
        // Where a stray was met, or a scan goes on, the next claim has to seek each lane.
        let to = (strays == Strays::None && begun.reads_forward()).then_some(reached.forward);
        watermarks.note_end(&claimed.positions, to, (fresh_seen, look.limits.fresh), claimed.more);
    }

    let mut unread = BTreeMap::new();
    for seen in streams.iter().flat_map(|stream| stream.taken()).chain(returning.taken()) {
        match look.read.remove(&seen.seq) {
            Some(event) => claimed.events.push(event),
            None => {
                unread.insert(seen.seq, seen.held);
            }
        }
    }
    let findings = write::find(claim, &look, &streams, &returning, &empty);
    Chosen { claimed, unread, findings }
}

/// The lanes that had more waiting rows than were looked at, with the last of those.
fn full_lanes(look: &Look) -> HashSet<Lane> {
    let mut counts: BTreeMap<Lane, usize> = BTreeMap::new();
    look.waiting.iter().for_each(|seen| *counts.entry(seen.lane).or_default() += 1);
    counts
        .into_iter()
        .filter(|(_, count)| *count >= look.limits.waiting_of_a_lane)
        .map(|(lane, _)| lane)
        .collect()
}

/// What comes back because its key is free again, the holds that nothing is left behind of, and whether more is behind them.
///
/// Beyond what was met something unparked of a key may come first, so nothing comes back from there; nor while a given-back
/// follower of the same key is about to be parked, which may be the first of what does.
fn returning(claim: &Claim, look: &mut Look) -> (Vec<Seen>, Vec<Freed>, bool) {
    let met: BTreeMap<Lane, Seq> = claim.lanes.iter().map(|lane| (lane.lease.lane, lane.from.met)).collect();
    let more_keys = look.returning.len() > RETURNING_KEYS_MAX;
    let (mut rows, mut empty, mut more) = (Vec::new(), Vec::new(), false);
    let parking = look.again.iter().filter(|seen| seen.state == State::Follower { returning: true });
    let parking: HashSet<(Lane, &str)> = parking.filter_map(|seen| Some((seen.lane, seen.key()?))).collect();
    for mut freed in std::mem::take(&mut look.returning).into_iter().take(RETURNING_KEYS_MAX) {
        if freed.parked.is_empty() {
            empty.push(freed);
            continue;
        }
        if parking.contains(&(freed.lane, freed.key.as_str())) {
            more = true;
            continue;
        }
        let met = met.get(&freed.lane).copied().unwrap_or_default();
        let left = freed.parked.len() > RETURNING_OF_A_KEY_MAX;
        let before = rows.len();
        freed.parked.truncate(RETURNING_OF_A_KEY_MAX);
        rows.extend(freed.parked.into_iter().filter(|seen| seen.state == State::Due && seen.seq <= met));
        // What stands behind events that are all in memory already is not due: the next settle makes it so.
        more |= left && rows.len() > before;
    }
    more |= more_keys && !rows.is_empty();
    (rows, empty, more)
}

/// How far the reads of a claim came.
struct Ends<'a> {
    fresh: &'a Stream,
    waiting: &'a Stream,
    cut: Cut,
    /// The lanes that had as many waiting rows as a look may see.
    waiting_full: HashSet<Lane>,
}

impl Ends<'_> {
    /// Up to where the fresh rows were met; [`Seq::MAX`] if all were.
    fn met_to(&self) -> Seq {
        match self.cut {
            Cut::Nowhere if self.fresh.is_done() => Seq::MAX,
            Cut::BehindTheLate(end) if self.fresh.is_done() => end,
            _ => self.fresh.met().last().map_or(0, |last| last.seq),
        }
    }

    /// Where each lane stands now, with the watermarks as they have moved.
    fn positions(
        &self,
        claim: &Claim,
        reached: Reached,
        moved: Vec<(Lane, Seq, LateCommits)>,
    ) -> Vec<(Lane, Position)> {
        let last_of =
            |rows: &Stream| rows.met().map(|seen| (seen.lane, (seen.available_at, seen.seq))).collect();
        let last_waiting: BTreeMap<Lane, (Timestamp, Seq)> = last_of(self.waiting);
        // Back to the start only when all lanes are through: a lane that went back alone would return its rows, which the
        // engine has, over and over in front of the longer ones.
        let round = self.waiting.is_done() && self.waiting_full.is_empty() && claim.admission.is_none();
        let was: BTreeMap<Lane, &LaneClaim> =
            claim.lanes.iter().map(|lane| (lane.lease.lane, lane)).collect();
        let position = |(number, seq, late): (Lane, Seq, LateCommits)| {
            let lane = was.get(&number)?;
            let ended = reached.forward == Seq::MAX && !late.rescan.is_under_way();
            let met = if ended { lane.to } else { seq };
            let (due_at, due_seq) = match last_waiting.get(&number) {
                _ if round => (Position::START.due_at, Position::START.due_seq),
                Some(last) => *last,
                None => (lane.from.due_at, lane.from.due_seq),
            };
            Some((number, Position { seq, met: met.max(lane.from.met), due_at, due_seq, late }))
        };
        moved.into_iter().filter_map(position).collect()
    }
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
    findings: &[Findings],
    locked: Locked,
) -> sqlx::Result<Written> {
    write::write(&sql.write, leases, conn, findings, locked).await
}
