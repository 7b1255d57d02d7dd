//! Sinks that write lines of JSON to a file or to standard output.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider_core::{Delivery, Event, Outcome, Sink, Source};
//! use postrider_file::{FileConfig, FileSink};
//!
//! # let folder = std::env::temp_dir().join(format!("postrider-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("events.ndjson");
//! let sink = FileSink::new(FileConfig::new(&path))?;
//! let event = Event::json_text("OrderPlaced", r#"{"total":12}"#).id("1").aggregate("Order", 42).build()?;
//! let delivery = Delivery { event, source: Source::Cold, attempt: 1, lane: 0 };
//! assert_eq!(sink.send(&[delivery]).await, [Outcome::Delivered]);
//!
//! let line = std::fs::read_to_string(&path)?;
//! assert!(line.starts_with(r#"{"id":"1","type":"OrderPlaced","key":"Order:42","aggregate_type":"Order","aggregate_id":"42","#));
//! assert!(line.ends_with("\"payload\":{\"total\":12}}\n"));
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(()) }
//! ```
//!
//! # What delivered means
//!
//! A batch is written in one piece, in order, and flushed; a [file](FileSink) is by default also synced before the batch counts as
//! delivered. A batch that could not be written whole is removed again, so that none of its events is there
//! ([`postrider_core::BatchOrder::Prefix`]). A full disk, a missing folder or a missing permission makes the sink unavailable: its events
//! wait.
//!
//! One batch is written at a time. If a batch waits for its turn for half of its `send_timeout`, nothing of it was written and its events are
//! deferred. If writing takes longer than that, all its events are in doubt, and the engine reports so.
//!
//! # Layout
//!
//! * [`mod@line`]: turns an event into a line
//! * [`mod@file`]: appends lines to a file, repairs an unfinished end, rotates with [`FileSink::reopen`]
//! * [`writer`]: standard output, and any other writer

pub mod file;
pub mod line;
pub mod writer;

pub use file::{FileConfig, FileSink};
pub use writer::{StdoutSink, WriterSink};

use std::{sync::Arc, time::Duration};

use postrider_core::{BatchOrder, Delivery, Outcome, SinkTraits};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Default maximum number of events that are written in one piece.
pub const BATCH_EVENTS: usize = 100;
/// Default timeout of a send.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(120);

const fn traits(batch_max: usize, send_timeout: Duration) -> SinkTraits {
    let send_timeout = Some(send_timeout);
    SinkTraits { batch_max, order: BatchOrder::Prefix, send_timeout, ..SinkTraits::SINK }
}

/// The target, once nobody else writes to it; `None` after half of a send's time. Blocks no thread.
async fn turn<T>(shared: &Arc<Mutex<T>>, send_timeout: Duration) -> Option<OwnedMutexGuard<T>> {
    // An uncontended lock needs no timer, and so no runtime with one.
    if let Ok(free) = Arc::clone(shared).try_lock_owned() {
        return Some(free);
    }
    tokio::time::timeout(send_timeout / 2, Arc::clone(shared).lock_owned()).await.ok()
}

/// The outcome of a batch whose turn did not come.
fn not_written(batch: &[Delivery]) -> Vec<Outcome> {
    vec![Outcome::deferred(Duration::ZERO); batch.len()]
}
