//! From a row to an event, or to the reason why it is none.

use std::{collections::BTreeMap, sync::Arc};

use postrider_core::{
    Event, EventError, EventId, Payload, Timestamp,
    event::{Due, Fields, limits},
    store::Undecodable,
};
use sqlx::{Row, TypeInfo, ValueRef, sqlite::SqliteRow};

use super::statement::natural;

/// Headers are strings in JSON, where a character takes at most six bytes.
const HEADERS_JSON_BYTES_MAX: usize = limits::HEADERS_BYTES_MAX * 8;

/// The columns that a [`Stored`] row has, by their places: every column that sqlx hands over is a copy of its own, and a name
/// is looked up for every value. What is larger than any event can be, or than `bytes_max` (an expression), is not read, and its size
/// stands in its place: a table can be written to by anybody.
pub(super) fn columns(bytes_max: &str) -> String {
    let payload_max = limits::PAYLOAD_BYTES_MAX;
    let read = |column: &str, limit: usize| {
        format!(
            "CASE WHEN octet_length({column}) <= min({limit}, {bytes_max}) THEN {column} ELSE octet_length({column}) END"
        )
    };
    let (headers, payload, payload_bytes) = (
        read("e.headers", HEADERS_JSON_BYTES_MAX),
        read("e.payload", payload_max),
        read("e.payload_bytes", payload_max),
    );
    format!(
        "e.seq, e.attempts, e.available_at, e.created_at, e.occurred_at, e.event_id, e.event_type, e.aggregate_type,
         e.aggregate_id, e.ordering_key, e.tenant_id, e.content_type, {headers},
         CASE WHEN e.payload IS NULL THEN {payload_bytes} ELSE {payload} END"
    )
}

/// A row with the columns of [`columns`].
#[derive(Clone, Copy)]
pub(super) struct Stored<'a>(pub(super) &'a SqliteRow);

const SEQ: usize = 0;
const ATTEMPTS: usize = 1;
const AVAILABLE_AT: usize = 2;
const CREATED_AT: usize = 3;
const OCCURRED_AT: usize = 4;
const EVENT_ID: usize = 5;
const EVENT_TYPE: usize = 6;
const AGGREGATE_TYPE: usize = 7;
const AGGREGATE_ID: usize = 8;
const ORDERING_KEY: usize = 9;
const TENANT_ID: usize = 10;
const CONTENT_TYPE: usize = 11;
const HEADERS: usize = 12;
const PAYLOAD: usize = 13;

/// How many columns there are.
pub(super) const COLUMNS: usize = 14;

/// Their names, for messages.
const NAMES: [&str; COLUMNS] = [
    "seq",
    "attempts",
    "available_at",
    "created_at",
    "occurred_at",
    "event_id",
    "event_type",
    "aggregate_type",
    "aggregate_id",
    "ordering_key",
    "tenant_id",
    "content_type",
    "headers",
    "payload",
];

type Reason = Box<dyn std::error::Error>;

