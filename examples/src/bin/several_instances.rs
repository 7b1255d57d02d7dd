//! Several instances of a service on one database: they share its lanes, and when one of them dies the others take over. No
//! event is lost, and the order of each key is kept.
//!
//! Three outboxes in one program stand for three processes, and the in-memory store, with eight lanes, for a database server.
//! (SQLite has one lane: one instance delivers, the others stand by.)
//!
//! ```text
//! cargo run -p postrider-examples --bin several_instances
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use postrider::{Delivery, Event, Outbox, memory::MemoryStore, metrics::Recording};
use tokio::sync::mpsc;

const LANES: u32 = 8;
const KEYS: u32 = 24;
const EVENTS: u32 = 480;

/// One process of the service.
struct Instance {
    outbox: Outbox,
    metrics: Arc<Recording>,
}

impl Instance {
    async fn start(store: &MemoryStore, seen: &mpsc::UnboundedSender<Delivery>) -> postrider::Result<Self> {
        let (seen, metrics) = (seen.clone(), Arc::new(Recording::default()));
        let outbox = Outbox::builder()
            .store(store.clone())
            .metrics(metrics.clone())
            // How long the others wait for one that died. Short, for a program that should end soon.
            .lease(Duration::from_millis(300))
            // What another instance wrote is found by polling.
            .poll(Duration::from_millis(5), Duration::from_millis(50))
            .otherwise(move |delivery: Delivery| {
                let seen = seen.clone();
                async move { seen.send(delivery) }
            })
            .start()
            .await?;
        Ok(Self { outbox, metrics })
    }
}

/// Waits until every lane is owned and none of the instances has more than its share.
async fn balanced(instances: &[&Instance]) -> String {
    loop {
        let owned = |instance: &&Instance| instance.metrics.snapshot().lanes_owned;
        let mut lanes: Vec<u64> = instances.iter().map(owned).collect();
        lanes.sort_by_key(|&lanes| std::cmp::Reverse(lanes));
        let (most, all) = (lanes.first().copied().unwrap_or_default(), lanes.iter().sum::<u64>());
        if all == u64::from(LANES) && most == all.div_ceil(instances.len() as u64) {
            return lanes.iter().map(u64::to_string).collect::<Vec<_>>().join(" + ");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Events with numbers that rise within each key.
async fn write(outbox: &Outbox, store: &MemoryStore, numbers: std::ops::Range<u32>) -> postrider::Result<()> {
    for number in numbers {
        let event = Event::json_text("Counted", number.to_string()).aggregate("Counter", number % KEYS);
        outbox.transaction(store, async |tx| tx.write(event).await).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = MemoryStore::new(LANES);
    let (sender, mut deliveries) = mpsc::unbounded_channel();
    let first = Instance::start(&store, &sender).await?;
    let second = Instance::start(&store, &sender).await?;
    let third = Instance::start(&store, &sender).await?;
    println!("three instances, lanes {}", balanced(&[&first, &second, &third]).await);

    write(&first.outbox, &store, 0..EVENTS / 2).await?;
    drop(third); // without a shutdown, in the middle of its work
    println!("one of them is gone");
    write(&first.outbox, &store, EVENTS / 2..EVENTS).await?;

    // Numbers by key, each where it came first: what the dead instance had sent and not settled comes again.
    let mut numbers: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut distinct = 0;
    while distinct < EVENTS {
        let delivery = deliveries.recv().await.ok_or("all instances have stopped")?;
        let (key, number) = (delivery.key().unwrap_or_default().to_owned(), delivery.read_json()?);
        let numbers = numbers.entry(key).or_default();
        if !numbers.contains(&number) {
            numbers.push(number);
            distinct += 1;
        }
    }
    println!("two instances, lanes {}", balanced(&[&first, &second]).await);
    let out_of_order = numbers.values().filter(|numbers| !numbers.is_sorted()).count();
    println!("written {EVENTS}, delivered {distinct}, keys {KEYS}, out of order {out_of_order}");

    first.outbox.shutdown().await;
    second.outbox.shutdown().await;
    println!("pending {}", first.outbox.stats().await?.pending);
    Ok(())
}
