//! The moment that a claim reads at.

use postrider_core::Timestamp;
use sqlx::{Row, postgres::PgRow};

use super::{
    super::{row::column, statement::time},
    history::Place,
    snapshot::Snapshot,
};

/// Its clock, its snapshot, and where the database stood.
#[derive(Debug, Clone, Default)]
pub(super) struct Moment {
    /// The database's clock.
    pub(super) now: Timestamp,
    pub(super) snapshot: Snapshot,
    pub(super) place: Place,
}

impl Moment {
    pub(super) fn of(row: &PgRow) -> sqlx::Result<Self> {
        // Its snapshots do not say which transactions are open.
        if row.try_get::<i16, _>(column::STATUS)? > 0 {
            let standby = "the server is a standby: claims are for the primary";
            return Err(sqlx::Error::Io(std::io::Error::other(standby)));
        }
        let text: &str = row.try_get(column::KEY)?;
        let snapshot = Snapshot::parse(text)
            .ok_or_else(|| sqlx::Error::Decode(format!("`{text}` is no snapshot").into()))?;
        Ok(Self { now: time(row, column::CREATED_AT)?, snapshot, place: Place::of(row)? })
    }
}
