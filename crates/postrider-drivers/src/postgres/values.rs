//! What an insert binds.

use std::{collections::HashSet, time::Duration};

use postrider_core::{Error, Event, EventError, Payload, Result, Target, Timestamp, event::Due};

/// Most bytes of payload in one statement. Drivers copy what they bind, so this bounds the copy.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most events in one statement.
const ROWS_MAX: usize = 5000;

/// Times before and after this cannot be stored: 4714 BC, and well before the year 294276.
const TIME_MIN_US: i64 = -210_866_803_200_000_000;
const TIME_MAX_US: i64 = 9_000_000_000_000_000_000;

/// Longest span of time that is added to a clock, so that it stays a time.
const SPAN_MAX: Duration = Duration::from_secs(200 * 365 * 86_400);

/// A time as microseconds of the Unix epoch, as near as PostgreSQL can store it.
fn micros(time: Timestamp) -> i64 {
    time.as_micros().clamp(TIME_MIN_US, TIME_MAX_US)
}

/// A span of time in microseconds, no longer than can be added to a clock.
pub fn span(span: Duration) -> i64 {
    span.min(SPAN_MAX).as_micros().try_into().unwrap_or(i64::MAX)
}

/// The values of one event, in the order of the statement's parameters.
#[derive(Debug)]
#[expect(missing_docs, reason = "each is the column of its name")]
pub struct Row<'e> {
    pub event_id: &'e str,
    pub event_type: &'e str,
    pub aggregate_type: &'e str,
    pub aggregate_id: Option<&'e str>,
    pub ordering_key: Option<&'e str>,
    pub tenant_id: Option<&'e str>,
    pub content_type: &'e str,
    /// JSON.
    pub headers: Option<String>,
    pub payload: Option<&'e str>,
    pub payload_bytes: Option<&'e [u8]>,
    /// Microseconds of the Unix epoch.
    pub occurred_at: i64,
    /// Microseconds of the Unix epoch; none for "now, plus the delay".
    pub available_at: Option<i64>,
    /// Microseconds.
    pub delay: i64,
    pub lane_hint: Option<i32>,
}

impl<'e> Row<'e> {
    /// Those of this event.
    pub fn of(event: &'e Event, target: &Target) -> Result<Self> {
        let (payload, payload_bytes) = match event.payload() {
            Payload::Text(text) => (Some(&**text), None),
            Payload::Bytes(bytes) => (None, Some(&**bytes)),
        };
        let (available_at, delay) = match event.due() {
            Due::AtOnce => (None, Duration::ZERO),
            Due::At(time) => (Some(micros(time)), Duration::ZERO),
            Due::After(delay) => (None, delay),
        };
        Ok(Self {
            event_id: event.id().as_str(),
            event_type: event.event_type(),
            aggregate_type: event.aggregate_type(),
            aggregate_id: event.aggregate_id(),
            ordering_key: event.ordering_key(),
            tenant_id: event.tenant_id(),
            content_type: event.content_type(),
            headers: headers(event)?,
            payload,
            payload_bytes,
            occurred_at: micros(event.occurred_at()),
            available_at,
            delay: span(delay),
            lane_hint: target.lane_hint(event).and_then(|lane| lane.try_into().ok()),
        })
    }
}

fn headers(event: &Event) -> Result<Option<String>> {
    if event.headers().is_empty() {
        return Ok(None);
    }
    let json = serde_json::to_string(event.headers())
        .map_err(|source| EventError::Serialise { event_type: event.event_type().to_owned(), source })?;
    Ok(Some(json))
}

/// The values of several events as lists, in the order of the statement's parameters.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "each is the column of its name, as in `Row`")]
pub struct Columns<'e> {
    pub event_id: Vec<&'e str>,
    pub event_type: Vec<&'e str>,
    pub aggregate_type: Vec<&'e str>,
    pub aggregate_id: Vec<Option<&'e str>>,
    pub ordering_key: Vec<Option<&'e str>>,
    pub tenant_id: Vec<Option<&'e str>>,
    pub content_type: Vec<&'e str>,
    pub headers: Vec<Option<String>>,
    pub payload: Vec<Option<&'e str>>,
    pub payload_bytes: Vec<Option<&'e [u8]>>,
    pub occurred_at: Vec<i64>,
    pub available_at: Vec<Option<i64>>,
    pub delay: Vec<i64>,
    pub lane_hint: Vec<Option<i32>>,
}

impl<'e> Columns<'e> {
    /// Those of these events.
    pub fn of(events: &'e [Event], target: &Target) -> Result<Self> {
        let mut columns = Self::default();
        for event in events {
            columns.push(Row::of(event, target)?);
        }
        Ok(columns)
    }

    fn push(&mut self, row: Row<'e>) {
        self.event_id.push(row.event_id);
        self.event_type.push(row.event_type);
        self.aggregate_type.push(row.aggregate_type);
        self.aggregate_id.push(row.aggregate_id);
        self.ordering_key.push(row.ordering_key);
        self.tenant_id.push(row.tenant_id);
        self.content_type.push(row.content_type);
        self.headers.push(row.headers);
        self.payload.push(row.payload);
        self.payload_bytes.push(row.payload_bytes);
        self.occurred_at.push(row.occurred_at);
        self.available_at.push(row.available_at);
        self.delay.push(row.delay);
        self.lane_hint.push(row.lane_hint);
    }
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
        Some(id) => Err(Error::DuplicateId { id: Some(id.clone()) }),
        None => Ok(()),
    }
}

/// Says for each event whether it is new, from the ids that the database called new. Of two events with one id the first is.
pub(super) fn which_are_new(events: &[Event], mut new: HashSet<String>) -> impl Iterator<Item = bool> {
    events.iter().map(move |event| new.remove(event.id().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(bytes: usize) -> Event {
        Event::bytes("X", "application/octet-stream", vec![0; bytes]).build().unwrap()
    }

    #[test]
    fn a_statement_takes_five_thousand_rows_or_eight_mebibytes() {
        let small = vec![event(1); 5001];
        assert_eq!(chunks(&small).iter().map(|chunk| chunk.len()).collect::<Vec<_>>(), [5000, 1]);
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

    #[test]
    fn times_and_spans_beyond_the_calendar_are_its_ends() {
        assert_eq!(micros(Timestamp::from_micros(i64::MAX)), TIME_MAX_US);
        assert_eq!(micros(Timestamp::from_micros(i64::MIN)), TIME_MIN_US);
        assert_eq!(span(Duration::MAX), span(SPAN_MAX));
    }
}
