//! Where the reading of what was passed over goes on.

use postrider_core::{
    Timestamp,
    store::{Glance, Position, Seq},
};

/// No event waits beyond it: the last microsecond of the year 9999, which every database can name.
const END_OF_TIME: Timestamp = Timestamp::from_micros(253_402_300_799_999_999);

/// Where the reading of one lane goes on: before the first fresh event that was passed over, and before the first waiting one. None where there is
/// nothing to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BacklogCursor {
    pub(super) seq: Option<Seq>,
    pub(super) due: Option<(Timestamp, Seq)>,
}

impl BacklogCursor {
    /// Waiting events are looked for from the start.
    pub(super) const FIRST_DUE: (Timestamp, Seq) = (Timestamp::EPOCH, 0);

    pub(super) fn before(row: &Glance<'_>) -> Self {
        match row.due_at {
            Some(due_at) => Self { seq: None, due: Some((due_at, row.seq.saturating_sub(1))) },
            None => Self::before_seq(row.seq),
        }
    }

    pub(super) fn before_seq(seq: Seq) -> Self {
        Self { seq: Some(seq.saturating_sub(1)), due: None }
    }

    /// Where this event lies.
    pub(super) fn of(row: &Glance<'_>) -> Self {
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

    /// The earlier of both, fresh and waiting events apart.
    pub(super) fn or_before(self, other: Self) -> Self {
        Self {
            seq: self.seq.into_iter().chain(other.seq).min(),
            due: self.due.into_iter().chain(other.due).min(),
        }
    }

    /// The later of both, fresh and waiting events apart.
    pub(super) fn or_behind(self, other: Self) -> Self {
        Self { seq: self.seq.max(other.seq), due: self.due.max(other.due) }
    }

    /// The same of this, as far as the other has anything there.
    pub(super) fn within(self, other: Self) -> Self {
        Self { seq: self.seq.filter(|_| other.seq.is_some()), due: self.due.filter(|_| other.due.is_some()) }
    }

    /// Whether the other comes up to here, fresh and waiting events apart.
    pub(super) fn is_reached_by(self, other: Self) -> bool {
        self.seq.is_none_or(|seq| other.seq.is_some_and(|other| seq <= other))
            && self.due.is_none_or(|due| other.due.is_some_and(|other| due <= other))
    }

    /// Whether one is among fresh events and the other among waiting ones.
    pub(super) fn is_apart_from(self, other: Self) -> bool {
        self.due.is_some() != other.due.is_some()
    }

    /// As a position to claim from, in a lane whose own claims have come so far.
    pub(super) fn position(self, lane: Position) -> Position {
        let (due_at, due_seq) = self.due.unwrap_or((END_OF_TIME, 0));
        // Where transactions may still be open, everything is looked at: what commits late may stand before what was passed over.
        let seq = self.seq.map_or(lane.front(), |seq| seq.min(lane.seq));
        Position::at(seq, due_at, due_seq, &lane)
    }

    /// Whether a reading from there leaves out something from here on.
    pub(super) fn is_skipped_from(self, from: Position) -> bool {
        let due = (from.due_at, from.due_seq);
        self.seq.is_some_and(|seq| seq < from.seq) || self.due.is_some_and(|first| first < due)
    }
}
