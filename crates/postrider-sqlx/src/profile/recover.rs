//! Claims that nobody will settle: what the last owner left behind, and what somebody else claimed and forgot.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use postrider_core::{
    Timestamp,
    store::{HoldReason, Lease, Seq, Token},
};
use tracing::warn;

use super::{
    Field,
    db::Tx,
    lane::{fence, micros},
    mind::{Mind, Row, Shown, State, Wait},
    shape::Shape,
    spec::Mark,
    sql::Sql,
};

/// Most rows that are recovered at once, and most keys or waiting rows that are taken up at the start.
const BATCH: usize = 100;
const AT_START_MAX: usize = 100_000;

/// Rows that count as suspects after an unclean end where the table does not say which were under way.
const SUSPECTS_UNMARKED: usize = 1000;

/// Nobody else's lock stops us.
pub(super) const SKIP_LOCKED: &str = " FOR UPDATE SKIP LOCKED";

/// What the owner of a lease marks rows with.
pub(super) fn mark_of(token: Token) -> String {
    format!("postrider-{}-{:x}", token.epoch, token.nonce)
}

/// The row is claimed; by this token, where the table says by whom.
fn claimed(shape: &Shape, sql: &mut Sql, token: Option<Token>) {
    match (shape.mark, &shape.profile.statuses) {
        (Mark::Owner, _) => {
            sql.push(&format!("{} ", shape.column(Field::ClaimedBy)));
            match token {
                Some(token) => sql.push("= ").bind(mark_of(token), shape.of_type(Field::ClaimedBy)),
                None => sql.push("IS NOT NULL"),
            };
            sql.push(" AND ");
            shape.pending(sql);
        }
        (Mark::Status, Some(statuses)) => {
            sql.push(&format!("{} = ", shape.column(Field::Status)));
            if let Some(value) = &statuses.claimed {
                shape.value(sql, Field::Status, value);
            }
        }
        _ => {
            sql.push("1 = 0");
        }
    }
}

/// What takes the mark of a claim off a row.
fn unmarking(shape: &Shape) -> Sql {
    let mut sql = shape.sql(format!("UPDATE {} SET ", shape.table()));
    match (shape.mark, &shape.profile.statuses) {
        (Mark::Status, Some(statuses)) => {
            sql.push(&format!("{} = ", shape.column(Field::Status)));
            shape.value(&mut sql, Field::Status, &statuses.retry);
        }
        _ => {
            sql.push(&unlocked(shape));
        }
    }
    sql.push(&kept(shape));
    sql
}

/// The columns of a lock, emptied.
pub(super) fn unlocked(shape: &Shape) -> String {
    let columns = [Field::ClaimedBy, Field::ClaimedAt].into_iter().filter(|field| shape.profile.has(*field));
    columns.map(|field| format!("{} = NULL", shape.column(field))).collect::<Vec<_>>().join(", ")
}

/// Some MySQL servers set the first timestamp of a row to now whenever the row is changed, unless it is set to itself.
pub(super) fn kept(shape: &Shape) -> String {
    set_to_itself(shape, Field::CreatedAt)
}

/// The same of the time of a claim, which many tables have set to now by every change: a claim is known by it.
pub(super) fn claim_kept(shape: &Shape) -> String {
    set_to_itself(shape, Field::ClaimedAt)
}

fn set_to_itself(shape: &Shape, field: Field) -> String {
    let column = shape.column(field);
    match shape.kind.is_mysql() && shape.profile.has(field) {
        true => format!(", {column} = {column}"),
        false => String::new(),
    }
}

/// The last owner ended without giving the lane back: what it had claimed is due again, without an attempt counted, and suspect.
pub(super) async fn from_the_last_owner(
    shape: &Shape,
    tx: &mut Tx,
    mind: &mut Mind,
    last: Token,
) -> sqlx::Result<()> {
    let mut sql = shape.sql(format!("SELECT {} FROM {} WHERE ", shape.text(Field::Id), shape.table()));
    if shape.mark == Mark::Nothing {
        // Whatever comes first may have been under way. Without a column to count in, suspicion would be of no use.
        if !shape.profile.has(Field::Attempts) {
            return Ok(());
        }
        shape.pending(&mut sql);
        sql.push(&format!(" ORDER BY {} LIMIT {SUSPECTS_UNMARKED}", shape.order()));
    } else {
        claimed(shape, &mut sql, Some(last));
        // What somebody else has locked keeps its mark, and is recovered later.
        sql.push(SKIP_LOCKED);
    }
    mind.suspects = tx.fetch(sql).await?.iter().filter_map(|row| row.text(0)).collect();
    if shape.mark != Mark::Nothing && !mind.suspects.is_empty() {
        warn!(table = %shape.profile.table, events = mind.suspects.len(), "the last owner left claimed events behind");
        let mut sql = unmarking(shape);
        sql.push(" WHERE ");
        shape.ids(&mut sql, mind.suspects.iter().map(String::as_str));
        mind.recovered = tx.execute(sql).await?;
    }
    Ok(())
}

