//! Claiming: look at what is due, choose, read what was not read yet, and write down what was met on the way.
//!
//! The look is one statement and brings the payloads of fresh events with it, so that the common claim is a single round trip; where
//! nothing waits or comes back it is a cheaper one (`quick`), and the cheapest where the outbox is idle (`idle`). Payloads of other events, and of all where a claim is told which rows
//! are wanted, are read by a second one when it is known which of them come. The writing is a transaction of its own, under the lanes'
//! tokens, and asks again whether its reasons still hold.

mod history;
mod horizons;
mod idle;
mod look;
mod quick;
mod sight;
mod stream;
pub(super) mod trail;
mod write;

use std::{
    collections::{BTreeMap, HashSet},
    time::Instant,
};

use postrider_core::{
    Timestamp,
    store::{Claim, Claimed, ClaimedEvent, Lane, LaneClaim, Position, Seq, Trail},
};
use sqlx::{PgConnection, Row};

use self::{
    history::Placed,
    idle::Idle,
    look::{Cursor, Freed, Look, RETURNING_KEYS_MAX, RETURNING_OF_A_KEY_MAX, Seen, State},
    quick::Reach,
    stream::Stream,
    trail::{Begun, Looks, Met},
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

/// The statements of this folder.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) idle: Placed,
    pub(super) quick: Placed,
    pub(super) look: Placed,
    pub(super) read: Statement,
    pub(super) write: write::Statements,
    /// Draws a transaction id.
    pub(super) horizon: Statement,
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
            horizon: Statement::new(write::WHOAMI, shape),
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

/// Decides where a claim reads from.
pub(super) fn begin(looks: &Looks, claim: &Claim) -> Begun {
    looks.begin(claim.lanes.iter(), Instant::now())
}

/// Where it begins instead, if what was seen demands a scan behind the front that was not made.
pub(super) fn begin_behind(looks: &Looks, claim: &Claim, begun: &Begun, look: &Look) -> Option<Begun> {
    if look.is_unscanned() { looks.begin_behind(claim.lanes.iter(), begun) } else { None }
}

/// Whether the database has gone back in time. If it has, nothing that was seen counts, and all that was remembered is forgotten.
pub(super) fn notice(looks: &mut Looks, begun: &Begun, look: &Look) -> Option<WentBack> {
    looks.notice(begun, &look.sight)
}

/// Looks at all lanes at once: in the cheapest way that is enough for what is there.
pub(super) async fn look(
    sql: &Statements,
    conn: &mut PgConnection,
    claim: &Claim,
    begun: &Begun,
    scale: Scale,
) -> sqlx::Result<Look> {
    let lanes = claim.lanes.iter();
    let cursors = lanes.map(|lane| {
        let (scans_from, front) = (begun.scans_from(&lane.from), trail::front(&lane.from));
        Cursor { lane, scans_from, front }
    });
    let cursors: Vec<Cursor<'_>> = cursors.collect();
    if let Some(idle) = Idle::of(claim, begun, &cursors, scale.lanes)
        && let Some(look) =
            idle::look(&sql.idle, conn, claim, &cursors, begun.behind.as_ref(), (idle, scale)).await?
    {
        return Ok(look);
    }
    let behind = (begun.behind.as_ref(), begun.bound.as_deref());
    if let Some(reach) = Reach::of(claim, begun, scale.lanes)
        && let Some(look) = quick::look(&sql.quick, conn, claim, &cursors, behind, (reach, scale)).await?
    {
        return Ok(look);
    }
    look::look(&sql.look, conn, claim, &cursors, behind, scale).await
}

/// Chooses from what was seen, fairly, and says where each lane stands now. `drawn` is the last number that the sequence is known to have given.
pub(super) fn choose(
    looks: &mut Looks,
    claim: &Claim,
    begun: &Begun,
    mut look: Look,
    drawn: Option<Seq>,
) -> Chosen {
    let mut claimed = Claimed { now: look.sight.now, ..Claimed::default() };
    let is_lost = |lane: &Lane| !look.lanes.contains_key(lane);
    claimed.lost = claim.lanes.iter().map(|lane| lane.lease.lane).filter(is_lost).collect();

    if claim.lanes.iter().any(|lane| lane.to < Seq::MAX) {
        look.let_out();
    }
    let already: HashSet<Seq> = look.again.iter().map(|seen| seen.seq).collect();
    look.fresh.retain(|seen| !already.contains(&seen.seq));
    let fresh_seen = look.fresh.len();
    let waits = look.wait_for_scan();
    let held_back = if begun.under_way { look.hold_back() } else { None };
    let held_back = held_back.or(waits);
    let fresh_full = look.cut_fresh();
    let strays_wait =
        drawn.is_some_and(|drawn| look.set_strays_aside(drawn, fresh_full || held_back.is_some()));
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
    more |= strays_wait || fresh_full || held_back.is_some() || beyond || !waiting_full.is_empty();
    claimed.more = more;

    let until = streams.iter().flat_map(|stream| stream.met()).filter(|seen| seen.state == State::Delayed);
    let until =
        until.map(|seen| seen.available_at).chain(look.lanes.values().filter_map(|lane| lane.next_due));
    claimed.next_due = until.min().map(|due| due.since(look.sight.now));

    let number = looks.saw(&look.sight, begun, more);
    let ends = Ends { fresh: &fresh, waiting: &waiting, fresh_full, held_back, waiting_full };
    claimed.positions = ends.positions(claim, &look, |was, met| looks.next(was, met, begun, number));
    let reached = if beyond { ends.reached(&look) } else { ends.reached_of_seen() };
    let left = fresh_full || held_back.is_some() || !fresh.is_done();
    looks.ended(&claimed.positions, reached, (fresh_seen, look.limits.fresh), left);
    let held = claim.lanes.iter().filter(|lane| look.lanes.contains_key(&lane.lease.lane));
    looks.learn(held.map(|lane| &lane.from).zip(claimed.positions.iter().map(|(_, position)| position)));
    looks.take_turns(begun, &claimed.positions, fresh.met().next().is_some());
    claimed.more |= claimed.positions.iter().any(|(_, position)| position.trail.rescan.is_under_way());

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
    /// Whether there were as many fresh rows as a look may see.
    fresh_full: bool,
    /// The first row of the forward reads that has to wait.
    held_back: Option<Seq>,
    /// The lanes that had as many waiting rows as a look may see.
    waiting_full: HashSet<Lane>,
}

impl Ends<'_> {
    /// Up to where the fresh rows that were seen were met; [`Seq::MAX`] if all were.
    fn met_to(&self) -> Seq {
        match self.fresh.met().last() {
            _ if !self.fresh_full && self.fresh.is_done() => Seq::MAX,
            Some(last) => last.seq,
            None => 0,
        }
    }

    /// Up to where those were met that were not held back.
    fn reached_of_seen(&self) -> Seq {
        self.held_back.map_or(Seq::MAX, |first| first - 1).min(self.met_to())
    }

    /// Up to where the fresh rows of all lanes were met.
    fn reached(&self, look: &Look) -> Seq {
        self.reached_of_seen().min(look.ceiling.unwrap_or(Seq::MAX))
    }

    /// Up to where all that was scanned behind the forward reads was met.
    fn scanned_to(&self, look: &Look) -> Seq {
        self.met_to().min(look.scan_ceiling.unwrap_or(Seq::MAX))
    }

    /// Where each lane stands now, with the marks as `next` moves them.
    fn positions(
        &self,
        claim: &Claim,
        look: &Look,
        next: impl Fn(&Position, Met) -> (Seq, Trail),
    ) -> Vec<(Lane, Position)> {
        let (cut, scanned_to) = (self.reached_of_seen() < Seq::MAX, self.scanned_to(look));
        let last_of =
            |rows: &Stream| rows.met().map(|seen| (seen.lane, (seen.available_at, seen.seq))).collect();
        let last_fresh: BTreeMap<Lane, (Timestamp, Seq)> = last_of(self.fresh);
        let last_waiting: BTreeMap<Lane, (Timestamp, Seq)> = last_of(self.waiting);
        // Back to the start only when all lanes are through: a lane that went back alone would return its rows, which the
        // engine has, over and over in front of the longer ones.
        let round = self.waiting.is_done() && self.waiting_full.is_empty() && claim.admission.is_none();
        let fronts = claim.lanes.iter().map(|lane| trail::front(&lane.from));
        let furthest = fronts.chain(last_fresh.values().map(|(_, seq)| *seq)).max().unwrap_or_default();
        let position = |lane: &LaneClaim| {
            let number = lane.lease.lane;
            let of_lane = look.lanes.get(&number)?;
            let was = &lane.from;
            let scanned = scanned_to >= trail::front(was);
            let ended = scanned && (!of_lane.any || (!cut && !of_lane.beyond));
            // A lane that was read to its end goes along with the others. So what was delivered of it is passed once, and the next claim can
            // read all lanes from one place.
            let front = match last_fresh.get(&number) {
                _ if ended && lane.to == Seq::MAX => furthest,
                Some((_, seq)) => *seq,
                None => 0,
            };
            let (seq, trail) = next(was, Met { front, scanned_to });
            let met = if ended { lane.to } else { trail.front };
            let (due_at, due_seq) = match last_waiting.get(&number) {
                _ if round => (Position::START.due_at, Position::START.due_seq),
                Some(last) => *last,
                None => (was.due_at, was.due_seq),
            };
            Some((number, Position { seq, met: met.max(was.met), due_at, due_seq, trail }))
        };
        claim.lanes.iter().filter_map(position).collect()
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

/// Draws a transaction id: larger than that of every transaction that has one by now.
pub(super) async fn draw(sql: &Statements, conn: &mut PgConnection) -> sqlx::Result<i64> {
    sql.horizon.query().fetch_one(conn).await?.try_get(0)
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
