//! What the PostgreSQL store makes of a database whose past is not what it was: late commits, restored rows, and steps back in time.
#![allow(clippy::unwrap_used, reason = "clippy takes functions beside the tests for no tests")]

#[path = "postgres/support.rs"]
mod support;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use postrider_core::{
    CallerTx, Error, Store, StoreErrorKind,
    store::{Admission, Change, RowSummary, Seq},
    tx::{OnDuplicate, Prefix},
};
use postrider_sqlx::PgStore;
use sqlx::{Connection, PgConnection, Row};
use support::{Database, Owner, event, settlement, write};

/// Wants nothing of one type, and counts how often it was asked about each event of it.
#[derive(Debug, Default)]
struct ButForRestored(Mutex<BTreeMap<Seq, usize>>);

impl Admission for ButForRestored {
    fn admits(&self, row: &RowSummary<'_>) -> bool {
        let restored = row.event_type == "Restored";
        if restored {
            *self.0.lock().unwrap().entry(row.seq).or_default() += 1;
        }
        !restored
    }
}

/// Rows that were restored from a server with more transactions say that they were written by one that has not begun here.
#[tokio::test]
async fn restored_rows_of_a_server_with_more_transactions_are_met_once_and_keep_nothing_back() {
    const RESTORED: usize = 5000;
    const NEW: usize = 13_000;
    let database = Database::new().await;
    let store = database.migrated().await;
    // As `pg_restore --disable-triggers` does it.
    database
        .run(&format!(
            "ALTER TABLE postrider_event DISABLE TRIGGER postrider_event_insert;
             INSERT INTO postrider_event (event_type, ordering_key, payload, lane, written_in)
             SELECT 'Restored', 'key ' || i % 400, '{{}}', i % 64, '900000000000'::xid8 FROM generate_series(1, {RESTORED}) AS i;
             ALTER TABLE postrider_event ENABLE TRIGGER postrider_event_insert"
        ))
        .await;
    let mut owner = Owner::lease(&store).await;
    let admission = Arc::new(ButForRestored::default());
    owner.admit(admission.clone());
    for batch in 0..NEW / 1000 {
        let insert = format!(
            "INSERT INTO postrider_event (event_type, ordering_key, payload)
             SELECT 'New', 'key ' || i % 400, '{{}}' FROM generate_series({batch} * 1000 + 1, {batch} * 1000 + 1000) AS i"
        );
        database.run(&insert).await;
        let (mut delivered, began) = (0, Instant::now());
        while delivered < 1000 && began.elapsed() < Duration::from_secs(30) {
            delivered += owner.deliver(&store).await;
        }
        assert_eq!(delivered, 1000, "of batch {batch}");
    }
    let asked = admission.0.lock().unwrap();
    assert_eq!((asked.len(), asked.values().max()), (RESTORED, Some(&1)));
}

/// Rows of a server that was a little ahead name transactions that this one begins soon. That of a restored row is not another one's.
#[tokio::test]
async fn restored_rows_are_not_taken_for_those_of_transactions_that_are_given_their_ids_later() {
    let database = Database::new().await;
    let store = database.migrated().await;
    database
        .run(
            "ALTER TABLE postrider_event DISABLE TRIGGER postrider_event_insert;
             INSERT INTO postrider_event (event_type, ordering_key, payload, lane, written_in)
             SELECT 'Restored', 'key ' || i % 10, '{}', i % 64,
                    (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 5 + i)::text::xid8
             FROM generate_series(1, 100) AS i;
             ALTER TABLE postrider_event ENABLE TRIGGER postrider_event_insert",
        )
        .await;
    let mut owner = Owner::lease(&store).await;
    let admission = Arc::new(ButForRestored::default());
    owner.admit(admission.clone());
    for number in 0..200 {
        write(&store, &[event(&format!("new {number}"))]).await;
        assert_eq!(owner.deliver(&store).await, 1, "event {number}");
    }
    let asked = admission.0.lock().unwrap();
    assert_eq!((asked.len(), asked.values().max()), (100, Some(&1)));
}