/// Takes up what keeps keys waiting: rows that somebody else has claimed, and rows that the table says are to be tried later.
pub(super) async fn look_around(
    shape: &Shape,
    tx: &mut Tx,
    mind: &mut Mind,
    first: bool,
) -> sqlx::Result<()> {
    if !shape.is_ordered() {
        return Ok(());
    }
    if shape.mark != Mark::Nothing {
        let mut sql = shape.sql("SELECT DISTINCT ");
        shape.key(&mut sql);
        sql.push(&format!(" FROM {} WHERE ", shape.table()));
        claimed(shape, &mut sql, None);
        let ours: Vec<&str> =
            mind.rows.values().filter(|row| row.state == State::Claimed).map(|row| row.id.as_str()).collect();
        if !ours.is_empty() {
            sql.push(" AND NOT ");
            shape.ids(&mut sql, ours.into_iter());
        }
        sql.push(&format!(" LIMIT {AT_START_MAX}"));
        let foreign = tx.fetch(sql).await?.iter().filter_map(|row| row.text(0)).collect();
        if foreign != mind.foreign {
            // What was read ahead may lack what was given free.
            (mind.foreign, mind.window) = (foreign, None);
        }
    }
    let Some(statuses) = shape.profile.statuses.as_ref().filter(|_| shape.profile.has(Field::AvailableAt))
    else {
        return Ok(());
    };
    if !first || !shape.profile.has(Field::Attempts) {
        return Ok(());
    }
    let mut sql = shape.sql(format!("SELECT {}, ", shape.text(Field::Id)));
    shape.key(&mut sql);
    let (attempts, due) = (shape.column(Field::Attempts), shape.column(Field::AvailableAt));
    let (event_type, of) = (shape.text(Field::EventType), shape.text(Field::AggregateType));
    sql.push(&format!(", {}, {}, {event_type}, {of}", shape.kind.text(&attempts), shape.kind.micros(&due)));
    sql.push(&format!(" FROM {} WHERE {} = ", shape.table(), shape.column(Field::Status)));
    shape.value(&mut sql, Field::Status, &statuses.retry);
    sql.push(&format!(" AND {attempts} > 0 AND {due} > {}", shape.kind.now()));
    sql.push(&format!(" ORDER BY {} LIMIT {AT_START_MAX}", shape.order()));
    for row in tx.fetch(sql).await? {
        let (Some(id), Some(key), Some(due)) = (row.text(0), row.text(1), row.number(3)) else { continue };
        let (key, until): (Arc<str>, _) = (key.into(), Timestamp::from_micros(due));
        if mind.holds.contains_key(&key) {
            continue;
        }
        let attempts = row.number(2).and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or_default();
        let state = State::Waiting(until);
        let shown = Shown::new(shape, row.text(4), row.text(5), Some(Arc::clone(&key)));
        let row = Row { id, key: Some(key), attempts, counted: attempts, stamp: None, state, shown };
        let seq = mind.add(row);
        mind.wait(seq, Wait { until, attempts, reason: HoldReason::Retry, holds: true }, true);
    }
    Ok(())
}

/// Looks for abandoned claims if the lane is still held. Says how many there were.
pub(super) async fn recover(
    shape: &Shape,
    tx: &mut Tx,
    mind: &mut Mind,
    lease: Lease,
    older_than: Duration,
) -> sqlx::Result<u64> {
    if fence(shape, tx, lease).await?.is_none() {
        return Ok(0);
    }
    let recovered = abandoned(shape, tx, mind, older_than).await?;
    mind.window = mind.window.take().filter(|_| recovered == 0);
    look_around(shape, tx, mind, false).await?;
    Ok(recovered)
}

