//! An engine before a sink whose connection breaks again and again: nothing is lost, nothing dies, no key is out of order.

use std::{sync::Arc, time::Duration};

use postrider_core::{BoxFuture, Delivery, Event, Health, Outcome, Sink, SinkTraits};
use postrider_engine::{Outbox, memory::MemoryStore};
use tokio::sync::watch;

use super::{Checked, Failure};
use crate::proxy::{Direction, Proxy};

const KEYS: usize = 100;
const OF_A_KEY: usize = 40;
/// How often each kind of break comes.
const ROUNDS: usize = 2;
/// How long all of it may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Delivers through the sink, whose server is behind the proxy, while the line is cut, the server is away, and its answers are
/// lost. Gives the events in the order in which they were written: they have all arrived, which is for the caller to
/// [check](super::scene::in_order).
pub async fn survives_a_broken_line(sink: Arc<dyn Sink>, proxy: &Proxy) -> Result<Vec<Event>, Failure> {
    let store = MemoryStore::new(4);
    let (told, mut tally) = watch::channel(Tally::default());
    let sink: Arc<dyn Sink> = Arc::new(Counted { sink, told });
    let outbox = Outbox::builder().store(store.clone()).sink_otherwise(sink).start().await?;
    let mut events = Vec::new();
    for number in 0..OF_A_KEY {
        let of_each_key = (0..KEYS).map(|key| {
            Event::json_text("Tested", format!(r#"{{"number":{number},"key":{key}}}"#))
                .key(format!("key {key}"))
                .build()
        });
        let written = of_each_key.collect::<Result<Vec<_>, _>>()?;
        outbox.transaction(&store, async |tx| tx.write_all(written.clone()).await).await?;
        events.extend(written);
    }
    let broken = async {
        break_again_and_again(proxy, &mut tally, events.len()).await?;
        tally.wait_for(|tally| tally.delivered >= events.len()).await?;
        outbox.drain().await?;
        Ok::<_, Failure>(())
    };
    let ended = tokio::time::timeout(TIMEOUT, broken).await;
    let (stats, dead) = (outbox.stats().await?, outbox.dead(0, 1).await?);
    ended.map_err(|_| format!("not everything was delivered within {TIMEOUT:?}: {stats:?}"))??;
    assert!(stats.dead == 0 && stats.pending == 0, "{stats:?} {dead:?}");
    outbox.shutdown().await;
    Ok(events)
}

/// Each break comes when some more was delivered since the last one, and ends when it was felt.
async fn break_again_and_again(proxy: &Proxy, tally: &mut watch::Receiver<Tally>, events: usize) -> Checked {
    // As much as is in memory may be delivered before a break is felt, and then something has to be left that feels it.
    let step = events / (3 * ROUNDS + 3);
    for round in 0..3 * ROUNDS {
        let before = *tally.wait_for(|tally| tally.delivered >= (round + 1) * step).await?;
        match round % 3 {
            0 => proxy.cut(),
            1 => {
                proxy.refuse();
                proxy.cut();
                tally.wait_for(|tally| tally.failed > before.failed).await?;
                proxy.admit();
            }
            _ => {
                proxy.stall(Direction::ToClient);
                // The server has done something that nobody is told of.
                while proxy.held_bytes(Direction::ToClient) == 0 {
                    tokio::task::yield_now().await;
                }
                proxy.cut();
                proxy.flow(Direction::ToClient);
            }
        }
    }
    Ok(())
}

/// How many events a sink has said to be delivered, and how many not.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    delivered: usize,
    failed: usize,
}

struct Counted {
    sink: Arc<dyn Sink>,
    told: watch::Sender<Tally>,
}

impl Sink for Counted {
    fn traits(&self) -> SinkTraits {
        self.sink.traits()
    }

    fn destination(&self, event: &Event) -> Option<String> {
        self.sink.destination(event)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let outcomes = self.sink.send(batch).await;
            let delivered = outcomes.iter().filter(|outcome| **outcome == Outcome::Delivered).count();
            self.told.send_modify(|tally| {
                tally.delivered += delivered;
                tally.failed += outcomes.len() - delivered;
            });
            outcomes
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        self.sink.health()
    }

    fn health_for<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Health> {
        self.sink.health_for(event)
    }
}
