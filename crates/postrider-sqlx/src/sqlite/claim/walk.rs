//! Walking over the rows of one kind, a page at a time, from one that is due to the next.

use std::collections::{HashMap, HashSet, VecDeque};

use postrider_core::{
    Timestamp,
    store::{Lane, LaneClaim, Position, Seq},
};
use sqlx::SqliteConnection;

use super::{
    glance::{self, Glanced, RETURNING_KEYS_MAX, RETURNING_OF_A_KEY_MAX, Returned},
    judge::{Facts, Verdict},
    write::Findings,
};

/// Most rows that a walk meets; a claim has two that can be long.
const MET_MAX: usize = 5000;

/// How many rows a walk may write to, however few the claim asks for.
const WRITTEN_MIN: usize = 1024;

/// Fewest and most rows of a page.
const PAGE_MIN: usize = 16;
const PAGE_MAX: usize = 512;

/// What the walks of one lane have in common.
pub(super) struct Road<'a> {
    pub(super) sql: &'a glance::Statements,
    pub(super) lane: Lane,
    pub(super) now: Timestamp,
    /// What the engine has, sorted.
    pub(super) in_flight: &'a [Seq],
    /// Rows that are looked at once more. No walk meets them a second time.
    pub(super) again: HashSet<Seq>,
    /// Most events that the claim returns.
    pub(super) limit: usize,
    /// For a claim that reads up to a place: by the head of each key that comes back, the first event that is parked and not in memory.
    pub(super) fronts: HashMap<Seq, Option<Seq>>,
}

impl Road<'_> {
    fn has(&self, seq: Seq) -> bool {
        self.in_flight.binary_search(&seq).is_ok()
    }

    /// What is to become of a row that the engine does not have.
    fn judge(&self, facts: &Facts) -> Verdict {
        let front = facts.held_by.and_then(|hold| self.fronts.get(&hold.head));
        match facts.judge(self.now) {
            // It was unparked for this claim.
            Verdict::Park { returning: true }
                if front.is_some_and(|front| front.is_none_or(|front| facts.seq < front)) =>
            {
                Verdict::Return { held: true }
            }
            verdict => verdict,
        }
    }
}

/// See [`Road::fronts`].
pub(super) fn fronts(returned: &[Returned], in_flight: &[Seq]) -> HashMap<Seq, Option<Seq>> {
    let mut fronts = HashMap::new();
    for rows in returned.chunk_by(|one, next| one.head == next.head) {
        let seqs = || rows.iter().filter_map(|returned| Some(returned.row.as_ref()?.seq));
        let front = seqs().find(|seq| in_flight.binary_search(seq).is_err());
        // Where all that was read is in memory, more may be parked behind it.
        if let Some(first) = rows.first().filter(|_| front.is_some() || rows.len() <= RETURNING_OF_A_KEY_MAX)
        {
            fronts.insert(first.head, front);
        }
    }
    fronts
}

/// Where the next page of a walk begins.
#[derive(Debug, Clone, Copy)]
enum Cursor {
    /// Among fresh rows: behind one, and up to another.
    Fresh { after: Seq, to: Seq },
    /// Among waiting rows of one time, behind one of them.
    Tied { at: i64, after: Seq },
    /// Among waiting rows, behind a time.
    Later { after: i64 },
    /// There is none.
    End,
}

/// A row that is due, and nothing is in front of it.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) row: Glanced,
    /// Whether its key is held because of it, or because others stand behind it.
    pub(super) held: bool,
    /// The row id of the hold that it comes back from, or zero.
    pub(super) hold: i64,
}

/// A walk over the rows of one kind.
#[derive(Debug)]
pub(super) struct Walk {
    /// Rows that were read beforehand. The walk begins with them and they do not move it on.
    pub(super) ready: VecDeque<Due>,
    cursor: Cursor,
    page: VecDeque<Glanced>,
    pages: usize,
    /// The next row that is due; in front of the page.
    next: Option<Due>,
    /// The last row that it came past.
    pub(super) last: Option<(Timestamp, Seq)>,
    met: usize,
    written: usize,
    /// Whether something lies ahead that it did not come past.
    pub(super) stopped: bool,
}

impl Walk {
    fn new(ready: VecDeque<Due>, cursor: Cursor) -> Self {
        Self {
            ready,
            cursor,
            page: VecDeque::new(),
            pages: 0,
            next: None,
            last: None,
            met: 0,
            written: 0,
            stopped: false,
        }
    }

    /// Over what is looked at once more, and then over fresh rows.
    pub(super) fn over_fresh(again: VecDeque<Due>, lane: &LaneClaim) -> Self {
        let cursor = match lane.from.seq < lane.to {
            true => Cursor::Fresh { after: lane.from.seq, to: lane.to },
            false => Cursor::End,
        };
        Self::new(again, cursor)
    }

    /// Over waiting rows that are due.
    pub(super) fn over_waiting(from: Position, now: Timestamp) -> Self {
        // The start lies before every time, those before the epoch included.
        let at_start = (from.due_at, from.due_seq) == (Timestamp::EPOCH, 0);
        let cursor = match (at_start, from.due_at <= now) {
            (true, _) => Cursor::Later { after: i64::MIN },
            (false, true) => Cursor::Tied { at: from.due_at.as_micros(), after: from.due_seq },
            // A cursor may stand in the future if the clock was set back; what lies there is not due.
            (false, false) => Cursor::End,
        };
        Self::new(VecDeque::new(), cursor)
    }

    /// Over nothing but these.
    pub(super) fn over(ready: VecDeque<Due>) -> Self {
        Self::new(ready, Cursor::End)
    }

