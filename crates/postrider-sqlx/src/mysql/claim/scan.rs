//! A row as a claim reads it.

use postrider_core::{
    Timestamp,
    select::{self, Disposition, Facts, Hold, Rules},
    store::{Lane, RowSummary, Seq},
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
    is_fresh: bool,
    /// The event that its key waits for.
    head: Option<Seq>,
    /// Whether its key is free again, and others come back first.
    is_returning: bool,
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
            is_fresh: natural::<u8>(row, "status")? == 0,
            head: maybe(row, "head")?,
            is_returning: natural::<u8>(row, "is_returning")? != 0,
            event_type: text(row, "event_type")?.unwrap_or_default(),
            aggregate_type: text(row, "aggregate_type")?.unwrap_or_default(),
            stored,
            cargo,
        })
    }
}

impl Row {
    /// What becomes of it, as far as it tells by itself. Only what can be delivered keeps its cargo.
    pub(super) fn decide(&mut self, rules: &Rules<'_>) -> Disposition {
        let disposition = rules.decide(&select::Row::facts(self));
        if !matches!(disposition, Disposition::Deliver { .. }) {
            self.cargo = None;
        }
        disposition
    }
}

impl select::Row for Row {
    fn facts(&self) -> Facts {
        let is_at_once = self.is_fresh && self.available_at <= self.stored.created_at;
        Facts {
            lane: self.lane,
            seq: self.seq,
            is_fresh: self.is_fresh,
            due_at: (!is_at_once).then_some(self.available_at),
            hold: self.head.map(|head| Hold { head, is_returning: self.is_returning }),
            bytes: self.stored.bytes,
            is_for_another_claim: false,
        }
    }

    fn summary(&self) -> RowSummary<'_> {
        RowSummary {
            lane: self.lane,
            seq: self.seq,
            event_type: &self.event_type,
            aggregate_type: &self.aggregate_type,
            key: self.key.as_deref(),
            due_at: (!self.is_fresh).then_some(self.available_at),
        }
    }
}
