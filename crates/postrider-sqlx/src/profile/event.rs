//! From a foreign row to an event.

use std::collections::{BTreeMap, HashMap};

use postrider_core::{
    Event, EventId, Payload, Timestamp,
    event::{Due, Fields, JSON, limits},
    store::Undecodable,
};

use super::{Field, db::Cells, mind::Shown, shape::Shape, sql::Sql};

/// The media type of a payload that is not text.
const BYTES: &str = "application/octet-stream";

/// Reads what an event is made of, `WHERE`.
pub(super) fn whole(shape: &Shape) -> Sql {
    let [id, of_id, tenant] = [Field::Id, Field::AggregateId, Field::TenantId].map(|field| shape.text(field));
    let [headers, payload] = [Field::Headers, Field::Payload].map(|field| match shape.profile.has(field) {
        true => shape.cargo(field),
        false => shape.kind.text("NULL"),
    });
    let size = shape.kind.text(&shape.size(Field::Payload));
    shape.sql(format!(
        "SELECT {id}, {of_id}, {tenant}, {headers}, {payload}, {size} FROM {} WHERE ",
        shape.table()
    ))
}

/// The rows of [`whole`], by id.
pub(super) fn by_id(rows: Vec<Cells>) -> HashMap<String, Cells> {
    rows.into_iter().filter_map(|row| Some((row.text(0)?, row))).collect()
}

/// The event of a row of [`whole`]. An error is that of this row alone; its neighbours do not suffer.
pub(super) fn event(
    shape: &Shape,
    mut row: Cells,
    id: &str,
    shown: Shown,
    created_at: Timestamp,
) -> Result<Event, Undecodable> {
    let Shown { event_type, aggregate_type, key } = shown;
    let named = event_type.clone();
    let (aggregate_id, tenant_id) = (row.text(1), row.text(2));
    let event = || -> Result<Event, Box<dyn std::error::Error>> {
        let (payload, content_type) = payload(shape, &mut row)?;
        Ok(Event::from_stored(Fields {
            id: EventId::from(id),
            event_type,
            aggregate_type,
            aggregate_id,
            // Where the aggregate orders, the event finds its key by itself.
            ordering_key: key.as_deref().filter(|_| shape.profile.has(Field::Key)).map(str::to_owned),
            tenant_id,
            headers: headers(row.bytes(3))?,
            content_type: content_type.to_owned(),
            payload,
            occurred_at: created_at,
            due: Due::AtOnce,
            key: None,
        })?)
    };
    let id = EventId::from(id);
    event().map_err(|reason| Undecodable { id, event_type: named, key, reason: reason.to_string() })
}

fn payload(shape: &Shape, row: &mut Cells) -> Result<(Payload, &'static str), Box<dyn std::error::Error>> {
    let size = row.number(5).and_then(|size| usize::try_from(size).ok()).unwrap_or_default();
    let bytes = row.bytes(4).ok_or_else(|| match size > limits::PAYLOAD_BYTES_MAX {
        true => format!("payload has {size} bytes; at most {} are allowed", limits::PAYLOAD_BYTES_MAX),
        false => "the row has no payload".to_owned(),
    })?;
    match shape.is_bytes(Field::Payload) {
        true => Ok((Payload::Bytes(bytes.into()), BYTES)),
        false => Ok((Payload::Text(String::from_utf8(bytes)?.into()), JSON)),
    }
}

fn headers(json: Option<Vec<u8>>) -> Result<BTreeMap<String, String>, Box<dyn std::error::Error>> {
    match json {
        None => Ok(BTreeMap::new()),
        Some(json) => serde_json::from_slice(&json)
            .map_err(|error| format!("headers are not a JSON object of strings: {error}").into()),
    }
}
