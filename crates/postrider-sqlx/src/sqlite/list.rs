//! Lists of events and counts of them.

use postrider_core::{
    Payload, Timestamp,
    store::{
        EventStatus, ListCursor, ListFrom, ListScope, ListedEvent, Listing, Oldest, OldestEvent, Seq,
        TypeCount,
    },
    tx::Prefix,
};
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use crate::oldest::Look;

use super::{
    Inner,
    operate::{text, undelivered},
    statement::{Statement, integer, natural},
};

/// A page of a scope. It is read along an index: those who are not delivered and the dead by their place, the delivered by the time of
/// their delivery, of which there is an index for the purge. What a filter leaves out is passed on the way.
pub(super) fn statement(prefix: &Prefix, listing: &Listing) -> Statement {
    let (before, order) = match listing.from {
        ListFrom::After(_) => (">", "ASC"),
        _ => ("<", "DESC"),
    };
    let payload = if listing.payloads { ", e.payload, e.payload_bytes" } else { "" };
    let key = match listing.scope {
        ListScope::Delivered => "coalesce(e.ordering_key, e.aggregate_type || ':' || e.aggregate_id)",
        _ => "e.effective_key",
    };
    let common = format!(
        "e.seq, e.event_id, e.event_type, e.aggregate_type, {key} AS key, e.attempts, e.available_at,
         max(e.created_at, ?6) < e.available_at AS delayed, e.last_error, e.created_at"
    );
    let id = if listing.id.is_some() { " AND e.event_id = ?7" } else { "" };
    let fits = format!("(?2 IS NULL OR e.event_type = ?2) AND (?3 IS NULL OR {key} = ?3){id}");
    let template = match listing.scope {
        ListScope::Delivered => format!(
            "SELECT {common}, e.done_at{payload} FROM {{p}}done AS e
             WHERE e.done_at {before}= ?5 AND (e.done_at {before} ?5 OR e.seq {before} ?1) AND {fits}
             ORDER BY e.done_at {order}, e.seq {order} LIMIT ?4"
        ),
        scope => {
            let dead = if scope == ListScope::Dead { "e.status = 3 AND " } else { "" };
            format!(
                "SELECT {common}, e.status, e.parked{payload} FROM {{p}}event AS e
                 WHERE {dead}e.seq {before} ?1 AND {fits} AND ?5 IS NOT NULL ORDER BY e.seq {order} LIMIT ?4"
            )
        }
    };
    Statement::new(&template, prefix)
}

/// A page, the oldest first.
pub(super) async fn list(
    Inner { target, .. }: &Inner,
    conn: &mut SqliteConnection,
    listing: &Listing,
) -> sqlx::Result<Vec<ListedEvent>> {
    let prefix = &target.prefix;
    let (seq, at) = match &listing.from {
        ListFrom::Newest => (i64::MAX, i64::MAX),
        ListFrom::Before(mark) | ListFrom::After(mark) => (integer(mark.seq), mark.at.as_micros()),
    };
    let query = statement(prefix, listing).query();
    let query = query.bind(seq).bind(listing.event_type.clone()).bind(listing.key.clone());
    let mut query = query.bind(integer(listing.limit)).bind(at).bind(Timestamp::now().as_micros());
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

fn listed(row: &SqliteRow, listing: &Listing) -> sqlx::Result<ListedEvent> {
    let mut cursor = ListCursor { seq: natural(row.try_get("seq")?), ..ListCursor::default() };
    let status = match listing.scope {
        ListScope::Delivered => {
            cursor.at = Timestamp::from_micros(row.try_get("done_at")?);
            EventStatus::Done { done_at: cursor.at }
        }
        _ => undelivered(row)?,
    };
    let died_at = match status {
        EventStatus::Dead { .. } => Some(Timestamp::from_micros(row.try_get("available_at")?)),
        _ => None,
    };
    let payload = match listing.payloads {
        true => match text(row, "payload")? {
            Some(text) => Some(Payload::Text(text.into())),
            None => {
                row.try_get::<Option<Vec<u8>>, _>("payload_bytes")?.map(|bytes| Payload::Bytes(bytes.into()))
            }
        },
        false => None,
    };
    Ok(ListedEvent {
        cursor,
        id: text(row, "event_id")?.unwrap_or_default().into(),
        event_type: text(row, "event_type")?.unwrap_or_default(),
        aggregate_type: text(row, "aggregate_type")?.unwrap_or_default(),
        key: text(row, "key")?,
        status,
        attempts: natural(row.try_get("attempts")?),
        created_at: Timestamp::from_micros(row.try_get("created_at")?),
        died_at,
        payload,
    })
}

/// How many there are of each type.
pub(super) async fn count_by_type(
    Inner { target, .. }: &Inner,
    conn: &mut SqliteConnection,
    types: usize,
) -> sqlx::Result<Vec<TypeCount>> {
    let prefix = &target.prefix;
    let count = Statement::new(
        "SELECT event_type, count(*) FILTER (WHERE status <> 3) AS pending, count(*) FILTER (WHERE status = 3) AS dead
         FROM {p}event GROUP BY event_type ORDER BY count(*) DESC, event_type LIMIT ?1",
        prefix,
    );
    let rows = count.query().bind(integer(types)).fetch_all(conn).await?;
    let counts = rows.iter().map(|row| {
        Ok(TypeCount {
            event_type: text(row, "event_type")?.unwrap_or_default(),
            pending: natural(row.try_get("pending")?),
            dead: natural(row.try_get("dead")?),
        })
    });
    counts.collect()
}

/// A page of what is not delivered, along the primary key.
pub(super) fn oldest_statement(prefix: &Prefix) -> Statement {
    Statement::new(
        "SELECT seq, event_type, aggregate_type, created_at, status = 3 AS is_dead
         FROM {p}event WHERE seq > ?1 ORDER BY seq LIMIT ?2",
        prefix,
    )
}

/// The oldest events that are pending.
pub(super) async fn oldest(
    Inner { target, .. }: &Inner,
    conn: &mut SqliteConnection,
    after: Seq,
    limit: usize,
) -> sqlx::Result<Oldest> {
    let prefix = &target.prefix;
    let (statement, mut look) = (oldest_statement(prefix), Look::new(after, limit));
    while let Some(after) = look.next() {
        let query = statement.query().bind(integer(after)).bind(integer(limit));
        let (rows, now) = (query.fetch_all(&mut *conn).await?, Timestamp::now());
        look.add(rows.iter().map(|row| pending(row, now)).collect::<sqlx::Result<_>>()?);
    }
    Ok(look.end())
}

fn pending(row: &SqliteRow, now: Timestamp) -> sqlx::Result<(Seq, Option<OldestEvent>)> {
    let event = match row.try_get::<bool, _>("is_dead")? {
        false => Some(OldestEvent {
            event_type: text(row, "event_type")?.unwrap_or_default(),
            aggregate_type: text(row, "aggregate_type")?.unwrap_or_default(),
            age: now.since(Timestamp::from_micros(row.try_get("created_at")?)),
        }),
        true => None,
    };
    Ok((natural(row.try_get("seq")?), event))
}
