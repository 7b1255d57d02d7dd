//! Keys whose head somebody has deleted from the table: finding and freeing them.

use postrider_core::store::{HeldKey, Orphans};
use sqlx::{PgConnection, Row, postgres::PgRow};

use super::{
    Inner,
    statement::{Shape, Statement, integer, natural, small},
};

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) find: Statement,
    pub(super) free: Statement,
}

impl Statements {
    /// They are planned anew each time: they run seldom, and a plan that was made while the table of events was empty would read all of it
    /// for each hold.
    pub(super) fn new(shape: &Shape) -> Self {
        let shape = Shape { prepared: false, ..shape.clone() };
        let statement = |template: &str| Statement::new(template, &shape);
        Self {
            // The LIMIT in the LATERAL keeps PostgreSQL from reading all events for a page of holds.
            find: statement(
                "SELECT h.lane, h.effective_key, h.seq, h.reason <> 'returning' AND e.seq IS NULL AS is_orphan
                 FROM (SELECT lane, effective_key, seq, reason FROM {p}hold WHERE (lane, effective_key) > ($1, $2)
                       ORDER BY lane, effective_key LIMIT $3) AS h
                 LEFT JOIN LATERAL (SELECT e.seq FROM {p}event AS e WHERE e.seq = h.seq LIMIT 1) AS e ON true
                 ORDER BY h.lane, h.effective_key",
            ),
            // As a discard does: a claim alone deletes holds that nothing is parked behind. A settle that has given the key another head
            // meanwhile is seen in the row as it is when it is locked. What another session has locked is left to the next search.
            free: statement(
                "WITH orphan AS MATERIALIZED (
                     SELECT h.lane, h.effective_key FROM {p}hold AS h
                     JOIN unnest($1::integer[], $2::text[], $3::bigint[]) AS found (lane, key, seq)
                       ON h.lane = found.lane AND h.effective_key = found.key AND h.seq = found.seq
                     WHERE h.reason <> 'returning' AND NOT EXISTS (SELECT 1 FROM {p}event AS e WHERE e.seq = found.seq)
                     ORDER BY h.lane, h.effective_key FOR UPDATE OF h SKIP LOCKED
                 )
                 UPDATE {p}hold AS h SET reason = 'returning', until = NULL FROM orphan
                 WHERE h.lane = orphan.lane AND h.effective_key = orphan.effective_key
                 RETURNING h.lane, h.effective_key",
            ),
        }
    }
}

/// Searches at most so many holds, and frees the keys among them whose head is gone.
pub(super) async fn free(
    Inner { orphans: sql, .. }: &Inner,
    conn: &mut PgConnection,
    after: Option<&HeldKey>,
    limit: usize,
) -> sqlx::Result<Orphans> {
    // No key is empty, so this is before the first.
    let (lane, key) = after.map_or((0, ""), |after| (after.lane, after.key.as_str()));
    let find = sql.find.query().bind(small(lane)).bind(key.to_owned()).bind(integer(limit));
    let rows = find.fetch_all(&mut *conn).await?;
    let next = rows.last().filter(|_| rows.len() >= limit).map(held_key).transpose()?;
    let (mut lanes, mut keys, mut seqs): (Vec<i32>, Vec<String>, Vec<i64>) = Default::default();
    for row in &rows {
        if row.try_get("is_orphan")? {
            lanes.push(row.try_get("lane")?);
            keys.push(row.try_get("effective_key")?);
            seqs.push(row.try_get("seq")?);
        }
    }
    let mut freed = Vec::new();
    if !seqs.is_empty() {
        let rows = sql.free.query().bind(lanes).bind(keys).bind(seqs).fetch_all(conn).await?;
        freed = rows.iter().map(held_key).collect::<sqlx::Result<_>>()?;
    }
    Ok(Orphans { freed, next })
}

fn held_key(row: &PgRow) -> sqlx::Result<HeldKey> {
    Ok(HeldKey { lane: natural(row.try_get::<i32, _>("lane")?.into()), key: row.try_get("effective_key")? })
}
