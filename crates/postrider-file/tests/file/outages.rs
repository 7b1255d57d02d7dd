//! A disk that is full, a folder that is missing, a right that one does not have.

use std::{fs, fs::File};

use postrider_core::{BatchOrder, Health, Sink};
use postrider_file::{FileConfig, FileSink, WriterSink};

use crate::{Folder, deliver, send, unavailable};

#[tokio::test]
async fn a_missing_folder_is_an_outage_that_ends_when_it_is_there() {
    let folder = Folder::new();
    let path = folder.0.join("missing").join("events");
    let sink = FileSink::new(FileConfig::new(&path)).unwrap();
    let error = unavailable(&send(&sink, &["1", "2"]).await);
    assert!(error.contains(&path.display().to_string()) && error.contains("No such file"), "{error}");
    assert!(matches!(sink.health().await, Health::Down { error } if error.contains("missing")));
    fs::create_dir(folder.0.join("missing")).unwrap();
    assert_eq!(sink.health().await, Health::Up);
    deliver(&sink, &["1", "2"]).await;
    assert_eq!(crate::ids(&fs::read_to_string(path).unwrap()), ["1", "2"]);
}

#[tokio::test]
async fn what_is_there_and_no_file_is_refused() {
    let folder = Folder::new();
    fs::create_dir(folder.path()).unwrap();
    let error = unavailable(&send(&folder.sink(), &["1"]).await);
    assert!(error.contains("not a file"), "{error}");
}

#[tokio::test]
async fn a_file_that_another_sink_writes_to_is_left_alone_until_it_is_free() {
    let folder = Folder::new();
    let (first, second) = (folder.sink(), folder.sink());
    deliver(&first, &["1"]).await;
    let error = unavailable(&send(&second, &["2"]).await);
    assert!(error.contains("another process or sink writes to it"), "{error}");
    drop(first);
    deliver(&second, &["2"]).await;
    assert_eq!(folder.ids(), ["1", "2"]);
}

/// What lies under a path that this user may not write to. The superuser may, and there a file that cannot be written to is used.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_missing_right_is_an_outage() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o500)).unwrap();
    let is_superuser = File::create(folder.0.join("probe")).is_ok();
    let sink = if is_superuser {
        FileSink::new(FileConfig::new("/proc/sys/kernel/ostype")).unwrap()
    } else {
        folder.sink()
    };
    let error = unavailable(&send(&sink, &["1"]).await);
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(error.contains("denied") || error.contains("not permitted"), "{error}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_is_an_outage_of_a_writer_too() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let sink = WriterSink::new(full);
    let error = unavailable(&send(&sink, &["1", "2"]).await);
    assert!(error.contains("No space left"), "{error}");
}

#[test]
fn what_cannot_be_a_file_is_refused_at_once() {
    for path in ["", "/", ".."] {
        let error = FileSink::new(FileConfig::new(path)).unwrap_err().to_string();
        assert!(error.contains("the path of a file"), "{error}");
    }
    assert!(FileSink::new(FileConfig::new("x").batch_max(0)).is_err());
    let config = FileConfig::new("x");
    assert!(config.sync, "on by default");
    assert_eq!(FileSink::new(config).unwrap().traits().order, BatchOrder::Prefix);
}

#[tokio::test]
async fn a_health_check_neither_creates_nor_locks_the_file() {
    let folder = Folder::new();
    let (asked, writing) = (folder.sink(), folder.sink());
    assert_eq!(asked.health().await, Health::Up);
    assert!(!folder.path().exists());
    deliver(&writing, &["1"]).await;
    assert_eq!(asked.health().await, Health::Up, "somebody else writes to it");
}
