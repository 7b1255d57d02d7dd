//! From a row to an event, or to the reason why it is none.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use postrider_core::{
    Event, EventError, EventId, Payload, Timestamp,
    event::{Due, Fields, limits},
    select::Hold,
    store::{Admission, Lane, RowSummary, Seq, Undecodable},
};
use sqlx::{Row, TypeInfo, ValueRef, sqlite::SqliteRow};

use super::statement::natural;

/// Headers are strings in JSON, where a character takes at most six bytes.
const HEADERS_JSON_BYTES_MAX: usize = limits::HEADERS_BYTES_MAX * 8;

/// What is read of a row of `e`: its small fields and the hold of its key as one JSON array, its headers, and its payload. Each value
/// that sqlx hands over is a copy of its own, made and freed under a lock; three of them cost less than fifteen.
///
/// What is larger than any event can be, or than `bytes_max` (an expression), is not read, and its size stands in its place: a table
/// can be written to by anybody.
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
        "json_array(e.seq, e.attempts, e.available_at, e.created_at, e.occurred_at, e.event_id, e.event_type,
                    e.aggregate_type, e.aggregate_id, e.ordering_key, e.tenant_id, e.content_type,
                    {HELD_BY}),
         {headers}, CASE WHEN e.payload IS NULL THEN {payload_bytes} ELSE {payload} END"
    )
}

/// The event that the key of a row of `e` is held by; negative if the key comes back. `?1` is the lane. Most of the time nothing is
/// held at all, and then no key is put together or looked for.
pub(super) const HELD_BY: &str = "CASE WHEN EXISTS (SELECT 1 FROM {p}hold WHERE lane = ?1) THEN (
    SELECT iif(h.reason = 'returning', -h.seq, h.seq) FROM {p}hold AS h
    WHERE h.lane = e.lane AND h.effective_key = e.effective_key) END";

/// The hold of a row's key, from [`HELD_BY`].
pub(super) fn hold_of(value: i64) -> Hold {
    Hold { head: value.unsigned_abs(), is_returning: value < 0 }
}

const FIELDS: usize = 0;
const HEADERS: usize = 1;
const PAYLOAD: usize = 2;

type Text = Option<String>;
type Packed = (i64, i64, i64, i64, i64, String, String, String, Text, Text, Text, String, Option<i64>);

/// A row with the columns of [`columns`].
pub(super) struct Stored<'a> {
    row: &'a SqliteRow,
    fields: Packed,
    /// Whether a text of the fields is none.
    garbled: bool,
}

type Reason = Box<dyn std::error::Error>;

impl<'a> Stored<'a> {
    /// The row, with its small fields taken apart.
    pub(super) fn new(row: &'a SqliteRow) -> sqlx::Result<Self> {
        let text = String::from_utf8_lossy(row.try_get_unchecked(FIELDS)?);
        let fields = serde_json::from_str(&text).map_err(|error| sqlx::Error::Decode(error.into()))?;
        Ok(Self { row, fields, garbled: matches!(text, Cow::Owned(_)) })
    }

    pub(super) fn seq(&self) -> Seq {
        natural(self.fields.0)
    }

    pub(super) fn attempts(&self) -> u32 {
        natural(self.fields.1)
    }

    pub(super) fn created_at(&self) -> Timestamp {
        Timestamp::from_micros(self.fields.3)
    }

    /// When it is due; none if it was written to be delivered at once.
    pub(super) fn delayed_to(&self) -> Option<Timestamp> {
        let available_at = Timestamp::from_micros(self.fields.2);
        (available_at > self.created_at()).then_some(available_at)
    }

    pub(super) fn hold(&self) -> Option<Hold> {
        self.fields.12.map(hold_of)
    }

    /// What an admission is asked about; the row is a fresh one. Names longer than any event has are cut, as they are for other rows.
    pub(super) fn is_wanted_by(&self, admission: &dyn Admission, lane: Lane) -> bool {
        let (key, seq) = (self.key(), self.seq());
        let key = key.as_deref().map(|key| cut(key, limits::KEY_CHARS_MAX));
        let event_type = cut(&self.fields.6, limits::EVENT_TYPE_CHARS_MAX);
        let aggregate_type = cut(&self.fields.7, limits::AGGREGATE_TYPE_CHARS_MAX);
        admission.admits(&RowSummary { lane, seq, event_type, aggregate_type, key, due_at: None })
    }

    /// The sizes of its payload and headers, and whether one of them was not read.
    pub(super) fn sizes(&self) -> sqlx::Result<(i64, i64, bool)> {
        let size = |column| -> sqlx::Result<(i64, bool)> {
            match self.size(column)? {
                Some(size) => Ok((size, true)),
                None => {
                    let bytes: Option<&[u8]> = self.row.try_get_unchecked(column)?;
                    Ok((bytes.map_or(0, |bytes| bytes.len() as i64), false))
                }
            }
        };
        let ((payload, no_payload), (headers, no_headers)) = (size(PAYLOAD)?, size(HEADERS)?);
        Ok((payload, headers, no_payload || no_headers))
    }

