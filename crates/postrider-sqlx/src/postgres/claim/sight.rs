//! What a claim knows of the moment that it read at.

use postrider_core::Timestamp;
use sqlx::{Row, postgres::PgRow};

use super::{
    super::{row::column, statement::time},
    history::Place,
};

/// The moment of a claim: its clock, its snapshot, and where the database stood.
#[derive(Debug, Clone, Default)]
pub(super) struct Sight {
    /// The database's clock.
    pub(super) now: Timestamp,
    /// Every transaction with a smaller number is over.
    pub(super) xmin: i64,
    pub(super) snapshot: String,
    pub(super) place: Place,
}

impl Sight {
    pub(super) fn of(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            now: time(row, column::CREATED_AT)?,
            xmin: row.try_get(column::SEQ)?,
            snapshot: row.try_get(column::KEY)?,
            place: Place::of(row)?,
        })
    }
}
