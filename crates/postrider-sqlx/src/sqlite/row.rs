//! From a row to an event, or to the reason why it is none.

use std::{collections::BTreeMap, sync::Arc};

use postrider_core::{
    Event, EventError, EventId, Payload, Timestamp,
    event::{Due, Fields, limits},
    store::Undecodable,
};
use sqlx::{Row, sqlite::SqliteRow};

use super::statement::natural;

/// Headers are strings in JSON, where a character takes at most six bytes.
const HEADERS_JSON_BYTES_MAX: usize = limits::HEADERS_BYTES_MAX * 8;

/// The columns that [`decode`] reads. What is larger than any event can be is not read at all, only its size:
/// a table can be written to by anybody.
pub(super) fn columns() -> String {
    let payload_max = limits::PAYLOAD_BYTES_MAX;
    format!(
        "seq, lane, attempts, available_at, created_at, occurred_at, event_id, event_type, aggregate_type,
         aggregate_id, ordering_key, effective_key, tenant_id, content_type,
         octet_length(headers) AS headers_size,
         CASE WHEN octet_length(headers) <= {HEADERS_JSON_BYTES_MAX} THEN headers END AS headers,
         coalesce(octet_length(payload), octet_length(payload_bytes), 0) AS payload_size,
         CASE WHEN octet_length(payload) <= {payload_max} THEN payload END AS payload,
         CASE WHEN octet_length(payload_bytes) <= {payload_max} THEN payload_bytes END AS payload_bytes"
    )
}

/// The event of a row. An error is that of this row alone; its neighbours do not suffer.
pub(super) fn decode(row: &SqliteRow) -> Result<Event, Undecodable> {
    fields(row).and_then(|fields| Ok(Event::from_stored(fields)?)).map_err(|reason| Undecodable {
        id: id(row),
        key: key(row),
        reason: reason.to_string(),
    })
}

type Reason = Box<dyn std::error::Error>;

fn fields(row: &SqliteRow) -> Result<Fields, Reason> {
    let time = |column| row.try_get(column).map(Timestamp::from_micros);
    let (available_at, created_at) = (time("available_at")?, time("created_at")?);
    // Once it has been tried, the column says when it is tried again and no longer what its writer asked for.
    let delayed = available_at > created_at && row.try_get::<i64, _>("attempts")? == 0;
    Ok(Fields {
        id: EventId::from(row.try_get::<&str, _>("event_id")?),
        event_type: row.try_get("event_type")?,
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        ordering_key: row.try_get("ordering_key")?,
        tenant_id: row.try_get("tenant_id")?,
        headers: headers(row)?,
        content_type: row.try_get("content_type")?,
        payload: payload(row)?,
        occurred_at: time("occurred_at")?,
        due: if delayed { Due::At(available_at) } else { Due::AtOnce },
        key: None,
    })
}

fn headers(row: &SqliteRow) -> Result<BTreeMap<String, String>, Reason> {
    let size: usize = natural(row.try_get::<Option<i64>, _>("headers_size")?.unwrap_or(0));
    if size > HEADERS_JSON_BYTES_MAX {
        return Err(too_long("headers", size, limits::HEADERS_BYTES_MAX));
    }
    match row.try_get::<Option<&str>, _>("headers")? {
        None => Ok(BTreeMap::new()),
        Some(json) => serde_json::from_str(json)
            .map_err(|error| format!("headers are not a JSON object of strings: {error}").into()),
    }
}

fn payload(row: &SqliteRow) -> Result<Payload, Reason> {
    let size: usize = natural(row.try_get("payload_size")?);
    if size > limits::PAYLOAD_BYTES_MAX {
        return Err(too_long("payload", size, limits::PAYLOAD_BYTES_MAX));
    }
    if let Some(text) = row.try_get::<Option<&str>, _>("payload")? {
        return Ok(Payload::Text(text.into()));
    }
    match row.try_get::<Option<&[u8]>, _>("payload_bytes")? {
        Some(bytes) => Ok(Payload::Bytes(bytes.into())),
        None => Err("the row has no payload".into()),
    }
}

fn too_long(field: &'static str, size: usize, limit: usize) -> Reason {
    EventError::TooLong { field, size, limit, unit: "bytes" }.into()
}

/// The id as far as it can be read: somebody has to find the row by it.
fn id(row: &SqliteRow) -> EventId {
    lossy(row, "event_id").unwrap_or_default().into()
}

fn key(row: &SqliteRow) -> Option<Arc<str>> {
    lossy(row, "effective_key").map(Arc::from)
}

fn lossy(row: &SqliteRow, column: &str) -> Option<String> {
    let bytes = row.try_get_unchecked::<Option<&[u8]>, _>(column).ok()??;
    Some(String::from_utf8_lossy(bytes).into_owned())
}
