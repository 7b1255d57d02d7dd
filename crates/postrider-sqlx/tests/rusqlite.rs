//! Writing through rusqlite.
#![cfg(feature = "rusqlite")]
#![allow(clippy::unwrap_used, reason = "clippy takes functions beside the tests for no tests")]

mod support;

use postrider_core::{BlockingCallerTx, Error, Event, SchemaError, Store, Target, tx::OnDuplicate};
use rusqlite::Connection;
use support::{Folder, Instance, event, in_file};

/// A database with an outbox, a connection of rusqlite's to it, and the table to insert into.
async fn outbox(folder: &Folder) -> (Connection, Target, Instance) {
    let file = folder.file("outbox.db");
    let store = in_file(&file).await;
    let conn = Connection::open(&file).unwrap();
    conn.execute_batch("CREATE TABLE orders (id)").unwrap();
    let target = store.target().clone();
    (conn, target, Instance::new(&store).await)
}

fn count(conn: &Connection, table: &str) -> i64 {
    conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn an_event_lives_and_dies_with_the_transaction() {
    let folder = Folder::new();
    let (mut conn, target, mut instance) = outbox(&folder).await;
    let written = [
        event("a").aggregate("Order", 1).header("h", "it's").tenant("t").build().unwrap(),
        Event::bytes("B", "image/png", [0, 255]).key("k").build().unwrap(),
    ];
    for commit in [false, true] {
        let tx = conn.transaction().unwrap();
        tx.execute("INSERT INTO orders VALUES (1)", []).unwrap();
        assert_eq!((&tx).insert(&target, &written, OnDuplicate::Fail).unwrap(), [true, true]);
        if commit {
            tx.commit().unwrap()
        } else {
            tx.rollback().unwrap()
        }
        let expected = if commit { (1, 2) } else { (0, 0) };
        assert_eq!((count(&conn, "orders"), count(&conn, "postrider_event")), expected);
    }
    let read: Vec<Event> =
        instance.claim(10).await.events.into_iter().map(|claimed| claimed.event.unwrap()).collect();
    assert_eq!(read, written);
}

#[tokio::test]
async fn a_savepoint_and_a_connection_in_a_transaction_will_do() {
    let folder = Folder::new();
    let (mut conn, target, _) = outbox(&folder).await;
    let mut tx = conn.transaction().unwrap();
    let savepoint = tx.savepoint().unwrap();
    (&savepoint).insert(&target, &[event("a").build().unwrap()], OnDuplicate::Fail).unwrap();
    drop(savepoint);
    assert_eq!(count(&tx, "postrider_event"), 0);
    drop(tx);

    conn.execute_batch("BEGIN").unwrap();
    (&conn).insert(&target, &[event("b").build().unwrap()], OnDuplicate::Fail).unwrap();
    conn.execute_batch("COMMIT").unwrap();
    assert_eq!(count(&conn, "postrider_event"), 1);
}

#[tokio::test]
async fn a_connection_in_no_transaction_is_refused() {
    let folder = Folder::new();
    let (conn, target, _) = outbox(&folder).await;
    let error = (&conn).insert(&target, &[event("a").build().unwrap()], OnDuplicate::Fail).unwrap_err();
    assert!(matches!(error, Error::NotInTransaction { driver: "rusqlite" }), "{error}");
    assert_eq!(count(&conn, "postrider_event"), 0);
}

#[tokio::test]
async fn a_duplicate_id_is_an_error_of_its_own_kind_or_kept() {
    let folder = Folder::new();
    let (mut conn, target, _) = outbox(&folder).await;
    let events = ["a", "b"].map(|id| event(id).build().unwrap());
    let tx = conn.transaction().unwrap();
    (&tx).insert(&target, &events[..1], OnDuplicate::Fail).unwrap();
    let error = (&tx).insert(&target, &events[..1], OnDuplicate::Fail).unwrap_err();
    assert!(matches!(&error, Error::DuplicateId { id: Some(id) } if *id == "a"), "{error}");
    assert_eq!((&tx).insert(&target, &events, OnDuplicate::Keep).unwrap(), [false, true]);

    // More than one statement takes: all of them or none.
    let mut many: Vec<Event> = (0..1500).map(|n| event(&n.to_string()).build().unwrap()).collect();
    many.push(events[0].clone());
    let error = (&tx).insert(&target, &many, OnDuplicate::Fail).unwrap_err();
    assert!(matches!(error, Error::DuplicateId { id: None }), "{error}");
    assert_eq!(count(&tx, "postrider_event"), 2);
    let new = (&tx).insert(&target, &many, OnDuplicate::Keep).unwrap();
    assert_eq!(new.iter().filter(|&&new| new).count(), 1500);
}

#[tokio::test]
async fn a_missing_table_is_named() {
    let folder = Folder::new();
    let (_, target, _) = outbox(&folder).await;
    let mut empty = Connection::open_in_memory().unwrap();
    let tx = empty.transaction().unwrap();
    let error = (&tx).insert(&target, &[event("a").build().unwrap()], OnDuplicate::Fail).unwrap_err();
    assert!(
        matches!(&error, Error::Schema(SchemaError::Missing { table }) if table == "postrider_event"),
        "{error}"
    );
}
