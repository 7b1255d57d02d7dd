//! Lines of JSON.

use postrider::ConfigError;
use postrider_file::{FileConfig, FileSink, StdoutSink};

use crate::config::File;

pub(super) fn file(config: &File) -> Result<FileSink, ConfigError> {
    FileSink::new(FileConfig::new(&config.path).sync(config.sync))
}

pub(super) fn stdout() -> StdoutSink {
    StdoutSink::new()
}
