//! Claiming: look at what is due, choose, read what was not read yet, and write down what was met on the way.
//!
//! The look is one statement and brings the payloads of fresh events with it, so that the common claim is a single round trip; where
//! nothing waits or comes back it is a cheaper one (`quick`). Payloads of other events, and of all where a claim is told which rows
//! are wanted, are read by a second one when it is known which of them come. The writing is a transaction of its own, under the lanes'
//! tokens, and asks again whether its reasons still hold.

mod look;
mod quick;
mod stream;
pub(super) mod trail;
mod write;

use std::{
    collections::{BTreeMap, HashSet},
    time::Instant,
};

use postrider_core::{
    Timestamp,
    store::{Claim, Claimed, ClaimedEvent, Lane, Position, Seq},
};
use sqlx::{PgConnection, Row};

pub(super) use self::write::Findings;
use self::{
    look::{Cursor, Freed, Look, RETURNING_KEYS_MAX, RETURNING_OF_A_KEY_MAX, Seen, State},
    quick::Reach,
    stream::Stream,
    trail::{Behind, From, Looks},
};
use super::{
    row,
    statement::{Shape, Statement, integer, natural},
};
use crate::choose::{Budget, Kind, Turns};

/// The statements of this folder.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) quick: Statement,
    pub(super) look: Statement,
    pub(super) read: Statement,
    pub(super) write: write::Statements,
}

