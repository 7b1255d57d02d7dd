//! Keys that wait: holding and freeing them. Whoever calls this has locked their lanes.

use std::collections::HashSet;

use postrider_core::{
    Timestamp,
    store::{HoldReason, Lane, Seq},
    tx::Prefix,
};
use sqlx::MySqlConnection;

use super::statement::{AT, LIST_MAX, Listed, bound, filled, natural, text};

/// One key of a list. A chain of these is a lookup for each, which the planner of neither database sees in `(lane, key) IN`.
const ONE_KEY: &str = "(h.lane = ? AND h.effective_key = ?)";

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) look: Listed,
    pub(super) hold: Listed,
    pub(super) release: Listed,
    pub(super) remove: Listed,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let of_keys = |template: &str| Listed::new(template, ONE_KEY, " OR ", prefix);
        Self {
            look: of_keys(
                "SELECT h.lane, h.effective_key, h.seq, h.reason,
                        EXISTS (SELECT 1 FROM {p}event AS e FORCE INDEX ({p}event_place)
                                WHERE e.place = 1 AND e.lane = h.lane AND e.parked_key = h.effective_key) AS parked
                 FROM {p}hold AS h FORCE INDEX (PRIMARY) WHERE {list}",
            ),
            hold: Listed::new(
                "INSERT INTO {p}hold (lane, effective_key, seq, until, reason) VALUES {list}
                 ON DUPLICATE KEY UPDATE seq = VALUES(seq), until = VALUES(until), reason = VALUES(reason)",
                &format!("(?, ?, ?, {AT}, ?)"),
                ", ",
                prefix,
            ),
            release: of_keys("UPDATE {p}hold AS h FORCE INDEX (PRIMARY) SET h.reason = 'returning', h.until = NULL WHERE {list}"),
            remove: of_keys("DELETE h FROM {p}hold AS h FORCE INDEX (PRIMARY) WHERE {list}"),
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
    for freed in freed.chunks(LIST_MAX) {
        let keys: Vec<&Key> = freed.iter().map(|(key, _)| key).collect();
        let heads: HashSet<(&Key, Seq)> = freed.iter().map(|(key, seq)| (key, *seq)).collect();
        let (mut released, mut removed) = (Vec::new(), Vec::new());
        for found in look(sql, conn, &keys).await? {
            let is_its_head = heads.contains(&(&found.key, found.seq));
            match found {
                Found { key, parked: false, returning, .. } if is_its_head || returning => removed.push(key),
                Found { key, parked: true, returning: false, .. } if is_its_head => released.push(key),
                _ => {}
            }
        }
        run(&sql.release, conn, &released).await?;
        run(&sql.remove, conn, &removed).await?;
    }
    Ok(())
}

/// Takes away those of these holds that are on their way out and that nothing is parked behind.
pub(super) async fn remove_empty(
    sql: &Statements,
    conn: &mut MySqlConnection,
    keys: &[Key],
) -> sqlx::Result<()> {
    for keys in keys.chunks(LIST_MAX) {
        let found = look(sql, conn, &keys.iter().collect::<Vec<_>>()).await?;
        let empty = found.into_iter().filter(|found| found.returning && !found.parked);
        run(&sql.remove, conn, &empty.map(|found| found.key).collect::<Vec<_>>()).await?;
    }
    Ok(())
}

/// A hold as it stands.
struct Found {
    key: Key,
    seq: Seq,
    returning: bool,
    parked: bool,
}

async fn look(sql: &Statements, conn: &mut MySqlConnection, keys: &[&Key]) -> sqlx::Result<Vec<Found>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let rows = bind(&sql.look, keys).fetch_all(conn).await?;
    rows.iter()
        .map(|row| {
            Ok(Found {
                key: Key { lane: natural(row, "lane")?, key: text(row, "effective_key")?.unwrap_or_default() },
                seq: natural(row, "seq")?,
                returning: text(row, "reason")?.as_deref() == Some(HoldReason::Returning.as_str()),
                parked: natural::<u8>(row, "parked")? != 0,
            })
        })
        .collect()
}

async fn run(statement: &Listed, conn: &mut MySqlConnection, keys: &[Key]) -> sqlx::Result<()> {
    if !keys.is_empty() {
        bind(statement, &keys.iter().collect::<Vec<_>>()).execute(conn).await?;
    }
    Ok(())
}

fn bind(statement: &Listed, keys: &[&Key]) -> super::statement::Ready {
    filled(keys).fold(statement.query(keys.len()), |query, key| query.bind(key.lane).bind(key.key.clone()))
}
