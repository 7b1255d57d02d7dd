//! What can never be delivered is refused by the database when it is inserted: a writer in any language is told at once.
//!
//! Only for tables that are ours; an external table's own system decides what it takes.

use postrider_core::{EventId, event::limits};

use super::{
    Checked, StoreHarness,
    scene::{Scene, claimed_ids},
};

/// Columns of text, and how many characters each takes.
const LIMITS: [(&str, usize); 7] = [
    ("event_id", limits::ID_CHARS_MAX),
    ("event_type", limits::EVENT_TYPE_CHARS_MAX),
    ("aggregate_type", limits::AGGREGATE_TYPE_CHARS_MAX),
    ("aggregate_id", limits::AGGREGATE_ID_CHARS_MAX),
    ("ordering_key", limits::KEY_CHARS_MAX),
    ("tenant_id", limits::TENANT_ID_CHARS_MAX),
    ("content_type", limits::CONTENT_TYPE_CHARS_MAX),
];

/// A plain `INSERT` into the table of events. Values are taken as they are: none of the checks has a quote in one.
fn insert(columns: &[(&str, &str)]) -> String {
    let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    let values: Vec<_> = columns.iter().map(|(_, value)| format!("'{value}'")).collect();
    format!("INSERT INTO postrider_event ({}) VALUES ({})", names.join(", "), values.join(", "))
}

/// Runs inserts that must all be refused, then one that is good and alone comes.
async fn are_refused<H: StoreHarness>(inserts: Vec<String>) -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    for sql in inserts {
        let shown: String = sql.chars().take(200).collect();
        let Some(done) = scene.harness.insert_plain(&sql).await else { return Ok(()) };
        assert!(done.is_err(), "the database took what can never be delivered: {shown}");
    }
    let good = insert(&[("event_id", "good"), ("event_type", "X"), ("payload", "{}")]);
    scene.harness.insert_plain(&good).await.transpose()?;
    assert_eq!(claimed_ids(&scene.claim().await?.events), [EventId::from("good")]);
    Ok(())
}

/// Limits count characters, not bytes, and what is as long as they are is delivered.
pub async fn a_plain_insert_at_every_limit_is_delivered<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let texts = LIMITS.map(|(column, limit)| (column, "🦀".repeat(limit)));
    let mut columns: Vec<_> = texts.iter().map(|(column, text)| (*column, text.as_str())).collect();
    let payload = "x".repeat(limits::PAYLOAD_BYTES_MAX);
    columns.push(("payload", &payload));
    let Some(done) = scene.harness.insert_plain(&insert(&columns)).await else { return Ok(()) };
    done?;
    let [claimed] = scene.claim_exactly().await?;
    let event = claimed.event.map_err(|undecodable| undecodable.reason)?;
    assert_eq!(event.ordering_key().map(|key| key.chars().count()), Some(limits::KEY_CHARS_MAX));
    assert_eq!(event.payload().len(), limits::PAYLOAD_BYTES_MAX);
    Ok(())
}

/// A text that is longer than any event's is refused.
pub async fn a_plain_insert_of_a_text_that_is_too_long_is_refused<H: StoreHarness>() -> Checked {
    let of = |(column, limit): (&'static str, usize)| {
        // One character more, and so many that no index would take it.
        [limit + 1, 10_000].map(|chars| {
            let text = "é".repeat(chars);
            let mut columns = vec![("payload", "{}"), (column, text.as_str())];
            if column != "event_type" {
                columns.push(("event_type", "X"));
            }
            insert(&columns)
        })
    };
    are_refused::<H>(LIMITS.into_iter().flat_map(of).collect()).await
}

/// An empty text is refused where no event can have one.
pub async fn a_plain_insert_of_an_empty_text_is_refused<H: StoreHarness>() -> Checked {
    let of = |(column, _): (&'static str, usize)| {
        let mut columns = vec![("payload", "{}"), (column, "")];
        if column != "event_type" {
            columns.push(("event_type", "X"));
        }
        insert(&columns)
    };
    are_refused::<H>(LIMITS.into_iter().map(of).collect()).await
}

/// An event has one payload, which is not larger than any sink takes.
pub async fn a_plain_insert_without_exactly_one_payload_in_its_limit_is_refused<H: StoreHarness>() -> Checked
{
    let large = "é".repeat(limits::PAYLOAD_BYTES_MAX / 2 + 1);
    let inserts = vec![
        insert(&[("event_type", "X")]),
        insert(&[("event_type", "X"), ("payload", "{}"), ("payload_bytes", "x")]),
        insert(&[("event_type", "X"), ("payload", &large)]),
        "INSERT INTO postrider_event (event_type, payload) VALUES ('X', NULL)".to_owned(),
        "INSERT INTO postrider_event (event_type, payload) VALUES (NULL, '{}')".to_owned(),
    ];
    are_refused::<H>(inserts).await
}

/// A status that nobody reads would hide an event for ever.
pub async fn a_plain_insert_of_a_status_that_there_is_not_is_refused<H: StoreHarness>() -> Checked {
    are_refused::<H>(vec![insert(&[("event_type", "X"), ("payload", "{}"), ("status", "1")])]).await
}

/// What only deliveries may write is refused: an event that was parked by its writer would never be sent.
pub async fn a_plain_insert_of_what_deliveries_write_is_refused<H: StoreHarness>() -> Checked {
    let state = ["status, 2", "status, 3", "attempts, 1", "attempts, -1", "parked, true"];
    let of = |state: &str| {
        let (column, value) = state.split_once(", ").unwrap_or_default();
        format!("INSERT INTO postrider_event (event_type, payload, {column}) VALUES ('X', '{{}}', {value})")
    };
    are_refused::<H>(state.into_iter().map(of).collect()).await
}

/// A number that no claim reads is refused. Some databases take zero for "draw one": then it is drawn, and the event comes.
pub async fn a_plain_insert_of_a_number_that_no_event_has_is_refused<H: StoreHarness>() -> Checked {
    let of = |overriding: &str, seq: i64| {
        format!(
            "INSERT INTO postrider_event (event_type, payload, seq) {overriding} VALUES ('X', '{{}}', {seq})"
        )
    };
    // What it takes on PostgreSQL to name a number at all is an error elsewhere.
    are_refused::<H>(vec![of("", -5), of("OVERRIDING SYSTEM VALUE", -5), of("OVERRIDING SYSTEM VALUE", 0)])
        .await?;
    let mut scene = Scene::<H>::fresh().await?;
    let Some(taken) = scene.harness.insert_plain(&of("", 0)).await else { return Ok(()) };
    assert_eq!(scene.claim().await?.events.len(), usize::from(taken.is_ok()));
    Ok(())
}
