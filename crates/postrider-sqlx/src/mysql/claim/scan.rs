//! What is to become of each row that a claim meets.

use std::collections::HashSet;

use postrider_core::{
    Timestamp,
    store::{Admission, Glance, Lane, Seq},
};
use sqlx::mysql::MySqlRow;

use super::super::{
    row::{Cargo, Stored},
    statement::{maybe, natural, text, time},
};

/// A row as a claim reads it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) lane: Lane,
    pub(super) seq: Seq,
    pub(super) available_at: Timestamp,
    pub(super) key: Option<String>,
    is_new: bool,
    /// The event that its key waits for.
    head: Option<Seq>,
    /// Whether its key is free again, and others come back first.
    coming_back: bool,
    pub(super) event_type: String,
    aggregate_type: String,
    pub(super) stored: Stored,
    /// Payload and headers, if they came with the row.
    pub(super) cargo: Option<Cargo>,
}

impl Row {
    /// A row that was read with as much of payload and headers as fits into so many bytes each.
    pub(super) fn of(row: &MySqlRow, inline_bytes_max: usize) -> sqlx::Result<Self> {
        let stored = Stored::of(row)?;
        let cargo = stored.came_whole(inline_bytes_max).then(|| Cargo::of(row)).transpose()?;
        Ok(Self {
            lane: natural(row, "lane")?,
            seq: natural(row, "seq")?,
            available_at: time(row, "available_at")?,
            key: text(row, "effective_key")?,
            is_new: natural::<u8>(row, "status")? == 0,
            head: maybe(row, "head")?,
            coming_back: natural::<u8>(row, "coming_back")? != 0,
            event_type: text(row, "event_type")?.unwrap_or_default(),
            aggregate_type: text(row, "aggregate_type")?.unwrap_or_default(),
            stored,
            cargo,
        })
    }
}

/// What is to become of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is due and nothing is in front of it. Its key may be held because of it.
    Return { held: bool },
    /// Its key waits for another event, or for those that are coming back.
    Park { returning: bool },
    /// It is not due and was never tried: it waits for its time, without holding its key.
    Turn,
    /// It waits already, or the engine has it.
    Pass,
    /// It is not wanted now.
    PassOver,
}

/// A row that was met.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) row: Row,
    pub(super) verdict: Verdict,
}

impl Met {
    pub(super) fn is_candidate(&self) -> bool {
        matches!(self.verdict, Verdict::Return { .. })
    }

    /// Its key, in its lane.
    pub(super) fn key_of_lane(&self) -> Option<(Lane, &str)> {
        Some((self.row.lane, self.row.key.as_deref()?))
    }
}

/// Judges the rows of one claim.
pub(super) struct Judge<'a> {
    pub(super) now: Timestamp,
    /// What the engine has in memory, sorted.
    pub(super) in_flight: &'a [Seq],
    pub(super) admission: Option<&'a dyn Admission>,
}

impl Judge<'_> {
    pub(super) fn is_in_flight(&self, seq: Seq) -> bool {
        self.in_flight.binary_search(&seq).is_ok()
    }

    /// What is to become of a row that was read because it is new, waiting, or to be looked at once more. Those that were
    /// met `already` are passed.
    pub(super) fn judge(&self, mut row: Row, already: &HashSet<Seq>) -> Met {
        let verdict = if self.is_in_flight(row.seq) || already.contains(&row.seq) {
            Verdict::Pass
        } else if self.is_early(&row) {
            // Time comes before the key: what is parked is due.
            if row.is_new { Verdict::Turn } else { Verdict::Pass }
        } else if row.head.is_some_and(|head| head != row.seq) {
            Verdict::Park { returning: row.coming_back }
        } else {
            Verdict::Return { held: row.head.is_some() }
        };
        if !matches!(verdict, Verdict::Return { .. }) {
            row.cargo = None;
        }
        Met { row, verdict }
    }

    /// Whether a row's time has not come. One that was written to be delivered at once is never early, also if the clock
    /// was set back since: taken for a delayed one, it would let later events of its key pass.
    fn is_early(&self, row: &Row) -> bool {
        let was_delayed = !row.is_new || row.available_at > row.stored.created_at;
        row.available_at > self.now && was_delayed
    }

    /// Whether a row that could be returned is wanted. Asked once about each, and only if it fits.
    pub(super) fn admits(&self, Met { row, .. }: &Met) -> bool {
        self.admission.is_none_or(|admission| {
            admission.admits(&Glance {
                lane: row.lane,
                seq: row.seq,
                event_type: &row.event_type,
                aggregate_type: &row.aggregate_type,
                key: row.key.as_deref(),
                due_at: (!row.is_new).then_some(row.available_at),
            })
        })
    }
}
