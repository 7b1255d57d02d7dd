//! Through the whole engine, with a folder that goes away in mid-stream.

use std::{fs, sync::Arc};

use postrider_core::Event;
use postrider_engine::{Outbox, memory::MemoryStore};

use crate::{Folder, time::eventually};

const EVENTS: usize = 3000;
const KEYS: usize = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_dead_when_the_folder_goes_away_for_a_while() {
    let folder = Folder::new();
    let sink = Arc::new(folder.sink());
    let store = MemoryStore::new(4);
    let builder = Outbox::builder().store(store.clone()).sink("Numbered", sink.clone());
    let outbox = builder.max_attempts(2).start().await.unwrap();
    let write = async |numbers: std::ops::Range<usize>| {
        let event = |number: usize| {
            Event::json_text("Numbered", "{}").id(number.to_string()).key(format!("key {}", number % KEYS))
        };
        let mut tx = store.begin();
        let events: Vec<_> = numbers.map(event).collect();
        let receipts = outbox.write_all(&mut tx, events).await.unwrap();
        tx.commit().await.unwrap();
        receipts.committed();
    };
    write(0..EVENTS / 2).await;
    eventually("lines", || fs::metadata(folder.path()).is_ok_and(|found| found.len() > 0)).await;
    let away = folder.0.with_extension("away");
    fs::rename(&folder.0, &away).unwrap();
    sink.reopen();
    write(EVENTS / 2..EVENTS).await;
    let mut down = false;
    while !down {
        down = matches!(postrider_core::Sink::health(&*sink).await, postrider_core::Health::Down { .. });
    }
    assert!(outbox.stats().await.unwrap().pending > 0, "events wait");
    fs::rename(&away, &folder.0).unwrap();
    outbox.drain().await.unwrap();
    let stats = outbox.stats().await.unwrap();
    assert_eq!((stats.dead, stats.done), (0, EVENTS as u64));
    outbox.shutdown().await;
    let mut last = vec![None; KEYS];
    let ids = folder.ids();
    assert_eq!(ids.len(), EVENTS, "each once");
    for id in ids {
        let number: usize = id.parse().unwrap();
        let before = last[number % KEYS].replace(number);
        assert!(before.is_none_or(|before| before < number), "{number} after {before:?}");
    }
}
