//! What operators see and do.

use std::time::Duration;

use postrider_core::{
    EventId, Timestamp,
    store::{DeadLetter, EventStatus, Instances, Seq, Stats},
};
use tokio::sync::Mutex;

use super::{
    Field, Value,
    db::{Cells, Tx},
    lane::{LANE, exists, micros},
    mind::{Mind, Row, State},
    recover::kept,
    shape::Shape,
    spec::Mark,
    sql::Sql,
};

/// Rows with this status.
fn having(shape: &Shape, sql: &mut Sql, status: &Value) {
    sql.push(&format!("{} = ", shape.column(Field::Status)));
    shape.value(sql, Field::Status, status);
}

/// Rows that are dead.
pub(super) fn is_dead(shape: &Shape, sql: &mut Sql) {
    match &shape.profile.statuses {
        Some(statuses) => having(shape, sql, &statuses.dead),
        None => {
            sql.push("NOT (");
            shape.pending(sql);
            sql.push(")");
        }
    }
}

/// Rows that are delivered. Where there are no statuses such rows are gone.
pub(super) fn is_done(shape: &Shape, sql: &mut Sql) {
    match &shape.profile.statuses {
        Some(statuses) => having(shape, sql, &statuses.done),
        None => _ = sql.push("1 = 0"),
    }
}

/// How often a row was tried and what went wrong, as the table says, or ours where it has no room for the dead.
fn told(shape: &Shape) -> [String; 2] {
    match shape.profile.statuses {
        Some(_) => [Field::Attempts, Field::Error].map(|field| shape.text(field)),
        None => ["attempts", "error"].map(|column| {
            let (dead, id) = (shape.ours("dead"), shape.their_id());
            shape.kind.text(&format!(
                "(SELECT MAX(d.{column}) FROM {dead} d WHERE d.event_id = {id} AND d.source = {})",
                shape.source_literal()
            ))
        }),
    }
}

/// When a row went dead. A table of ours notes it where theirs cannot say that a row is dead.
pub(super) fn died_at(shape: &Shape) -> String {
    match shape.profile.statuses {
        Some(_) => shape.kind.text("NULL"),
        None => format!(
            "(SELECT {} FROM {} d WHERE d.event_id = {} AND d.source = {})",
            shape.kind.micros("MAX(d.dead_at)"),
            shape.ours("dead"),
            shape.their_id(),
            shape.source_literal()
        ),
    }
}

/// Dead letters. A external outbox table has no number for a place: it is the row's number among the dead.
pub(super) async fn dead(
    shape: &Shape,
    tx: &mut Tx,
    after: Seq,
    limit: usize,
) -> sqlx::Result<Vec<DeadLetter>> {
    let [id, event_type] = [Field::Id, Field::EventType].map(|field| shape.text(field));
    let [attempts, error] = told(shape);
    let created = match shape.profile.has(Field::CreatedAt) {
        true => shape.kind.micros(&shape.column(Field::CreatedAt)),
        false => shape.kind.text("0"),
    };
    let died = died_at(shape);
    let mut sql = shape.sql(format!("SELECT {id}, {event_type}, {attempts}, {error}, {created}, {died}, "));
    shape.key(&mut sql);
    sql.push(&format!(" FROM {} WHERE ", shape.table()));
    is_dead(shape, &mut sql);
    sql.push(&format!(" ORDER BY {} LIMIT {limit} OFFSET {after}", shape.order()));
    let rows = tx.fetch(sql).await?;
    let letters = rows.iter().zip(after + 1..).map(|(row, seq)| DeadLetter {
        seq,
        id: EventId::from(row.text(0).unwrap_or_default()),
        event_type: row.text(1).unwrap_or_else(|| shape.profile.event_type.clone()),
        attempts: row.number(2).and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or_default(),
        error: row.text(3).unwrap_or_default(),
        created_at: Timestamp::from_micros(row.number(4).unwrap_or_default()),
        died_at: row.number(5).map(Timestamp::from_micros),
        key: row.text(6),
        blocks: false,
    });
    Ok(letters.collect())
}

/// Makes dead rows due again.
pub(super) async fn redrive(shape: &Shape, tx: &mut Tx, ids: &[EventId]) -> sqlx::Result<u64> {
    let Some(statuses) = &shape.profile.statuses else { return exhume(shape, tx, ids).await };
    let mut sql = shape.sql(format!("UPDATE {} SET {} = ", shape.table(), shape.column(Field::Status)));
    shape.value(&mut sql, Field::Status, &statuses.fresh);
    if shape.profile.has(Field::Attempts) {
        sql.push(&format!(", {} = 0", shape.column(Field::Attempts)));
    }
    if shape.profile.has(Field::AvailableAt) {
        sql.push(&format!(", {} = {}", shape.column(Field::AvailableAt), shape.kind.now()));
    }
    sql.push(&kept(shape)).push(" WHERE ");
    shape.ids(&mut sql, ids.iter().map(EventId::as_str));
    sql.push(" AND ");
    is_dead(shape, &mut sql);
    tx.execute(sql).await
}