/// Two transactions on a server where nothing else happens: the one that began last commits last, and has the smaller number. The end of a
/// snapshot between them says nothing of it.
#[tokio::test]
async fn an_event_comes_whose_transaction_began_after_the_last_one_that_a_claim_saw() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut owner = Owner::lease(&store).await;
    let (mut one, mut two): (PgConnection, PgConnection) = (database.raw().await, database.raw().await);
    let (mut early, mut last) = (one.begin().await.unwrap(), two.begin().await.unwrap());
    sqlx::raw_sql("SELECT pg_current_xact_id()").execute(&mut *early).await.unwrap();
    (&mut last).insert(store.target(), &[event("k")], OnDuplicate::Fail).await.unwrap();
    let late: i64 =
        sqlx::query("SELECT max(seq) FROM postrider_event").fetch_one(&mut *last).await.unwrap().get(0);
    (&mut early).insert(store.target(), &[event("k")], OnDuplicate::Fail).await.unwrap();
    early.commit().await.unwrap();
    // What comes is not settled: that would be a transaction too, and a later one.
    assert_eq!(owner.claim(&store).await.events.len(), 1);
    assert!(owner.claim(&store).await.events.is_empty());
    last.commit().await.unwrap();
    write(&store, &[event("k")]).await;
    let events = owner.claim(&store).await.events;
    assert_eq!(events.first().map(|event| event.seq as i64), Some(late));
}

/// A transaction commits more behind the forward reads than a claim takes. What committed in front of them waits until all of it was met: the key
/// may have an event in it.
#[tokio::test]
async fn what_committed_late_and_is_more_than_a_claim_takes_comes_in_steps_before_what_follows_it() {
    const LATE: u64 = 5000;
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut owner = Owner::lease(&store).await;
    let mut conn = database.raw().await;
    let mut open = conn.begin().await.unwrap();
    let insert = "INSERT INTO postrider_event (event_type, ordering_key, payload)
                  SELECT 'X', 'key ' || i % 400, '{}' FROM generate_series(1, 5000) AS i";
    sqlx::raw_sql(insert).execute(&mut *open).await.unwrap();
    write(&store, &[event("key 7")]).await;
    assert_eq!(owner.deliver(&store).await, 1);
    open.commit().await.unwrap();
    write(&store, &[event("key 7")]).await;
    let (mut seqs, mut steps) = (Vec::new(), 0);
    while seqs.len() < LATE as usize + 1 {
        let claimed = owner.claim(&store).await;
        let events = claimed.events;
        assert!(claimed.more || !events.is_empty(), "{} events in {steps} steps", seqs.len());
        let done: Vec<_> = events.iter().map(|event| settlement(event, Change::Done)).collect();
        store.settle(owner.leases(), &done, Duration::ZERO).await.unwrap();
        seqs.extend(events.iter().map(|event| event.seq));
        steps += usize::from(owner.scanned_to().is_some());
    }
    assert!(steps > 1, "{steps} steps");
    assert_eq!(seqs, (1..=LATE).chain([LATE + 2]).collect::<Vec<_>>());
}

/// What is paused stays in the table. A transaction that is open all the while makes no claim read it again.
#[tokio::test]
async fn what_is_paused_is_met_once_however_long_a_transaction_stays_open() {
    const PAUSED: u64 = 70_000;
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut owner = Owner::lease(&store).await;
    let admission = Arc::new(ButForRestored::default());
    owner.admit(admission.clone());
    let mut conn = database.raw().await;
    let mut open = conn.begin().await.unwrap();
    let paused = |from: u64, to: u64| {
        format!(
            "INSERT INTO postrider_event (event_type, ordering_key, payload)
             SELECT 'Restored', 'key ' || i % 400, '{{}}' FROM generate_series({from}, {to}) AS i"
        )
    };
    database.run(&paused(1, PAUSED / 2)).await;
    (&mut open).insert(store.target(), &[event("k")], OnDuplicate::Fail).await.unwrap();
    database.run(&paused(PAUSED / 2 + 1, PAUSED)).await;
    let mut ended = false;
    for _ in 0..1000 {
        ended = !owner.claim(&store).await.more;
        if ended {
            break;
        }
    }
    assert!(ended, "1000 claims have not met {PAUSED} events");
    for _ in 0..20 {
        owner.claim(&store).await;
    }
    let asked = admission.0.lock().unwrap().clone();
    assert_eq!((asked.len() as u64, asked.values().max()), (PAUSED, Some(&1)));

    open.commit().await.unwrap();
    write(&store, &[event("k")]).await;
    let seqs: Vec<_> = owner.claim(&store).await.events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, [PAUSED / 2 + 1, PAUSED + 2]);
}

