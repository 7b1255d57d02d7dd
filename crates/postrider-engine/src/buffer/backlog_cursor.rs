//! Says where the scan of a backlog goes on in one lane.

use postrider_core::{
    Timestamp,
    store::{Position, RowSummary, Seq},
};

/// The last microsecond of the year 9999, which every database can store. No event waits beyond it.
const END_OF_TIME: Timestamp = Timestamp::from_micros(253_402_300_799_999_999);

/// Where to go on: before the first skipped fresh event, and before the first skipped waiting one. None where
/// there is nothing to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BacklogCursor {
    pub(super) seq: Option<Seq>,
    pub(super) due: Option<(Timestamp, Seq)>,
}

impl BacklogCursor {
    /// Waiting events are looked for from the start.
    pub(super) const FIRST_DUE: (Timestamp, Seq) = (Timestamp::EPOCH, 0);

    pub(super) fn before(row: &RowSummary<'_>) -> Self {
        match row.due_at {
            Some(due_at) => Self { seq: None, due: Some((due_at, row.seq.saturating_sub(1))) },
            None => Self::before_seq(row.seq),
        }
    }

    pub(super) fn before_seq(seq: Seq) -> Self {
        Self { seq: Some(seq.saturating_sub(1)), due: None }
    }

    /// The position of this event.
    pub(super) fn of(row: &RowSummary<'_>) -> Self {
        match row.due_at {
            Some(due_at) => Self { seq: None, due: Some((due_at, row.seq)) },
            None => Self::of_seq(row.seq),
        }
    }

    pub(super) fn of_seq(seq: Seq) -> Self {
        Self { seq: Some(seq), due: None }
    }

    pub(super) fn at(position: Position) -> Self {
        Self { seq: Some(position.front()), due: Some((position.due_at, position.due_seq)) }
    }

    /// Returns the earlier one, separately for fresh and waiting events.
    pub(super) fn or_before(self, other: Self) -> Self {
        Self {
            seq: self.seq.into_iter().chain(other.seq).min(),
            due: self.due.into_iter().chain(other.due).min(),
        }
    }

    /// Returns the later one, separately for fresh and waiting events.
    pub(super) fn or_after(self, other: Self) -> Self {
        Self { seq: self.seq.max(other.seq), due: self.due.max(other.due) }
    }

    /// Keeps only the parts that the other has.
    pub(super) fn within(self, other: Self) -> Self {
        Self { seq: self.seq.filter(|_| other.seq.is_some()), due: self.due.filter(|_| other.due.is_some()) }
    }

    /// Whether the other comes up to here, for fresh and for waiting events.
    pub(super) fn is_reached_by(self, other: Self) -> bool {
        self.seq.is_none_or(|seq| other.seq.is_some_and(|other| seq <= other))
            && self.due.is_none_or(|due| other.due.is_some_and(|other| due <= other))
    }

    /// Whether one points at fresh events and the other at waiting ones.
    pub(super) fn is_apart_from(self, other: Self) -> bool {
        self.due.is_some() != other.due.is_some()
    }

    /// Converts it to a position to claim from, in a lane whose own claims have come this far.
    pub(super) fn position(self, lane: Position) -> Position {
        let (due_at, due_seq) = self.due.unwrap_or((END_OF_TIME, 0));
        // Transactions may still be open here: what commits late may precede what was skipped, so all of it is
        // scanned.
        let seq = self.seq.map_or(lane.front(), |seq| seq.min(lane.seq));
        Position::at(seq, due_at, due_seq, &lane)
    }

    /// Whether a scan from there leaves out something that begins here.
    pub(super) fn is_skipped_from(self, from: Position) -> bool {
        let due = (from.due_at, from.due_seq);
        self.seq.is_some_and(|seq| seq < from.seq) || self.due.is_some_and(|first| first < due)
    }
}
