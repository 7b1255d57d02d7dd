//! What was written is what is delivered, field by field.

use postrider_core::{Event, Payload, Timestamp, event::limits, store::ClaimedEvent};

use super::{Checked, Failure, StoreHarness, scene::Scene};

const HARD: &str = r#"it's "quoted" \ '; DROP TABLE event; -- %s $1 ? :a {} 🦀 é"#;

async fn comes_back_as_written<H: StoreHarness>(event: Event) -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.write(&event).await?;
    let [claimed] = scene.claim_exactly().await?;
    assert_same(&event, &decoded(&claimed)?);
    Ok(())
}

fn decoded(claimed: &ClaimedEvent) -> Result<Event, Failure> {
    claimed.event.clone().map_err(|undecodable| undecodable.reason.into())
}

/// Every field but the time it was to be due: that is the row's, not the event's, once it is stored.
fn assert_same(written: &Event, read: &Event) {
    assert_eq!(read.id(), written.id());
    assert_eq!(read.event_type(), written.event_type());
    assert_eq!(read.aggregate_type(), written.aggregate_type());
    assert_eq!(read.aggregate_id(), written.aggregate_id());
    assert_eq!(read.ordering_key(), written.ordering_key());
    assert_eq!(read.key(), written.key());
    assert_eq!(read.tenant_id(), written.tenant_id());
    assert_eq!(read.headers(), written.headers());
    assert_eq!(read.content_type(), written.content_type());
    assert!(read.payload() == written.payload(), "{:?} {:?}", read.payload(), written.payload());
    assert_eq!(read.occurred_at(), written.occurred_at());
}

fn text_of(chars: usize) -> String {
    "🦀".repeat(chars)
}

/// Quotes, backslashes, statements and emoji in every text field come back as they were. S3-6.4, S3-6.5, S3-9.3a
pub async fn every_field_of_a_text_event_comes_back_as_written<H: StoreHarness>() -> Checked {
    let event = Event::json_text(HARD, format!("{{\"text\":{HARD:?}}}"))
        .id("it's \"an id\" \\ 🦀")
        .aggregate(HARD.chars().take(60).collect::<String>(), HARD)
        .key(HARD)
        .tenant(HARD.chars().take(60).collect::<String>())
        .header(HARD, HARD)
        .header("empty", "")
        .header("line", "one\r\ntwo\t")
        .occurred_at(Timestamp::from_micros(1_234_567_890_123_457));
    comes_back_as_written::<H>(event.build()?).await
}

/// Every byte there is comes back in a binary payload, and its content type with it. S3-6.1c, S3-6.5
pub async fn every_field_of_a_binary_event_comes_back_as_written<H: StoreHarness>() -> Checked {
    let bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let event = Event::bytes("Binary", "application/x-🦀; quote=\"'\"", bytes)
        .aggregate("Order", "42")
        .occurred_at(Timestamp::from_micros(-1));
    comes_back_as_written::<H>(event.build()?).await
}

/// An event of a type and a payload alone comes back with the defaults. S3-6.1b
pub async fn an_event_of_a_type_and_a_payload_comes_back_with_its_defaults<H: StoreHarness>() -> Checked {
    comes_back_as_written::<H>(Event::json_text("Plain", "{}").build()?).await
}

/// Text that is no JSON, empty text and empty bytes are payloads like others.
pub async fn empty_payloads_and_plain_text_come_back_as_written<H: StoreHarness>() -> Checked {
    let text = |text: &str| Event::json_text("Text", "").payload(Payload::Text(text.into()), "text/plain");
    comes_back_as_written::<H>(text("").build()?).await?;
    comes_back_as_written::<H>(text("not { json").build()?).await?;
    comes_back_as_written::<H>(Event::bytes("Bytes", "application/octet-stream", Vec::new()).build()?).await
}

/// Text at its limit, in characters of four bytes, and a payload of 1 MiB are stored whole. S3-5.1, S3-6.2a
pub async fn values_at_their_limits_are_stored_whole<H: StoreHarness>() -> Checked {
    let event =
        Event::json_text(text_of(limits::EVENT_TYPE_CHARS_MAX), "x".repeat(limits::PAYLOAD_BYTES_MAX))
            .id(text_of(limits::ID_CHARS_MAX))
            .aggregate(text_of(limits::AGGREGATE_TYPE_CHARS_MAX), text_of(limits::AGGREGATE_ID_CHARS_MAX))
            .key(text_of(limits::KEY_CHARS_MAX))
            .tenant(text_of(limits::TENANT_ID_CHARS_MAX))
            .header("h", "v".repeat(limits::HEADERS_BYTES_MAX - 1));
    comes_back_as_written::<H>(event.build()?).await?;
    let bytes =
        Event::bytes("Bytes", &text_of(limits::CONTENT_TYPE_CHARS_MAX), vec![0; limits::PAYLOAD_BYTES_MAX]);
    comes_back_as_written::<H>(bytes.build()?).await
}

/// Events that differ in all that may be absent come back from one batch as they were, in its order. S3-6.1b, S3-8.1b
pub async fn a_batch_of_unlike_events_comes_back_as_written<H: StoreHarness>() -> Checked {
    let bytes: Vec<u8> = (0..=255).collect();
    let events = [
        Event::json_text("Plain", "{}").build()?,
        Event::json_text(HARD, HARD)
            .aggregate("Order", HARD)
            .key(HARD)
            .tenant("NULL")
            .header(HARD, HARD)
            .occurred_at(Timestamp::from_micros(-1))
            .build()?,
        Event::bytes("Bytes", HARD, bytes).aggregate("NULL", "null").key("\\").build()?,
        Event::bytes("Empty", "text/plain", Vec::new()).tenant("{a,b}").build()?,
        Event::json_text("Text", "").payload(Payload::Text("\r\n\t\"".into()), "text/plain").build()?,
    ];
    let mut scene = Scene::<H>::fresh().await?;
    scene.harness.write(&events).await?;
    let claimed: [_; 5] = scene.claim_exactly().await?;
    for (written, read) in events.iter().zip(&claimed) {
        assert_same(written, &decoded(read)?);
    }
    Ok(())
}
