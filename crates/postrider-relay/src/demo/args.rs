//! What the demo can be asked.

use std::path::PathBuf;

/// Watch a small shop on SQLite write orders and an outbox deliver their events.
///
/// Several writers place, pay and ship orders. Each transaction changes an order and writes events with it. Some are
/// rolled back: by an error, by an error that the shop swallowed, behind a savepoint. Some events fail twice before they
/// arrive, some are rejected for good and hold up their key. At the end the demo reads the ledger that the shop keeps in
/// the same file and says whether anything was lost, came out of order, or came although it was rolled back.
///
/// Kill it with kill -9 as often as you like and start it again with the same --db: it goes on where it was.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  postrider demo                               watch it; Ctrl-C ends it with the verdict
  postrider demo --events 2000 --exit --json   for scripts: the last line is one JSON object
  postrider demo --db shop.db                  keep the file, go on with it the next time")]
pub(crate) struct Args {
    /// Events to commit as fast as it goes; the rolled back ones come on top
    ///
    /// Without --exit the shop goes on slowly after them, so that there is something to watch.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) events: u64,

    /// End when nothing is pending: only what is dead, or held behind something dead, is left
    #[arg(long)]
    pub(crate) exit: bool,

    /// The SQLite file to use, created if it is missing [default: a temporary file, removed at the end]
    #[arg(long, value_name = "PATH")]
    pub(crate) db: Option<PathBuf>,

    /// Print the verdict as one JSON object, the last and only line on stdout
    #[arg(long)]
    pub(crate) json: bool,

    /// The seed that decides what the shop does [default: random]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
}
