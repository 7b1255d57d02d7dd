//! Keys that wait: holding and freeing them. Anyone who calls this has locked their lanes.

use std::collections::HashSet;

use postrider_core::{
    Timestamp,
    store::{HoldReason, Lane, Seq},
    tx::Prefix,
};
use sqlx::{MySqlConnection, mysql::MySqlRow};

use super::{
    schema::BYTES,
    statement::{AT, LIST_MAX, Listed, Statement, bound, filled, json, natural, text},
};

/// A list of keys, each of which is looked up by the primary key. With `(lane, key) IN` or a chain of `OR` the planner may rather
/// read all holds, and wait for those that somebody else has locked.
fn each_key() -> String {
    format!(
        "JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]')) AS s
         STRAIGHT_JOIN {{p}}hold AS h FORCE INDEX (PRIMARY) ON h.lane = s.lane AND h.effective_key = s.name COLLATE {BYTES}"
    )
}

/// Whether the key of a hold waits for an event that is not there. One that is coming back waits for none.
pub(super) const IS_ORPHAN: &str = "h.reason <> 'returning' AND NOT EXISTS (
    SELECT 1 FROM {p}event AS e FORCE INDEX (PRIMARY) WHERE e.seq = h.seq)";

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) look: Statement,
    pub(super) lock: Statement,
    pub(super) hold: Listed,
    pub(super) release: Statement,
    pub(super) remove: Statement,
    pub(super) orphaned: Statement,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let keys = each_key();
        let statement = |template: &str| Statement::new(template, prefix);
        Self {
            look: statement(&format!(
                "SELECT h.lane, h.effective_key, h.seq, h.reason,
                        EXISTS (SELECT 1 FROM {{p}}event AS e FORCE INDEX ({{p}}event_place)
                                WHERE e.place = 1 AND e.lane = h.lane AND e.parked_key = h.effective_key) AS parked
                 FROM {keys}"
            )),
            lock: statement(&format!("SELECT h.lane, h.effective_key FROM {keys} FOR UPDATE SKIP LOCKED")),
            hold: Listed::new(
                "INSERT INTO {p}hold (lane, effective_key, seq, until, reason) VALUES {list}
                 ON DUPLICATE KEY UPDATE seq = VALUES(seq), until = VALUES(until), reason = VALUES(reason)",
                &format!("(?, ?, ?, {AT}, ?)"),
                ", ",
                prefix,
            ),
            release: statement(&format!("UPDATE {keys} SET h.reason = 'returning', h.until = NULL")),
            remove: statement(&format!("DELETE h FROM {keys}")),
            orphaned: statement(&format!("SELECT h.lane, h.effective_key FROM {keys} WHERE {IS_ORPHAN}")),
        }
    }
}

/// A key of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) lane: Lane,
    pub(super) key: String,
}

/// A key, the event that it waits for, until when, and why.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) key: Key,
    pub(super) seq: Seq,
    pub(super) until: Option<Timestamp>,
    pub(super) reason: HoldReason,
}

/// Locks the holds of keys, as far as nobody else has, and says which keys are the others'.
pub(super) async fn locked(
    sql: &Statements,
    conn: &mut MySqlConnection,
    keys: &[Key],
) -> sqlx::Result<HashSet<Key>> {
    let (mut ours, mut held) = (HashSet::new(), HashSet::new());
    for keys in keys.chunks(LIST_MAX) {
        let list: Vec<(Lane, &str)> = keys.iter().map(|key| (key.lane, key.key.as_str())).collect();
        for row in sql.lock.query().bind(json(&list)?).fetch_all(&mut *conn).await? {
            ours.insert(key_of(&row)?);
        }
    }
    if !keys.is_empty() {
        held.extend(look(sql, conn, keys.iter()).await?.into_iter().map(|found| found.key));
    }
    Ok(held.difference(&ours).cloned().collect())
}

/// Has keys wait for an event. Where a key comes twice, the last word counts.
pub(super) async fn hold(sql: &Statements, conn: &mut MySqlConnection, held: &[Held]) -> sqlx::Result<()> {
    for held in held.chunks(LIST_MAX) {
        let held: Vec<&Held> = held.iter().collect();
        let query = filled(&held).fold(sql.hold.query(held.len()), |query, held| {
            let query = query.bind(held.key.lane).bind(held.key.key.clone()).bind(held.seq);
            query.bind(held.until.map(bound)).bind(held.reason.as_str())
        });
        query.execute(&mut *conn).await?;
    }
    Ok(())
}

