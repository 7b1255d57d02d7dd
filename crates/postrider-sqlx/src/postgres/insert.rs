//! What an insert says and binds, for every driver alike.
//!
//! An error inside a transaction of PostgreSQL's ends it, so an id that is there already must not become one: the insert does
//! nothing about it, and says so by what it returns.

use std::{collections::HashSet, time::Duration};

use postrider_core::{
    Error, Event, EventError, EventId, Payload, Result,
    event::Due,
    tx::{Dialect, OnDuplicate, Target},
};

use super::statement::{Shape, micros, span, splice};

/// Most bytes of payload in one statement. The driver copies what it binds, so this bounds the copy.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most events in one statement.
const ROWS_MAX: usize = 5000;

/// The columns, and what goes into them: thirteen values `v`, and a clock that is read once.
const INTO: &str = "INSERT INTO {p}event (event_id, event_type, aggregate_type, aggregate_id, ordering_key, tenant_id, \
     content_type, headers, payload, payload_bytes, occurred_at, available_at, created_at) \
     SELECT v.event_id, v.event_type, v.aggregate_type, v.aggregate_id, v.ordering_key, v.tenant_id, v.content_type, \
            v.headers, v.payload, v.payload_bytes, timestamptz 'epoch' + v.occurred_at * interval '1 microsecond', \
            coalesce(timestamptz 'epoch' + v.available_at * interval '1 microsecond', \
                     clock.now + v.delay * interval '1 microsecond'), \
            clock.now";
const COLUMNS: &str = "event_id, event_type, aggregate_type, aggregate_id, ordering_key, tenant_id, content_type, headers, \
     payload, payload_bytes, occurred_at, available_at, delay";
const CLOCK: &str = "(SELECT clock_timestamp() AS now) AS clock";
const QUIETLY: &str = "ON CONFLICT (event_id) DO NOTHING";

/// The table that events are inserted into.
pub(super) fn target(shape: &Shape) -> Target {
    let insert_one = format!(
        "{INTO} FROM (VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, \
         $10::bytea, $11::bigint, $12::bigint, $13::bigint)) AS v ({COLUMNS}), {CLOCK} {QUIETLY}"
    );
    let prefix = shape.prefix.clone();
    let insert_one = splice(&insert_one, &prefix);
    Target { dialect: Dialect::Postgres, prefix, insert_one, prepared: shape.prepared }
}

/// The statement that inserts lists of values and gives the ids of the new events. Where a duplicate is an error, one that is
/// there keeps all of them out.
pub(super) fn statement(target: &Target, on_duplicate: OnDuplicate) -> String {
    let guard = match on_duplicate {
        OnDuplicate::Fail => "WHERE NOT EXISTS (SELECT 1 FROM {p}event AS x WHERE x.event_id = ANY ($1))",
        OnDuplicate::Keep => "",
    };
    let insert = format!(
        "{INTO} FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], \
         $9::text[], $10::bytea[], $11::bigint[], $12::bigint[], $13::bigint[]) WITH ORDINALITY AS v ({COLUMNS}, place), \
         {CLOCK} {guard} ORDER BY v.place {QUIETLY} RETURNING event_id"
    );
    splice(&insert, &target.prefix)
}

/// The values of one event.
#[derive(Debug)]
pub(super) struct Values<'e> {
    pub(super) headers: Option<String>,
    pub(super) payload: Option<&'e str>,
    pub(super) payload_bytes: Option<&'e [u8]>,
    pub(super) occurred_at: i64,
    pub(super) available_at: Option<i64>,
    pub(super) delay: i64,
}

pub(super) fn values(event: &Event) -> Result<Values<'_>> {
    let (payload, payload_bytes) = match event.payload() {
        Payload::Text(text) => (Some(&**text), None),
        Payload::Bytes(bytes) => (None, Some(&**bytes)),
    };
    let (available_at, delay) = match event.due() {
        Due::AtOnce => (None, Duration::ZERO),
        Due::At(time) => (Some(micros(time)), Duration::ZERO),
        Due::After(delay) => (None, delay),
    };
    let occurred_at = micros(event.occurred_at());
    Ok(Values {
        headers: headers(event)?,
        payload,
        payload_bytes,
        occurred_at,
        available_at,
        delay: span(delay),
    })
}

fn headers(event: &Event) -> Result<Option<String>> {
    if event.headers().is_empty() {
        return Ok(None);
    }
    let json = serde_json::to_string(event.headers())
        .map_err(|source| EventError::Serialise { event_type: event.event_type().to_owned(), source })?;
    Ok(Some(json))
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

/// An error if two of these events have the same id.
pub(super) fn require_distinct(events: &[Event]) -> Result<()> {
    let mut seen = HashSet::with_capacity(events.len());
    match events.iter().map(Event::id).find(|id| !seen.insert(*id)) {
        Some(id) => Err(duplicate(id)),
        None => Ok(()),
    }
}

pub(super) fn duplicate(id: &EventId) -> Error {
    Error::DuplicateId { id: Some(id.clone()) }
}

/// Says for each event whether it is new, from the ids that the database called new. Of two events with one id the first is.
pub(super) fn which_are_new(events: &[Event], mut new: HashSet<String>) -> impl Iterator<Item = bool> {
    events.iter().map(move |event| new.remove(event.id().as_str()))
}

/// What failed, for messages.
pub(super) fn what(target: &Target) -> String {
    format!("cannot insert into {}event", target.prefix)
}