/// Deletes dead rows.
pub(super) async fn discard(shape: &Shape, tx: &mut Tx, ids: &[EventId]) -> sqlx::Result<u64> {
    let mut sql = shape.sql(format!("DELETE FROM {} WHERE ", shape.table()));
    shape.ids(&mut sql, ids.iter().map(EventId::as_str));
    sql.push(" AND ");
    is_dead(shape, &mut sql);
    let discarded = tx.execute(sql).await?;
    if shape.profile.statuses.is_none() {
        exhume(shape, tx, ids).await?;
    }
    Ok(discarded)
}

/// Takes rows out of our list of the dead.
async fn exhume(shape: &Shape, tx: &mut Tx, ids: &[EventId]) -> sqlx::Result<u64> {
    let mut sql = shape.sql(format!("DELETE FROM {} WHERE source = ", shape.ours("dead")));
    sql.bind(shape.source(), "text").push(" AND ");
    sql.among("event_id", "text", ids.iter().map(|id| id.as_str().to_owned()));
    tx.execute(sql).await
}

/// Deletes delivered rows, where that system does.
pub(super) async fn purge(
    shape: &Shape,
    tx: &mut Tx,
    retention: Duration,
    limit: usize,
) -> sqlx::Result<u64> {
    let profile = &shape.profile;
    let Some(statuses) = profile.statuses.as_ref().filter(|_| profile.purges && profile.has(Field::DoneAt))
    else {
        return Ok(0);
    };
    let mut sql = shape.sql(format!("SELECT {} FROM {} WHERE ", shape.text(Field::Id), shape.table()));
    having(shape, &mut sql, &statuses.done);
    sql.push(&format!(" AND {} <= ", shape.column(Field::DoneAt))).after_now(-micros(retention));
    sql.push(&format!(" LIMIT {limit}"));
    let ids: Vec<String> = tx.fetch(sql).await?.iter().filter_map(|row| row.text(0)).collect();
    if ids.is_empty() {
        return Ok(0);
    }
    let mut sql = shape.sql(format!("DELETE FROM {} WHERE ", shape.table()));
    shape.ids(&mut sql, ids.iter().map(String::as_str));
    sql.push(" AND ");
    having(shape, &mut sql, &statuses.done);
    tx.execute(sql).await
}

/// How much of everything there is. Delivery waits for the mind, so nobody holds it while the database counts.
pub(super) async fn stats(shape: &Shape, tx: &mut Tx, mind: &Mutex<Mind>) -> sqlx::Result<Stats> {
    let (count, now) = (shape.kind.text("COUNT(*)"), shape.kind.micros(shape.kind.now()));
    let oldest = match shape.profile.has(Field::CreatedAt) {
        true => shape.kind.micros(&format!("MIN({})", shape.column(Field::CreatedAt))),
        false => shape.kind.text("NULL"),
    };
    let select = || shape.sql(format!("SELECT {count}, {oldest}, {now} FROM {} WHERE ", shape.table()));
    let mut pending = select();
    match (shape.mark, &shape.profile.statuses) {
        (Mark::Status, Some(statuses)) => {
            pending.push("NOT (");
            having(shape, &mut pending, &statuses.done);
            pending.push(" OR ");
            having(shape, &mut pending, &statuses.dead);
            pending.push(")");
        }
        _ => shape.pending(&mut pending),
    }
    let mut dead = select();
    is_dead(shape, &mut dead);
    let pending = counted(tx, pending).await?;
    let mut stats = Stats {
        pending: pending.count,
        oldest: pending.oldest,
        dead: counted(tx, dead).await?.count,
        ..Stats::default()
    };
    if let Some(statuses) = &shape.profile.statuses {
        let mut done = select();
        having(shape, &mut done, &statuses.done);
        stats.done = counted(tx, done).await?.count;
    }
    // What waits is known to the active instance. What one remembers that has lost the lane is nothing to count by.
    let mind = mind.lock().await;
    if mind.lease.is_some() {
        let waits = mind.rows.values().filter_map(|row| match row.state {
            State::Waiting(until) => Some(until),
            State::Claimed => None,
        });
        for until in waits {
            stats.waiting += 1;
            stats.due += u64::from(pending.now.is_some_and(|now| until <= now));
        }
        stats.held_keys = mind.holds.len() as u64;
    }
    Ok(stats)
}

