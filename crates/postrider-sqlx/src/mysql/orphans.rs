//! Keys whose head somebody has deleted from the table: finding and freeing them.

use postrider_core::{
    store::{HeldKey, Lane, Orphans},
    tx::Prefix,
};
use sqlx::{Connection, MySqlConnection};

use super::{
    Inner,
    hold::{self, Key, key_of},
    lease,
    statement::{LIST_MAX, Statement, integer, natural},
};

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) find: Statement,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let find = format!(
            "SELECT h.lane, h.effective_key, {} AS is_orphan FROM {{p}}hold AS h FORCE INDEX (PRIMARY)
             WHERE (h.lane = ? AND h.effective_key > ?) OR h.lane > ?
             ORDER BY h.lane, h.effective_key LIMIT ?",
            hold::IS_ORPHAN
        );
        Self { find: Statement::new(&find, prefix) }
    }
}

/// Searches at most so many holds, and frees the keys among them whose head is gone.
pub(super) async fn free(
    Inner { orphans: sql, lease, hold, .. }: &Inner,
    conn: &mut MySqlConnection,
    after: Option<&HeldKey>,
    limit: usize,
) -> sqlx::Result<Orphans> {
    // No key is empty, so this is before the first.
    let (lane, key) = after.map_or((0, ""), |after| (after.lane, after.key.as_str()));
    let find = sql.find.query().bind(lane).bind(key.to_owned()).bind(lane).bind(integer(limit));
    let rows = find.fetch_all(&mut *conn).await?;
    let next = rows.last().filter(|_| rows.len() >= limit).map(key_of).transpose()?;
    let next = next.map(|Key { lane, key }| HeldKey { lane, key });
    let mut found = Vec::new();
    for row in &rows {
        if natural::<u8>(row, "is_orphan")? != 0 {
            found.push(key_of(row)?);
        }
    }
    let mut freed = Vec::new();
    for keys in found.chunks(LIST_MAX) {
        let mut tx = conn.begin().await?;
        // Under the locks of their lanes nobody settles or parks anything of these keys. What others have locked is left to the next search.
        let mut lanes: Vec<Lane> = keys.iter().map(|key| key.lane).collect();
        lanes.dedup();
        let locked = lease::lock_some(lease, &mut tx, &lanes).await?;
        let keys: Vec<Key> = keys.iter().filter(|key| locked.contains(&key.lane)).cloned().collect();
        let orphans = hold::free_orphans(hold, &mut tx, &keys).await?;
        tx.commit().await?;
        freed.extend(orphans.into_iter().map(|Key { lane, key }| HeldKey { lane, key }));
    }
    Ok(Orphans { freed, next })
}
