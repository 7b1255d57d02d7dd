use super::*;
use crate::{EventError, Payload, Timestamp};

fn order() -> Result<Event, EventError> {
    Event::json_text("OrderPlaced", "{ \"total\" : 1.50 }")
        .id("order-1")
        .aggregate("Order", 42)
        .tenant("acme")
        .header("shop", "north")
        .header("Event-Type", "forged")
        .occurred_at(Timestamp::from_micros(1_700_000_000_123_456))
        .build()
}

fn cloud_events() -> CloudEvents {
    CloudEvents::new("/shop")
}

#[test]
fn a_raw_message_is_the_payload_with_what_we_know_in_headers() -> Result<(), EventError> {
    let event = order()?;
    let message = Format::Raw.message(&event, "ce-");
    assert_eq!(message.content_type, "application/json");
    assert_eq!(message.body, &b"{ \"total\" : 1.50 }"[..]);
    let expected = [
        ("event-id", "order-1"),
        ("event-type", "OrderPlaced"),
        ("event-key", "Order:42"),
        ("aggregate-type", "Order"),
        ("aggregate-id", "42"),
        ("tenant-id", "acme"),
        ("occurred-at", "2023-11-14T22:13:20.123456Z"),
        ("shop", "north"),
    ];
    assert_eq!(message.headers, expected.map(|(name, value)| (name.into(), value.into())));
    Ok(())
}

#[test]
fn a_binary_cloud_event_is_the_payload_with_the_attributes_in_headers() -> Result<(), EventError> {
    let event = order()?;
    let format = Format::CloudEventsBinary(cloud_events());
    let message = format.message(&event, "ce_");
    assert_eq!(message.content_type, "application/json");
    assert_eq!(message.body, &b"{ \"total\" : 1.50 }"[..]);
    for (name, value) in [
        ("ce_specversion", "1.0"),
        ("ce_id", "order-1"),
        ("ce_source", "/shop"),
        ("ce_type", "OrderPlaced"),
        ("ce_subject", "42"),
        ("ce_partitionkey", "Order:42"),
        ("ce_aggregatetype", "Order"),
        ("ce_tenantid", "acme"),
        ("ce_time", "2023-11-14T22:13:20.123456Z"),
        ("shop", "north"),
    ] {
        assert_eq!(message.header(name), Some(value), "{name}");
    }
    Ok(())
}

#[test]
fn a_structured_cloud_event_keeps_json_to_the_letter() -> Result<(), EventError> {
    let event = order()?;
    let format = Format::CloudEventsStructured(cloud_events());
    let message = format.message(&event, "ce-");
    assert_eq!(message.content_type, "application/cloudevents+json");
    assert_eq!(message.header("shop"), Some("north"));
    let text = String::from_utf8_lossy(&message.body);
    assert!(text.ends_with(r#""datacontenttype":"application/json","data":{ "total" : 1.50 }}"#), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|_| EventError::Blank { field: "json" })?;
    assert_eq!(json["id"], "order-1");
    assert_eq!(json["partitionkey"], "Order:42");
    Ok(())
}

#[test]
fn text_becomes_a_string_and_bytes_become_base64() -> Result<(), EventError> {
    let text =
        Event::json_text("Note", "").payload(Payload::Text("say \"hi\"\n".into()), "text/plain").build()?;
    let json = cloud_events().structured(&text);
    assert!(json.ends_with(r#""data":"say \"hi\"\n"}"#), "{json}");
    let bytes = Event::bytes("Blob", "application/octet-stream", vec![0xff, 0x00]).build()?;
    let json = cloud_events().structured(&bytes);
    assert!(json.ends_with(r#""data_base64":"/wA="}"#), "{json}");
    let broken = Event::json_text("Broken", "{").build()?;
    let json = cloud_events().structured(&broken);
    assert!(json.ends_with(r#""data_base64":"ew=="}"#), "{json}");
    let empty = Event::bytes("Nothing", "text/plain", vec![]).build()?;
    let json = cloud_events().structured(&empty);
    assert!(json.ends_with(r#""datacontenttype":"text/plain"}"#), "{json}");
    Ok(())
}

#[test]
fn a_global_event_names_no_aggregate_and_no_key() -> Result<(), EventError> {
    let event = Event::json_text("Plain", "{}").build()?;
    let names: Vec<_> = cloud_events().attributes(&event).map(|(name, _)| name.into_owned()).collect();
    assert_eq!(names, ["specversion", "id", "source", "type", "time"]);
    Ok(())
}

#[test]
fn json_is_told_by_its_media_type() {
    for json in
        ["application/json", "Application/JSON; charset=utf-8", "application/vnd.shop+json", "text/json"]
    {
        assert!(is_json(json), "{json}");
    }
    for other in ["text/plain", "application/jsonish", ""] {
        assert!(!is_json(other), "{other}");
    }
}
