//! An idle outbox in PostgreSQL draws no transaction numbers: they are limited, and each that is drawn brings the next freeze of all tables
//! nearer.

use std::{sync::Arc, time::Duration};

use postrider::{Store, postgres::PgStore};
use postrider_testkit::conformance::{Failure, Owner};
use sqlx::{Connection, PgConnection};

use crate::server::Server;

const CLAIMS: usize = 200;

async fn next_transaction(conn: &mut PgConnection) -> Result<i64, Failure> {
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    Ok(sqlx::query_scalar(next).fetch_one(conn).await?)
}

#[tokio::test]
async fn claims_of_an_idle_outbox_draw_no_transaction_numbers() -> Result<(), Failure> {
    // Others draw numbers on a server that is shared.
    let server = Server::borrow("postgres")?;
    let mut conn = PgConnection::connect(&server.url).await?;
    sqlx::raw_sql("ALTER SYSTEM SET autovacuum = off").execute(&mut conn).await?;
    sqlx::raw_sql("SELECT pg_reload_conf()").execute(&mut conn).await?;
    let store: Arc<dyn Store> = Arc::new(PgStore::connect(&server.url).await?);
    store.migrate().await?;
    store.join("idle", Duration::from_secs(600)).await?;
    let mut owner = Owner::lease(&store, "idle").await?;
    // The first claims learn where the outbox ends.
    for _ in 0..3 {
        owner.claim(&store, 100, 1 << 20, &[]).await?;
    }
    let before = next_transaction(&mut conn).await?;
    for _ in 0..CLAIMS {
        assert!(owner.claim(&store, 100, 1 << 20, &[]).await?.events.is_empty());
        store.peek().await?;
        store.pauses().await?;
        store.stats().await?;
    }
    assert_eq!(next_transaction(&mut conn).await?, before, "{CLAIMS} claims drew transaction numbers");
    Ok(())
}