/// Rows of one kind.
struct Counted {
    count: u64,
    /// How old the oldest of them is.
    oldest: Option<Duration>,
    /// The database's time.
    now: Option<Timestamp>,
}

async fn counted(tx: &mut Tx, sql: Sql) -> sqlx::Result<Counted> {
    let rows = tx.fetch(sql).await?;
    let number = |column| rows.first().and_then(|row| row.number(column));
    let count = number(0).and_then(|count| u64::try_from(count).ok()).unwrap_or_default();
    let time = |column| number(column).map(Timestamp::from_micros);
    let (oldest, now) = (time(1), time(2));
    Ok(Counted { count, oldest: oldest.zip(now).map(|(oldest, now)| now.since(oldest)), now })
}

/// Who delivers, if somebody does. Those that stand by leave no trace.
pub(super) async fn instances(shape: &Shape, tx: &mut Tx) -> sqlx::Result<Instances> {
    // Where nobody has ever delivered, our tables may be missing.
    if !exists(shape, tx, "lane").await? {
        return Ok(Instances { lanes: 1, ..Instances::default() });
    }
    let (kind, lane) = (shape.kind, shape.ours("lane"));
    let owner = kind.text(&format!("CASE WHEN leased_until > {} THEN owner END", kind.now()));
    let until = kind.micros("leased_until");
    let mut sql = shape.sql(format!("SELECT {owner}, {until} FROM {lane} WHERE source = "));
    sql.bind(shape.source(), "text");
    let rows = tx.fetch(sql).await?;
    let found = rows.iter().map(|row| {
        let until = Timestamp::from_micros(row.number(1).unwrap_or_default());
        (row.text(0), Some(LANE), until)
    });
    Ok(Instances::gather(found))
}

/// Where one event is.
pub(super) async fn status(
    shape: &Shape,
    tx: &mut Tx,
    mind: &Mutex<Mind>,
    id: &EventId,
) -> sqlx::Result<EventStatus> {
    let mut sql = shape.sql("SELECT ");
    state_columns(shape, &mut sql);
    sql.push(&format!(" FROM {} WHERE ", shape.table()));
    shape.ids(&mut sql, std::iter::once(id.as_str()));
    let rows = tx.fetch(sql).await?;
    let mind = mind.lock().await;
    Ok(rows.first().map_or(EventStatus::Absent, |row| state(row, &mind, id.as_str()).0))
}

/// The columns that [`state`] reads, which are the first of their rows.
pub(super) fn state_columns(shape: &Shape, sql: &mut Sql) {
    let kind = shape.kind;
    let [attempts, error] = told(shape);
    let done_at = match shape.profile.has(Field::DoneAt) {
        true => kind.micros(&shape.column(Field::DoneAt)),
        false => kind.text("NULL"),
    };
    let (due_at, now) = match shape.profile.has(Field::AvailableAt) {
        true => (kind.micros(&shape.column(Field::AvailableAt)), kind.micros(kind.now())),
        false => (kind.text("NULL"), kind.text("NULL")),
    };
    sql.push(&format!("{attempts}, {error}, {done_at}, {due_at}, {now}, CASE WHEN "));
    is_dead(shape, sql);
    sql.push(" THEN 'dead' WHEN ");
    is_done(shape, sql);
    sql.push(" THEN 'done' ELSE 'pending' END");
}

/// How many columns those are.
pub(super) const STATE_COLUMNS: usize = 6;

/// Where the event of a row is, and how often it was tried.
pub(super) fn state(row: &Cells, mind: &Mind, id: &str) -> (EventStatus, u32) {
    let attempts = row.number(0).and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or_default();
    let error = row.text(1);
    let due_at = row.number(3).filter(|due| Some(*due) > row.number(4)).map(Timestamp::from_micros);
    let status = match row.text(5).as_deref() {
        Some("dead") => EventStatus::Dead { attempts, error: error.unwrap_or_default() },
        Some("done") => {
            EventStatus::Done { done_at: Timestamp::from_micros(row.number(2).unwrap_or_default()) }
        }
        // What an instance remembers of a lane that it has lost, others have long passed.
        _ => match (mind.lease.and_then(|_| mind.row(id)), due_at) {
            (Some(&Row { state: State::Waiting(available_at), attempts, .. }), _) => {
                EventStatus::Waiting { attempts, available_at, error }
            }
            (None, Some(available_at)) => EventStatus::Waiting { attempts, available_at, error },
            _ => EventStatus::New,
        },
    };
    (status, attempts)
}
