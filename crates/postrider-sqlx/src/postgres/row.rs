//! From a row to an event, or to the reason why it is none.

use std::{collections::BTreeMap, sync::Arc};

use postrider_core::{
    Event, EventError, EventId, Payload, Timestamp,
    event::{Due, Fields, limits},
    store::{ClaimedEvent, Undecodable},
};
use sqlx::{Row, postgres::PgRow};

use super::statement::{integer, natural, time};

/// The columns of what claims read, by their place: finding them by name would cost more than reading them.
///
/// Four statements answer in these columns: `claim.sql`, `quick.sql`, `idle.sql` and the one in `claim/mod.rs` that reads what was chosen. Their first row
/// (kind 0) is no event and uses some of the columns for other things; `Moment::of` reads it.
pub(super) mod column {
    pub(in super::super) const KIND: usize = 0;
    pub(in super::super) const LANE: usize = 1;
    pub(in super::super) const SEQ: usize = 2;
    pub(in super::super) const STATUS: usize = 3;
    pub(in super::super) const AVAILABLE_AT: usize = 4;
    pub(in super::super) const CREATED_AT: usize = 5;
    pub(in super::super) const HEAD: usize = 6;
    pub(in super::super) const COMING_BACK: usize = 7;
    pub(in super::super) const WEIGHT: usize = 8;
    pub(in super::super) const KEY: usize = 9;
    pub(in super::super) const EVENT_TYPE: usize = 10;
    pub(in super::super) const AGGREGATE_TYPE: usize = 11;
    pub(in super::super) const READ: usize = 12;
    pub(in super::super) const ATTEMPTS: usize = 13;
    pub(in super::super) const EVENT_ID: usize = 14;
    pub(in super::super) const AGGREGATE_ID: usize = 15;
    pub(in super::super) const ORDERING_KEY: usize = 16;
    pub(in super::super) const TENANT_ID: usize = 17;
    pub(in super::super) const CONTENT_TYPE: usize = 18;
    pub(in super::super) const OCCURRED_AT: usize = 19;
    pub(in super::super) const HEADERS_SIZE: usize = 20;
    pub(in super::super) const PAYLOAD_SIZE: usize = 21;
    pub(in super::super) const HEADERS: usize = 22;
    pub(in super::super) const PAYLOAD: usize = 23;
    pub(in super::super) const PAYLOAD_BYTES: usize = 24;
    pub(in super::super) const WRITTEN_IN: usize = 25;
}

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

/// Whether an event `e` has at most so many bytes, and so few that it can be one. Sizes of two values of a row fit into one number.
pub(super) fn spell_small(most: &str) -> String {
    format!(
        "coalesce(octet_length(e.payload), octet_length(e.payload_bytes), 0) + coalesce(octet_length(e.headers), 0) <= {most}::integer"
    )
}

/// How many bytes an event may have to be [small](spell_small), if it may weigh so much.
pub(super) fn read_at_once_bytes(weight: Option<i64>) -> i64 {
    let most = integer(HEADERS_JSON_BYTES_MAX.min(limits::PAYLOAD_BYTES_MAX));
    weight.map_or(-1, |weight| weight.saturating_sub(integer(limits::EVENT_FLAT_BYTES)).min(most))
}

/// What a row that was read whole weighs.
pub(super) fn weight(row: &PgRow) -> sqlx::Result<usize> {
    let mut weight = limits::EVENT_FLAT_BYTES;
    for place in [column::HEADERS, column::PAYLOAD, column::PAYLOAD_BYTES] {
        // Text is its bytes here.
        weight += row.try_get_unchecked::<Option<&[u8]>, _>(place)?.map_or(0, <[u8]>::len);
    }
    Ok(weight)
}

/// A row that was read whole.
pub(super) fn claimed(row: &PgRow, held: bool) -> sqlx::Result<ClaimedEvent> {
    Ok(ClaimedEvent {
        lane: natural(row.try_get_unchecked::<i32, _>(column::LANE)?.into()),
        seq: natural(row.try_get_unchecked(column::SEQ)?),
        attempts: natural(row.try_get_unchecked::<i32, _>(column::ATTEMPTS)?.into()),
        held,
        created_at: time(row, column::CREATED_AT)?,
        event: decode(row),
    })
}

