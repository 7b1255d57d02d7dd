//! The benchmarks of a database server: draining it against bare SQL, beside what lies there, and while it is written to.
//!
//! They run in a database of their own on the server that was named, which is there only meanwhile. Bounds use the same driver, take
//! as many rows at a time and take all values out of what they read.

mod beside;
mod bound;
mod database;
mod drain;
mod paced;
mod wake;
mod wal;

use self::database::Database;
use super::{Bench, Scale, figure::Figure, rounds::Rounds};
use crate::failure::Failure;

/// Rows that claims, settles and bounds take at a time.
const BATCH: usize = 500;

/// Keys that the events are spread over.
const KEYS: u64 = 1000;

pub(super) async fn measure(
    url: &str,
    wanted: &[Bench],
    scale: Scale,
    rounds: Rounds,
) -> Result<Vec<Figure>, Failure> {
    let database = Database::create(url).await?;
    let measured = measure_all(&database, wanted, scale, rounds).await;
    let dropped = database.drop().await;
    let figures = measured?;
    dropped.map(|()| figures)
}

async fn measure_all(
    database: &Database,
    wanted: &[Bench],
    scale: Scale,
    rounds: Rounds,
) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for bench in wanted {
        figures.extend(match (bench, database.as_postgres()) {
            (Bench::Drain, _) => drain::measure(database, scale, rounds).await?,
            (Bench::Wal, Some(store)) => wal::measure(database, store, scale).await?,
            (Bench::Beside, Some(store)) => beside::measure(database, store, scale, rounds).await?,
            (Bench::Paced, Some(store)) => paced::measure(database, store, scale, rounds).await?,
            (Bench::Wake, Some(store)) => wake::measure(database, store, scale, rounds).await?,
            _ => Vec::new(),
        });
    }
    Ok(figures)
}
