//! What was read ahead: rows of the table as they stood at one moment, in order, without their payloads.
//!
//! Few external outbox tables have an index in the order that their rows are delivered in, so a claim that looked at the table each time would
//! sort all that is pending for every few rows that it takes. A window is read once and many claims are served from it. Each of them goes over
//! all of it from its beginning, so that what stands first in a key is met first, no matter which instance it is for; rows of held keys stay in it until their
//! key is free. A row that is not in it was committed after all that is, and comes with the next one.

use std::{sync::Arc, time::Duration};

use postrider_core::{
    Timestamp,
    store::{RowSummary, Seq},
};
use tokio::time::Instant;

use super::{Field, db::Cells, mind::Shown, shape::Shape, sql::Sql};

/// Most rows of a window. What is beyond is not looked at before some of these are gone.
pub(super) const ROWS_MAX: usize = 10_000;

/// A window is not read again before it has served for this long...
const SERVES_AT_LEAST: Duration = Duration::from_secs(1);

/// ...and for so many times as long as it took to read, unless it has nothing more to give.
const SERVES_TIMES: u32 = 10;

/// A row before its payload is read.
#[derive(Debug, Clone)]
pub(super) struct Narrow {
    /// Its place in the order, given out in memory.
    pub(super) seq: Seq,
    pub(super) id: String,
    pub(super) shown: Shown,
    pub(super) attempts: u32,
    pub(super) created_at: Timestamp,
    /// When it was due, if it waited.
    pub(super) due_at: Option<Timestamp>,
    /// Whether the admission was asked already, and wants it.
    pub(super) admitted: bool,
}

impl Narrow {
    /// A row of [`select`]; it has no place yet.
    pub(super) fn new(shape: &Shape, row: &Cells) -> Self {
        let unsigned = |column| row.number(column).and_then(|number| u32::try_from(number).ok());
        Self {
            seq: 0,
            id: row.text(0).unwrap_or_default(),
            shown: Shown::new(shape, row.text(1), row.text(2), row.text(3).map(Arc::from)),
            attempts: unsigned(4).unwrap_or_default(),
            created_at: Timestamp::from_micros(row.number(5).unwrap_or_default()),
            due_at: None,
            admitted: false,
        }
    }

    pub(super) fn key(&self) -> Option<&Arc<str>> {
        self.shown.key.as_ref()
    }

    /// As an admission is shown it.
    pub(super) fn summary(&self) -> RowSummary<'_> {
        self.shown.summary(self.seq, self.due_at)
    }
}

/// Reads rows that are pending, and goes on with further conditions.
pub(super) fn select(shape: &Shape) -> Sql {
    let (event_type, of) = (shape.text(Field::EventType), shape.text(Field::AggregateType));
    let mut sql = shape.sql(format!("SELECT {}, {event_type}, {of}, ", shape.text(Field::Id)));
    shape.key(&mut sql);
    let created = match shape.profile.has(Field::CreatedAt) {
        true => shape.kind.micros(&shape.column(Field::CreatedAt)),
        false => shape.kind.micros(shape.kind.now()),
    };
    sql.push(&format!(", {}, {created} FROM {} WHERE ", shape.text(Field::Attempts), shape.table()));
    shape.pending(&mut sql);
    sql
}

/// Rows that were read ahead.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) rows: Vec<Narrow>,
    /// Whether the table has more than were read.
    pub(super) truncated: bool,
    /// Whether claims have had all that they can have of it.
    pub(super) spent: bool,
    read_at: Instant,
    took: Duration,
}

impl Window {
    pub(super) fn new(rows: Vec<Narrow>, truncated: bool, began_at: Instant) -> Self {
        let read_at = Instant::now();
        Self { rows, truncated, spent: false, read_at, took: read_at - began_at }
    }

    /// Whether it is time to read another one.
    pub(super) fn is_old(&self) -> bool {
        self.spent || self.read_at.elapsed() > SERVES_AT_LEAST.max(self.took * SERVES_TIMES)
    }

    /// Takes out rows that were claimed; their places are sorted.
    pub(super) fn take_out(&mut self, seqs: &[Seq]) {
        self.rows.retain(|row| seqs.binary_search(&row.seq).is_err());
    }
}