/// The event of a row. An error is that of this row alone; its neighbours do not suffer.
fn decode(row: &PgRow) -> Result<Event, Undecodable> {
    fields(row).and_then(|fields| Ok(Event::from_stored(fields)?)).map_err(|reason| Undecodable {
        id: row.try_get::<&str, _>(column::EVENT_ID).unwrap_or_default().into(),
        event_type: row.try_get::<&str, _>(column::EVENT_TYPE).unwrap_or_default().to_owned(),
        key: key(row).ok().flatten(),
        reason: reason.to_string(),
    })
}

/// The key of a row, as the database spells it; the usual claim leaves that to its reader.
fn key(row: &PgRow) -> sqlx::Result<Option<Arc<str>>> {
    let text = |place| row.try_get::<Option<&str>, _>(place);
    Ok(match (text(column::KEY)?, text(column::ORDERING_KEY)?, text(column::AGGREGATE_ID)?) {
        (Some(key), ..) | (None, Some(key), _) => Some(key.into()),
        (None, None, Some(id)) => {
            Some(format!("{}:{id}", text(column::AGGREGATE_TYPE)?.unwrap_or_default()).into())
        }
        (None, None, None) => None,
    })
}

type Reason = Box<dyn std::error::Error>;

fn fields(row: &PgRow) -> Result<Fields, Reason> {
    let (available_at, created_at): (Timestamp, Timestamp) =
        (time(row, column::AVAILABLE_AT)?, time(row, column::CREATED_AT)?);
    // Once it has been tried, the column says when it is tried again and no longer what its writer asked for.
    let delayed = available_at > created_at && row.try_get_unchecked::<i32, _>(column::ATTEMPTS)? == 0;
    Ok(Fields {
        id: EventId::from(row.try_get_unchecked::<&str, _>(column::EVENT_ID)?),
        event_type: row.try_get_unchecked(column::EVENT_TYPE)?,
        aggregate_type: row.try_get_unchecked(column::AGGREGATE_TYPE)?,
        aggregate_id: row.try_get_unchecked(column::AGGREGATE_ID)?,
        ordering_key: row.try_get_unchecked(column::ORDERING_KEY)?,
        tenant_id: row.try_get_unchecked(column::TENANT_ID)?,
        headers: headers(row)?,
        content_type: row.try_get_unchecked(column::CONTENT_TYPE)?,
        payload: payload(row)?,
        occurred_at: time(row, column::OCCURRED_AT)?,
        due: if delayed { Due::At(available_at) } else { Due::AtOnce },
        key: None,
    })
}

fn headers(row: &PgRow) -> Result<BTreeMap<String, String>, Reason> {
    let size = size(row, column::HEADERS_SIZE)?;
    if size > HEADERS_JSON_BYTES_MAX {
        return Err(too_long("headers", size, limits::HEADERS_BYTES_MAX));
    }
    match row.try_get::<Option<&str>, _>(column::HEADERS)? {
        None => Ok(BTreeMap::new()),
        Some(json) => serde_json::from_str(json)
            .map_err(|error| format!("headers are not a JSON object of strings: {error}").into()),
    }
}

fn payload(row: &PgRow) -> Result<Payload, Reason> {
    let size = size(row, column::PAYLOAD_SIZE)?;
    if size > limits::PAYLOAD_BYTES_MAX {
        return Err(too_long("payload", size, limits::PAYLOAD_BYTES_MAX));
    }
    if let Some(text) = row.try_get::<Option<&str>, _>(column::PAYLOAD)? {
        return Ok(Payload::Text(text.into()));
    }
    match row.try_get::<Option<&[u8]>, _>(column::PAYLOAD_BYTES)? {
        Some(bytes) => Ok(Payload::Bytes(bytes.into())),
        None => Err("the row has no payload".into()),
    }
}

/// A size that the database has told. Where it has not, what was read is all there is.
fn size(row: &PgRow, place: usize) -> sqlx::Result<usize> {
    Ok(row.try_get::<Option<i32>, _>(place)?.map_or(0, |size| natural(size.into())))
}

fn too_long(field: &'static str, size: usize, limit: usize) -> Reason {
    EventError::TooLong { field, size, limit, unit: "bytes" }.into()
}
