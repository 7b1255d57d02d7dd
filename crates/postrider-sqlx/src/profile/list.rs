//! Lists of events and counts of them. A external outbox table may have an index for neither: the rows are sorted then.

use postrider_core::{
    EventId, GLOBAL_AGGREGATE, Payload, Timestamp,
    store::{ListCursor, ListFrom, ListScope, ListedEvent, Listing, Oldest, OldestEvent, TypeCount},
};
use tokio::sync::Mutex;

use super::{
    Field,
    db::{Cells, Tx},
    mind::Mind,
    operate::{STATE_COLUMNS, died_at, is_dead, is_done, state, state_columns},
    shape::Shape,
    sql::Sql,
};

/// When a row was written, as a number, and its id as text: what a list of it is in the order of.
fn order(shape: &Shape) -> (String, String) {
    let kind = shape.kind;
    let micros = match shape.profile.has(Field::CreatedAt) {
        true => kind.micros(&shape.column(Field::CreatedAt)),
        false => kind.text("0"),
    };
    let at = kind.pick(format!("({micros})::bigint"), format!("CAST({micros} AS SIGNED)"));
    (at, shape.text(Field::Id))
}

/// A page, the oldest first.
pub(super) async fn list(
    shape: &Shape,
    tx: &mut Tx,
    mind: &Mutex<Mind>,
    listing: &Listing,
) -> sqlx::Result<Vec<ListedEvent>> {
    let has_type = shape.profile.has(Field::EventType);
    // Where no column says it, all events have the same one.
    if listing.event_type.as_ref().is_some_and(|wanted| !has_type && *wanted != shape.profile.event_type) {
        return Ok(Vec::new());
    }
    let (at, id) = order(shape);
    let mut sql = shape.sql("SELECT ");
    state_columns(shape, &mut sql);
    sql.push(&format!(", {id}, {}, {}, ", shape.text(Field::EventType), shape.kind.text(&at)));
    shape.key(&mut sql);
    sql.push(&format!(", {}, {}", shape.text(Field::AggregateType), died_at(shape)));
    if listing.payloads {
        sql.push(&format!(", {}", shape.cargo(Field::Payload)));
    }
    sql.push(&format!(" FROM {} WHERE ", shape.table()));
    match listing.scope {
        ListScope::Dead => is_dead(shape, &mut sql),
        ListScope::Delivered => is_done(shape, &mut sql),
        ListScope::Undelivered => {
            sql.push("NOT (");
            is_done(shape, &mut sql);
            sql.push(")");
        }
    }
    if let Some(wanted) = listing.event_type.as_ref().filter(|_| has_type) {
        sql.push(&format!(" AND {} = ", shape.text(Field::EventType))).bind(wanted, "text");
    }
    if let Some(wanted) = &listing.key {
        sql.push(" AND ");
        shape.key(&mut sql);
        sql.push(" = ").bind(wanted, "text");
    }
    if let Some(wanted) = &listing.id {
        sql.push(" AND ");
        shape.ids(&mut sql, std::iter::once(wanted.as_str()));
    }
    let turned = from(&mut sql, &listing.from, &at, &id);
    sql.push(&format!(" LIMIT {}", listing.limit));
    let mut rows = tx.fetch(sql).await?;
    let mind = mind.lock().await;
    let mut found: Vec<ListedEvent> = rows.iter_mut().map(|row| listed(shape, &mind, row, listing)).collect();
    if turned {
        found.reverse();
    }
    Ok(found)
}

/// From where, and in which order. Says whether that is from the newest to the oldest.
fn from(sql: &mut Sql, from: &ListFrom, at: &str, id: &str) -> bool {
    let (mark, before, order) = match from {
        ListFrom::Newest => (None, "<", "DESC"),
        ListFrom::Before(mark) => (Some(mark), "<", "DESC"),
        ListFrom::After(mark) => (Some(mark), ">", "ASC"),
    };
    if let Some(mark) = mark {
        let micros = mark.at.as_micros();
        sql.push(&format!(" AND ({at} {before} ")).bind_number(micros, "bigint");
        sql.push(&format!(" OR ({at} = ")).bind_number(micros, "bigint");
        sql.push(&format!(" AND {id} {before} ")).bind(&mark.id, "text").push("))");
    }
    sql.push(&format!(" ORDER BY {at} {order}, {id} {order}"));
    order == "DESC"
}

