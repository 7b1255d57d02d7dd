//! The usual claim, in one statement: fresh rows with their payloads, where nothing waits or comes back.
//!
//! A statement is a snapshot of its own. If it shows that the claim is not such a one, nothing was done yet, and the claim goes the
//! careful way. Where somebody is asked which rows are wanted, nobody is asked about a row twice: the careful way begins behind those.

use futures_util::TryStreamExt;
use postrider_core::{
    Timestamp,
    select::{Budget, Disposition, Facts, Rules},
    store::{Claim, Claimed, LaneClaim, Position, Seq},
    tx::Prefix,
};
use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    super::{
        row::{self, Stored},
        statement::{Statement, integer},
    },
    claimed_event,
    rows::weight,
    state::{self, State},
    write::Writes,
};

/// Payloads up to this size are read along with their rows, whatever room the claim has for each.
const SMALL_BYTES: usize = 4096;

pub(super) fn statement(prefix: &Prefix) -> Statement {
    // No row is read if the lane's state shows that the claim has to go the careful way.
    Statement::new(
        &format!(
            "SELECT {}, NULL, NULL FROM {{p}}lane AS l WHERE l.lane = ?1
             UNION ALL
             SELECT * FROM (
                 SELECT {} FROM {{p}}event AS e
                 WHERE e.lane = ?1 AND e.parked = 0 AND e.status = 0 AND e.seq > ?3
                   AND NOT EXISTS (SELECT 1 FROM {{p}}hold WHERE lane = ?1 AND reason = 'returning')
                   AND NOT EXISTS (SELECT 1 FROM {{p}}event
                                   WHERE lane = ?1 AND status = 2 AND parked = 0 AND available_at <= ?2)
                 ORDER BY e.seq LIMIT ?4) AS page",
            state::COLUMN,
            row::columns("?5"),
        ),
        prefix,
    )
}

/// What a usual claim brought.
pub(super) struct Quickly {
    pub(super) claimed: Claimed,
    pub(super) writes: Writes,
    /// How many rows were not wanted.
    pub(super) skipped: usize,
    /// Where the careful way has to go on, and with which budget.
    pub(super) rest: Option<(LaneClaim, Budget)>,
}

/// Claims, if nothing but fresh rows is to be looked at. None if something is.
pub(super) async fn claim(
    sql: &Statement,
    conn: &mut SqliteConnection,
    claim: &Claim,
    now: Timestamp,
) -> sqlx::Result<Option<Quickly>> {
    let [lane] = claim.lanes.as_slice() else { return Ok(None) };
    if !lane.again.is_empty() || lane.to < Seq::MAX || claim.limit == 0 {
        return Ok(None);
    }
    let mut quick = Quick::new(claim, lane, now);
    let each_bytes = (claim.bytes / claim.limit).max(SMALL_BYTES);
    let query = sql.query().bind(lane.lease.lane).bind(now.as_micros()).bind(integer(lane.from.seq));
    let mut rows = query.bind(integer(quick.rows_max)).bind(integer(each_bytes)).fetch(conn);
    while !quick.stopped
        && !quick.left
        && let Some(row) = rows.try_next().await?
    {
        if !quick.meet(&row)? {
            return Ok(None);
        }
    }
    Ok(quick.finish())
}

/// A claim that may turn out to be a usual one.
struct Quick<'a> {
    claim: &'a Claim,
    lane: &'a LaneClaim,
    now: Timestamp,
    /// Most rows that are read: one more than is wanted, to know whether there is more, and what the engine has.
    rows_max: usize,
    rows: usize,
    budget: Budget,
    state: Option<State>,
    claimed: Claimed,
    writes: Writes,
    skipped: usize,
    /// Whether something is parked behind a key that returns.
    follows_returning: bool,
    /// When the first of the delayed rows is due.
    next_due: Option<Timestamp>,
    last: Seq,
    /// Whether somebody was asked about a row.
    asked: bool,
    /// Whether the rest is for the careful way.
    left: bool,
    stopped: bool,
}