/// Somebody copies an event by hand and gives it a number that the sequence is far from giving.
#[tokio::test]
async fn a_number_far_beyond_the_sequence_is_delivered_and_holds_up_nothing_that_comes_after_it() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut owner = Owner::lease(&store).await;
    write(&store, &[event("k")]).await;
    assert_eq!(owner.deliver(&store).await, 1);
    for far in [1_000_000_000_000_i64, i64::MAX - 5] {
        let stray = format!(
            "INSERT INTO postrider_event (seq, event_type, ordering_key, payload) OVERRIDING SYSTEM VALUE VALUES ({far}, 'Stray', 'k', '')"
        );
        database.run(&stray).await;
        assert_eq!(owner.deliver(&store).await, 1, "{far}");
        for _ in 0..20 {
            owner.claim(&store).await;
        }
        for number in 0..20 {
            write(&store, &[event(&format!("key {number}"))]).await;
            assert_eq!(owner.deliver(&store).await, 1, "event {number} after {far}");
        }
    }
}

/// Some servers do not let everybody ask where the log ends. A plan that is kept, which is made after a few claims, must not name what asks.
#[tokio::test]
async fn a_role_that_may_not_ask_where_the_log_ends_goes_on_claiming() {
    let database = Database::new().await;
    database.migrated().await;
    let role = format!("relay_{}", database.name);
    database
        .run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA public TO {role}"))
        .await;
    database.run(&PgStore::grants_sql(&Prefix::default(), &role, &role, &role)).await;
    for function in [
        "pg_current_wal_insert_lsn()",
        "pg_walfile_name(pg_lsn)",
        "pg_is_in_recovery()",
        "pg_stat_get_bgwriter_stat_reset_time()",
    ] {
        database.run(&format!("REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")).await;
    }
    let store = PgStore::connect(&database.url_of(&role, "x")).await.unwrap();
    store.rehearse(false).await.unwrap();
    let mut owner = Owner::lease(&store).await;
    for number in 0..30 {
        write(&store, &[event(&format!("key {number}"))]).await;
        assert_eq!(owner.deliver(&store).await, 1, "event {number}");
        // The next one goes the careful way.
        if number % 2 == 0 {
            owner.look_from_the_start();
        }
    }
    store.close().await;
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

fn kind(error: &Error) -> Option<StoreErrorKind> {
    match error {
        Error::Store(error) => Some(error.kind()),
        _ => None,
    }
}

/// Tables that were dropped and made again are another database: the store says so once, and begins anew.
#[tokio::test]
async fn tables_that_were_made_again_are_a_step_back_that_is_told_once() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut owner = Owner::lease(&store).await;
    write(&store, &[event("a"), event("b")]).await;
    assert_eq!(owner.deliver(&store).await, 2);
    let drop = "DROP TABLE postrider_event, postrider_done, postrider_lane, postrider_member, postrider_hold,
                postrider_pause, postrider_meta";
    database.run(drop).await;
    store.migrate().await.unwrap();
    write(&store, &[event("a")]).await;
    let error = owner.try_claim(&store).await.unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::WentBack), "{error:?}");
    let mut anew = Owner::lease(&store).await;
    let events = anew.claim(&store).await.events;
    assert_eq!(events.len(), 1);
    let done: Vec<_> = events.iter().map(|event| settlement(event, Change::Done)).collect();
    store.settle(anew.leases(), &done, Duration::ZERO).await.unwrap();
}
