//! Reading what is parked behind keys that are free again.

use postrider_core::{
    select::{FreedKey, RETURNING_KEYS_MAX, RETURNING_OF_A_KEY_MAX, Rules},
    store::{Lane, LaneClaim},
};
use sqlx::MySqlConnection;

use super::{super::hold::Key, read::Reader, scan::Row};

/// Keys that are read at a time: mostly there are few.
const KEYS_AT_A_TIME: usize = 16;

/// The freed keys of these lanes, oldest head first, until they have enough rows for a claim; and whether there are more.
pub(super) async fn read(
    reader: &Reader<'_>,
    rules: &Rules<'_>,
    conn: &mut MySqlConnection,
    claims: &[&LaneClaim],
    candidates_max: usize,
) -> sqlx::Result<(Vec<FreedKey<Row, Key>>, bool)> {
    let lanes: Vec<Lane> = claims.iter().map(|claim| claim.lease.lane).collect();
    let met_of =
        |lane: Lane| claims.iter().find(|claim| claim.lease.lane == lane).map(|claim| claim.from.met);
    // What the engine has stays parked until it is settled: it must not keep other keys from being read.
    let can_return =
        |row: &&Row| met_of(row.lane).is_some_and(|met| row.seq <= met) && !rules.is_in_flight(row.seq);
    let keys = reader.returning(conn, &lanes, RETURNING_KEYS_MAX + 1).await?;
    let (mut freed, mut candidates) = (Vec::with_capacity(keys.len()), 0);
    for keys in keys.chunks(KEYS_AT_A_TIME) {
        if candidates >= candidates_max {
            return Ok((freed, true));
        }
        let mut rows = reader.parked(conn, keys, RETURNING_OF_A_KEY_MAX + 1).await?;
        rows.sort_unstable_by_key(|row| row.seq);
        for (Key { lane, key }, head) in keys {
            let of_key = |row: &Row| row.lane == *lane && row.key.as_ref() == Some(key);
            let (parked, rest): (Vec<_>, Vec<_>) = rows.into_iter().partition(of_key);
            rows = rest;
            candidates += parked.iter().take(RETURNING_OF_A_KEY_MAX).filter(can_return).count();
            let key = Key { lane: *lane, key: key.clone() };
            freed.push(FreedKey { lane: *lane, head: *head, key, parked });
        }
    }
    Ok((freed, false))
}
