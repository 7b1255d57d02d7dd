//! Reads the rows of one list a page at a time.

use postrider_core::{
    Timestamp,
    select::{Disposition, Rules},
    store::{Lane, LaneClaim, Position, Seq},
};
use sqlx::SqliteConnection;

use super::rows::{self, Summary};

/// Most rows that a claim reads of one list; a claim has two that can be long.
const ROWS_MAX: usize = 5000;

/// How many rows of a list a claim may write to, however few it asks for.
const WRITTEN_MIN: usize = 1024;

/// Fewest and most rows of a page.
const PAGE_MIN: usize = 16;
const PAGE_MAX: usize = 512;

/// Where the next page begins.
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

/// The pages of one list.
#[derive(Debug)]
pub(super) struct Pages {
    lane: Lane,
    cursor: Cursor,
    /// Most events that the claim returns.
    limit: usize,
    pages: usize,
    rows: usize,
    /// How many of the rows are to be written to.
    written: usize,
}

impl Pages {
    fn new(lane: &LaneClaim, limit: usize, cursor: Cursor) -> Self {
        Self { lane: lane.lease.lane, cursor, limit, pages: 0, rows: 0, written: 0 }
    }

    /// Of fresh rows.
    pub(super) fn fresh(lane: &LaneClaim, limit: usize) -> Self {
        let cursor = match lane.from.seq < lane.to {
            true => Cursor::Fresh { after: lane.from.seq, to: lane.to },
            false => Cursor::End,
        };
        Self::new(lane, limit, cursor)
    }

    /// Of waiting rows that are due.
    pub(super) fn waiting(lane: &LaneClaim, limit: usize, now: Timestamp) -> Self {
        let Position { due_at, due_seq, .. } = lane.from;
        // The start lies before every time, those before the epoch included.
        let at_start = (due_at, due_seq) == (Timestamp::EPOCH, 0);
        let cursor = match (at_start, due_at <= now) {
            (true, _) => Cursor::Later { after: i64::MIN },
            (false, true) => Cursor::Tied { at: due_at.as_micros(), after: due_seq },
            // A cursor may stand in the future if the clock was set back; what lies there is not due.
            (false, false) => Cursor::End,
        };
        Self::new(lane, limit, cursor)
    }

    /// Of nothing.
    pub(super) fn none(lane: &LaneClaim) -> Self {
        Self::new(lane, 0, Cursor::End)
    }

    /// Whether there is no page left.
    pub(super) fn is_at_end(&self) -> bool {
        matches!(self.cursor, Cursor::End)
    }

    /// The next page; none if this claim has read enough of the list. This is also what bounds the writing of a claim: rows that are parked or
    /// delayed are written to.
    pub(super) async fn next(
        &mut self,
        sql: &rows::Statements,
        conn: &mut SqliteConnection,
        rules: &Rules<'_>,
    ) -> sqlx::Result<Option<Vec<Summary>>> {
        if self.rows >= ROWS_MAX || self.written >= self.limit.saturating_mul(4).max(WRITTEN_MIN) {
            return Ok(None);
        }
        // One more than is wanted, to know whether there is more. A claim that reads on meets rows that are not wanted.
        let most = if self.pages == 0 { self.limit.saturating_add(1) } else { PAGE_MAX };
        let most = most.clamp(PAGE_MIN, PAGE_MAX);
        let page = match self.cursor {
            Cursor::End => Vec::new(),
            Cursor::Fresh { after, to } => sql.fresh(conn, self.lane, (after, to), most).await?,
            Cursor::Tied { at, after } => sql.tied(conn, self.lane, (at, after), most).await?,
            Cursor::Later { after } => sql.waiting(conn, self.lane, (after, rules.now), most).await?,
        };
        let last = page.last().map(|row| (row.facts.due_at.unwrap_or_default().as_micros(), row.facts.seq));
        self.cursor = match (self.cursor, last) {
            (Cursor::Fresh { to, .. }, Some((_, after))) if page.len() == most => Cursor::Fresh { after, to },
            (Cursor::Tied { .. } | Cursor::Later { .. }, Some((at, after))) if page.len() == most => {
                Cursor::Tied { at, after }
            }
            (Cursor::Tied { at, .. }, _) => Cursor::Later { after: at },
            _ => Cursor::End,
        };
        self.pages += 1;
        self.rows += page.len();
        let is_written = |row: &&Summary| {
            matches!(rules.decide(&row.facts), Disposition::Park { .. } | Disposition::Delay)
        };
        self.written += page.iter().filter(is_written).count();
        Ok(Some(page))
    }
}
