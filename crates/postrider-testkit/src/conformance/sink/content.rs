//! What arrives is what was sent.

use postrider_core::{Event, Outcome, Payload, event::limits};

use super::{
    Checked, Failure, Payloads, Received, SinkHarness,
    scene::{Scene, is},
};

const HARD: &str = "it's \"quoted\" \\ ; -- %s $1 {} 🦀 é\r\n\tnext: line";

/// Everything that this sink carries of an event arrived unchanged.
fn assert_same<H: SinkHarness>(sent: &Event, received: &Received) {
    let carried = H::FEATURES;
    if carried.id {
        assert_eq!(received.id.as_deref(), Some(sent.id().as_str()));
    }
    if carried.event_type {
        assert_eq!(received.event_type.as_deref(), Some(sent.event_type()));
    }
    if carried.key {
        assert_eq!(received.key.as_deref(), sent.key());
    }
    if carried.headers {
        for (name, value) in sent.headers() {
            assert_eq!(received.headers.get(name), Some(value), "the header {name:?}");
        }
    }
    assert!(is(received, sent), "the payload of {} bytes was changed", sent.payload().len());
}

/// Sends one event, which arrives as it was or, if the sink cannot carry it, is rejected and does not arrive.
async fn arrives_or_is_rejected<H: SinkHarness>(event: Event) -> Result<Outcome, Failure> {
    let mut scene = Scene::<H>::fresh().await?;
    let outcome = scene.send(std::slice::from_ref(&event)).await?.pop().ok_or("an outcome")?;
    let received = scene.harness.received().await?;
    match (&outcome, received.as_slice()) {
        (Outcome::Delivered, [received]) => assert_same::<H>(&event, received),
        (Outcome::Rejected { .. }, []) => {}
        (outcome, received) => {
            let arrived = received.len();
            return Err(format!("{outcome:?}, and {arrived} events arrived: deliver it or reject it").into());
        }
    }
    Ok(outcome)
}

async fn arrives<H: SinkHarness>(event: Event) -> Checked {
    assert_eq!(arrives_or_is_rejected::<H>(event).await?, Outcome::Delivered);
    Ok(())
}

/// An event arrives with its id, its type, its key and its headers, as far as the sink carries them.
pub async fn an_event_arrives_with_its_id_type_key_and_headers<H: SinkHarness>() -> Checked {
    let event = Event::json_text("OrderPlaced", r#"{"total":12}"#)
        .id("order-placed-42")
        .aggregate("Order", 42)
        .tenant("acme")
        .header("source", "shop")
        .header("priority", "7");
    arrives::<H>(event.build()?).await
}

/// An event without a key arrives like any other.
pub async fn an_event_without_a_key_arrives<H: SinkHarness>() -> Checked {
    arrives::<H>(Event::json_text("Plain", "{}").build()?).await
}

/// JSON arrives to the letter: order of members, spaces and escapes included.
pub async fn json_arrives_unchanged<H: SinkHarness>() -> Checked {
    let json =
        "{ \"b\" : 1.50,\"a\":[ ], \"text\":\"\\u00e9 \\\"\\\\ \\n 🦀\",\"number\":12345678901234567890 }";
    arrives::<H>(Event::json_text("Spelled", json).build()?).await
}

/// Text that is no JSON arrives unchanged where the sink takes it, and is rejected where it does not.
pub async fn text_arrives_unchanged_or_is_rejected<H: SinkHarness>() -> Checked {
    let text = Event::json_text("Text", "").payload(Payload::Text(HARD.into()), "text/plain");
    let outcome = arrives_or_is_rejected::<H>(text.build()?).await?;
    assert_eq!(outcome == Outcome::Delivered, H::FEATURES.payloads >= Payloads::Text, "{outcome:?}");
    Ok(())
}

/// Every byte there is arrives unchanged where the sink takes bytes; where it does not they are rejected.
pub async fn bytes_arrive_unchanged_or_are_rejected<H: SinkHarness>() -> Checked {
    let bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let outcome =
        arrives_or_is_rejected::<H>(Event::bytes("Bytes", "application/octet-stream", bytes).build()?)
            .await?;
    assert_eq!(outcome == Outcome::Delivered, H::FEATURES.payloads >= Payloads::Bytes, "{outcome:?}");
    Ok(())
}

/// A payload of nothing arrives as nothing, or is rejected.
pub async fn an_empty_payload_arrives_or_is_rejected<H: SinkHarness>() -> Checked {
    let empty = Event::bytes("Empty", "application/octet-stream", Vec::new());
    arrives_or_is_rejected::<H>(empty.build()?).await?;
    Ok(())
}

/// The largest payload arrives whole or is rejected. It is never cut, and never tried for ever.
pub async fn the_largest_payload_arrives_whole_or_is_rejected<H: SinkHarness>() -> Checked {
    let json = format!("\"{}\"", "x".repeat(limits::PAYLOAD_BYTES_MAX - 2));
    arrives_or_is_rejected::<H>(Event::json_text("Large", json).build()?).await?;
    Ok(())
}

/// A type, key or header that a protocol may not be able to say arrives as it is, or the event is rejected: never changed,
/// and never taken for two headers.
pub async fn what_the_protocol_cannot_say_is_rejected_and_not_changed<H: SinkHarness>() -> Checked {
    let plain = || Event::json_text("Plain", r#"{"hard":true}"#);
    arrives_or_is_rejected::<H>(plain().event_type(HARD).build()?).await?;
    arrives_or_is_rejected::<H>(plain().key(HARD).build()?).await?;
    arrives_or_is_rejected::<H>(plain().header("hard", HARD).build()?).await?;
    arrives_or_is_rejected::<H>(plain().header(HARD, "hard").build()?).await?;
    arrives_or_is_rejected::<H>(plain().header("empty", "").build()?).await?;
    Ok(())
}

/// An event that is sent again carries the same id: the receiver tells a duplicate by it.
pub async fn an_event_that_is_sent_again_carries_the_same_id<H: SinkHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let events = scene.events(1)?;
    scene.deliver(&events).await?;
    scene.deliver(&events).await?;
    let received = scene.received().await?;
    for (event, received) in events.iter().cycle().zip(&received) {
        assert_same::<H>(event, received);
    }
    Ok(())
}
