//! The file and the writer sinks, on a real disk.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may")]

mod conformance;
mod engine;
mod mending;
mod outages;
mod time;
mod writing;

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use postrider_core::{Delivery, Event, Outcome, Sink, Source, Timestamp};
use postrider_file::{FileConfig, FileSink};

/// A folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("postrider-file-{}-{}", std::process::id(), MADE.fetch_add(1, SeqCst));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.join("events.ndjson")
    }

    fn sink(&self) -> FileSink {
        FileSink::new(FileConfig::new(self.path())).unwrap()
    }

    /// The ids of the lines; each line must be JSON.
    fn ids(&self) -> Vec<String> {
        ids(&fs::read_to_string(self.path()).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ids(text: &str) -> Vec<String> {
    assert!(text.is_empty() || text.ends_with('\n'), "an unfinished line: {text:?}");
    let line =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("{line:?}"));
    text.lines().map(|text| line(text)["id"].as_str().unwrap().to_owned()).collect()
}

fn event(id: &str) -> Event {
    let event = Event::json_text("Tested", "{\"a\":1}").id(id).key("a");
    event.occurred_at(Timestamp::from_micros(0)).build().unwrap()
}

async fn send(sink: &dyn Sink, ids: &[&str]) -> Vec<Outcome> {
    let delivery = |id: &&str| Delivery { event: event(id), source: Source::Cold, attempt: 1, lane: 0 };
    let batch: Vec<_> = ids.iter().map(delivery).collect();
    sink.send(&batch).await
}

async fn deliver(sink: &dyn Sink, ids: &[&str]) {
    assert_eq!(send(sink, ids).await, vec![Outcome::Delivered; ids.len()]);
}

/// The errors of outcomes that are all unavailable.
fn unavailable(outcomes: &[Outcome]) -> String {
    let error = |outcome: &Outcome| match outcome {
        Outcome::Unavailable { error } => error.clone(),
        other => panic!("{other:?}"),
    };
    outcomes.iter().map(error).collect()
}
