//! The file sink: appends lines to a file.
//!
//! The sink holds the file open and locked, so that no other process writes to it in the same way. A crash may leave an unfinished line at the end.
//! It was never acknowledged and its event comes again, so it is cut off when the file is opened. An end that is not ours is kept and gets a line
//! break. [`FileSink::reopen`] closes the file after a rotation has renamed it.

mod journal;
mod open;

use std::{
    fmt,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use journal::{Disk, Failed, Journal};
use postrider_core::{BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    task::spawn_blocking,
};

use crate::{
    BATCH_EVENTS, SEND_TIMEOUT,
    line::{events, write_lines},
    not_written, traits, turn,
};

/// The configuration of the file sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileConfig {
    /// The file. It is created if missing, its folder is not.
    pub path: PathBuf,
    /// Whether a batch is on disk before it counts as delivered. Default `true`. Without it, a crash of the machine loses what the operating system
    /// has not written yet; the end of this process alone loses nothing.
    pub sync: bool,
    /// Maximum number of events that are written in one piece. Default [`BATCH_EVENTS`].
    pub batch_max: usize,
    /// Timeout of a send. Default [`SEND_TIMEOUT`].
    pub send_timeout: Duration,
}

impl FileConfig {
    /// Appends to this file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), sync: true, batch_max: BATCH_EVENTS, send_timeout: SEND_TIMEOUT }
    }

    /// Sets whether a batch is on disk before it counts as delivered.
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }

    /// Maximum number of events that are written in one piece.
    pub fn batch_max(mut self, events: usize) -> Self {
        self.batch_max = events;
        self
    }

    /// Sets the timeout of a send.
    pub fn send_timeout(mut self, limit: Duration) -> Self {
        self.send_timeout = limit;
        self
    }

    /// Checks the configuration, without touching the file.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |setting, value: &str, allowed: &str| {
            Err(ConfigError::OutOfRange { setting, value: value.to_owned(), allowed: allowed.to_owned() })
        };
        if self.path.file_name().is_none() {
            return wrong("path", &format!("{:?}", self.path), "the path of a file");
        }
        if self.batch_max == 0 {
            return wrong("batch_max", "0", "at least 1");
        }
        if self.send_timeout.is_zero() {
            return wrong("send_timeout", "0", "longer than nothing");
        }
        Ok(())
    }
}

/// Appends lines of JSON to a file.
pub struct FileSink {
    config: FileConfig,
    journal: Arc<Mutex<Option<Journal<File>>>>,
    reopen: AtomicBool,
}

impl fmt::Debug for FileSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSink").field("config", &self.config).finish_non_exhaustive()
    }
}

impl FileSink {
    /// Opens the file at the first write.
    pub fn new(config: FileConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { config, journal: Arc::default(), reopen: AtomicBool::new(false) })
    }

    /// Closes the file before the next write and opens what is at its path then. To rotate: rename the file, call this, and later lines go to a
    /// new file.
    pub fn reopen(&self) {
        self.reopen.store(true, Relaxed);
    }

    /// The file's slot, once nobody else writes.
    async fn journal(&self) -> Option<OwnedMutexGuard<Option<Journal<File>>>> {
        let mut journal = turn(&self.journal, self.config.send_timeout).await?;
        if self.reopen.swap(false, Relaxed) {
            *journal = None;
        }
        Some(journal)
    }
}

/// The file; opened if it is not open, or if it has no name any more.
fn opened<'a>(
    journal: &'a mut Option<Journal<File>>,
    path: &Path,
    sync: bool,
) -> io::Result<&'a mut Journal<File>> {
    let usable = journal.take().filter(|journal| !open::is_deleted(journal.file()));
    let usable = match usable {
        Some(usable) => usable,
        None => Journal::new(open::open(path, sync)?, sync)?,
    };
    Ok(journal.insert(usable))
}

/// Writes the lines of events and returns the outcome of all of them.
fn write(journal: &mut Option<Journal<File>>, path: &Path, sync: bool, events: &[Event]) -> Outcome {
    let failed = |error: &io::Error| format!("cannot write to {}: {error}", path.display());
    let open = match opened(journal, path, sync) {
        Ok(open) => open,
        Err(error) => return Outcome::unavailable(failed(&error)),
    };
    let Err(Failed { error, taken_back }) =
        open.append(|disk| write_lines(events, |lines| disk.write_all(lines)))
    else {
        return Outcome::Delivered;
    };
    // Its state is unknown, so it is opened again.
    *journal = None;
    if taken_back { Outcome::unavailable(failed(&error)) } else { Outcome::unknown(failed(&error)) }
}

impl Sink for FileSink {
    fn traits(&self) -> SinkTraits {
        traits(self.config.batch_max, self.config.send_timeout)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            if batch.is_empty() {
                return Vec::new();
            }
            let events = events(batch);
            let Some(mut journal) = self.journal().await else { return not_written(batch) };
            let FileConfig { path, sync, .. } = self.config.clone();
            let writing = spawn_blocking(move || write(&mut journal, &path, sync, &events)).await;
            let outcome =
                writing.unwrap_or_else(|error| Outcome::unknown(format!("the write failed: {error}")));
            vec![outcome; batch.len()]
        })
    }

    /// Up if the file could be opened, or created in its folder. Does not lock or create it: another process may be writing to it.
    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(async move {
            let path = self.config.path.clone();
            let looking = spawn_blocking(move || match open::look(&path) {
                Ok(()) => Health::Up,
                Err(error) => Health::Down { error: format!("cannot open {}: {error}", path.display()) },
            });
            looking.await.unwrap_or(Health::Unknown)
        })
    }
}
