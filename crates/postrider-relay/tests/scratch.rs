//! scratch
use postrider::{Delivery, Event, Outbox, sqlite::SqliteStore};
#[tokio::test]
async fn swallowed_then_written() {
    let path = format!("{}/scratch-{}.db", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let _ = std::fs::remove_file(&path);
    let store = SqliteStore::connect(&path).await.unwrap();
    let pool = store.pool().clone();
    let outbox = Outbox::builder()
        .store(store)
        .otherwise(async |d: Delivery| println!("DELIVERED {} {}", d.event_type(), d.id()))
        .start()
        .await
        .unwrap();
    sqlx::query("CREATE TABLE o (id INTEGER PRIMARY KEY)").execute(&pool).await.unwrap();
    let r = outbox
        .transaction(&pool, async |tx| {
            sqlx::query("INSERT INTO o VALUES (1)").execute(tx.conn()).await.unwrap();
            tx.write(Event::json_text("Before", "{}")).await?;
            println!(
                "{:?}",
                sqlx::query("INSERT OR ROLLBACK INTO o VALUES (1)").execute(tx.conn()).await.map(drop)
            );
            println!("after: {:?}", tx.write(Event::json_text("AfterHot", "{}")).await);
            println!("after: {:?}", tx.write(Event::json_text("After", "{}").key("k")).await);
            Ok::<_, postrider::Error>(())
        })
        .await;
    println!("transaction says {r:?}");
    println!(
        "again: {:?}",
        outbox.transaction(&pool, async |tx| tx.write(Event::json_text("Again", "{}")).await).await
    );
    let mut tx = match pool.begin_with("BEGIN IMMEDIATE").await {
        Ok(tx) => tx,
        Err(e) => {
            println!("begin {e:?}");
            return;
        }
    };
    sqlx::query("INSERT INTO o VALUES (1)").execute(&mut *tx).await.unwrap();
    println!("{:?}", sqlx::query("INSERT OR ROLLBACK INTO o VALUES (1)").execute(&mut *tx).await.map(drop));
    println!("shop after: {:?}", outbox.write(&mut tx, Event::json_text("AfterShop", "{}")).await);
    println!("commit {:?}", tx.commit().await);
    outbox.shutdown().await;
    println!("{:?}", outbox.stats().await);
}
