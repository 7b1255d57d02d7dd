//! From a row to an event, or to the reason why it is none.

use std::{collections::BTreeMap, sync::Arc};

use postrider_core::{
    Event, EventError, EventId, Payload, Timestamp,
    event::{Due, Fields, limits},
    store::Undecodable,
};
use sqlx::{Row, mysql::MySqlRow};

use super::statement::{maybe, micros, natural, text, time};

/// Headers are strings in JSON, where a character takes at most six bytes.
const HEADERS_JSON_BYTES_MAX: usize = limits::HEADERS_BYTES_MAX * 8;

/// The columns of an event without what is heavy, which is only measured.
pub(super) fn columns() -> String {
    format!(
        "e.seq, e.lane, e.status, e.attempts, {} AS available_at, {} AS created_at, {} AS occurred_at, e.event_id,
         e.event_type, e.aggregate_type, e.aggregate_id, e.ordering_key, e.effective_key, e.tenant_id, e.content_type,
         COALESCE(OCTET_LENGTH(e.headers), 0) AS headers_size,
         COALESCE(OCTET_LENGTH(e.payload), OCTET_LENGTH(e.payload_bytes), 0) AS payload_size",
        micros("e.available_at"),
        micros("e.created_at"),
        micros("e.occurred_at"),
    )
}

/// What is heavy: read where neither headers nor payload have more bytes than are bound, twice.
pub(super) const CARGO: &str = "
    CASE WHEN OCTET_LENGTH(e.headers) <= ? THEN e.headers END AS headers,
    CASE WHEN OCTET_LENGTH(e.payload) <= ? THEN e.payload END AS payload,
    CASE WHEN OCTET_LENGTH(e.payload_bytes) <= ? THEN e.payload_bytes END AS payload_bytes";

/// The sizes up to which [`CARGO`] is read: what is larger than any event can be is not read at all, because a table can be
/// written to by anybody.
pub(super) fn cargo_bytes_max(most: usize) -> [usize; 3] {
    let payload = limits::PAYLOAD_BYTES_MAX.min(most);
    [HEADERS_JSON_BYTES_MAX.min(most), payload, payload]
}

/// An event but for its payload and headers, or why it is none.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) created_at: Timestamp,
    pub(super) attempts: u32,
    /// What the claim weighs it as.
    pub(super) bytes: usize,
    /// Sizes of what is heavy.
    headers_size: usize,
    payload_size: usize,
    id: EventId,
    key: Option<Arc<str>>,
    fields: Result<Fields, String>,
}

/// What is heavy of an event.
#[derive(Debug, Default)]
pub(super) struct Cargo {
    headers: Option<Vec<u8>>,
    payload: Option<Vec<u8>>,
    payload_bytes: Option<Vec<u8>>,
}

impl Cargo {
    pub(super) fn of(row: &MySqlRow) -> sqlx::Result<Self> {
        let bytes = |column| row.try_get_unchecked::<Option<Vec<u8>>, _>(column);
        Ok(Self {
            headers: bytes("headers")?,
            payload: bytes("payload")?,
            payload_bytes: bytes("payload_bytes")?,
        })
    }
}

impl Stored {
    pub(super) fn of(row: &MySqlRow) -> sqlx::Result<Self> {
        let (headers_size, payload_size) = (natural(row, "headers_size")?, natural(row, "payload_size")?);
        // Little if its payload is too large to be read.
        let weighed: usize = if payload_size > limits::PAYLOAD_BYTES_MAX { 0 } else { payload_size };
        Ok(Self {
            created_at: time(row, "created_at")?,
            attempts: natural(row, "attempts")?,
            bytes: weighed + headers_size + limits::EVENT_FLAT_BYTES,
            headers_size,
            payload_size,
            id: text(row, "event_id")?.unwrap_or_default().into(),
            key: text(row, "effective_key")?.map(Arc::from),
            fields: fields(row).map_err(|reason| reason.to_string()),
        })
    }

    /// The event of this type with its cargo. An error is that of this row alone; its neighbours do not suffer.
    pub(super) fn event(self, event_type: String, cargo: Cargo) -> Result<Event, Undecodable> {
        let Self { headers_size, payload_size, id, key, fields, .. } = self;
        let event = || -> Result<Event, Reason> {
            let fields = fields?;
            let headers = headers(headers_size, cargo.headers)?;
            let payload = payload(payload_size, cargo.payload, cargo.payload_bytes)?;
            Ok(Event::from_stored(Fields { headers, payload, ..fields })?)
        };
        event().map_err(|reason| Undecodable { id, event_type, key, reason: reason.to_string() })
    }

    /// Whether all of its cargo came with a row that carries at most so many bytes of each.
    pub(super) fn came_whole(&self, most: usize) -> bool {
        let within = |size: usize, largest: usize| size <= most || size > largest;
        within(self.headers_size, HEADERS_JSON_BYTES_MAX)
            && within(self.payload_size, limits::PAYLOAD_BYTES_MAX)
    }
}

type Reason = Box<dyn std::error::Error>;

fn fields(row: &MySqlRow) -> Result<Fields, Reason> {
    let (available_at, created_at) = (time(row, "available_at")?, time(row, "created_at")?);
    // Once it has been tried, the column says when it is tried again and no longer what its writer asked for.
    let delayed = available_at > created_at && natural::<u32>(row, "attempts")? == 0;
    let utf8 = |column: &str| -> Result<Option<String>, Reason> {
        let bytes = row.try_get_unchecked::<Option<Vec<u8>>, _>(column)?;
        Ok(bytes.map(String::from_utf8).transpose()?)
    };
    let some = |column: &str| -> Result<String, Reason> { Ok(utf8(column)?.unwrap_or_default()) };
    Ok(Fields {
        id: EventId::from(some("event_id")?),
        event_type: some("event_type")?,
        aggregate_type: some("aggregate_type")?,
        aggregate_id: utf8("aggregate_id")?,
        ordering_key: utf8("ordering_key")?,
        tenant_id: utf8("tenant_id")?,
        headers: BTreeMap::new(),
        content_type: some("content_type")?,
        payload: Payload::Text("".into()),
        occurred_at: Timestamp::from_micros(maybe(row, "occurred_at")?.unwrap_or_default()),
        due: if delayed { Due::At(available_at) } else { Due::AtOnce },
        key: None,
    })
}

fn headers(size: usize, json: Option<Vec<u8>>) -> Result<BTreeMap<String, String>, Reason> {
    if size > HEADERS_JSON_BYTES_MAX {
        return Err(too_long("headers", size, limits::HEADERS_BYTES_MAX));
    }
    match json {
        None => Ok(BTreeMap::new()),
        Some(json) => serde_json::from_slice(&json)
            .map_err(|error| format!("headers are not a JSON object of strings: {error}").into()),
    }
}

fn payload(size: usize, text: Option<Vec<u8>>, bytes: Option<Vec<u8>>) -> Result<Payload, Reason> {
    if size > limits::PAYLOAD_BYTES_MAX {
        return Err(too_long("payload", size, limits::PAYLOAD_BYTES_MAX));
    }
    match (text, bytes) {
        (Some(text), _) => Ok(Payload::Text(String::from_utf8(text)?.into())),
        (None, Some(bytes)) => Ok(Payload::Bytes(bytes.into())),
        (None, None) => Err("the row has no payload".into()),
    }
}

fn too_long(field: &'static str, size: usize, limit: usize) -> Reason {
    EventError::TooLong { field, size, limit, unit: "bytes" }.into()
}
