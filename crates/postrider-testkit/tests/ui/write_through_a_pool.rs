use postrider::{Event, Outbox};

fn place(outbox: &Outbox, pool: &sqlx::SqlitePool) {
    drop(outbox.write(pool, Event::json_text("OrderPlaced", "{}")));
}

fn main() {}
