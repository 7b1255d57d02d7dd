//! Sinks that write lines of JSON, to a file or to standard output.
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
//! A batch is written in one piece, in its order, and then flushed; in a [file](FileSink), by default, it is on the disk before it
//! counts as delivered. A batch that could not be written whole is taken back, so that no event of it is there
//! ([`postrider_core::BatchOrder::Prefix`]). A full disk, a missing folder or a missing right make the sink unavailable: its events
//! wait.
//!
//! One batch is written at a time. A batch that waits for its turn for half of its `send_timeout` was not written: its events are
//! deferred. One that is being written longer than that is in doubt as a whole, and the engine says so.
//!
//! # Layout
//!
//! * [`mod@line`]: an event as a line
//! * [`mod@file`]: a file that lines are added to, its unfinished end mended, rotated by [`FileSink::reopen`]
//! * [`writer`]: standard output, and everything else that can be written to

pub mod file;
pub mod line;
pub mod writer;

pub use file::{FileConfig, FileSink};
pub use writer::{StdoutSink, WriterSink};

use std::{sync::Arc, time::Duration};

use postrider_core::{BatchOrder, Delivery, Outcome, SinkTraits};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Most events that are written in one piece, unless it is set otherwise.
pub const BATCH_EVENTS: usize = 100;
/// How long a send may take before its outcome is unknown, unless it is set otherwise.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(120);

const fn traits(batch_max: usize, send_timeout: Duration) -> SinkTraits {
    let send_timeout = Some(send_timeout);
    SinkTraits { batch_max, order: BatchOrder::Prefix, send_timeout, ..SinkTraits::SINK }
}

/// What is written to, once nobody else does; nothing, if that takes half of the time of a send. Takes no thread.
async fn turn<T>(shared: &Arc<Mutex<T>>, send_timeout: Duration) -> Option<OwnedMutexGuard<T>> {
    // Who is alone needs no timer, and so no runtime that has one.
    if let Ok(free) = Arc::clone(shared).try_lock_owned() {
        return Some(free);
    }
    tokio::time::timeout(send_timeout / 2, Arc::clone(shared).lock_owned()).await.ok()
}

/// Of a batch whose turn did not come.
fn not_written(batch: &[Delivery]) -> Vec<Outcome> {
    vec![Outcome::deferred(Duration::ZERO); batch.len()]
}
