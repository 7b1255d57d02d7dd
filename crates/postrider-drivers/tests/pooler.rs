//! Through PgBouncer in transaction mode, which gives one connection of a client's several of the server's in turn: what one of them
//! was prepared for, another does not know.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says so by a panic"
)]

mod support;

use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use postrider_core::{CallerTx, Error, Event, Store, Target, tx::OnDuplicate};
use postrider_sqlx::PgStore;
use sea_orm::{ConnectionTrait, TransactionTrait};
use sqlx::{Connection, PgConnection, Row};
use support::{Database, drivers};

type Tested = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// How many transactions a driver writes in.
const ROUNDS: usize = 6;

/// Which process of the server's a transaction runs in.
const SEEN: &str = "INSERT INTO seen SELECT pg_backend_pid()";

fn events() -> [Event; 2] {
    [(); 2].map(|()| Event::json_text("Tested", "{}").build().unwrap())
}

/// A database behind PgBouncer, and somebody else who has a transaction open there in every other round.
struct Scene {
    store: PgStore,
    target: Target,
    url: String,
    other: PgConnection,
    _database: Database,
}

impl Scene {
    async fn new() -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let database = Database::new().await;
        let store = PgStore::builder().pooled(false).connections(2).connect(&database.url()).await?;
        store.migrate().await?;
        sqlx::raw_sql("CREATE TABLE seen (pid integer)").execute(store.pool()).await?;
        let url = database.url_by("POSTRIDER_TEST_PGBOUNCER_URL");
        let behind = PgStore::connect(&url).await?;
        assert!(behind.is_pooled());
        behind.close().await;
        let other = PgConnection::connect(&url).await?;
        Ok(Self { store, target: behind.target().clone(), url, other, _database: database })
    }

    async fn round(&mut self, round: usize) -> sqlx::Result<()> {
        let sql = if round.is_multiple_of(2) { "BEGIN" } else { "ROLLBACK" };
        sqlx::raw_sql(sql).execute(&mut self.other).await?;
        Ok(())
    }

    async fn judge(self) -> Tested {
        let seen = sqlx::query("SELECT count(DISTINCT pid) FROM seen").fetch_one(self.store.pool()).await?;
        assert!(seen.try_get::<i64, _>(0)? > 1, "the pooler gave the same connection each time");
        assert_eq!(self.store.stats().await?.pending, 3 * ROUNDS as u64);
        Ok(())
    }
}

#[tokio::test]
async fn tokio_postgres_writes_through_a_pooler() -> Tested {
    let mut scene = Scene::new().await?;
    let mut client = drivers::client(&scene.url).await?;
    for round in 0..ROUNDS {
        scene.round(round).await?;
        let tx = client.transaction().await?;
        tx.batch_execute(SEEN).await?;
        (&tx).insert(&scene.target, &events(), OnDuplicate::Fail).await?;
        (&tx).insert(&scene.target, &events()[..1], OnDuplicate::Fail).await?;
        tx.commit().await?;
    }
    scene.judge().await
}

#[tokio::test]
async fn deadpool_postgres_writes_through_a_pooler() -> Tested {
    let mut scene = Scene::new().await?;
    let mut client = drivers::pool(&scene.url)?.get().await?;
    for round in 0..ROUNDS {
        scene.round(round).await?;
        let tx = client.transaction().await?;
        tx.batch_execute(SEEN).await?;
        (&tx).insert(&scene.target, &events(), OnDuplicate::Fail).await?;
        (&tx).insert(&scene.target, &events()[..1], OnDuplicate::Fail).await?;
        tx.commit().await?;
    }
    scene.judge().await
}

#[tokio::test]
async fn diesel_async_writes_through_a_pooler() -> Tested {
    let mut scene = Scene::new().await?;
    let mut conn = AsyncPgConnection::establish(&scene.url).await?;
    for round in 0..ROUNDS {
        scene.round(round).await?;
        conn.batch_execute("BEGIN").await?;
        conn.batch_execute(SEEN).await?;
        conn.insert(&scene.target, &events(), OnDuplicate::Fail).await?;
        conn.insert(&scene.target, &events()[..1], OnDuplicate::Fail).await?;
        conn.batch_execute("COMMIT").await?;
    }
    scene.judge().await
}

#[tokio::test]
async fn sea_orm_writes_through_a_pooler() -> Tested {
    let mut scene = Scene::new().await?;
    let db = drivers::sea_orm(&scene.url).await?;
    for round in 0..ROUNDS {
        scene.round(round).await?;
        let tx = db.begin().await?;
        tx.execute_unprepared(SEEN).await?;
        let [first, second] = events();
        (&tx).insert(&scene.target, std::slice::from_ref(&first), OnDuplicate::Fail).await?;
        // One of them is there: none is written, or the other.
        let third = events()[0].to_builder().header("it's", "\\ \"").build()?;
        let batch = [first, second, third];
        let refused = (&tx).insert(&scene.target, &batch, OnDuplicate::Fail).await;
        assert!(matches!(refused, Err(Error::DuplicateId { .. })), "{refused:?}");
        assert_eq!((&tx).insert(&scene.target, &batch, OnDuplicate::Keep).await?, [false, true, true]);
        assert_eq!((&tx).insert(&scene.target, &batch, OnDuplicate::Keep).await?, [false, false, false]);
        tx.commit().await?;
    }
    scene.judge().await
}
