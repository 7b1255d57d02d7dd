//! What an insert says and binds, for every driver alike.

use std::{collections::HashSet, sync::Arc};

use postrider_core::{
    Event, EventError, EventId, Payload, Result, Timestamp,
    event::Due,
    tx::{Dialect, LaneHints, OnDuplicate, Prefix, Target},
};

use super::statement::splice;

/// Most events in one statement; thirteen values each stay well below SQLite's 32766.
const ROWS_MAX: usize = 1000;

/// Most bytes of payload in one statement. The driver copies what it binds, so this bounds the copy.
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// One row of values.
const ROW: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// What makes the events of several statements one: all of them or none.
pub(super) const SAVEPOINT: &str = "SAVEPOINT postrider_insert";
pub(super) const RELEASE: &str = "RELEASE postrider_insert";
pub(super) const ROLLBACK: &str = "ROLLBACK TO postrider_insert; RELEASE postrider_insert";

/// The table that events are inserted into.
pub(super) fn target(prefix: &Prefix) -> Target {
    let insert_one = format!(
        "INSERT INTO {{p}}event (event_id, event_type, aggregate_type, aggregate_id, ordering_key, tenant_id, \
         content_type, headers, payload, payload_bytes, occurred_at, available_at, created_at) VALUES {ROW}"
    );
    let insert_one = splice(&insert_one, prefix);
    Target {
        dialect: Dialect::Sqlite,
        prefix: prefix.clone(),
        insert_one,
        prepared: true,
        hints: LaneHints::default(),
    }
}

/// The statement that inserts `rows` events and, where duplicates are kept, gives the ids of the new ones.
pub(super) fn statement(target: &Target, rows: usize, on_duplicate: OnDuplicate) -> String {
    let mut sql = target.insert_one.clone();
    for _ in 1..rows {
        sql.push_str(", ");
        sql.push_str(ROW);
    }
    if on_duplicate == OnDuplicate::Keep {
        sql.push_str(" ON CONFLICT (event_id) DO NOTHING RETURNING event_id");
    }
    sql
}

/// A value to be bound.
#[derive(Debug)]
pub(super) enum Value<'e> {
    Null,
    Text(&'e str),
    Shared(&'e Arc<str>),
    Owned(String),
    Bytes(&'e [u8]),
    Integer(i64),
}

impl<'e> From<Option<&'e str>> for Value<'e> {
    fn from(text: Option<&'e str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

/// The values of one event, in the order of the statement's columns.
pub(super) fn values(event: &Event, now: Timestamp) -> Result<[Value<'_>; 13]> {
    let (payload, payload_bytes) = match event.payload() {
        Payload::Text(text) => (Value::Shared(text), Value::Null),
        Payload::Bytes(bytes) => (Value::Null, Value::Bytes(bytes)),
    };
    let available_at = match event.due() {
        Due::AtOnce => now,
        Due::At(time) => time,
        Due::After(delay) => now.plus(delay),
    };
    Ok([
        Value::Text(event.id().as_str()),
        Value::Text(event.event_type()),
        Value::Text(event.aggregate_type()),
        event.aggregate_id().into(),
        event.ordering_key().into(),
        event.tenant_id().into(),
        Value::Text(event.content_type()),
        headers(event)?,
        payload,
        payload_bytes,
        Value::Integer(event.occurred_at().as_micros()),
        Value::Integer(available_at.as_micros()),
        Value::Integer(now.as_micros()),
    ])
}

fn headers(event: &Event) -> Result<Value<'_>> {
    if event.headers().is_empty() {
        return Ok(Value::Null);
    }
    let json = serde_json::to_string(event.headers())
        .map_err(|source| EventError::Serialise { event_type: event.event_type().to_owned(), source })?;
    Ok(Value::Owned(json))
}

/// The events in pieces that one statement can take.
pub(super) fn chunks(events: &[Event]) -> Vec<&[Event]> {
    let (mut chunks, mut rest) = (Vec::new(), events);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fitting = rest.iter().take(ROWS_MAX).take_while(|event| {
            bytes += event.payload().len();
            bytes <= BYTES_MAX
        });
        // One event always fits: its own limit is smaller.
        let (chunk, beyond) = rest.split_at(fitting.count().max(1));
        chunks.push(chunk);
        rest = beyond;
    }
    chunks
}

/// Says for each event whether it is new, from the ids that the database called new. Of two events with one id in the
/// same statement, the first is.
pub(super) fn which_are_new(events: &[Event], mut new: HashSet<String>) -> impl Iterator<Item = bool> {
    events.iter().map(move |event| new.remove(event.id().as_str()))
}

/// The ids of these events.
pub(super) fn ids(events: &[Event]) -> impl Iterator<Item = &EventId> {
    events.iter().map(Event::id)
}

/// What failed, for messages.
pub(super) fn what(target: &Target) -> String {
    format!("cannot insert into {}event", target.prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(bytes: usize) -> Event {
        Event::bytes("X", "application/octet-stream", vec![0; bytes]).build().unwrap()
    }

    #[test]
    fn a_statement_takes_a_thousand_rows_or_eight_mebibytes() {
        let small = vec![event(1); 2500];
        assert_eq!(chunks(&small).iter().map(|chunk| chunk.len()).collect::<Vec<_>>(), [1000, 1000, 500]);
        let large = vec![event(1024 * 1024); 9];
        assert_eq!(chunks(&large).iter().map(|chunk| chunk.len()).collect::<Vec<_>>(), [8, 1]);
        assert!(chunks(&[]).is_empty());
    }

    #[test]
    fn the_first_of_two_equal_ids_is_the_new_one() {
        let events = ["a", "b", "a"].map(|id| Event::json_text("X", "{}").id(id).build().unwrap());
        let new = which_are_new(&events, HashSet::from(["a".to_owned()]));
        assert_eq!(new.collect::<Vec<_>>(), [true, false, false]);
    }
}
