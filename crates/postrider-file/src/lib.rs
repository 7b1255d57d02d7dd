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

use postrider_core::{BatchOrder, SinkTraits};

/// Most events that are written in one piece, unless it is set otherwise.
pub const BATCH_EVENTS: usize = 100;

const fn traits(batch_max: usize) -> SinkTraits {
    SinkTraits { batch_max, order: BatchOrder::Prefix, ..SinkTraits::SINK }
}
