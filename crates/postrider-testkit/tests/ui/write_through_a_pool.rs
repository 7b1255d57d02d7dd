use postrider::{Event, Outbox};

async fn place(outbox: Outbox, pool: sqlx::SqlitePool) -> postrider::Result<()> {
    outbox.write(&pool, Event::json_text("OrderPlaced", "{}")).await?;
    Ok(())
}

fn main() {}
