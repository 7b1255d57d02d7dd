//! The benchmarks of a database server: draining against bare SQL, beside other rows, and while events are written.
//!
//! They run in a database of their own that exists for one run. Bounds use the same driver and batch size, and take all values out of the rows
//! that they read.

mod beside;
mod bound;
mod database;
mod drain;
mod insert;
mod paced;
pub(crate) mod process;
pub(crate) mod program;
mod relay;
mod sink;
mod wake;
mod wal;

use postrider_relay::Failure;

use self::database::Database;
use super::{Bench, Scale, figure::Figure, plain, rounds::Rounds};

/// Rows per claim, settle and batch of a bound.
const BATCH: usize = 500;

/// Keys that the events are spread over.
const KEYS: u64 = 1000;

pub(super) async fn measure(
    url: &str,
    sink: Option<&str>,
    wanted: &[Bench],
    scale: Scale,
    rounds: Rounds,
) -> Result<Vec<Figure>, Failure> {
    let database = Database::create(url).await?;
    let measured = match sink {
        Some(sink) => measure_sink(&database, sink, wanted, scale, rounds).await,
        None => measure_all(&database, wanted, scale, rounds).await,
    };
    let dropped = database.drop().await;
    let figures = measured?;
    dropped.map(|()| figures)
}

async fn measure_sink(
    database: &Database,
    url: &str,
    wanted: &[Bench],
    scale: Scale,
    rounds: Rounds,
) -> Result<Vec<Figure>, Failure> {
    let receiver = sink::receiver(url).await?;
    let measured = async {
        let mut figures = Vec::new();
        for bench in wanted {
            figures.extend(match bench {
                Bench::Sink => sink::measure(database, &*receiver, scale, rounds).await?,
                Bench::Relay => relay::measure(database, &*receiver, scale).await?,
                _ => Vec::new(),
            });
        }
        Ok::<_, Failure>(figures)
    };
    let measured = measured.await;
    let cleared = receiver.clear().await;
    let figures = measured?;
    cleared.map(|()| figures)
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
            (Bench::Insert, Some(store)) => insert::measure(store, scale, rounds).await?,
            (Bench::Wal, Some(store)) => wal::measure(database, store, scale).await?,
            (Bench::Beside, Some(store)) => beside::measure(database, store, scale, rounds).await?,
            (Bench::Paced, Some(store)) => paced::measure(database, store, scale, rounds).await?,
            (Bench::Plain, _) => {
                database.refill(0).await?;
                plain::measure(&database.url, scale).await?
            }
            (Bench::Wake, Some(store)) => wake::measure(database, store, scale, rounds).await?,
            _ => Vec::new(),
        });
    }
    Ok(figures)
}
