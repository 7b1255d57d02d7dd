//! Lists of events and counts of them.

use postrider_core::{
    Payload,
    store::{
        EventStatus, ListCursor, ListFrom, ListScope, ListedEvent, Listing, Oldest, OldestEvent, Seq,
        TypeCount,
    },
    tx::Prefix,
};
use sqlx::{MySqlConnection, Row, mysql::MySqlRow};

use crate::oldest::Look;

use super::{
    Inner,
    operate::{DELAYED, undelivered},
    statement::{AT, NOW, Statement, bound, integer, micros, natural, text, time},
};

/// The last point in time that is asked for; nothing is written later.
const LAST_US: i64 = 253_402_300_799_999_999;

/// A page of a scope. It is read along an index: those who are not delivered by their place, the delivered by the time of their delivery,
/// of which there is an index for the purge. The dead are a stretch of the one index, and are sorted. What a filter leaves out is passed
/// on the way.
pub(super) fn statement(prefix: &Prefix, listing: &Listing) -> Statement {
    let (before, order) = match listing.from {
        ListFrom::After(_) => (">", "ASC"),
        _ => ("<", "DESC"),
    };
    let payload = if listing.payloads { ", e.payload, e.payload_bytes" } else { "" };
    let key = match listing.scope {
        ListScope::Delivered => "COALESCE(e.ordering_key, CONCAT(e.aggregate_type, ':', e.aggregate_id))",
        _ => "e.effective_key",
    };
    let common = format!(
        "e.seq, e.event_id, e.event_type, e.aggregate_type, {key} AS event_key, e.attempts, {DELAYED}, e.last_error, {} AS created_at, {} AS available_at",
        micros("e.created_at"),
        micros("e.available_at")
    );
    // A question mark for each place: each value is bound as often as it stands here.
    let id = if listing.id.is_some() { " AND e.event_id = ?" } else { "" };
    let fits = format!("(? IS NULL OR e.event_type = ?) AND (? IS NULL OR {key} = ?){id}");
    let template = match listing.scope {
        ListScope::Delivered => format!(
            "SELECT {common}, {done_at} AS done_at{payload} FROM {{p}}done AS e FORCE INDEX ({{p}}{index})
             WHERE e.done_at {before}= {AT} AND (e.done_at {before} {AT} OR e.seq {before} ?) AND {fits}
             ORDER BY e.done_at {order}, e.seq {order} LIMIT ?",
            done_at = micros("e.done_at"),
            index = if listing.id.is_some() { "done_id" } else { "done_at" }
        ),
        scope => {
            let (index, dead) = match scope {
                ListScope::Dead => ("{p}event_place", "e.place = 3 AND "),
                _ => ("PRIMARY", ""),
            };
            let index = if listing.id.is_some() { "{p}event_id" } else { index };
            format!(
                "SELECT {common}, e.place{payload} FROM {{p}}event AS e FORCE INDEX ({index})
                 WHERE {dead}e.seq {before} ? AND {fits} ORDER BY e.seq {order} LIMIT ?"
            )
        }
    };
    Statement::new(&template, prefix)
}

/// A page, the oldest first.
pub(super) async fn list(
    Inner { target, .. }: &Inner,
    conn: &mut MySqlConnection,
    listing: &Listing,
) -> sqlx::Result<Vec<ListedEvent>> {
    let prefix = &target.prefix;
    let (seq, at) = match &listing.from {
        ListFrom::Newest => (u64::MAX, LAST_US),
        ListFrom::Before(mark) | ListFrom::After(mark) => (mark.seq, bound(mark.at)),
    };
    let mut query = statement(prefix, listing).query();
    if listing.scope == ListScope::Delivered {
        query = query.bind(at).bind(at);
    }
    query = query.bind(seq);
    for wanted in [&listing.event_type, &listing.key] {
        query = query.bind(wanted.clone()).bind(wanted.clone());
    }
    if let Some(id) = &listing.id {
        query = query.bind(id.as_str().to_owned());
    }
    let rows = query.bind(integer(listing.limit)).fetch_all(conn).await?;
    let mut found: Vec<ListedEvent> =
        rows.iter().map(|row| listed(row, listing)).collect::<sqlx::Result<_>>()?;
    if !matches!(listing.from, ListFrom::After(_)) {
        found.reverse();
    }
    Ok(found)
}

