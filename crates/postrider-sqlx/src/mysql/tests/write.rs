use postrider_core::{CallerTx, Error, OwnedTx, Store, TxSource, tx::OnDuplicate};
use sqlx::Connection;

use super::{Database, event, execute, number};
use crate::{MysqlStore, Sqlx};

const EVENTS: &str = "SELECT COUNT(*) FROM postrider_event";

#[tokio::test]
async fn a_bare_connection_is_taken_in_a_transaction_and_refused_outside_of_one() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut conn = store.pool().acquire().await.unwrap().detach();
    let refused = CallerTx::insert(&mut conn, store.target(), &[event("a")], OnDuplicate::Fail).await;
    assert!(matches!(refused, Err(Error::NotInTransaction { .. })), "{refused:?}");
    sqlx::raw_sql("START TRANSACTION").execute(&mut conn).await.unwrap();
    CallerTx::insert(&mut conn, store.target(), &[event("a")], OnDuplicate::Fail).await.unwrap();
    assert_eq!(number(&store, EVENTS).await, 0);
    sqlx::raw_sql("COMMIT").execute(&mut conn).await.unwrap();
    assert_eq!(number(&store, EVENTS).await, 1);
    conn.close().await.unwrap();
}

/// After a deadlock the database has rolled everything back; what is written then would commit at once and alone.
#[tokio::test]
async fn nothing_is_written_after_a_deadlock_that_the_program_swallowed() {
    let database = Database::new().await;
    let store = database.migrated().await;
    execute(
        &store,
        "CREATE TABLE business (id INT PRIMARY KEY, n INT); INSERT INTO business VALUES (1, 0), (2, 0)",
    )
    .await;
    let mut tx = TxSource::<Sqlx>::begin(&store).await.unwrap();
    let mut other = store.pool().begin().await.unwrap();
    // The other has written more, so it is the first that has to go.
    execute_on(&mut other, "INSERT INTO business VALUES (3, 0), (4, 0), (5, 0)").await;
    execute_on(tx.conn(), "UPDATE business SET n = 1 WHERE id = 1").await;
    execute_on(&mut other, "UPDATE business SET n = 2 WHERE id = 2").await;
    let blocked = tokio::spawn(async move {
        execute_on(&mut other, "UPDATE business SET n = 2 WHERE id = 1").await;
        other.commit().await.unwrap();
    });
    let swallowed = sqlx::raw_sql("UPDATE business SET n = 1 WHERE id = 2").execute(tx.conn()).await;
    blocked.await.unwrap();
    assert!(swallowed.is_err(), "no deadlock came about");
    let refused = OwnedTx::insert(&mut tx, store.target(), &[event("a")], OnDuplicate::Fail).await;
    assert!(matches!(refused, Err(Error::NotInTransaction { .. })), "{refused:?}");
    tx.commit().await.unwrap();
    assert_eq!(number(&store, EVENTS).await, 0);
}

async fn execute_on(conn: &mut sqlx::MySqlConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(conn).await.unwrap();
}

#[tokio::test]
async fn a_transaction_of_ours_reads_back_what_it_holds_and_not_what_a_savepoint_took() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut tx = TxSource::<Sqlx>::begin(store.pool()).await.unwrap();
    OwnedTx::insert(&mut tx, store.target(), &[event("a")], OnDuplicate::Fail).await.unwrap();
    execute_on(tx.conn(), "SAVEPOINT s").await;
    OwnedTx::insert(&mut tx, store.target(), &[event("b")], OnDuplicate::Fail).await.unwrap();
    execute_on(tx.conn(), "ROLLBACK TO SAVEPOINT s").await;
    let placed = tx.read_back(store.target(), &["a".into(), "b".into(), "c".into()]).await.unwrap();
    assert_eq!(placed.iter().map(|placed| placed.id.as_str()).collect::<Vec<_>>(), ["a"]);
    tx.rollback().await.unwrap();
    assert_eq!(number(&store, EVENTS).await, 0);
}

#[tokio::test]
async fn several_statements_of_events_are_written_all_or_none() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut events: Vec<_> = (0..2500).map(|n| event(&format!("id {n}"))).collect();
    let mut tx = store.pool().begin().await.unwrap();
    events.push(event("id 7"));
    let refused = (&mut tx).insert(store.target(), &events, OnDuplicate::Fail).await;
    assert!(
        matches!(&refused, Err(Error::DuplicateId { id: Some(id) }) if id.as_str() == "id 7"),
        "{refused:?}"
    );
    let new = (&mut tx).insert(store.target(), &events, OnDuplicate::Keep).await.unwrap();
    assert_eq!(new.iter().filter(|new| **new).count(), 2500);
    assert!(!new[2500]);
    tx.commit().await.unwrap();
    assert_eq!(number(&store, EVENTS).await, 2500);
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_transaction_of_another_database_is_refused() {
    let database = Database::new().await;
    let store: MysqlStore = database.store().await;
    let sqlite = crate::SqliteStore::connect("sqlite::memory:").await.unwrap();
    let mut tx = sqlite.pool().begin().await.unwrap();
    let refused = (&mut tx).insert(store.target(), &[event("a")], OnDuplicate::Fail).await;
    assert!(matches!(refused, Err(Error::WrongDatabase { outbox: "MySQL", .. })), "{refused:?}");
}