    /// The size of what was not read.
    fn size(&self, column: usize) -> sqlx::Result<Option<i64>> {
        let value = self.row.try_get_raw(column)?;
        let unread = !value.is_null() && value.type_info().name() == "INTEGER";
        unread.then(|| self.row.try_get(column)).transpose()
    }

    /// The event of a row. An error is that of this row alone; its neighbours do not suffer.
    pub(super) fn decode(self) -> Result<Event, Undecodable> {
        let row = self.row;
        self.into_fields().and_then(|fields| Ok(Event::from_stored(fields)?)).map_err(|reason| {
            // The fields are gone into what was to be an event; this is rare enough to read them once more.
            let named = Stored::new(row).map(|stored| (stored.key(), stored.fields.5, stored.fields.6));
            let (key, id, event_type) = named.unwrap_or_default();
            Undecodable { id: id.into(), event_type, key: key.map(Arc::from), reason: reason.to_string() }
        })
    }

    fn into_fields(self) -> Result<Fields, Reason> {
        if self.garbled {
            return Err(self.garbled_field());
        }
        let (headers, payload) = (self.headers()?, self.payload()?);
        // Once it has been tried, the column says when it is tried again and no longer what its writer asked for.
        let due = self.delayed_to().filter(|_| self.attempts() == 0);
        let (
            ..,
            occurred_at,
            id,
            event_type,
            aggregate_type,
            aggregate_id,
            ordering_key,
            tenant_id,
            content_type,
            _,
        ) = self.fields;
        Ok(Fields {
            id: EventId::from(id),
            event_type,
            aggregate_type,
            aggregate_id,
            ordering_key,
            tenant_id,
            headers,
            content_type,
            payload,
            occurred_at: Timestamp::from_micros(occurred_at),
            due: due.map_or(Due::AtOnce, Due::At),
            key: None,
        })
    }

    fn headers(&self) -> Result<BTreeMap<String, String>, Reason> {
        if let Some(size) = self.size(HEADERS)? {
            return Err(too_long("headers", natural(size), limits::HEADERS_BYTES_MAX));
        }
        let headers = self.row.try_get::<Option<&str>, _>(HEADERS);
        match headers.map_err(|error| format!("headers cannot be read: {error}"))? {
            None => Ok(BTreeMap::new()),
            Some(json) => serde_json::from_str(json)
                .map_err(|error| format!("headers are not a JSON object of strings: {error}").into()),
        }
    }

    fn payload(&self) -> Result<Payload, Reason> {
        if let Some(size) = self.size(PAYLOAD)? {
            return Err(too_long("payload", natural(size), limits::PAYLOAD_BYTES_MAX));
        }
        let value = self.row.try_get_raw(PAYLOAD)?;
        if value.is_null() {
            return Err("the row has no payload".into());
        }
        if value.type_info().name() == "BLOB" {
            return Ok(Payload::Bytes(self.row.try_get::<&[u8], _>(PAYLOAD)?.into()));
        }
        let text = self.row.try_get::<&str, _>(PAYLOAD);
        Ok(Payload::Text(text.map_err(|error| format!("payload cannot be read: {error}"))?.into()))
    }

    /// Which of the texts is none.
    fn garbled_field(&self) -> Reason {
        let (.., id, event_type, aggregate_type, aggregate_id, key, tenant_id, content_type, _) =
            &self.fields;
        let texts = [
            ("event_id", Some(id)),
            ("event_type", Some(event_type)),
            ("aggregate_type", Some(aggregate_type)),
            ("aggregate_id", aggregate_id.as_ref()),
            ("ordering_key", key.as_ref()),
            ("tenant_id", tenant_id.as_ref()),
            ("content_type", Some(content_type)),
        ];
        let garbled = |text: &&String| text.contains(char::REPLACEMENT_CHARACTER);
        let name = texts.into_iter().find(|(_, text)| text.as_ref().is_some_and(garbled));
        format!("{} is not UTF-8", name.map_or("a text", |(name, _)| name)).into()
    }

    /// The key as the database computes it.
    fn key(&self) -> Option<String> {
        let (.., aggregate_type, aggregate_id, key, _, _, _) = &self.fields;
        let of_aggregate = || aggregate_id.as_ref().map(|id| format!("{aggregate_type}:{id}"));
        key.clone().or_else(of_aggregate)
    }
}

fn too_long(field: &'static str, size: usize, limit: usize) -> Reason {
    EventError::TooLong { field, size, limit, unit: "bytes" }.into()
}

/// A name, or so much of it that it is told from all that are not too long.
fn cut(name: &str, chars_max: usize) -> &str {
    let end = name.char_indices().nth(chars_max + 1).map(|(end, _)| end);
    end.and_then(|end| name.get(..end)).unwrap_or(name)
}
