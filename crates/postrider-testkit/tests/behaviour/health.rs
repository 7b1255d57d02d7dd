//! What a sink says of itself decides whether an attempt that failed alone counts.

use std::sync::Arc;

use postrider::{
    Backoff, BoxFuture, Delivery, Event, EventId, Health, Outbox, Outcome, Sink, SinkTraits,
    store::EventStatus,
};

use crate::parts::{Site, keyed, ms, pass, plain, secs};

/// A sink that fails everything, and says how it is.
struct Failing {
    health: Health,
    /// The type of those events whose place is up although the sink as a whole is not.
    up_for: &'static str,
}

impl Sink for Failing {
    fn traits(&self) -> SinkTraits {
        SinkTraits { batch_max: 10, ..SinkTraits::SINK }
    }

    fn destination(&self, event: &Event) -> Option<String> {
        Some(event.event_type().to_owned())
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(std::future::ready(batch.iter().map(|_| Outcome::retry("500")).collect()))
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(std::future::ready(self.health.clone()))
    }

    fn health_for<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Health> {
        if event.event_type() == self.up_for {
            return Box::pin(std::future::ready(Health::Up));
        }
        self.health()
    }
}

async fn outbox(site: &Site, sink: Failing) -> Outbox {
    let retry = Backoff::fixed(ms(10));
    site.outbox().sink_otherwise(Arc::new(sink)).max_attempts(3).retry(retry).start().await.unwrap()
}

async fn died(site: &Site, id: &EventId) -> bool {
    match site.status(id).await {
        EventStatus::Dead { attempts: 3, .. } => true,
        EventStatus::New | EventStatus::Waiting { attempts: 0, .. } => false,
        other => panic!("neither dead after three attempts nor waiting without one: {other:?}"),
    }
}

fn down() -> Health {
    Health::Down { error: "no".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_fails_alone_counts_only_if_the_health_check_passes() {
    for (health, dies) in [(Health::Up, true), (Health::Unknown, false), (down(), false)] {
        let site = Site::memory(1);
        let outbox = outbox(&site, Failing { health: health.clone(), up_for: "none" }).await;
        let id = site.write(&outbox, keyed("poison", 0)).await;
        pass(secs(60)).await;
        assert_eq!(died(&site, &id).await, dies, "{health:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_missing_excuses_what_goes_there_and_nothing_else() {
    for (event_type, dies) in [("ToTheOther", true), ("ToTheMissing", false)] {
        let site = Site::memory(1);
        let outbox = outbox(&site, Failing { health: down(), up_for: "ToTheOther" }).await;
        let id = site.write(&outbox, plain(event_type)).await;
        pass(secs(60)).await;
        assert_eq!(died(&site, &id).await, dies, "{event_type}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_up_says_nothing_of_another_in_the_same_batch() {
    let site = Site::memory(1);
    let outbox = outbox(&site, Failing { health: down(), up_for: "ToTheOther" }).await;
    let events = ["ToTheOther", "ToTheMissing"].map(plain);
    let ids = site.write_all(&outbox, events).await;
    pass(secs(60)).await;
    assert!(!died(&site, &ids[1]).await, "an outage of its topic cost it attempts");
}