fn listed(row: &MySqlRow, listing: &Listing) -> sqlx::Result<ListedEvent> {
    let mut cursor = ListCursor { seq: natural(row, "seq")?, ..ListCursor::default() };
    let status = match listing.scope {
        ListScope::Delivered => {
            cursor.at = time(row, "done_at")?;
            EventStatus::Done { done_at: cursor.at }
        }
        _ => undelivered(row)?,
    };
    let died_at = match status {
        EventStatus::Dead { .. } => Some(time(row, "available_at")?),
        _ => None,
    };
    let payload = match listing.payloads {
        true => match text(row, "payload")? {
            Some(text) => Some(Payload::Text(text.into())),
            None => {
                let bytes = row.try_get_unchecked::<Option<Vec<u8>>, _>("payload_bytes")?;
                bytes.map(|bytes| Payload::Bytes(bytes.into()))
            }
        },
        false => None,
    };
    Ok(ListedEvent {
        cursor,
        id: text(row, "event_id")?.unwrap_or_default().into(),
        event_type: text(row, "event_type")?.unwrap_or_default(),
        aggregate_type: text(row, "aggregate_type")?.unwrap_or_default(),
        key: text(row, "event_key")?,
        status,
        attempts: natural(row, "attempts")?,
        created_at: time(row, "created_at")?,
        died_at,
        payload,
    })
}

/// How many there are of each type.
pub(super) async fn count_by_type(
    Inner { target, .. }: &Inner,
    conn: &mut MySqlConnection,
    types: usize,
) -> sqlx::Result<Vec<TypeCount>> {
    let prefix = &target.prefix;
    let count = Statement::new(
        "SELECT event_type, CAST(SUM(status <> 3) AS SIGNED) AS pending, CAST(SUM(status = 3) AS SIGNED) AS dead
         FROM {p}event GROUP BY event_type ORDER BY COUNT(*) DESC, event_type LIMIT ?",
        prefix,
    );
    let rows = count.query().bind(integer(types)).fetch_all(conn).await?;
    let counts = rows.iter().map(|row| {
        Ok(TypeCount {
            event_type: text(row, "event_type")?.unwrap_or_default(),
            pending: natural(row, "pending")?,
            dead: natural(row, "dead")?,
        })
    });
    counts.collect()
}

/// A page of what is not delivered, along the primary key.
pub(super) fn oldest_statement(prefix: &Prefix) -> Statement {
    let created = micros("created_at");
    Statement::new(
        &format!(
            "SELECT seq, event_type, aggregate_type, {created} AS created_at, {NOW} AS now, status = 3 AS is_dead
             FROM {{p}}event FORCE INDEX (PRIMARY) WHERE seq > ? ORDER BY seq LIMIT ?"
        ),
        prefix,
    )
}

/// The oldest events that are pending.
pub(super) async fn oldest(
    Inner { target, .. }: &Inner,
    conn: &mut MySqlConnection,
    after: Seq,
    limit: usize,
) -> sqlx::Result<Oldest> {
    let prefix = &target.prefix;
    let (statement, mut look) = (oldest_statement(prefix), Look::new(after, limit));
    while let Some(after) = look.next() {
        let query = statement.query().bind(after).bind(integer(limit));
        let rows = query.fetch_all(&mut *conn).await?;
        look.add(rows.iter().map(pending).collect::<sqlx::Result<_>>()?);
    }
    Ok(look.end())
}

fn pending(row: &MySqlRow) -> sqlx::Result<(Seq, Option<OldestEvent>)> {
    let event = match natural::<u8>(row, "is_dead")? {
        0 => Some(OldestEvent {
            event_type: text(row, "event_type")?.unwrap_or_default(),
            aggregate_type: text(row, "aggregate_type")?.unwrap_or_default(),
            age: time(row, "now")?.since(time(row, "created_at")?),
        }),
        _ => None,
    };
    Ok((natural(row, "seq")?, event))
}
