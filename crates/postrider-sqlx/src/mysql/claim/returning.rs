//! Reading what comes back because its key is free again.

use std::collections::HashMap;

use postrider_core::store::{Lane, LaneClaim, Seq};
use sqlx::MySqlConnection;

use super::{
    super::hold::Key,
    read::Reader,
    scan::{Judge, Met, Verdict},
};

/// Most keys that come back in one claim, and most events of each.
const KEYS_MAX: usize = 256;
const OF_A_KEY_MAX: usize = 16;

/// Keys that are read at a time: mostly there are few.
const KEYS_AT_A_TIME: usize = 16;

/// What comes back.
#[derive(Debug, Default)]
pub(super) struct Returning {
    /// In the order of their keys' holds, and within a key in order.
    pub(super) met: Vec<Met>,
    /// Keys behind which nothing is left.
    pub(super) empty: Vec<Key>,
    /// Whether more is behind them.
    pub(super) more: bool,
    /// The first event of each key that is parked and not in memory; none if there is none.
    fronts: HashMap<(Lane, String), Option<Seq>>,
}

impl Returning {
    /// For a claim that reads up to a place: what was unparked of a key that comes back is due, unless something is parked before it that the
    /// engine does not have.
    pub(super) fn let_out(&self, met: &mut Met) {
        let key = met.row.key.clone().map(|key| (met.row.lane, key));
        let front = key.and_then(|key| self.fronts.get(&key));
        if met.verdict == (Verdict::Park { returning: true })
            && front.is_some_and(|front| front.is_none_or(|front| met.row.seq < front))
        {
            met.verdict = Verdict::Return { held: true };
        }
    }
}

/// The parked events of keys that are free again. Beyond what a lane's claims have met something unparked of a key may come
/// first, so nothing comes back from there.
pub(super) async fn read(
    reader: &Reader<'_>,
    judge: &Judge<'_>,
    conn: &mut MySqlConnection,
    claims: &[&LaneClaim],
    candidates_max: usize,
) -> sqlx::Result<Returning> {
    let lanes: Vec<Lane> = claims.iter().map(|claim| claim.lease.lane).collect();
    let met_of = |lane: Lane| {
        claims
            .iter()
            .find(|claim| claim.lease.lane == lane)
            .map_or(0, |claim| claim.from.met.max(claim.from.seq))
    };
    let mut keys = reader.returning(conn, &lanes, KEYS_MAX + 1).await?;
    let more_keys = keys.len() > KEYS_MAX;
    keys.truncate(KEYS_MAX);
    let mut found = Returning::default();
    for keys in keys.chunks(KEYS_AT_A_TIME) {
        if found.met.len() >= candidates_max {
            found.more = true;
            break;
        }
        let mut rows = reader.parked(conn, keys, OF_A_KEY_MAX + 1).await?;
        rows.sort_unstable_by_key(|row| row.seq);
        for (lane, key) in keys {
            let of_key = |row: &super::scan::Row| row.lane == *lane && row.key.as_deref() == Some(key);
            let (behind, rest): (Vec<_>, Vec<_>) = rows.into_iter().partition(of_key);
            rows = rest;
            if behind.is_empty() {
                found.empty.push(Key { lane: *lane, key: key.clone() });
            }
            let is_longer = behind.len() > OF_A_KEY_MAX;
            let front = behind.iter().map(|row| row.seq).find(|seq| !judge.is_in_flight(*seq));
            // Where all that was read is in memory, more may be parked behind it.
            if front.is_some() || !is_longer {
                found.fronts.insert((*lane, key.clone()), front);
            }
            let wanted = behind.into_iter().take(OF_A_KEY_MAX);
            let wanted = wanted.filter(|row| row.seq <= met_of(*lane) && !judge.is_in_flight(row.seq));
            let before = found.met.len();
            found.met.extend(wanted.map(|row| Met { row, verdict: Verdict::Return { held: true } }));
            // What stands behind events that are all in memory already is not due: the next settle makes it so.
            found.more |= is_longer && found.met.len() > before;
        }
    }
    found.more |= more_keys && !found.met.is_empty();
    Ok(found)
}
