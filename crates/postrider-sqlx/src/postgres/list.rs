//! Lists of events and counts of them.

use std::time::Duration;

use postrider_core::{
    Payload,
    store::{
        EventStatus, ListCursor, ListFrom, ListScope, ListedEvent, Listing, Oldest, OldestEvent, Seq,
        TypeCount,
    },
};
use sqlx::{PgConnection, Row, postgres::PgRow};

use crate::oldest::Look;

use super::{
    Inner,
    operate::{DELAYED, where_it_is},
    statement::{Shape, Statement, integer, natural, time},
};

/// The last point in time that is asked for; nothing is written later.
const LAST_US: i64 = 253_402_300_799_999_999;

/// A page of a scope. It is read along an index: those who are not delivered and the dead by their place, the delivered by the time of
/// their delivery, of which there is an index for the purge. What a filter leaves out is passed on the way.
pub(super) fn statement(shape: &Shape, listing: &Listing) -> Statement {
    let (before, order) = match listing.from {
        ListFrom::After(_) => (">", "ASC"),
        _ => ("<", "DESC"),
    };
    let payload = if listing.payloads { ", e.payload, e.payload_bytes" } else { "" };
    let common = format!(
        "e.seq, e.event_id, e.event_type, e.aggregate_type, {{key}} AS key, e.attempts, e.available_at, {DELAYED}, e.last_error, e.created_at"
    );
    let id = if listing.id.is_some() { " AND e.event_id = $6" } else { "" };
    let fits = format!("($2::text IS NULL OR e.event_type = $2) AND ($3::text IS NULL OR {{key}} = $3){id}");
    // Before the first ANALYZE PostgreSQL takes an id for one of two hundred, and would read along the index of times until it came.
    let delivered = match listing.id {
        Some(_) => "(SELECT * FROM {p}done WHERE event_id = $6 OFFSET 0)",
        None => "{p}done",
    };
    let template = match listing.scope {
        ListScope::Delivered => format!(
            "SELECT {common}, 1::smallint AS status, false AS parked, e.done_at{payload}
             FROM {delivered} AS e, (SELECT timestamptz 'epoch' + $5::bigint * interval '1 microsecond' AS at) AS mark
             WHERE e.done_at {before}= mark.at AND (e.done_at {before} mark.at OR e.seq {before} $1) AND {fits}
             ORDER BY e.done_at {order}, e.seq {order} LIMIT $4"
        ),
        scope => {
            let dead = if scope == ListScope::Dead { "e.status = 3 AND " } else { "" };
            format!(
                "SELECT {common}, e.status, e.parked, NULL::timestamptz AS done_at{payload}
                 FROM {{p}}event AS e WHERE {dead}e.seq {before} $1 AND {fits} AND $5::bigint IS NOT NULL
                 ORDER BY e.seq {order} LIMIT $4"
            )
        }
    };
    Statement::new(&template, shape)
}

/// A page, the oldest first.
pub(super) async fn list(
    Inner { shape, .. }: &Inner,
    conn: &mut PgConnection,
    listing: &Listing,
) -> sqlx::Result<Vec<ListedEvent>> {
    let (seq, at) = match &listing.from {
        ListFrom::Newest => (i64::MAX, LAST_US),
        ListFrom::Before(mark) | ListFrom::After(mark) => (integer(mark.seq), mark.at.as_micros()),
    };
    let query = statement(shape, listing).query();
    let query = query.bind(seq).bind(listing.event_type.clone()).bind(listing.key.clone());
    let mut query = query.bind(integer(listing.limit)).bind(at);
    if let Some(id) = &listing.id {
        query = query.bind(id.as_str().to_owned());
    }
    let rows = query.fetch_all(conn).await?;
    let mut found: Vec<ListedEvent> =
        rows.iter().map(|row| listed(row, listing)).collect::<sqlx::Result<_>>()?;
    if !matches!(listing.from, ListFrom::After(_)) {
        found.reverse();
    }
    Ok(found)
}

fn listed(row: &PgRow, listing: &Listing) -> sqlx::Result<ListedEvent> {
    let status = where_it_is(row)?;
    let died_at = match status {
        EventStatus::Dead { .. } => Some(time(row, "available_at")?),
        _ => None,
    };
    let mut cursor = ListCursor { seq: natural(row.try_get("seq")?), ..ListCursor::default() };
    if let EventStatus::Done { done_at } = status {
        cursor.at = done_at;
    }
    let payload = match listing.payloads {
        true => match row.try_get::<Option<String>, _>("payload")? {
            Some(text) => Some(Payload::Text(text.into())),
            None => {
                row.try_get::<Option<Vec<u8>>, _>("payload_bytes")?.map(|bytes| Payload::Bytes(bytes.into()))
            }
        },
        false => None,
    };
    Ok(ListedEvent {
        cursor,
        id: row.try_get::<String, _>("event_id")?.into(),
        event_type: row.try_get("event_type")?,
        aggregate_type: row.try_get("aggregate_type")?,
        key: row.try_get("key")?,
        status,
        attempts: natural(row.try_get::<i32, _>("attempts")?.into()),
        created_at: time(row, "created_at")?,
        died_at,
        payload,
    })
}

/// How many there are of each type.
pub(super) async fn count_by_type(
    Inner { shape, .. }: &Inner,
    conn: &mut PgConnection,
    types: usize,
) -> sqlx::Result<Vec<TypeCount>> {
    let count = Statement::new(
        "SELECT event_type, count(*) FILTER (WHERE status <> 3) AS pending, count(*) FILTER (WHERE status = 3) AS dead
         FROM {p}event GROUP BY event_type ORDER BY count(*) DESC, event_type LIMIT $1",
        shape,
    );
    let rows = count.query().bind(integer(types)).fetch_all(conn).await?;
    let counts = rows.iter().map(|row| {
        Ok(TypeCount {
            event_type: row.try_get("event_type")?,
            pending: natural(row.try_get("pending")?),
            dead: natural(row.try_get("dead")?),
        })
    });
    counts.collect()
}

/// A page of what is not delivered, along the primary key, with its age unless it is dead.
pub(super) fn oldest_statement(shape: &Shape) -> Statement {
    Statement::new(
        "SELECT e.seq, e.event_type, e.aggregate_type,
                CASE WHEN e.status <> 3 THEN (extract(epoch FROM clock_timestamp() - e.created_at) * 1000000)::bigint END AS age_us
         FROM {p}event AS e WHERE e.seq > $1 ORDER BY e.seq LIMIT $2",
        shape,
    )
}

/// The oldest events that are pending.
pub(super) async fn oldest(
    Inner { shape, .. }: &Inner,
    conn: &mut PgConnection,
    after: Seq,
    limit: usize,
) -> sqlx::Result<Oldest> {
    let (statement, mut look) = (oldest_statement(shape), Look::new(after, limit));
    while let Some(after) = look.next() {
        let query = statement.query().bind(integer(after)).bind(integer(limit));
        let rows = query.fetch_all(&mut *conn).await?;
        look.add(rows.iter().map(pending).collect::<sqlx::Result<_>>()?);
    }
    Ok(look.end())
}

fn pending(row: &PgRow) -> sqlx::Result<(Seq, Option<OldestEvent>)> {
    let event = match row.try_get::<Option<i64>, _>("age_us")? {
        Some(age) => Some(OldestEvent {
            event_type: row.try_get("event_type")?,
            aggregate_type: row.try_get("aggregate_type")?,
            age: Duration::from_micros(natural(age)),
        }),
        None => None,
    };
    Ok((natural(row.try_get("seq")?), event))
}
