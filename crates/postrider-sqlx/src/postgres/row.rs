//! From a row to an event, or to the reason why it is none.

use std::{collections::BTreeMap, sync::Arc};

use postrider_core::{
    Event, EventError, EventId, Payload, Timestamp,
    event::{Due, Fields, limits},
    store::{ClaimedEvent, Undecodable},
};
use sqlx::{Row, postgres::PgRow};

use super::statement::{natural, time};

/// Headers are strings in JSON, where a character takes at most six bytes.
const HEADERS_JSON_BYTES_MAX: usize = limits::HEADERS_BYTES_MAX * 8;

/// `template` with what is read of an event `e`. What is larger than any event can be is not read at all, only its size: a table
/// can be written to by anybody. Sizes are those in the row's header; nothing is fetched or unpacked for them.
pub(super) fn spell(template: &str) -> String {
    let payload_max = limits::PAYLOAD_BYTES_MAX;
    let size = "coalesce(octet_length(e.payload), octet_length(e.payload_bytes), 0)";
    template
        .replace(
            "{weight}",
            &format!(
                "(CASE WHEN {size} > {payload_max} THEN 0 ELSE {size} END + coalesce(octet_length(e.headers), 0) + {})::bigint",
                limits::EVENT_FLAT_BYTES
            ),
        )
        .replace(
            "{sizes}",
            &format!("coalesce(octet_length(e.headers), 0) AS headers_size, {size} AS payload_size"),
        )
        .replace(
            "{headers}",
            &format!("CASE WHEN octet_length(e.headers) <= {HEADERS_JSON_BYTES_MAX} THEN e.headers END"),
        )
        .replace("{payload}", &format!("CASE WHEN octet_length(e.payload) <= {payload_max} THEN e.payload END"))
        .replace(
            "{payload_bytes}",
            &format!("CASE WHEN octet_length(e.payload_bytes) <= {payload_max} THEN e.payload_bytes END"),
        )
}

/// A row that was read whole.
pub(super) fn claimed(row: &PgRow, held: bool) -> sqlx::Result<ClaimedEvent> {
    Ok(ClaimedEvent {
        lane: natural(row.try_get::<i32, _>("lane")?.into()),
        seq: natural(row.try_get("seq")?),
        attempts: natural(row.try_get::<i32, _>("attempts")?.into()),
        held,
        created_at: time(row, "created_at")?,
        event: decode(row),
    })
}

/// The event of a row. An error is that of this row alone; its neighbours do not suffer.
fn decode(row: &PgRow) -> Result<Event, Undecodable> {
    fields(row).and_then(|fields| Ok(Event::from_stored(fields)?)).map_err(|reason| Undecodable {
        id: row.try_get::<&str, _>("event_id").unwrap_or_default().into(),
        key: row.try_get::<Option<&str>, _>("key").ok().flatten().map(Arc::from),
        reason: reason.to_string(),
    })
}

type Reason = Box<dyn std::error::Error>;

fn fields(row: &PgRow) -> Result<Fields, Reason> {
    let (available_at, created_at): (Timestamp, Timestamp) =
        (time(row, "available_at")?, time(row, "created_at")?);
    // Once it has been tried, the column says when it is tried again and no longer what its writer asked for.
    let delayed = available_at > created_at && row.try_get::<i32, _>("attempts")? == 0;
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
        occurred_at: time(row, "occurred_at")?,
        due: if delayed { Due::At(available_at) } else { Due::AtOnce },
        key: None,
    })
}

fn headers(row: &PgRow) -> Result<BTreeMap<String, String>, Reason> {
    let size: usize = natural(row.try_get::<i32, _>("headers_size")?.into());
    if size > HEADERS_JSON_BYTES_MAX {
        return Err(too_long("headers", size, limits::HEADERS_BYTES_MAX));
    }
    match row.try_get::<Option<&str>, _>("headers")? {
        None => Ok(BTreeMap::new()),
        Some(json) => serde_json::from_str(json)
            .map_err(|error| format!("headers are not a JSON object of strings: {error}").into()),
    }
}

fn payload(row: &PgRow) -> Result<Payload, Reason> {
    let size: usize = natural(row.try_get::<i32, _>("payload_size")?.into());
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
