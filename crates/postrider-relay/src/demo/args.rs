//! The arguments of `postrider demo`.

use std::path::PathBuf;

/// Watch a small shop write orders to SQLite while an outbox delivers their events
///
/// Several writers place, pay and ship orders. Each transaction changes an order and writes events with it. Some are rolled back: by an error,
/// by an error that the shop swallows, or behind a savepoint. Some events fail twice before they are delivered; some are rejected for good and
/// block their key. At the end the demo compares what was delivered with a ledger in the same file and reports whether anything was lost,
/// delivered out of order, or delivered although it was rolled back.
///
/// Kill it with kill -9 as often as you like, and start it again with the same --db: it continues.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  postrider demo                               watch it; Ctrl-C ends it with the result
  postrider demo --events 2000 --exit --json   for scripts: the last line is one JSON object
  postrider demo --db shop.db                  keep the file, go on with it the next time")]
pub(crate) struct Args {
    /// Number of events to commit as fast as possible, not counting those that are rolled back
    ///
    /// Without --exit the shop then goes on slowly, so that there is something to watch.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) events: u64,

    /// Exit when nothing is pending: only dead events, and those blocked by them, are left
    #[arg(long)]
    pub(crate) exit: bool,

    /// The SQLite file, created if missing [default: a temporary file, removed at the end]
    #[arg(long, value_name = "PATH")]
    pub(crate) db: Option<PathBuf>,

    /// Print the result as one JSON object, the last and only line on stdout
    #[arg(long)]
    pub(crate) json: bool,

    /// The seed of everything that happens in the shop [default: random]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
}
