//! A file with a line for everything that happened, for anyone who has to find out why.

use std::{
    fmt,
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    Failure,
    time::{Micros, SECOND},
};

/// Cloning it copies a pointer.
#[derive(Debug, Clone)]
pub(crate) struct History(Arc<Mutex<BufWriter<File>>>);

impl History {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        Ok(Self(Arc::new(Mutex::new(BufWriter::new(File::create(path)?)))))
    }

    /// Adds a line. A history that cannot be written is no reason to end a run.
    pub(crate) fn note(&self, at: Micros, what: fmt::Arguments<'_>) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        _ = writeln!(file, "{:>5}.{:06} {what}", at / SECOND, at % SECOND);
    }

    pub(crate) fn flush(&self) {
        _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).flush();
    }
}