/// Makes rows due again that were claimed longer ago than this and are not ours, in batches. Says how many there were.
async fn abandoned(shape: &Shape, tx: &mut Tx, mind: &Mind, older_than: Duration) -> sqlx::Result<u64> {
    // Without a time nobody can say how old a claim is.
    if shape.mark == Mark::Nothing || !shape.profile.has(Field::ClaimedAt) {
        return Ok(0);
    }
    let mut sql = shape.sql(format!("SELECT {} FROM {} WHERE ", shape.text(Field::Id), shape.table()));
    claimed(shape, &mut sql, None);
    sql.push(&format!(" AND {} <= ", shape.column(Field::ClaimedAt))).after_now(-micros(older_than));
    sql.push(&format!(" ORDER BY {} LIMIT {}", shape.order(), BATCH + mind.rows.len()));
    sql.push(SKIP_LOCKED);
    let found = tx.fetch(sql).await?;
    let foreign: Vec<String> =
        found.iter().filter_map(|row| row.text(0)).filter(|id| !mind.has(id)).collect();
    if foreign.is_empty() {
        return Ok(0);
    }
    let mut sql = unmarking(shape);
    sql.push(" WHERE ");
    shape.ids(&mut sql, foreign.iter().map(String::as_str));
    let recovered = tx.execute(sql).await?;
    warn!(table = %shape.profile.table, events = recovered, "claims that nobody settled were taken back");
    Ok(recovered)
}

/// Takes the marks off rows that the engine has no more, and says off which: not off those that somebody else has locked. The rows stay in
/// memory until the transaction is committed.
pub(super) async fn unmark(shape: &Shape, tx: &mut Tx, mind: &Mind, seqs: &[Seq]) -> sqlx::Result<Vec<Seq>> {
    if shape.mark == Mark::Nothing {
        return Ok(seqs.to_vec());
    }
    let rows: Vec<(Seq, &str)> =
        seqs.iter().filter_map(|seq| Some((*seq, mind.rows.get(seq)?.id.as_str()))).collect();
    let ids: Vec<&str> = rows.iter().map(|(_, id)| *id).collect();
    let locked = locked_by_others(shape, tx, &ids).await?;
    let (seqs, ids): (Vec<Seq>, Vec<&str>) = rows.into_iter().filter(|(_, id)| !locked.contains(*id)).unzip();
    take_marks_off(shape, tx, mind, &ids).await?;
    Ok(seqs)
}

/// Takes the marks off rows of a claim that nobody heard of again, and says which are locked: the commit of that claim may still be under
/// way.
pub(super) async fn unmark_uncertain(shape: &Shape, tx: &mut Tx, mind: &Mind) -> sqlx::Result<Vec<String>> {
    let ids: Vec<&str> = mind.uncertain.iter().map(String::as_str).collect();
    let locked = locked_by_others(shape, tx, &ids).await?;
    let free: Vec<&str> = ids.into_iter().filter(|id| !locked.contains(*id)).collect();
    take_marks_off(shape, tx, mind, &free).await?;
    Ok(locked.into_iter().collect())
}

async fn take_marks_off(shape: &Shape, tx: &mut Tx, mind: &Mind, ids: &[&str]) -> sqlx::Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let mut sql = unmarking(shape);
    sql.push(" WHERE ");
    shape.ids(&mut sql, ids.iter().copied());
    sql.push(" AND ");
    claimed(shape, &mut sql, mind.lease.map(|lease| lease.token));
    tx.execute(sql).await?;
    Ok(())
}

/// Locks rows as far as nobody else has, and says which are the others'. A lock of theirs is not waited for.
pub(super) async fn locked_by_others(
    shape: &Shape,
    tx: &mut Tx,
    ids: &[&str],
) -> sqlx::Result<BTreeSet<String>> {
    if ids.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut all = shape.sql(format!("SELECT {} FROM {} WHERE ", shape.text(Field::Id), shape.table()));
    shape.ids(&mut all, ids.iter().copied());
    let mut ours = all.clone();
    ours.push(SKIP_LOCKED);
    let ours: BTreeSet<String> = tx.fetch(ours).await?.iter().filter_map(|row| row.text(0)).collect();
    if ours.len() == ids.len() {
        return Ok(BTreeSet::new());
    }
    let all = tx.fetch(all).await?;
    Ok(all.iter().filter_map(|row| row.text(0)).filter(|id| !ours.contains(id)).collect())
}