impl Statements {
    pub(super) fn new(shape: &Shape) -> Self {
        let read = "SELECT NULL, e.lane, e.seq, e.status, e.available_at, e.created_at, NULL, NULL, NULL, {key} AS key,
                           e.event_type, e.aggregate_type, NULL, e.attempts, e.event_id, e.aggregate_id, e.ordering_key,
                           e.tenant_id, e.content_type, e.occurred_at, {sizes},
                           {headers} AS headers, {payload} AS payload, {payload_bytes} AS payload_bytes
                    FROM {p}event AS e WHERE e.seq = ANY ($1::bigint[]) AND e.status IN (0, 2)";
        Self {
            quick: quick::statement(shape),
            look: look::statement(shape),
            read: Statement::new(&row::spell(read), shape),
            write: write::Statements::new(shape),
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

/// Where a claim begins, as the store's memory of earlier ones has it.
pub(super) struct Begun {
    from: From,
    behind: Option<Behind>,
    /// Where the last claim ended and how wide to look, if this one goes on there.
    goes_on: Option<(Seq, u64)>,
    started: Instant,
}

/// Decides where a claim reads from.
pub(super) fn begin(looks: &Looks, claim: &Claim) -> Begun {
    let positions = || claim.lanes.iter().map(|lane| &lane.from);
    let started = Instant::now();
    let from = looks.begin(positions(), started);
    let behind = if from == From::Front { None } else { looks.behind(positions(), from) };
    Begun { from, behind, goes_on: looks.goes_on(claim.lanes.iter()), started }
}

/// Where it begins instead, if what was seen demands a look behind the front that was not made.
pub(super) fn begin_behind(looks: &Looks, claim: &Claim, begun: &Begun, look: &Look) -> Option<Begun> {
    let positions = || claim.lanes.iter().map(|lane| &lane.from);
    let must_look = begun.from == From::Front && looks.must_look(positions(), look.inserted_at);
    (must_look && !look.fresh.is_empty()).then(|| Begun {
        from: From::Near,
        behind: looks.behind(positions(), From::Near),
        ..*begun
    })
}

/// Looks at all lanes at once: the cheap way if this may be a usual claim and turns out to be one.
pub(super) async fn look(
    sql: &Statements,
    conn: &mut PgConnection,
    claim: &Claim,
    begun: &Begun,
    lanes_in_all: u32,
) -> sqlx::Result<Look> {
    let cursor = |lane| {
        let LaneCursor { begins, front } = LaneCursor::of(lane, begun.from);
        Cursor { lane, begins, front }
    };
    let cursors: Vec<Cursor<'_>> = claim.lanes.iter().map(cursor).collect();
    let behind = begun.behind.as_ref();
    if let Some(reach) = Reach::of(claim, begun.from, behind, begun.goes_on, lanes_in_all)
        && let Some(look) = quick::look(&sql.quick, conn, claim, &cursors, behind, reach).await?
    {
        return Ok(look);
    }
    look::look(&sql.look, conn, claim, &cursors, behind, lanes_in_all).await
}

struct LaneCursor {
    begins: Seq,
    front: Seq,
}

impl LaneCursor {
    fn of(lane: &postrider_core::store::LaneClaim, from: From) -> Self {
        let front = trail::front(&lane.from);
        let begins = match from {
            From::Front => front,
            From::Near => trail::near(&lane.from),
            From::Far => trail::far(&lane.from),
        };
        Self { begins, front }
    }
}

/// Chooses from what was seen, fairly, and says where each lane stands now.
pub(super) fn choose(looks: &mut Looks, claim: &Claim, begun: &Begun, mut look: Look) -> Chosen {
    let mut claimed = Claimed { now: look.sight.now, ..Claimed::default() };
    let is_lost = |lane: &Lane| !look.lanes.contains_key(lane);
    claimed.lost = claim.lanes.iter().map(|lane| lane.lease.lane).filter(is_lost).collect();

    if claim.lanes.iter().any(|lane| lane.to < Seq::MAX) {
        look.let_out();
    }
    let already: HashSet<Seq> = look.again.iter().map(|seen| seen.seq).collect();
    look.fresh.retain(|seen| !already.contains(&seen.seq));
    let fresh_seen = look.fresh.len();
    let fresh_full = look.cut_fresh();
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
    more |= fresh_full || beyond || !waiting_full.is_empty();
    claimed.more = more;

    let until = streams.iter().flat_map(|stream| stream.met()).filter(|seen| seen.state == State::Delayed);
    let until =
        until.map(|seen| seen.available_at).chain(look.lanes.values().filter_map(|lane| lane.next_due));
    claimed.next_due = until.min().map(|due| due.since(look.sight.now));

    let saw = looks.saw(&look.sight, begun.from, begun.started, more);
    let ends = Ends { fresh: &fresh, waiting: &waiting, fresh_full, waiting_full };
    claimed.positions = ends.positions(claim, begun.from, &look, saw);
    let reached = if ends.is_cut() || beyond { ends.reached(&look) } else { Seq::MAX };
    looks.ended(&claimed.positions, reached, (fresh_seen, look.limits.fresh));

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
/// follower is about to be parked, which may be the first of what does.
fn returning(claim: &Claim, look: &mut Look) -> (Vec<Seen>, Vec<Freed>, bool) {
    let met: BTreeMap<Lane, Seq> = claim.lanes.iter().map(|lane| (lane.lease.lane, lane.from.met)).collect();
    let more_keys = look.returning.len() > RETURNING_KEYS_MAX;
    let (mut rows, mut empty, mut more) = (Vec::new(), Vec::new(), false);
    for mut freed in std::mem::take(&mut look.returning).into_iter().take(RETURNING_KEYS_MAX) {
        if freed.parked.is_empty() {
            empty.push(freed);
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
    if look.again.iter().any(|seen| matches!(seen.state, State::Follower { returning: true })) {
        more |= !rows.is_empty();
        rows.clear();
    }
    (rows, empty, more)
}

/// How far the reads of a claim came.
struct Ends<'a> {
    fresh: &'a Stream,
    waiting: &'a Stream,
    /// Whether there were as many fresh rows as a look may see.
    fresh_full: bool,
    /// The lanes that had as many waiting rows as a look may see.
    waiting_full: HashSet<Lane>,
}

impl Ends<'_> {
    /// Whether fresh rows that were seen, or stood behind those, were not met.
    fn is_cut(&self) -> bool {
        self.fresh_full || !self.fresh.is_done()
    }

    /// Up to where the fresh rows of all lanes were met.
    fn reached(&self, look: &Look) -> Seq {
        match (self.fresh.met().last(), look.ceiling) {
            (Some(last), _) if self.is_cut() => last.seq,
            (None, _) if self.is_cut() => 0,
            (_, Some(ceiling)) => ceiling,
            (_, None) => Seq::MAX,
        }
    }

    fn positions(
        &self,
        claim: &Claim,
        from: From,
        look: &Look,
        seen: (u64, Timestamp),
    ) -> Vec<(Lane, Position)> {
        let (cut, reached) = (self.is_cut(), self.reached(look));
        let last_of =
            |rows: &Stream| rows.met().map(|seen| (seen.lane, (seen.available_at, seen.seq))).collect();
        let last_fresh: BTreeMap<Lane, (Timestamp, Seq)> = last_of(self.fresh);
        let last_waiting: BTreeMap<Lane, (Timestamp, Seq)> = last_of(self.waiting);
        // Back to the start only when all lanes are through: a lane that went back alone would return its rows, which the
        // engine has, over and over in front of the longer ones.
        let round = self.waiting.is_done() && self.waiting_full.is_empty() && claim.admission.is_none();
        let position = |lane: &postrider_core::store::LaneClaim| {
            let number = lane.lease.lane;
            let of_lane = look.lanes.get(&number)?;
            let was = &lane.from;
            let front = last_fresh.get(&number).map_or(0, |(_, seq)| *seq);
            let ended = !of_lane.any || (!cut && !of_lane.beyond);
            let looked = ended || reached >= trail::front(was);
            let (seq, trail) = Looks::next(was, (front, looked, from), look.sight.now, seen);
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

/// Writes what was found; see [`write::write`].
pub(super) async fn write(
    sql: &Statements,
    leases: &super::lease::Statements,
    conn: &mut PgConnection,
    findings: &[Findings],
) -> sqlx::Result<write::Written> {
    write::write(&sql.write, leases, conn, findings).await
}
