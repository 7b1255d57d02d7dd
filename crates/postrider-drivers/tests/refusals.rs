//! What the writers refuse, how they say it, and what they leave behind on the server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says so by a panic"
)]

mod support;

use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use postrider_core::{
    CallerTx, Error, Event, SchemaError, Store, Target,
    tx::{Dialect, OnDuplicate, Prefix},
};
use postrider_sqlx::PgStore;
use sea_orm::{ConnectionTrait, TransactionTrait};
use support::{Database, drivers};

type Tested = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn events() -> [Event; 2] {
    [(); 2].map(|()| Event::json_text("Tested", "{}").build().unwrap())
}

async fn migrated(database: &Database) -> Result<PgStore, Error> {
    let store = PgStore::builder().pooled(false).connections(2).connect(&database.url()).await?;
    store.migrate().await?;
    Ok(store)
}

/// The event table of an outbox that nobody made.
fn missing() -> Target {
    postrider_drivers::postgres::target(&Prefix::new("nobody_").unwrap(), true)
}

fn is_missing(answer: Result<Vec<bool>, Error>) -> bool {
    matches!(answer, Err(Error::Schema(SchemaError::Missing { table })) if table == "nobody_event")
}

fn elsewhere() -> Target {
    Target { dialect: Dialect::Mysql, ..missing() }
}

#[tokio::test]
async fn a_bare_connection_outside_of_a_transaction_is_refused_and_nothing_is_written() -> Tested {
    let database = Database::new().await;
    let store = migrated(&database).await?;
    let client = drivers::client(&database.url()).await?;
    let refused = (&client).insert(store.target(), &events(), OnDuplicate::Fail).await;
    assert!(matches!(refused, Err(Error::NotInTransaction { driver: "tokio-postgres" })), "{refused:?}");

    let mut conn = AsyncPgConnection::establish(&database.url()).await?;
    let refused = conn.insert(store.target(), &events(), OnDuplicate::Fail).await;
    assert!(
        matches!(refused, Err(Error::NotInTransaction { driver: "diesel-async (PostgreSQL)" })),
        "{refused:?}"
    );
    assert_eq!(store.stats().await?.pending, 0);
    Ok(())
}

#[tokio::test]
async fn a_transaction_that_has_failed_is_not_taken_for_none() -> Tested {
    let database = Database::new().await;
    let store = migrated(&database).await?;
    let client = drivers::client(&database.url()).await?;
    client.batch_execute("BEGIN").await?;
    assert!(client.batch_execute("SELECT no_such_column").await.is_err());
    let refused = (&client).insert(store.target(), &events(), OnDuplicate::Fail).await;
    assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");

    let mut conn = AsyncPgConnection::establish(&database.url()).await?;
    conn.batch_execute("BEGIN").await?;
    assert!(conn.batch_execute("SELECT no_such_column").await.is_err());
    let refused = conn.insert(store.target(), &events(), OnDuplicate::Fail).await;
    assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn a_missing_table_and_an_outbox_elsewhere_are_named_by_every_driver() -> Tested {
    let database = Database::new().await;
    let is_elsewhere = |answer| matches!(answer, Err(Error::WrongDatabase { outbox: "MySQL", .. }));

    let mut client = drivers::client(&database.url()).await?;
    let tx = client.transaction().await?;
    assert!(is_elsewhere((&tx).insert(&elsewhere(), &events(), OnDuplicate::Fail).await));
    assert!(is_missing((&tx).insert(&missing(), &events(), OnDuplicate::Fail).await));
    tx.rollback().await?;

    let mut client = drivers::pool(&database.url())?.get().await?;
    let tx = client.transaction().await?;
    assert!(is_elsewhere((&tx).insert(&elsewhere(), &events(), OnDuplicate::Fail).await));
    assert!(is_missing((&tx).insert(&missing(), &events(), OnDuplicate::Fail).await));
    tx.rollback().await?;

    let mut conn = AsyncPgConnection::establish(&database.url()).await?;
    conn.batch_execute("BEGIN").await?;
    assert!(is_elsewhere(conn.insert(&elsewhere(), &events(), OnDuplicate::Fail).await));
    assert!(is_missing(conn.insert(&missing(), &events(), OnDuplicate::Fail).await));

    let tx = drivers::sea_orm(&database.url()).await?.begin().await?;
    assert!(is_elsewhere((&tx).insert(&elsewhere(), &events(), OnDuplicate::Fail).await));
    assert!(is_missing((&tx).insert(&missing(), &events(), OnDuplicate::Fail).await));
    Ok(())
}

/// Behind a pooler a statement that stays would be somebody else's.
#[tokio::test]
async fn statements_stay_prepared_only_where_they_may() -> Tested {
    const LEFT: &str = "DO $$ BEGIN IF (SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO postrider%') \
                        <> 2 THEN RAISE EXCEPTION 'not two'; END IF; END $$";
    let database = Database::new().await;
    let store = migrated(&database).await?;
    for prepared in [true, false] {
        let target = Target { prepared, ..store.target().clone() };
        let mut conn = AsyncPgConnection::establish(&database.url()).await?;
        conn.batch_execute("BEGIN").await?;
        for _ in 0..2 {
            conn.insert(&target, &events(), OnDuplicate::Fail).await?;
            conn.insert(&target, &events()[..1], OnDuplicate::Fail).await?;
        }
        conn.batch_execute("COMMIT").await?;
        assert_eq!(conn.batch_execute(LEFT).await.is_ok(), prepared);

        let client = drivers::client(&database.url()).await?;
        client.batch_execute("BEGIN").await?;
        (&client).insert(&target, &events(), OnDuplicate::Fail).await?;
        let left =
            client.query_one("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''", &[]).await?;
        // The one that counts is there itself.
        assert_eq!(left.try_get::<_, i64>(0)?, 1);
    }
    Ok(())
}

#[tokio::test]
async fn a_nested_transaction_of_sea_orm_is_rolled_back_alone() -> Tested {
    let database = Database::new().await;
    let store = migrated(&database).await?;
    let tx = drivers::sea_orm(&database.url()).await?.begin().await?;
    (&tx).insert(store.target(), &events(), OnDuplicate::Fail).await?;
    let nested = tx.begin().await?;
    (&nested).insert(store.target(), &events(), OnDuplicate::Fail).await?;
    nested.rollback().await?;
    tx.execute_unprepared("SELECT 1").await?;
    tx.commit().await?;
    assert_eq!(store.stats().await?.pending, 2);
    Ok(())
}