impl<'a> Quick<'a> {
    fn new(claim: &'a Claim, lane: &'a LaneClaim, now: Timestamp) -> Self {
        let below = claim.in_flight.partition_point(|seq| *seq <= lane.from.seq);
        let in_flight = (claim.in_flight.len() - below).min(claim.limit);
        Self {
            claim,
            lane,
            now,
            rows_max: claim.limit.saturating_add(in_flight).saturating_add(1),
            rows: 0,
            budget: Budget::new(claim.limit, claim.bytes),
            state: None,
            claimed: Claimed { now, ..Claimed::default() },
            writes: Writes::none(lane.lease),
            skipped: 0,
            follows_returning: false,
            next_due: None,
            last: lane.from.seq,
            asked: false,
            left: false,
            stopped: false,
        }
    }

    /// Takes a row, and says whether the claim is still a usual one.
    fn meet(&mut self, row: &SqliteRow) -> sqlx::Result<bool> {
        if self.state.is_none() {
            let state = State::decode(row)?;
            self.state = Some(state);
            return Ok(state.is_held(&self.lane.lease) && !state.returning && !state.waiting(self.now));
        }
        self.rows += 1;
        self.stopped |= self.budget.events() == 0;
        if self.stopped {
            return Ok(true);
        }
        let stored = Stored::new(row)?;
        let seq = stored.seq();
        let (due_at, hold, lane) = (stored.delayed_to(), stored.hold(), self.lane.lease.lane);
        let facts = Facts { lane, seq, is_fresh: true, due_at, hold, bytes: 0, is_for_another_claim: false };
        let disposition = Rules { now: self.now, in_flight: &self.claim.in_flight }.decide(&facts);
        match disposition {
            Disposition::Park { returning } => {
                self.writes.park(seq);
                self.follows_returning |= returning;
            }
            Disposition::Delay => {
                self.writes.delay(seq);
                self.next_due = self.next_due.into_iter().chain(due_at).min();
            }
            Disposition::Deliver { .. } | Disposition::Ignore | Disposition::Skip => {}
        }
        if let Disposition::Deliver { held } = disposition {
            let (payload, headers, unread) = stored.sizes()?;
            let bytes = weight(payload, headers);
            if !self.budget.fits(bytes) {
                self.stopped = true;
                return Ok(true);
            }
            // Large ones, and those that are too large for an event, are read one by one.
            if unread {
                self.left = self.asked;
                return Ok(self.asked);
            }
            if self.wants(&stored) {
                self.budget.take(bytes);
                self.claimed.events.push(claimed_event(self.lane.lease.lane, stored, held));
            } else {
                self.skipped += 1;
            }
        }
        self.last = seq;
        Ok(true)
    }

    fn wants(&mut self, row: &Stored<'_>) -> bool {
        let Some(admission) = &self.claim.admission else { return true };
        self.asked = true;
        row.is_wanted_by(&**admission, self.lane.lease.lane)
    }

    fn finish(mut self) -> Option<Quickly> {
        let state = self.state?;
        // Enough was read to fill the claim, but most of it is not to be returned: there may be more.
        if self.rows == self.rows_max && !self.stopped {
            if !self.asked {
                return None;
            }
            self.left = true;
        }
        self.claimed.more = self.stopped || self.follows_returning;
        let next_due = self.next_due.into_iter().chain(state.next_due).min();
        self.claimed.next_due = next_due.map(|due| due.since(self.now));
        // Who passes rows over does not go back to the first of those that wait.
        let waiting = if self.claim.admission.is_some() { self.lane.from } else { Position::START };
        if self.left {
            let from = Position { seq: self.last, ..waiting };
            let rest = Some((LaneClaim { from, ..self.lane.clone() }, self.budget));
            return Some(Quickly { claimed: self.claimed, writes: self.writes, skipped: self.skipped, rest });
        }
        let met = if self.stopped { self.last } else { Seq::MAX };
        self.claimed.positions.push((self.lane.lease.lane, Position { seq: self.last, met, ..waiting }));
        Some(Quickly { claimed: self.claimed, writes: self.writes, skipped: self.skipped, rest: None })
    }
}