fn listed(shape: &Shape, mind: &Mind, row: &mut Cells, listing: &Listing) -> ListedEvent {
    let id = row.text(STATE_COLUMNS).unwrap_or_default();
    let (status, attempts) = state(row, mind, &id);
    let created_at = Timestamp::from_micros(row.number(STATE_COLUMNS + 2).unwrap_or_default());
    let payload = match listing.payloads {
        true => row.bytes(STATE_COLUMNS + 6).map(|bytes| match String::from_utf8(bytes) {
            Ok(text) if !shape.is_bytes(Field::Payload) => Payload::Text(text.into()),
            Ok(text) => Payload::Bytes(text.into_bytes().into()),
            Err(error) => Payload::Bytes(error.into_bytes().into()),
        }),
        false => None,
    };
    ListedEvent {
        event_type: row.text(STATE_COLUMNS + 1).unwrap_or_else(|| shape.profile.event_type.clone()),
        // A null aggregate type reads as none.
        aggregate_type: row.text(STATE_COLUMNS + 4).unwrap_or_else(|| GLOBAL_AGGREGATE.to_owned()),
        key: row.text(STATE_COLUMNS + 3),
        cursor: ListCursor { at: created_at, seq: 0, id: id.clone() },
        id: EventId::from(id),
        status,
        attempts,
        created_at,
        died_at: row.number(STATE_COLUMNS + 5).map(Timestamp::from_micros),
        payload,
    }
}

/// How many there are of each type.
pub(super) async fn count_by_type(shape: &Shape, tx: &mut Tx, types: usize) -> sqlx::Result<Vec<TypeCount>> {
    let count = |sql: &mut Sql, condition: &dyn Fn(&Shape, &mut Sql)| {
        sql.push(shape.kind.pick("(COUNT(CASE WHEN ", "CAST(COUNT(CASE WHEN "));
        condition(shape, sql);
        sql.push(shape.kind.pick(" THEN 1 END))::text", " THEN 1 END) AS CHAR)"));
    };
    let mut sql = shape.sql(format!("SELECT {}, ", shape.text(Field::EventType)));
    count(&mut sql, &is_pending);
    sql.push(", ");
    count(&mut sql, &is_dead);
    sql.push(&format!(" FROM {} WHERE NOT (", shape.table()));
    is_done(shape, &mut sql);
    sql.push(&format!(") GROUP BY 1 ORDER BY COUNT(*) DESC, 1 LIMIT {types}"));
    let rows = tx.fetch(sql).await?;
    let number = |row: &Cells, column| {
        row.number(column).and_then(|number| u64::try_from(number).ok()).unwrap_or_default()
    };
    let counts = rows.iter().map(|row| TypeCount {
        event_type: row.text(0).unwrap_or_else(|| shape.profile.event_type.clone()),
        pending: number(row, 1),
        dead: number(row, 2),
    });
    Ok(counts.collect())
}

/// Of those that are not delivered, those that are not dead: claimed ones too.
fn is_pending(shape: &Shape, sql: &mut Sql) {
    sql.push("NOT (");
    is_dead(shape, sql);
    sql.push(")");
}

/// The oldest events that are pending; none where nobody knows how old they are.
pub(super) async fn oldest(shape: &Shape, tx: &mut Tx, limit: usize) -> sqlx::Result<Option<Oldest>> {
    if !shape.profile.has(Field::CreatedAt) {
        return Ok(None);
    }
    let [event_type, of] = [Field::EventType, Field::AggregateType].map(|field| shape.text(field));
    let kind = shape.kind;
    let (created, now) = (kind.micros(&shape.column(Field::CreatedAt)), kind.micros(kind.now()));
    let mut sql =
        shape.sql(format!("SELECT {event_type}, {of}, {created}, {now} FROM {} WHERE (", shape.table()));
    shape.pending(&mut sql);
    let claimed = shape.profile.statuses.as_ref().and_then(|statuses| statuses.claimed.as_ref());
    if let Some(claimed) = claimed {
        sql.push(&format!(" OR {} = ", shape.column(Field::Status)));
        shape.value(&mut sql, Field::Status, claimed);
    }
    sql.push(&format!(") ORDER BY {} LIMIT {}", shape.order(), limit.saturating_add(1)));
    let rows = tx.fetch(sql).await?;
    let event = |row: &Cells| {
        let time = |column| Timestamp::from_micros(row.number(column).unwrap_or_default());
        OldestEvent {
            event_type: row.text(0).unwrap_or_else(|| shape.profile.event_type.clone()),
            aggregate_type: row.text(1).unwrap_or_else(|| GLOBAL_AGGREGATE.to_owned()),
            age: time(3).since(time(2)),
        }
    };
    let events = rows.iter().take(limit).map(event).collect();
    Ok(Some(Oldest { events, more: rows.len() > limit, read_to: None }))
}
