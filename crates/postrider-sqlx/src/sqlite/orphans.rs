//! Keys whose head somebody has deleted from the table: finding and freeing them.

use postrider_core::{
    store::{HeldKey, Orphans},
    tx::Prefix,
};
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteRow};

use super::{
    Inner,
    operate::text,
    statement::{Statement, integer, json, natural},
};

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) find: Statement,
    pub(super) free: Statement,
}

/// Whether the key of a hold waits for an event that is not there. One that is coming back waits for none.
const IS_ORPHAN: &str =
    "h.reason <> 'returning' AND NOT EXISTS (SELECT 1 FROM {p}event AS e WHERE e.seq = h.seq)";

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let statement = |template: &str| Statement::new(template, prefix);
        Self {
            find: statement(&format!(
                "SELECT h.lane, h.effective_key, {IS_ORPHAN} AS is_orphan FROM {{p}}hold AS h
                 WHERE (h.lane, h.effective_key) > (?1, ?2) ORDER BY h.lane, h.effective_key LIMIT ?3"
            )),
            // As a discard does: a claim alone deletes holds that nothing is parked behind.
            free: statement(&format!(
                "UPDATE {{p}}hold AS h SET reason = 'returning', until = NULL
                 WHERE (h.lane, h.effective_key) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1)) AND {IS_ORPHAN}
                 RETURNING lane, effective_key"
            )),
        }
    }
}

/// Searches at most so many holds, and frees the keys among them whose head is gone.
pub(super) async fn free(
    Inner { orphans: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
    after: Option<&HeldKey>,
    limit: usize,
) -> sqlx::Result<Orphans> {
    // No key is empty, so this is before the first.
    let (lane, key) = after.map_or((0, ""), |after| (after.lane, after.key.as_str()));
    let find = sql.find.query().bind(integer(lane)).bind(key.to_owned()).bind(integer(limit));
    let rows = find.fetch_all(&mut *conn).await?;
    let next = rows.last().filter(|_| rows.len() >= limit).map(held_key).transpose()?;
    let mut found = Vec::new();
    for row in &rows {
        if row.try_get("is_orphan")? {
            let HeldKey { lane, key } = held_key(row)?;
            found.push((lane, key));
        }
    }
    let mut freed = Vec::new();
    if !found.is_empty() {
        // Anyone who settles or claims waits: what is found once more under this lock is so until the commit.
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
        let rows = sql.free.query().bind(json(&found)?).fetch_all(&mut *tx).await?;
        tx.commit().await?;
        freed = rows.iter().map(held_key).collect::<sqlx::Result<_>>()?;
    }
    Ok(Orphans { freed, next })
}

fn held_key(row: &SqliteRow) -> sqlx::Result<HeldKey> {
    Ok(HeldKey { lane: natural(row.try_get("lane")?), key: text(row, "effective_key")?.unwrap_or_default() })
}
