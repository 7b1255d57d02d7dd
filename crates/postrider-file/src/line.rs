//! Turns an event into a line: one JSON object.
//!
//! | member | what it is |
//! | --- | --- |
//! | `id`, `type`, `occurred_at`, `content_type` | always |
//! | `key`, `aggregate_type`, `aggregate_id`, `tenant_id`, `headers` | if the event has them |
//! | `payload` | a payload that is JSON by its content type and its contents; line breaks between its parts become spaces |
//! | `payload_text` | other text, as a string |
//! | `payload_base64` | other bytes |

use base64::{Engine, prelude::BASE64_STANDARD};
use postrider_core::{
    Delivery, Event, GLOBAL_AGGREGATE,
    format::{is_json, json_text},
};

/// The beginning of a line, which identifies an unfinished one as ours.
pub const BEGINNING: &str = "{\"id\":";

/// A piece of a batch is written once it has this many bytes, so that a batch of large events is not in memory twice.
const PIECE_BYTES: usize = 256 * 1024;

/// The events of a batch, whose payloads are shared with it.
pub(crate) fn events(batch: &[Delivery]) -> Vec<Event> {
    batch.iter().map(|delivery| delivery.event.clone()).collect()
}

/// Writes the lines of these events in order, piece by piece. Each piece ends with a line.
pub(crate) fn write_lines(
    events: &[Event],
    mut write: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut piece = Vec::new();
    for event in events {
        push_line(&mut piece, event);
        if piece.len() >= PIECE_BYTES {
            write(&piece)?;
            piece.clear();
        }
    }
    if piece.is_empty() { Ok(()) } else { write(&piece) }
}

/// Appends the line of an event, line break included.
///
/// ```
/// use postrider_core::Event;
///
/// let event = Event::bytes("Blob", "application/octet-stream", [0xff]).id("7").build()?;
/// let mut line = Vec::new();
/// postrider_file::line::push_line(&mut line, &event);
/// assert!(String::from_utf8(line)?.ends_with("\"payload_base64\":\"/w==\"}\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn push_line(line: &mut Vec<u8>, event: &Event) {
    line.reserve(256 + event.payload().len());
    line.extend_from_slice(BEGINNING.as_bytes());
    push_string(line, event.id().as_str());
    let aggregate_type = Some(event.aggregate_type()).filter(|name| *name != GLOBAL_AGGREGATE);
    let members = [
        (",\"type\":", Some(event.event_type())),
        (",\"key\":", event.key()),
        (",\"aggregate_type\":", aggregate_type),
        (",\"aggregate_id\":", event.aggregate_id()),
        (",\"tenant_id\":", event.tenant_id()),
    ];
    for (name, value) in members {
        if let Some(value) = value {
            line.extend_from_slice(name.as_bytes());
            push_string(line, value);
        }
    }
    for (number, (name, value)) in event.headers().iter().enumerate() {
        line.extend_from_slice(if number == 0 { b",\"headers\":{" } else { b"," });
        push_string(line, name);
        line.push(b':');
        push_string(line, value);
    }
    if !event.headers().is_empty() {
        line.push(b'}');
    }
    line.extend_from_slice(b",\"occurred_at\":");
    push_string(line, &event.occurred_at().to_string());
    line.extend_from_slice(b",\"content_type\":");
    push_string(line, event.content_type());
    push_payload(line, event);
    line.extend_from_slice(b"}\n");
}