    /// The next row that is due. What lies before it is met on the way; nothing is, if the claim is `full`.
    pub(super) async fn peek(
        &mut self,
        road: &Road<'_>,
        conn: &mut SqliteConnection,
        findings: &mut Findings,
        full: bool,
    ) -> sqlx::Result<Option<&Due>> {
        if !self.ready.is_empty() {
            return Ok(self.ready.front());
        }
        while self.next.is_none() && !self.stopped {
            let Some(row) = self.page.pop_front() else {
                if !self.turn_page(road, conn).await? {
                    break;
                }
                continue;
            };
            // Rows that are parked or turned are written to; this is what bounds the writing of one claim.
            if full || self.met >= MET_MAX || self.written >= road.limit.saturating_mul(4).max(WRITTEN_MIN) {
                self.stopped = true;
                break;
            }
            let facts = Facts::from(&row);
            let verdict = match road.has(row.seq) || road.again.contains(&row.seq) {
                true => Verdict::Pass,
                false => road.judge(&facts),
            };
            if let Verdict::Return { held } = verdict {
                self.next = Some(Due { row, held, hold: 0 });
            } else {
                self.written += usize::from(verdict != Verdict::Pass);
                findings.note(&facts, verdict);
                self.came_past(&row);
            }
        }
        Ok(self.next.as_ref())
    }

    /// Goes past the row that was peeked at.
    pub(super) fn pop(&mut self) -> Option<Due> {
        if let Some(due) = self.ready.pop_front() {
            return Some(due);
        }
        let due = self.next.take()?;
        self.came_past(&due.row);
        Some(due)
    }

    /// Stays before the row that was peeked at.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    fn came_past(&mut self, row: &Glanced) {
        self.last = Some((row.due.unwrap_or_default(), row.seq));
        self.met += 1;
    }

    /// Reads the next page, and says whether there is one.
    async fn turn_page(&mut self, road: &Road<'_>, conn: &mut SqliteConnection) -> sqlx::Result<bool> {
        // One more than is wanted, to know whether there is more. Who reads on meets rows that are not wanted.
        let rows = if self.pages == 0 { road.limit.saturating_add(1) } else { PAGE_MAX };
        let rows = rows.clamp(PAGE_MIN, PAGE_MAX);
        self.pages += 1;
        let (sql, lane) = (road.sql, road.lane);
        let page = match self.cursor {
            Cursor::End => return Ok(false),
            Cursor::Fresh { after, to } => sql.fresh(conn, lane, (after, to), rows).await?,
            Cursor::Tied { at, after } => sql.tied(conn, lane, (at, after), rows).await?,
            Cursor::Later { after } => sql.waiting(conn, lane, (after, road.now), rows).await?,
        };
        let last = page.last().map(|row| (row.due.unwrap_or_default().as_micros(), row.seq));
        self.cursor = match (self.cursor, last) {
            (Cursor::Fresh { to, .. }, Some((_, after))) if page.len() == rows => Cursor::Fresh { after, to },
            (Cursor::Tied { .. } | Cursor::Later { .. }, Some((at, after))) if page.len() == rows => {
                Cursor::Tied { at, after }
            }
            (Cursor::Tied { at, .. }, _) => Cursor::Later { after: at },
            _ => Cursor::End,
        };
        self.page = page.into();
        Ok(true)
    }
}

/// What is to be looked at once more, judged at once: followers among them are parked before anything comes back to their key.
pub(super) async fn again(
    road: &Road<'_>,
    conn: &mut SqliteConnection,
    seqs: &[Seq],
    findings: &mut Findings,
) -> sqlx::Result<VecDeque<Due>> {
    let mut due = VecDeque::new();
    if seqs.is_empty() {
        return Ok(due);
    }
    // All of them, or those beyond a limit would be forgotten.
    for row in road.sql.again(conn, road.lane, seqs).await? {
        let facts = Facts::from(&row);
        match road.judge(&facts) {
            _ if road.has(row.seq) => {}
            Verdict::Return { held } => due.push_back(Due { row, held, hold: 0 }),
            verdict => findings.note(&facts, verdict),
        }
    }
    Ok(due)
}

/// What comes back because its key is free again.
#[derive(Debug, Default)]
pub(super) struct Returning {
    /// In the order of their keys' holds, and within a key in order.
    pub(super) due: VecDeque<Due>,
    /// Whether more is behind them.
    pub(super) more: bool,
}

/// The parked events of keys that are free again; holds behind which nothing is left are noted.
/// Beyond what was met something unparked of a key may come first, so nothing comes back from there.
pub(super) fn returning(
    road: &Road<'_>,
    returned: Vec<Returned>,
    met: Seq,
    findings: &mut Findings,
) -> Returning {
    let mut found = Returning::default();
    let (mut key, mut keys, mut of_key, mut wanted) = (None, 0, 0, false);
    for Returned { hold, row, .. } in returned {
        if key != Some(hold) {
            (key, keys, of_key, wanted) = (Some(hold), keys + 1, 0, false);
        }
        if keys > RETURNING_KEYS_MAX {
            found.more |= !found.due.is_empty();
            break;
        }
        of_key += 1;
        match row {
            None => findings.empty.push(hold),
            // What stands behind events that are all in memory already is not due: the next settle makes it so.
            Some(_) if of_key > RETURNING_OF_A_KEY_MAX => found.more |= wanted,
            Some(row) if row.seq > met || road.has(row.seq) => {}
            Some(row) => {
                wanted = true;
                found.due.push_back(Due { row, held: true, hold });
            }
        }
    }
    found
}
