//! What an event is when nothing is said, and what it refuses to be.

use std::{
    cell::Cell,
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use serde::{Serialize, Serializer};

use super::{limits::*, *};
use crate::{GLOBAL_AGGREGATE, trace::TRACEPARENT};

fn event() -> EventBuilder {
    Event::json_text("A", "{}")
}

#[test]
fn an_event_of_type_and_payload_alone_has_the_documented_defaults() {
    // S3-6.1b, S0-6.1, S3-6.3
    let before = Timestamp::now();
    let event = event().build().unwrap();
    assert_eq!((event.event_type(), event.content_type()), ("A", JSON));
    assert_eq!((event.aggregate_type(), event.aggregate_id()), (GLOBAL_AGGREGATE, None));
    assert_eq!((event.key(), event.tenant_id(), event.due()), (None, None, Due::AtOnce));
    assert!(event.headers().is_empty() && event.id().as_str().len() == 26);
    assert!(event.occurred_at() >= before && event.occurred_at() <= Timestamp::now());
}

#[test]
fn the_key_is_the_one_given_else_the_aggregate_else_none() {
    assert_eq!(event().key("k").aggregate("Order", 1).build().unwrap().key(), Some("k"));
    assert_eq!(event().aggregate("Order", 1).build().unwrap().key(), Some("Order:1"));
    assert_eq!(event().aggregate_type("Order").build().unwrap().key(), None);
}

#[test]
fn every_text_is_taken_at_its_limit_and_refused_beyond_it_with_field_size_and_limit() {
    // S3-5.1
    type Set = fn(EventBuilder, String) -> EventBuilder;
    let fields: [(&str, usize, Set); 7] = [
        ("event_id", ID_CHARS_MAX, |event, text| event.id(text)),
        ("event_type", EVENT_TYPE_CHARS_MAX, |event, text| event.event_type(text)),
        ("aggregate_type", AGGREGATE_TYPE_CHARS_MAX, |event, text| event.aggregate_type(text)),
        ("aggregate_id", AGGREGATE_ID_CHARS_MAX, |event, text| event.aggregate("T", text)),
        ("key", KEY_CHARS_MAX, |event, text| event.key(text)),
        ("tenant_id", TENANT_ID_CHARS_MAX, |event, text| event.tenant(text)),
        ("content_type", CONTENT_TYPE_CHARS_MAX, |event, text| event.payload(Payload::Text("".into()), text)),
    ];
    for (field, limit, set) in fields {
        for character in ["x", "é", "🐎"] {
            assert!(set(event(), character.repeat(limit)).build().is_ok(), "{field} at its limit");
            let error = set(event(), character.repeat(limit + 1)).build().unwrap_err().to_string();
            let (size, unit) = (limit + 1, "characters");
            assert_eq!(error, format!("{field} is {size} {unit} long; at most {limit} {unit} fit"));
        }
        for blank in ["", "  ", "\t\n"] {
            let error = set(event(), blank.to_owned()).build().unwrap_err();
            assert!(matches!(error, EventError::Blank { field: named } if named == field), "{error}");
        }
        let error = set(event(), "a\0b".to_owned()).build().unwrap_err();
        assert!(matches!(error, EventError::Nul { field: named } if named == field), "{error}");
    }
}

#[test]
fn a_key_that_is_made_of_the_aggregate_fits_whatever_the_aggregate_is() {
    let event = event().aggregate("t".repeat(AGGREGATE_TYPE_CHARS_MAX), "i".repeat(AGGREGATE_ID_CHARS_MAX));
    assert!(event.build().is_ok());
}

#[test]
fn a_payload_of_a_mebibyte_is_taken_and_one_byte_more_is_refused() {
    // S3-6.2a
    for builder in [Event::json_text("A", "x".repeat(1_048_576)), Event::bytes("A", "b", vec![0; 1_048_576])]
    {
        assert!(builder.build().is_ok());
    }
    for builder in [Event::json_text("A", "x".repeat(1_048_577)), Event::bytes("A", "b", vec![0; 1_048_577])]
    {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.starts_with("payload is 1048577 bytes long; at most 1048576 bytes fit"), "{error}");
    }
}

