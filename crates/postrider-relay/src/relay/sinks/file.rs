//! Builds file and stdout sinks, one for each file of the process.
//!
//! A sink locks its file, and two writers to standard output would mix their lines. So all sources and sinks of the configuration that lead to
//! one file share its sink.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

use postrider::ConfigError;
use postrider_file::{FileConfig, FileSink, StdoutSink};

use crate::config::File;

/// The open files. A different `sync` makes a different sink: the sources that write to the file restart, and the last of them drops the old
/// sink.
static FILES: Mutex<BTreeMap<(PathBuf, bool), Weak<FileSink>>> = Mutex::new(BTreeMap::new());

static STDOUT: LazyLock<Arc<StdoutSink>> = LazyLock::new(|| Arc::new(StdoutSink::new()));

pub(super) fn file(config: &File) -> Result<Arc<FileSink>, ConfigError> {
    // The sink reports a path that cannot be made absolute.
    let path = std::path::absolute(&config.path).unwrap_or_else(|_| config.path.clone());
    // Every write is a single operation, so a poisoned lock holds valid data.
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.retain(|_, file| file.strong_count() > 0);
    let key = (path, config.sync);
    if let Some(file) = files.get(&key).and_then(Weak::upgrade) {
        return Ok(file);
    }
    let file = Arc::new(FileSink::new(FileConfig::new(&config.path).sync(config.sync))?);
    files.insert(key, Arc::downgrade(&file));
    Ok(file)
}

pub(super) fn stdout() -> Arc<StdoutSink> {
    STDOUT.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_to_the_same_file_or_to_standard_output_shares_a_sink() {
        let at = |path: &str, sync| file(&File { path: path.into(), sync }).unwrap();
        let one = at("shared.ndjson", true);
        assert!(Arc::ptr_eq(&one, &at("./shared.ndjson", true)));
        assert!(!Arc::ptr_eq(&one, &at("another.ndjson", true)));
        assert!(!Arc::ptr_eq(&one, &at("shared.ndjson", false)));
        let first = Arc::downgrade(&one);
        drop(one);
        assert_eq!(first.strong_count(), 0, "a file that nobody writes to is let go");
        assert!(Arc::ptr_eq(&stdout(), &stdout()));
    }
}
