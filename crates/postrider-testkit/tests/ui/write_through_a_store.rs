use postrider::{Event, Outbox, memory::MemoryStore};

async fn place(outbox: Outbox, store: MemoryStore) -> postrider::Result<()> {
    outbox.write(&store, Event::json_text("OrderPlaced", "{}")).await?;
    Ok(())
}

fn main() {}