#[test]
fn nul_is_refused_in_text_and_welcome_in_bytes() {
    assert!(matches!(Event::json_text("A", "\0").build(), Err(EventError::Nul { field: "payload" })));
    assert!(Event::bytes("A", "b", vec![0]).build().is_ok());
    assert!(matches!(event().header("n", "\0").build(), Err(EventError::Nul { field: "header value" })));
    assert!(matches!(event().header("\0", "v").build(), Err(EventError::Nul { field: "header name" })));
}

#[test]
fn headers_fit_into_64_kibibytes_together() {
    let halves = |bytes: usize| {
        event().header("a", "x".repeat(HEADERS_BYTES_MAX / 2 - 1)).header("b", "x".repeat(bytes))
    };
    assert!(halves(HEADERS_BYTES_MAX / 2 - 1).build().is_ok());
    let error = halves(HEADERS_BYTES_MAX / 2).build().unwrap_err().to_string();
    assert_eq!(error, "headers is 65537 bytes long; at most 65536 bytes fit");
    assert!(matches!(event().header(" ", "v").build(), Err(EventError::Blank { field: "header name" })));
}

#[test]
fn a_point_in_time_and_a_delay_together_are_refused_in_either_order() {
    let delay = Duration::from_secs(1);
    for builder in [
        event().available_at(SystemTime::now()).deliver_after(delay),
        event().deliver_after(delay).available_at(SystemTime::now()),
    ] {
        assert!(matches!(builder.build(), Err(EventError::BothTimes)));
    }
}

#[test]
fn changing_the_callers_map_afterwards_changes_nothing() {
    // S3-6.2c
    let mut headers = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
    let event = event().headers(headers.clone()).build().unwrap();
    headers.insert("a".to_owned(), "2".to_owned());
    assert_eq!(event.headers()["a"], "1");
    assert_eq!(event.clone(), event);
}

#[test]
fn a_payload_is_serialised_once_and_an_error_of_it_names_the_type() {
    // S3-6.2b
    struct Counting<'a>(&'a Cell<u32>);
    impl Serialize for Counting<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.0.set(self.0.get() + 1);
            serializer.serialize_u32(7)
        }
    }
    let calls = Cell::new(0);
    let event = Event::json("A", &Counting(&calls)).unwrap().build().unwrap();
    assert_eq!((calls.get(), event.read_json::<u32>().unwrap()), (1, 7));

    struct Broken;
    impl Serialize for Broken {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }
    assert!(Event::json("A", &Broken).unwrap_err().to_string().contains("\"A\""));
}

#[test]
fn payloads_and_header_values_stay_out_of_debug_output() {
    let event =
        Event::json_text("A", r#"{"card":"4111"}"#).header("authorization", "hunter2").build().unwrap();
    let debug = format!("{event:?}");
    assert!(
        !debug.contains("4111") && !debug.contains("hunter2") && debug.contains("authorization"),
        "{debug}"
    );
}

#[test]
fn a_trace_context_travels_in_the_headers_and_a_malformed_one_is_none() {
    let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let context = TraceContext::new(good, Some("vendor=1")).unwrap();
    let traced = event().trace_context(&context).build().unwrap();
    assert_eq!((traced.headers()[TRACEPARENT].as_str(), traced.trace_context()), (good, Some(context)));
    let zero_trace = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
    for bad in
        ["", "00", zero_trace, &good.to_uppercase(), &good.replacen("00", "ff", 1), &format!("{good}-x")]
    {
        assert!(matches!(TraceContext::new(bad, None), Err(EventError::TraceContext { .. })), "{bad}");
        assert_eq!(event().header(TRACEPARENT, bad).build().unwrap().trace_context(), None);
    }
}
