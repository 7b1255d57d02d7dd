//! What is refused: unknown types, large payloads, ids that are there, and transactions of another database.

use postrider::{Error, Event, EventError};

use crate::parts::{Recorder, Site, on_every_store, plain};

on_every_store![
    an_unknown_type_is_refused_and_told_with_the_known_ones,
    a_payload_over_the_limit_of_the_outbox_is_refused,
    an_event_that_is_there_already_is_an_error_or_left_as_it_is,
];

async fn an_unknown_type_is_refused_and_told_with_the_known_ones(site: Site) {
    let outbox = site.outbox().known_types(["Placed", "Shipped"]).write_only().await.unwrap();
    let error = in_transaction!(site, |tx| outbox.write(tx, plain("Palced")).await.unwrap_err());
    let text = error.to_string();
    assert!(matches!(error, Error::UnknownType { .. }));
    assert!(text.contains("Palced") && text.contains("Placed, Shipped"), "{text}");
    site.write(&outbox, plain("Placed")).await;
    assert_eq!(site.store.stats().await.unwrap().pending, 1);
}

async fn a_payload_over_the_limit_of_the_outbox_is_refused(site: Site) {
    // S3-6.2a
    let outbox = site.outbox().payload_max(100).write_only().await.unwrap();
    site.write(&outbox, Event::json_text("A", "x".repeat(100))).await;
    let error = in_transaction!(site, |tx| {
        outbox.write(tx, Event::json_text("A", "x".repeat(101))).await.unwrap_err()
    });
    let expected = EventError::TooLong { field: "payload", size: 101, limit: 100, unit: "bytes" };
    assert_eq!(error.to_string(), Error::Event(expected).to_string());
    // The largest there is goes through the whole way.
    let seen = Recorder::default();
    let outbox = site.outbox().on("A", seen.delivers()).start().await.unwrap();
    let largest = site.write(&outbox, Event::json_text("A", "x".repeat(1_048_576))).await;
    site.until_done(&largest).await;
    assert!(seen.seen().iter().any(|delivery| delivery.payload().len() == 1_048_576));
    let too_large = Event::json_text("A", "x".repeat(1_048_577)).build().unwrap_err();
    assert!(matches!(too_large, EventError::TooLong { size: 1_048_577, limit: 1_048_576, .. }));
}

async fn an_event_that_is_there_already_is_an_error_or_left_as_it_is(site: Site) {
    // S3-6.1a
    let outbox = site.outbox().write_only().await.unwrap();
    let event = plain("A").id("once").build().unwrap();
    site.write(&outbox, &event).await;
    let error = in_transaction!(site, |tx| outbox.write(tx, &event).await.unwrap_err());
    assert!(matches!(&error, Error::DuplicateId { id: Some(id) } if id.as_str() == "once"), "{error}");
    assert!(error.to_string().contains("write_if_absent"), "{error}");
    let receipt = in_transaction!(site, |tx| outbox.write_if_absent(tx, &event).await.unwrap());
    assert_eq!((receipt.is_new(), receipt.id().as_str()), (false, "once"));
    let receipt =
        in_transaction!(site, |tx| outbox.write_if_absent(tx, plain("A").id("twice")).await.unwrap());
    assert!(receipt.is_new());
    let (old, new) = owned!(site, outbox, async |tx| {
        Ok::<_, Error>((tx.write_if_absent(&event).await?, tx.write_if_absent(plain("A")).await?))
    })
    .unwrap();
    assert_eq!((old, new), (false, true));
    assert_eq!(site.store.stats().await.unwrap().pending, 3);
}

#[tokio::test]
async fn a_transaction_of_another_database_is_refused_by_name() {
    let (memory, sqlite) = (Site::memory(1), Site::sqlite().await);
    let in_memory = memory.outbox().write_only().await.unwrap();
    let in_sqlite = sqlite.outbox().write_only().await.unwrap();
    let mut tx = memory.memory_store().begin();
    let error = in_sqlite.write(&mut tx, plain("A")).await.unwrap_err();
    assert!(matches!(error, Error::WrongDatabase { driver: "memory", outbox: "SQLite" }), "{error}");
    let mut tx = sqlite.pool().begin().await.unwrap();
    let error = in_memory.write(&mut tx, plain("A")).await.unwrap_err();
    assert!(matches!(error, Error::WrongDatabase { outbox: "memory", .. }), "{error}");
    let owned = in_memory.transaction(sqlite.pool(), async |tx| tx.write(plain("A")).await).await;
    assert!(matches!(owned, Err(Error::WrongDatabase { .. })));
    let mut blocking = rusqlite::Connection::open_in_memory().unwrap();
    let tx = blocking.transaction().unwrap();
    let error = in_memory.write_blocking(&tx, plain("A")).unwrap_err();
    assert!(matches!(error, Error::WrongDatabase { driver: "rusqlite", .. }), "{error}");
}