fn push_payload(line: &mut Vec<u8>, event: &Event) {
    let payload = event.payload();
    if let Some(json) = is_json(event.content_type()).then(|| json_text(event)).flatten() {
        line.extend_from_slice(b",\"payload\":");
        // In JSON, a line break occurs only between two parts.
        line.extend(json.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
    } else if let Some(text) = payload.as_text() {
        line.extend_from_slice(b",\"payload_text\":");
        push_string(line, text);
    } else {
        line.extend_from_slice(b",\"payload_base64\":\"");
        line.extend_from_slice(BASE64_STANDARD.encode(payload.as_bytes()).as_bytes());
        line.push(b'"');
    }
}

fn push_string(line: &mut Vec<u8>, text: &str) {
    // Writing a string into memory cannot fail.
    let _ = serde_json::to_writer(line, text);
}

#[cfg(test)]
mod tests {
    use postrider_core::{EventError, Payload, Timestamp};

    use super::*;

    fn line(event: &Event) -> String {
        let mut line = Vec::new();
        push_line(&mut line, event);
        String::from_utf8_lossy(&line).into_owned()
    }

    #[test]
    fn a_line_says_all_that_is_known_of_an_event() -> Result<(), EventError> {
        let event = Event::json_text("OrderPlaced", "{ \"total\" : 1.50 }")
            .id("order-1")
            .aggregate("Order", 42)
            .tenant("acme")
            .header("shop", "north")
            .header("say", "\"hi\"\n")
            .occurred_at(Timestamp::from_micros(1_700_000_000_123_456))
            .build()?;
        assert_eq!(
            line(&event),
            "{\"id\":\"order-1\",\"type\":\"OrderPlaced\",\"key\":\"Order:42\",\"aggregate_type\":\"Order\",\"aggregate_id\":\"42\",\
             \"tenant_id\":\"acme\",\"headers\":{\"say\":\"\\\"hi\\\"\\n\",\"shop\":\"north\"},\
             \"occurred_at\":\"2023-11-14T22:13:20.123456Z\",\"content_type\":\"application/json\",\"payload\":{ \"total\" : 1.50 }}\n"
        );
        Ok(())
    }

    #[test]
    fn a_batch_is_written_in_pieces_of_whole_lines() -> Result<(), Box<dyn std::error::Error>> {
        let body = format!("\"{}\"", "x".repeat(100_000));
        let events: Result<Vec<_>, _> =
            (0..10).map(|n| Event::json_text("Large", body.clone()).id(n.to_string()).build()).collect();
        let events = events?;
        let mut pieces = Vec::new();
        write_lines(&events, |piece| {
            pieces.push(piece.to_vec());
            Ok(())
        })?;
        assert!(pieces.len() > 2 && pieces.iter().all(|piece| piece.len() < 2 * PIECE_BYTES));
        assert!(pieces.iter().all(|piece| piece.ends_with(b"\n")));
        assert_eq!(pieces.concat(), events.iter().map(line).collect::<String>().into_bytes());
        Ok(())
    }

    #[test]
    fn what_an_event_does_not_have_is_not_there() -> Result<(), EventError> {
        let event = Event::json_text("Plain", "1").id("x").occurred_at(Timestamp::from_micros(0)).build()?;
        assert_eq!(
            line(&event),
            "{\"id\":\"x\",\"type\":\"Plain\",\"occurred_at\":\"1970-01-01T00:00:00.000000Z\",\
             \"content_type\":\"application/json\",\"payload\":1}\n"
        );
        Ok(())
    }

    #[test]
    fn json_of_several_lines_becomes_one() -> Result<(), EventError> {
        let event = Event::json_text("Pretty", "{\r\n  \"a\": \"b\\n\"\n}").build()?;
        let line = line(&event);
        assert!(line.ends_with("\"payload\":{    \"a\": \"b\\n\" }}\n"), "{line}");
        assert_eq!(line.matches('\n').count(), 1);
        Ok(())
    }

    #[test]
    fn text_is_a_string_whatever_it_looks_like_and_bytes_are_base64() -> Result<(), EventError> {
        let text = |content_type: &str, text: &str| {
            Event::json_text("T", "").payload(Payload::Text(text.into()), content_type).build()
        };
        assert!(line(&text("text/plain", "12")?).ends_with("\"payload_text\":\"12\"}\n"));
        assert!(line(&text("application/json", "{\"a\":")?).ends_with("\"payload_text\":\"{\\\"a\\\":\"}\n"));
        let json = Event::bytes("B", "application/json", *b"[1]").build()?;
        assert!(line(&json).ends_with("\"payload\":[1]}\n"));
        let bytes = Event::bytes("B", "application/json", [0xff, 0]).build()?;
        assert!(line(&bytes).ends_with("\"payload_base64\":\"/wA=\"}\n"));
        Ok(())
    }
}
