//! What an insert says and binds.

use postrider_core::{
    Event, EventError, EventId, Payload, Result, Timestamp,
    event::Due,
    tx::{Dialect, LaneHints, Prefix, Target},
};

use super::statement::{AT, Ready, bound, splice};

/// Most events in one statement; fourteen values each stay well below the 65535 that there can be.
const ROWS_MAX: usize = 1000;

/// Most bytes of payload in one statement: a quarter of MariaDB's default `max_allowed_packet`.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Longest delay that is stored; the calendar of the database ends in the year 9999.
const DELAY_MICROS_MAX: i64 = 1000 * 365 * 86_400 * 1_000_000;

/// What makes the events of several statements one: all of them or none.
pub(super) const SAVEPOINT: &str = "SAVEPOINT postrider_insert";
pub(super) const RELEASE: &str = "RELEASE SAVEPOINT postrider_insert";
pub(super) const ROLLBACK: &str =
    "ROLLBACK TO SAVEPOINT postrider_insert; RELEASE SAVEPOINT postrider_insert";

/// One row of values. An event that is due at once is due at the very time that it is created, on the database's clock.
fn row() -> String {
    format!(
        "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {AT}, COALESCE({AT}, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND))"
    )
}

/// The table that events are inserted into.
pub(super) fn target(prefix: &Prefix) -> Target {
    let insert_one = format!(
        "INSERT INTO {{p}}event (event_id, event_type, aggregate_type, aggregate_id, ordering_key, lane_hint, tenant_id, \
         content_type, headers, payload, payload_bytes, occurred_at, available_at) VALUES {}",
        row()
    );
    Target {
        dialect: Dialect::Mysql,
        prefix: prefix.clone(),
        insert_one: splice(&insert_one, prefix),
        prepared: true,
        hints: LaneHints::default(),
    }
}

/// The statement that inserts `rows` events.
pub(super) fn statement(target: &Target, rows: usize) -> String {
    let mut sql = target.insert_one.clone();
    for _ in 1..rows {
        sql.push_str(", ");
        sql.push_str(&row());
    }
    sql
}

/// Binds the values of one event, in the order of the statement's columns.
pub(super) fn bind(query: Ready, target: &Target, event: &Event) -> Result<Ready> {
    let (payload, payload_bytes) = match event.payload() {
        Payload::Text(text) => (Some(text.to_string()), None),
        Payload::Bytes(bytes) => (None, Some(bytes.to_vec())),
    };
    let (at, after) = match event.due() {
        Due::AtOnce => (None, Some(0)),
        Due::At(time) => (Some(bound(time)), None),
        Due::After(delay) => (None, Some(Timestamp::EPOCH.plus(delay).as_micros().min(DELAY_MICROS_MAX))),
    };
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Ok(query
        .bind(event.id().as_str().to_owned())
        .bind(event.event_type().to_owned())
        .bind(event.aggregate_type().to_owned())
        .bind(owned(event.aggregate_id()))
        .bind(owned(event.ordering_key()))
        .bind(target.lane_hint(event))
        .bind(owned(event.tenant_id()))
        .bind(event.content_type().to_owned())
        .bind(headers(event)?)
        .bind(payload)
        .bind(payload_bytes)
        .bind(bound(event.occurred_at()))
        .bind(at)
        .bind(after))
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
            bytes += event.weight_bytes();
            bytes <= BYTES_MAX
        });
        // One event always fits: its own limit is smaller.
        let (chunk, beyond) = rest.split_at(fitting.count().max(1));
        chunks.push(chunk);
        rest = beyond;
    }
    chunks
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
    fn a_statement_takes_a_thousand_rows_or_four_mebibytes() {
        let small = vec![event(1); 2500];
        assert_eq!(chunks(&small).iter().map(|chunk| chunk.len()).collect::<Vec<_>>(), [1000, 1000, 500]);
        let large = vec![event(1024 * 1024); 4];
        assert_eq!(chunks(&large).iter().map(|chunk| chunk.len()).collect::<Vec<_>>(), [3, 1]);
        assert!(chunks(&[]).is_empty());
    }
}
