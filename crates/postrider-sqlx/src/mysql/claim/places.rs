//! Where fresh rows are.

use postrider_core::store::{Lane, Seq};
use sqlx::MySqlConnection;

use super::read::Reader;

/// A table that tells where fresh rows are. Each answer shows what is committed by then.
pub(super) trait Places {
    /// The fresh rows of these lanes after the first number and up to the second: at most so many, of each lane the first ones.
    fn within(
        &mut self,
        lanes: &[Lane],
        window: (Seq, Seq),
        most: usize,
    ) -> impl Future<Output = sqlx::Result<Vec<(Lane, Seq)>>> + Send;

    /// Which of these numbers are fresh rows, of whichever lane.
    fn among(&mut self, seqs: &[Seq]) -> impl Future<Output = sqlx::Result<Vec<(Lane, Seq)>>> + Send;
}

/// The table in the database.
pub(super) struct Table<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) conn: &'a mut MySqlConnection,
}

impl Places for Table<'_> {
    async fn within(
        &mut self,
        lanes: &[Lane],
        window: (Seq, Seq),
        most: usize,
    ) -> sqlx::Result<Vec<(Lane, Seq)>> {
        self.reader.fresh_places(self.conn, lanes, window, most).await
    }

    async fn among(&mut self, seqs: &[Seq]) -> sqlx::Result<Vec<(Lane, Seq)>> {
        self.reader.fresh_among(self.conn, seqs).await
    }
}
