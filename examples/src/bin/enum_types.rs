//! Enums instead of strings: for event types, for aggregate types, in routes, and as the list of what may be written.
//!
//! ```text
//! cargo run -p postrider-examples --bin enum_types
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use postrider::{AggregateType, Delivery, Event, EventType, Outbox, sqlite::SqliteStore};
use tokio::sync::mpsc;

#[derive(EventType)]
#[event_type(rename_all = "dot.case")]
enum Happened {
    ItemOpened,
    #[event_type(name = "item.gone")]
    ItemClosed,
}

#[derive(AggregateType)]
enum About {
    Account,
    Ticket,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("event types: {}", Happened::EVENT_TYPES.join(", "));
    println!("aggregate types: {}", About::AGGREGATE_TYPES.join(", "));

    let store = SqliteStore::connect("sqlite::memory:").await?;
    let (seen, mut deliveries) = mpsc::unbounded_channel();
    let by = move |handler: &'static str| {
        let seen = seen.clone();
        move |delivery: Delivery| {
            let seen = seen.clone();
            async move { seen.send((handler, delivery)) }
        }
    };
    let outbox = Outbox::builder()
        .store(store.clone())
        .known_types(Happened::EVENT_TYPES)
        // The exact pair wins over the event type alone.
        .on_aggregate(About::Ticket, Happened::ItemOpened, by("tickets opened"))
        .on(Happened::ItemOpened, by("anything opened"))
        .on(Happened::ItemClosed, by("anything closed"))
        .start()
        .await?;

    // One key for all, so that they are delivered in this order.
    let event = |event_type, about, id| Event::json_text(event_type, "{}").aggregate(about, id).key("demo");
    let events = [
        event(Happened::ItemOpened, About::Ticket, 7),
        event(Happened::ItemOpened, About::Account, 1),
        event(Happened::ItemClosed, About::Ticket, 7),
    ];
    outbox.transaction(&store, async |tx| tx.write_all(events).await).await?;
    for _ in 0..3 {
        let (handler, delivery) = deliveries.recv().await.ok_or("the outbox has stopped")?;
        println!("{} of {}: {handler}", delivery.event_type(), delivery.aggregate_type());
    }

    let unknown =
        outbox.transaction(&store, async |tx| tx.write(Event::json_text("item.opend", "{}")).await).await;
    if let Err(error) = unknown {
        println!("refused: {error}");
    }

    outbox.shutdown().await;
    Ok(())
}
