//! What is written is what is read, whatever it holds: for every driver, directly and through PgBouncer, where one of them has to put
//! values into the text of its statements. And an event without a key lies where its writer wished.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says so by a panic"
)]

mod support;

use std::collections::BTreeMap;

use postrider_core::{Event, Payload, Timestamp, tx::OnDuplicate};
use postrider_testkit::conformance::{Failure, StoreHarness};
use sqlx::{Row, postgres::PgRow};
use support::{
    drivers::Driver,
    harness::{DriverHarness, Way},
};

/// What has a meaning somewhere on the way: in SQL, in its strings of either kind, in an array, in JSON, in a parameter.
const ODD: [&str; 12] = [
    "it's",
    "''); DROP TABLE postrider_event; --",
    "\\",
    "\\'); DROP TABLE postrider_event; --",
    "E'\\x27",
    "$1 $14 $$ $tag$",
    "{NULL,\"a\"}",
    "NULL",
    "\"quoted\", \\\"and\\\"",
    "\u{1f40e} \u{fffd} \u{202e} \u{7f} \u{1}",
    "a\r\nb\tc ?",
    "\u{e9} e\u{301} \u{10ffff}",
];

/// Each of them in every field; a text, and bytes of every kind.
fn odd_events() -> Vec<Event> {
    let every_byte: Vec<u8> = (0..=255).collect();
    let mut events: Vec<Event> = ODD
        .iter()
        .map(|odd| {
            Event::json_text(*odd, format!("payload {odd}"))
                .aggregate(*odd, odd)
                .key(*odd)
                .tenant(*odd)
                .header(*odd, *odd)
                .occurred_at(Timestamp::from_micros(-1))
                .build()
                .unwrap()
        })
        .collect();
    for bytes in [every_byte, Vec::new(), b"\\x27'".to_vec()] {
        events.push(Event::bytes("Bytes", "application/x; a='\\'", bytes).build().unwrap());
    }
    events.push(Event::json_text("Empty", "").available_at(Timestamp::from_micros(-5)).build().unwrap());
    events
}

fn assert_same(event: &Event, row: &PgRow) {
    let text = |column: &str| row.get::<Option<String>, _>(column);
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(text("event_type"), some(event.event_type()));
    assert_eq!(text("aggregate_type"), some(event.aggregate_type()));
    assert_eq!(text("aggregate_id").as_deref(), event.aggregate_id());
    assert_eq!(text("ordering_key").as_deref(), event.ordering_key());
    assert_eq!(text("tenant_id").as_deref(), event.tenant_id());
    assert_eq!(text("content_type"), some(event.content_type()));
    let headers: BTreeMap<String, String> =
        text("headers").map(|json| serde_json::from_str(&json).unwrap()).unwrap_or_default();
    assert_eq!(&headers, event.headers());
    match event.payload() {
        Payload::Text(payload) => assert_eq!(text("payload").as_deref(), Some(&**payload)),
        Payload::Bytes(payload) => {
            assert_eq!(row.get::<Option<Vec<u8>>, _>("payload_bytes").as_deref(), Some(&**payload));
        }
    }
    assert_eq!(row.get::<i64, _>("occurred_us"), event.occurred_at().as_micros());
}

async fn what_is_written_is_what_is_read<D: Driver, W: Way>() -> Result<(), Failure> {
    let harness = DriverHarness::<D, W>::fresh().await?;
    let (alone, together) = (odd_events(), odd_events());
    let mut tx = harness.begin().await?;
    // With this off a backslash escapes in every string.
    harness.run(&tx, "SET LOCAL standard_conforming_strings = off").await?;
    for event in &alone {
        let new = harness.insert(&mut tx, std::slice::from_ref(event), OnDuplicate::Fail).await?;
        assert_eq!(new, [true]);
    }
    let new = harness.insert(&mut tx, &together, OnDuplicate::Fail).await?;
    assert_eq!(new, vec![true; together.len()]);
    // Some are there, others not: each is asked for by itself where the driver cannot tell.
    let mixed = [&odd_events()[..2], &together[..2]].concat();
    assert_eq!(harness.insert(&mut tx, &mixed, OnDuplicate::Keep).await?, [true, true, false, false]);
    harness.commit(tx).await?;

    let sql = "SELECT *, CAST(extract(epoch FROM occurred_at) * 1000000 AS bigint) AS occurred_us \
               FROM postrider_event ORDER BY seq";
    let rows = sqlx::query(sql).fetch_all(harness.store.pool()).await?;
    let written: Vec<&Event> = alone.iter().chain(&together).chain(&mixed[..2]).collect();
    assert_eq!(rows.len(), written.len());
    for (event, row) in written.into_iter().zip(&rows) {
        assert_same(event, row);
    }
    Ok(())
}

async fn an_event_without_a_key_lies_where_its_writer_wished<D: Driver, W: Way>() -> Result<(), Failure> {
    let harness = DriverHarness::<D, W>::fresh().await?;
    harness.target.hints.offer(vec![3, 61]);
    let unkeyed = || Event::json_text("Unkeyed", "{}").build().unwrap();
    let keyed = Event::json_text("Keyed", "{}").key("k").build()?;
    let mut tx = harness.begin().await?;
    harness.insert(&mut tx, &[unkeyed()], OnDuplicate::Fail).await?;
    harness.insert(&mut tx, &[keyed, unkeyed(), unkeyed()], OnDuplicate::Fail).await?;
    harness.target.hints.offer(Vec::new());
    harness.insert(&mut tx, &[unkeyed()], OnDuplicate::Fail).await?;
    harness.commit(tx).await?;
    let hints: Vec<Option<i32>> = sqlx::query_scalar("SELECT lane_hint FROM postrider_event ORDER BY seq")
        .fetch_all(harness.store.pool())
        .await?;
    assert_eq!(hints, [Some(3), None, Some(61), Some(3), None]);
    let lanes: Vec<i32> = sqlx::query_scalar(
        "SELECT CAST(lane AS integer) FROM postrider_event WHERE lane_hint IS NOT NULL ORDER BY seq",
    )
    .fetch_all(harness.store.pool())
    .await?;
    assert_eq!(lanes, [3, 61, 3]);
    Ok(())
}

macro_rules! drivers {
    ($($module:ident: $driver:ident,)*) => {
        $(mod $module {
            use crate::support::{drivers::$driver, harness::{Direct, Pooled}};
            use postrider_testkit::conformance::Failure;

            #[tokio::test]
            async fn what_is_written_is_what_is_read() -> Result<(), Failure> {
                crate::what_is_written_is_what_is_read::<$driver, Direct>().await
            }

            #[tokio::test]
            async fn what_is_written_through_a_pooler_is_what_is_read() -> Result<(), Failure> {
                crate::what_is_written_is_what_is_read::<$driver, Pooled>().await
            }

            #[tokio::test]
            async fn an_event_without_a_key_lies_where_its_writer_wished() -> Result<(), Failure> {
                crate::an_event_without_a_key_lies_where_its_writer_wished::<$driver, Direct>().await?;
                crate::an_event_without_a_key_lies_where_its_writer_wished::<$driver, Pooled>().await
            }
        })*
    };
}

drivers! {
    tokio_postgres: TokioPostgres,
    tokio_postgres_client: TokioPostgresClient,
    deadpool_postgres: DeadpoolPostgres,
    diesel_async: DieselAsync,
    sea_orm: SeaOrm,
}
