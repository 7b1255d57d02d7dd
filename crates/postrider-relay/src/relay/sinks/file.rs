//! Lines of JSON.

use postrider::ConfigError;
use postrider_file::{FileConfig, FileSink, StdoutSink};

use crate::config::File;

pub(super) fn file(config: &File) -> Result<FileSink, ConfigError> {
    let file = FileConfig::new(&config.path);
    FileSink::new(if config.sync { file } else { file.without_sync() })
}

pub(super) fn stdout() -> StdoutSink {
    StdoutSink::new()
}