/// Frees keys of the events that they wait for, and those that are on their way out anyway: a key that something is parked
/// behind returns, the others are free.
pub(super) async fn free(
    sql: &Statements,
    conn: &mut MySqlConnection,
    freed: &[(Key, Seq)],
) -> sqlx::Result<()> {
    let heads: HashSet<(&Key, Seq)> = freed.iter().map(|(key, seq)| (key, *seq)).collect();
    let (mut released, mut removed) = (Vec::new(), Vec::new());
    for found in look(sql, conn, freed.iter().map(|(key, _)| key)).await? {
        let is_its_head = heads.contains(&(&found.key, found.seq));
        match found {
            Found { key, parked: false, returning, .. } if is_its_head || returning => removed.push(key),
            Found { key, parked: true, returning: false, .. } if is_its_head => released.push(key),
            _ => {}
        }
    }
    run(&sql.release, conn, &released).await?;
    run(&sql.remove, conn, &removed).await
}

/// Frees those of these keys whose head is not in the table, as far as nobody else has locked their holds, and says which they are. As after a
/// discard, a claim takes away the holds that nothing is parked behind.
pub(super) async fn free_orphans(
    sql: &Statements,
    conn: &mut MySqlConnection,
    keys: &[Key],
) -> sqlx::Result<Vec<Key>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let locked = locked(sql, conn, keys).await?;
    let ours = keys.iter().filter(|key| !locked.contains(key));
    let rows = sql.orphaned.query().bind(listed(ours)?).fetch_all(&mut *conn).await?;
    let orphans = rows.iter().map(key_of).collect::<sqlx::Result<Vec<Key>>>()?;
    run(&sql.release, conn, &orphans).await?;
    Ok(orphans)
}

/// Takes away those of these holds that are on their way out and that nothing is parked behind, as far as nobody else has locked them.
pub(super) async fn remove_empty(
    sql: &Statements,
    conn: &mut MySqlConnection,
    keys: &[Key],
) -> sqlx::Result<()> {
    let found = look(sql, conn, keys.iter()).await?;
    let empty = found.into_iter().filter(|found| found.returning && !found.parked);
    let empty: Vec<Key> = empty.map(|found| found.key).collect();
    let locked = locked(sql, conn, &empty).await?;
    run(&sql.remove, conn, &empty.into_iter().filter(|key| !locked.contains(key)).collect::<Vec<_>>()).await
}

/// A hold as it stands.
struct Found {
    key: Key,
    seq: Seq,
    returning: bool,
    parked: bool,
}

/// The holds of these keys, each once.
async fn look<'k>(
    sql: &Statements,
    conn: &mut MySqlConnection,
    keys: impl Iterator<Item = &'k Key>,
) -> sqlx::Result<Vec<Found>> {
    let keys: HashSet<&Key> = keys.collect();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sql.look.query().bind(listed(keys.into_iter())?).fetch_all(conn).await?;
    rows.iter()
        .map(|row| {
            Ok(Found {
                key: key_of(row)?,
                seq: natural(row, "seq")?,
                returning: text(row, "reason")?.as_deref() == Some(HoldReason::Returning.as_str()),
                parked: natural::<u8>(row, "parked")? != 0,
            })
        })
        .collect()
}

/// The key that a row names.
pub(super) fn key_of(row: &MySqlRow) -> sqlx::Result<Key> {
    Ok(Key { lane: natural(row, "lane")?, key: text(row, "effective_key")?.unwrap_or_default() })
}

async fn run(statement: &Statement, conn: &mut MySqlConnection, keys: &[Key]) -> sqlx::Result<()> {
    if !keys.is_empty() {
        statement.query().bind(listed(keys.iter())?).execute(conn).await?;
    }
    Ok(())
}

fn listed<'k>(keys: impl Iterator<Item = &'k Key>) -> sqlx::Result<String> {
    json(&keys.map(|key| (key.lane, key.key.as_str())).collect::<Vec<_>>())
}
