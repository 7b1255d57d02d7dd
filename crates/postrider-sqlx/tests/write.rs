//! Writing through sqlx, and what is in the row afterwards.

mod support;

use std::{sync::Arc, time::Duration};

use postrider_core::{
    CallerTx, Error, Event, EventId, OwnedTx, Payload, Store, Target, Timestamp, TxSource,
    event::{Due, limits},
    store::EventStatus,
    tx::{Dialect, OnDuplicate},
};
use postrider_sqlx::SqliteStore;
use sqlx::{Connection, Row};
use support::{Folder, HOUR, Instance, event, execute, ids, in_memory, number, shell, write};

#[tokio::test]
async fn a_row_holds_what_the_event_said() {
    // S3-9.2a
    let store = in_memory().await;
    let before = Timestamp::now();
    let at = Timestamp::from_micros(1_700_000_000_123_456);
    let text = Event::json_text("OrderPlaced", r#"{"total":12}"#)
        .id("order-1")
        .aggregate("Order", 42)
        .tenant("acme")
        .header("source", "it's \"quoted\"")
        .occurred_at(at);
    let bytes = Event::bytes("Scanned", "image/png", vec![0, 255, 1]).key("printer").deliver_after(HOUR);
    write(&store, [text, bytes]).await;
    let after = Timestamp::now();

    let rows =
        sqlx::query("SELECT * FROM postrider_event ORDER BY seq").fetch_all(store.pool()).await.unwrap();
    let [text, bytes] = rows.as_slice() else { panic!("two rows") };
    let string = |row: &sqlx::sqlite::SqliteRow, column: &str| row.get::<Option<String>, _>(column);
    let time = |row: &sqlx::sqlite::SqliteRow, column: &str| Timestamp::from_micros(row.get(column));

    assert_eq!(string(text, "event_id").as_deref(), Some("order-1"));
    assert_eq!(string(text, "event_type").as_deref(), Some("OrderPlaced"));
    assert_eq!(string(text, "aggregate_type").as_deref(), Some("Order"));
    assert_eq!(string(text, "aggregate_id").as_deref(), Some("42"));
    assert_eq!(string(text, "ordering_key"), None);
    assert_eq!(string(text, "effective_key").as_deref(), Some("Order:42"));
    assert_eq!(string(text, "tenant_id").as_deref(), Some("acme"));
    assert_eq!(string(text, "content_type").as_deref(), Some("application/json"));
    assert_eq!(string(text, "headers").as_deref(), Some(r#"{"source":"it's \"quoted\""}"#));
    assert_eq!(string(text, "payload").as_deref(), Some(r#"{"total":12}"#));
    assert_eq!(text.get::<Option<Vec<u8>>, _>("payload_bytes"), None);
    assert_eq!(time(text, "occurred_at"), at);
    assert!(time(text, "created_at") >= before && time(text, "created_at") <= after);
    assert_eq!(time(text, "available_at"), time(text, "created_at"));

    assert_eq!(string(bytes, "aggregate_type").as_deref(), Some("__GLOBAL__"));
    assert_eq!(string(bytes, "effective_key").as_deref(), Some("printer"));
    assert_eq!(string(bytes, "headers"), None);
    assert_eq!(string(bytes, "payload"), None);
    assert_eq!(bytes.get::<Vec<u8>, _>("payload_bytes"), [0, 255, 1]);
    assert_eq!(time(bytes, "available_at"), time(bytes, "created_at").plus(HOUR));
    for row in &rows {
        assert_eq!(
            row.get::<i64, _>("status") + row.get::<i64, _>("parked") + row.get::<i64, _>("attempts"),
            0
        );
    }
}

#[tokio::test]
async fn an_event_is_claimed_as_it_was_written() {
    let store = in_memory().await;
    let written = [
        event("a").aggregate("Order", 7).tenant("t").header("x", "y").build().unwrap(),
        Event::bytes("B", "application/cbor", [1, 2]).key("k").build().unwrap(),
        event("c").build().unwrap(),
    ];
    write(&store, written.iter().map(Event::to_builder)).await;
    let claimed = Instance::new(&store).await.claim(10).await;
    let read: Vec<Event> = claimed.events.into_iter().map(|claimed| claimed.event.unwrap()).collect();
    assert_eq!(read, written);
}

#[tokio::test]
async fn a_due_time_is_kept() {
    let store = in_memory().await;
    let past = Timestamp::from_micros(1_000);
    let future = Timestamp::now().plus(HOUR);
    write(&store, [event("past").available_at(past), event("future").available_at(future)]).await;
    assert_eq!(
        number(&store, "SELECT available_at FROM postrider_event WHERE seq = 1").await,
        past.as_micros()
    );
    assert_eq!(
        number(&store, "SELECT available_at FROM postrider_event WHERE seq = 2").await,
        future.as_micros()
    );
    execute(&store, "UPDATE postrider_event SET available_at = created_at + 1, status = 0 WHERE seq = 2")
        .await;
    let claimed = Instance::new(&store).await.claim(10).await;
    let due: Vec<Due> = claimed.events.iter().map(|claimed| claimed.event.as_ref().unwrap().due()).collect();
    assert!(matches!(due.as_slice(), [Due::AtOnce, Due::At(_)]), "{due:?}");
}

#[tokio::test]
async fn values_at_their_limit_are_stored() {
    // S3-5.1
    let store = in_memory().await;
    let wide = |chars| "€".repeat(chars);
    let largest =
        Event::json_text(wide(limits::EVENT_TYPE_CHARS_MAX).as_str(), "x".repeat(limits::PAYLOAD_BYTES_MAX))
            .id(wide(limits::ID_CHARS_MAX))
            .aggregate(wide(limits::AGGREGATE_TYPE_CHARS_MAX).as_str(), wide(limits::AGGREGATE_ID_CHARS_MAX))
            .key(wide(limits::KEY_CHARS_MAX))
            .tenant(wide(limits::TENANT_ID_CHARS_MAX))
            .header("h", "\u{1}".repeat(limits::HEADERS_BYTES_MAX - 1))
            .build()
            .unwrap();
    write(&store, [largest.to_builder()]).await;
    let claimed = Instance::new(&store).await.claim(10).await;
    assert_eq!(claimed.events[0].event.as_ref().unwrap(), &largest);
}

#[tokio::test]
async fn values_are_bound_and_never_become_sql() {
    let store = in_memory().await;
    let evil = "x'); DROP TABLE postrider_event; --\"?1{p}";
    let written = Event::json_text(evil, evil)
        .id("'; DROP TABLE x; --")
        .aggregate(evil, evil)
        .key(evil)
        .tenant(evil)
        .header(evil, evil)
        .build()
        .unwrap();
    write(&store, [written.to_builder()]).await;
    let mut instance = Instance::new(&store).await;
    let claimed = instance.claim(10).await;
    assert_eq!(claimed.events[0].event.as_ref().unwrap(), &written);

    let settlement = support::settlement(&claimed.events[0], support::dead(true));
    assert_eq!(instance.settle(&[settlement]).await.applied, 1);
    assert!(store.why(evil).await.unwrap().is_some());
    assert_eq!(store.discard(std::slice::from_ref(written.id())).await.unwrap(), 1);
    assert_eq!(number(&store, "SELECT count(*) FROM postrider_event").await, 0);
}

#[tokio::test]
async fn an_event_lives_and_dies_with_the_callers_transaction() {
    let store = in_memory().await;
    execute(&store, "CREATE TABLE orders (id)").await;
    for commit in [false, true] {
        let mut tx = store.pool().begin().await.unwrap();
        sqlx::query("INSERT INTO orders VALUES (1)").execute(&mut *tx).await.unwrap();
        let events = [event("a").build().unwrap()];
        assert_eq!((&mut tx).insert(store.target(), &events, OnDuplicate::Fail).await.unwrap(), [true]);
        if commit {
            tx.commit().await.unwrap()
        } else {
            drop(tx)
        }
        let both =
            number(&store, "SELECT (SELECT count(*) FROM orders) * 10 + count(*) FROM postrider_event").await;
        assert_eq!(both, if commit { 11 } else { 0 });
    }
}

#[tokio::test]
async fn a_duplicate_id_is_an_error_of_its_own_kind_and_the_transaction_goes_on() {
    let store = in_memory().await;
    write(&store, [event("a")]).await;
    let (a, b) = (event("a").build().unwrap(), event("b").build().unwrap());
    let mut tx = store.pool().begin().await.unwrap();

    let error =
        (&mut tx).insert(store.target(), std::slice::from_ref(&a), OnDuplicate::Fail).await.unwrap_err();
    assert!(matches!(&error, Error::DuplicateId { id: Some(id) } if *id == "a"), "{error}");
    let both = [b.clone(), a.clone()];
    let error = (&mut tx).insert(store.target(), &both, OnDuplicate::Fail).await.unwrap_err();
    assert!(matches!(error, Error::DuplicateId { id: None }), "{error}");

    let three = [b.clone(), a.clone(), b.clone()];
    let new = (&mut tx).insert(store.target(), &three, OnDuplicate::Keep).await.unwrap();
    assert_eq!(new, [true, false, false]);
    let new = (&mut tx).insert(store.target(), &[b], OnDuplicate::Keep).await.unwrap();
    assert_eq!(new, [false]);
    tx.commit().await.unwrap();
    assert_eq!(number(&store, "SELECT count(*) FROM postrider_event").await, 2);
}

#[tokio::test]
async fn many_events_go_in_order_all_or_none() {
    let store = in_memory().await;
    let mut events: Vec<Event> = (0..2500).map(|n| event(&n.to_string()).build().unwrap()).collect();
    events.push(event("0").build().unwrap());
    let mut tx = store.pool().begin().await.unwrap();
    let error = (&mut tx).insert(store.target(), &events, OnDuplicate::Fail).await.unwrap_err();
    assert!(matches!(error, Error::DuplicateId { id: None }), "{error}");
    let count: i64 =
        sqlx::query_scalar("SELECT count(*) FROM postrider_event").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(count, 0);

    let new = (&mut tx).insert(store.target(), &events, OnDuplicate::Keep).await.unwrap();
    assert_eq!(new.iter().filter(|&&new| new).count(), 2500);
    assert_eq!(new.last(), Some(&false));
    assert!((&mut tx).insert(store.target(), &[], OnDuplicate::Fail).await.unwrap().is_empty());
    tx.commit().await.unwrap();
    let in_order = "SELECT count(*) FROM postrider_event AS a JOIN postrider_event AS b ON b.seq = a.seq + 1
                    WHERE b.event_id + 0 = a.event_id + 1";
    assert_eq!(number(&store, in_order).await, 2499);
}

#[tokio::test]
async fn a_bare_connection_is_asked_whether_it_is_in_a_transaction() {
    let store = in_memory().await;
    let events = [event("a").build().unwrap()];
    let mut conn = store.pool().acquire().await.unwrap();

    let error = (&mut *conn).insert(store.target(), &events, OnDuplicate::Fail).await.unwrap_err();
    assert!(matches!(error, Error::NotInTransaction { .. }), "{error}");

    // A BEGIN that sqlx does not know of, and one that it knows of.
    sqlx::raw_sql("BEGIN").execute(&mut *conn).await.unwrap();
    (&mut *conn).insert(store.target(), &events, OnDuplicate::Fail).await.unwrap();
    sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    (&mut *tx).insert(store.target(), &events, OnDuplicate::Fail).await.unwrap();
    tx.commit().await.unwrap();
    drop(conn);
    assert_eq!(number(&store, "SELECT count(*) FROM postrider_event").await, 1);
}

#[tokio::test]
async fn an_owned_transaction_knows_what_it_still_holds() {
    let store = in_memory().await;
    let events = ["a", "b"].map(|id| event(id).build().unwrap());
    let both: [EventId; 2] = ["a".into(), "b".into()];

    let mut tx = TxSource::begin(store.pool()).await.unwrap();
    tx.insert(store.target(), &events[..1], OnDuplicate::Fail).await.unwrap();
    sqlx::raw_sql("SAVEPOINT s").execute(tx.conn()).await.unwrap();
    tx.insert(store.target(), &events[1..], OnDuplicate::Fail).await.unwrap();
    assert_eq!(tx.read_back(store.target(), &both).await.unwrap().len(), 2);
    sqlx::raw_sql("ROLLBACK TO s").execute(tx.conn()).await.unwrap();
    let placed = tx.read_back(store.target(), &both).await.unwrap();
    assert_eq!(placed.len(), 1);
    assert_eq!((placed[0].id.as_str(), placed[0].seq, placed[0].lane), ("a", 1, 0));
    tx.commit().await.unwrap();

    let mut tx = TxSource::begin(store.pool()).await.unwrap();
    tx.insert(store.target(), &events[1..], OnDuplicate::Fail).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(number(&store, "SELECT count(*) FROM postrider_event").await, 1);
}

#[tokio::test]
async fn an_outbox_in_another_database_is_refused() {
    let store = in_memory().await;
    let target = Target { dialect: Dialect::Memory, ..store.target().clone() };
    let mut tx = store.pool().begin().await.unwrap();
    let events = [event("a").build().unwrap()];
    let error = (&mut tx).insert(&target, &events, OnDuplicate::Fail).await.unwrap_err();
    assert!(matches!(error, Error::WrongDatabase { .. }), "{error}");
}

#[tokio::test]
async fn a_plain_insert_from_the_shell_is_enough() {
    let folder = Folder::new();
    let file = folder.file("outbox.db");
    let store = support::in_file(&file).await;
    let before = Timestamp::now().minus(Duration::from_millis(2));
    shell(&file, "INSERT INTO postrider_event (event_type, payload) VALUES ('X', '{}')");
    shell(
        &file,
        "INSERT INTO postrider_event (event_type, payload_bytes, aggregate_type, aggregate_id, headers)
         VALUES ('Y', x'00ff', 'Order', 7, '{\"a\":\"b\"}')",
    );
    let claimed = Instance::new(&store).await.claim(10).await;
    let [x, y] = claimed.events.as_slice() else { panic!("two events: {claimed:?}") };
    let (x_row, x) = (x, x.event.as_ref().unwrap());
    assert_eq!(x.id().as_str().len(), 32);
    assert_eq!(
        (x.event_type(), x.aggregate_type(), x.content_type()),
        ("X", "__GLOBAL__", "application/json")
    );
    assert_eq!((x.key(), x.payload()), (None, &Payload::Text(Arc::from("{}"))));
    assert!(x.occurred_at() >= before && x_row.created_at >= before && x_row.created_at <= Timestamp::now());
    let y = y.event.as_ref().unwrap();
    assert_eq!((y.key(), y.payload().as_bytes()), (Some("Order:7"), [0u8, 255].as_slice()));
    assert_eq!(y.headers()["a"], "b");
}

#[tokio::test]
async fn a_row_needs_exactly_one_payload() {
    let store = in_memory().await;
    for values in [
        "INSERT INTO postrider_event (event_type) VALUES ('X')",
        "INSERT INTO postrider_event (event_type, payload, payload_bytes) VALUES ('X', '', x'')",
    ] {
        assert!(sqlx::query(values).execute(store.pool()).await.is_err(), "{values}");
    }
}

#[tokio::test]
async fn a_row_that_is_no_event_says_why_and_its_neighbours_are_delivered() {
    // S3-9.3a
    let store = in_memory().await;
    write(&store, [event("first")]).await;
    execute(
        &store,
        // What the table would refuse gets in all the same.
        "PRAGMA ignore_check_constraints = on;
         INSERT INTO postrider_event (event_id, event_type, ordering_key, payload, headers) VALUES
             ('no-json', 'X', 'k', '{}', '{'), ('no-strings', 'X', 'k', '{}', '{\"a\":1}'),
             ('blank', '', 'k', '{}', NULL), ('no-utf8', CAST(x'ff' AS TEXT), 'k', '{}', NULL),
             ('large', 'X', 'k', CAST(zeroblob(1048577) AS TEXT), NULL),
             ('headers', 'X', 'k', '{}', '{\"a\":\"' || hex(zeroblob(300000)) || '\"}'),
             (CAST(x'69ff' AS TEXT), 'X', 'k', '{}', NULL)",
    )
    .await;
    write(&store, [event("last")]).await;
    let claimed = Instance::new(&store).await.claim(10).await;
    let expected =
        ["first", "no-json", "no-strings", "blank", "no-utf8", "large", "headers", "i\u{fffd}", "last"];
    assert_eq!(ids(&claimed), expected);
    let reasons: Vec<&str> =
        claimed.events.iter().filter_map(|row| Some(row.event.as_ref().err()?.reason.as_str())).collect();
    for (reason, part) in reasons.iter().zip([
        "headers",
        "headers",
        "event_type is blank",
        "event_type",
        "1048577",
        "headers",
        "event_id",
    ]) {
        assert!(reason.contains(part), "{reason:?} says nothing of {part}");
    }
    assert_eq!(reasons.len(), 7);
    assert_eq!(claimed.events[1].event.as_ref().unwrap_err().key.as_deref(), Some("k"));
}

#[tokio::test]
async fn nothing_is_written_after_sqlite_has_ended_the_transaction_by_itself() {
    let folder = Folder::new();
    let store = SqliteStore::connect(&folder.file("x")).await.unwrap();
    store.migrate().await.unwrap();
    execute(&store, "CREATE TABLE business (id INTEGER PRIMARY KEY)").await;
    let event = Event::json_text("A", "{}").build().unwrap();

    for _ in 0..10 {
        // More often than there are connections: none of them is spoilt by it.
        let mut tx = TxSource::begin(&store).await.unwrap();
        sqlx::query("INSERT INTO business VALUES (1)").execute(tx.conn()).await.unwrap();
        let swallowed = sqlx::query("INSERT OR ROLLBACK INTO business VALUES (1)").execute(tx.conn()).await;
        assert!(swallowed.is_err());
        let written = tx.insert(store.target(), std::slice::from_ref(&event), OnDuplicate::Fail).await;
        assert!(matches!(written, Err(Error::NotInTransaction { .. })), "{written:?}");
        assert!(tx.commit().await.is_err());
    }
    assert_eq!(store.status(event.id()).await.unwrap(), EventStatus::Absent);
    assert_eq!(number(&store, "SELECT count(*) FROM business").await, 0);

    let mut conn = store.pool().acquire().await.unwrap();
    sqlx::raw_sql("BEGIN; INSERT INTO business VALUES (1)").execute(&mut *conn).await.unwrap();
    let _ = sqlx::query("INSERT OR ROLLBACK INTO business VALUES (1)").execute(&mut *conn).await;
    let written =
        CallerTx::insert(&mut *conn, store.target(), std::slice::from_ref(&event), OnDuplicate::Fail).await;
    assert!(matches!(written, Err(Error::NotInTransaction { .. })), "{written:?}");
}

#[tokio::test]
async fn a_savepoint_that_is_rolled_back_does_not_end_the_transaction() {
    let folder = Folder::new();
    let store = SqliteStore::connect(&folder.file("x")).await.unwrap();
    store.migrate().await.unwrap();
    let event = Event::json_text("A", "{}").build().unwrap();
    let mut tx = TxSource::begin(&store).await.unwrap();
    sqlx::raw_sql("SAVEPOINT s; ROLLBACK TO s; RELEASE s").execute(tx.conn()).await.unwrap();
    tx.insert(store.target(), std::slice::from_ref(&event), OnDuplicate::Fail).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.status(event.id()).await.unwrap(), EventStatus::New);
}