impl Stored<'_> {
    /// Its place in the order; none if the row is no event's.
    pub(super) fn seq(self) -> sqlx::Result<Option<u64>> {
        Ok(self.0.try_get::<Option<i64>, _>(SEQ)?.map(natural))
    }

    pub(super) fn attempts(self) -> sqlx::Result<u32> {
        self.0.try_get(ATTEMPTS).map(natural::<u32>)
    }

    pub(super) fn available_at(self) -> sqlx::Result<Timestamp> {
        self.0.try_get(AVAILABLE_AT).map(Timestamp::from_micros)
    }

    pub(super) fn created_at(self) -> sqlx::Result<Timestamp> {
        self.0.try_get(CREATED_AT).map(Timestamp::from_micros)
    }

    /// The sizes of its payload and headers, and whether one of them was not read.
    pub(super) fn sizes(self) -> sqlx::Result<(i64, i64, bool)> {
        let size = |column| -> sqlx::Result<(i64, bool)> {
            let value = self.0.try_get_raw(column)?;
            if value.is_null() {
                return Ok((0, false));
            }
            match value.type_info().name() {
                "INTEGER" => Ok((self.0.try_get(column)?, true)),
                _ => Ok((self.0.try_get_unchecked::<&[u8], _>(column)?.len() as i64, false)),
            }
        };
        let ((payload, no_payload), (headers, no_headers)) = (size(PAYLOAD)?, size(HEADERS)?);
        Ok((payload, headers, no_payload || no_headers))
    }

    /// The event of a row. An error is that of this row alone; its neighbours do not suffer.
    pub(super) fn decode(self) -> Result<Event, Undecodable> {
        self.fields().and_then(|fields| Ok(Event::from_stored(fields)?)).map_err(|reason| Undecodable {
            id: self.lossy(EVENT_ID).unwrap_or_default().into(),
            key: self.key(),
            reason: named(reason),
        })
    }

    fn fields(self) -> Result<Fields, Reason> {
        let Self(row) = self;
        let available_at = self.available_at()?;
        // Once it has been tried, the column says when it is tried again and no longer what its writer asked for.
        let delayed = available_at > self.created_at()? && row.try_get::<i64, _>(ATTEMPTS)? == 0;
        Ok(Fields {
            id: EventId::from(row.try_get::<&str, _>(EVENT_ID)?),
            event_type: row.try_get(EVENT_TYPE)?,
            aggregate_type: row.try_get(AGGREGATE_TYPE)?,
            aggregate_id: row.try_get(AGGREGATE_ID)?,
            ordering_key: row.try_get(ORDERING_KEY)?,
            tenant_id: row.try_get(TENANT_ID)?,
            headers: self.headers()?,
            content_type: row.try_get(CONTENT_TYPE)?,
            payload: self.payload()?,
            occurred_at: row.try_get(OCCURRED_AT).map(Timestamp::from_micros)?,
            due: if delayed { Due::At(available_at) } else { Due::AtOnce },
            key: None,
        })
    }

    fn headers(self) -> Result<BTreeMap<String, String>, Reason> {
        let value = self.0.try_get_raw(HEADERS)?;
        if !value.is_null() && value.type_info().name() == "INTEGER" {
            return Err(too_long("headers", natural(self.0.try_get(HEADERS)?), limits::HEADERS_BYTES_MAX));
        }
        match self.0.try_get::<Option<&str>, _>(HEADERS)? {
            None => Ok(BTreeMap::new()),
            Some(json) => serde_json::from_str(json)
                .map_err(|error| format!("headers are not a JSON object of strings: {error}").into()),
        }
    }

    fn payload(self) -> Result<Payload, Reason> {
        let value = self.0.try_get_raw(PAYLOAD)?;
        if value.is_null() {
            return Err("the row has no payload".into());
        }
        let kind = value.type_info();
        match kind.name() {
            "TEXT" => Ok(Payload::Text(self.0.try_get::<&str, _>(PAYLOAD)?.into())),
            "BLOB" => Ok(Payload::Bytes(self.0.try_get::<&[u8], _>(PAYLOAD)?.into())),
            _ => Err(too_long("payload", natural(self.0.try_get(PAYLOAD)?), limits::PAYLOAD_BYTES_MAX)),
        }
    }

    /// The key as the database computes it.
    fn key(self) -> Option<Arc<str>> {
        let of_aggregate = || Some(format!("{}:{}", self.lossy(AGGREGATE_TYPE)?, self.lossy(AGGREGATE_ID)?));
        self.lossy(ORDERING_KEY).or_else(of_aggregate).map(Arc::from)
    }

    /// A text as far as it can be read: somebody has to find the row by it.
    fn lossy(self, column: usize) -> Option<String> {
        let bytes = self.0.try_get_unchecked::<Option<&[u8]>, _>(column).ok()??;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// What went wrong, with the column's name in place of its number.
fn named(reason: Reason) -> String {
    if let Some(sqlx::Error::ColumnDecode { index, source }) = reason.downcast_ref()
        && let Some(name) = index.parse().ok().and_then(|place: usize| NAMES.get(place))
    {
        return format!("{name} cannot be read: {source}");
    }
    reason.to_string()
}

fn too_long(field: &'static str, size: usize, limit: usize) -> Reason {
    EventError::TooLong { field, size, limit, unit: "bytes" }.into()
}
