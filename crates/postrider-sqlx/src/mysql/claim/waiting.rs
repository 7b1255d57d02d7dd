//! Reading waiting rows that are due, a few of each lane, each lane from where it stands.

use std::collections::BTreeMap;

use postrider_core::{
    Timestamp,
    select::{Disposition, Rules},
    store::{Lane, LaneClaim, Position},
};
use sqlx::MySqlConnection;

use super::{
    read::{DueFrom, Reader},
    scan::Row,
};

/// Most rounds of one claim: a lane that has more than its share is asked again for what the others leave.
const ROUNDS_MAX: usize = 6;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// In the order of their times, and of each lane in its own.
    pub(super) rows: Vec<Row>,
    /// Whether each lane that has due rows was read to their end.
    pub(super) ended: bool,
    /// When the next row is due that is not due yet, of what is known.
    pub(super) next_due: Option<Timestamp>,
}

/// Reads until there are enough candidates.
pub(super) async fn read(
    reader: &Reader<'_>,
    rules: &Rules<'_>,
    conn: &mut MySqlConnection,
    claims: &[&LaneClaim],
    candidates_max: usize,
) -> sqlx::Result<Waiting> {
    let lanes: Vec<Lane> = claims.iter().map(|claim| claim.lease.lane).collect();
    let mut waiting = Waiting::default();
    let mut from: BTreeMap<Lane, DueFrom> = BTreeMap::new();
    for (lane, first) in reader.first_due(conn, &lanes).await? {
        if first > rules.now {
            waiting.due_at(first);
        } else if let Some(claim) = claims.iter().find(|claim| claim.lease.lane == lane) {
            from.insert(lane, due_from(lane, claim.from));
        }
    }
    let mut candidates = 0;
    for _ in 0..ROUNDS_MAX {
        if from.is_empty() || candidates >= candidates_max {
            break;
        }
        // One more than its share, so that a lane with just as much is known to have come to its end.
        let of_each = (candidates_max - candidates).div_ceil(from.len()) + 1;
        let asked: Vec<DueFrom> = from.values().copied().collect();
        let mut counts: BTreeMap<Lane, usize> = BTreeMap::new();
        for mut row in reader.waiting(conn, &asked, of_each).await? {
            let (lane, due_at) = (row.lane, row.available_at);
            if due_at > rules.now {
                from.remove(&lane);
                waiting.due_at(due_at);
                continue;
            }
            *counts.entry(lane).or_default() += 1;
            if let Some(from) = from.get_mut(&lane) {
                *from = DueFrom { lane, due_at, due_seq: row.seq };
            }
            candidates += usize::from(matches!(row.decide(rules), Disposition::Deliver { .. }));
            waiting.rows.push(row);
        }
        from.retain(|lane, _| counts.get(lane).is_some_and(|count| *count >= of_each));
    }
    waiting.ended = from.is_empty();
    waiting.rows.sort_by_key(|row| (row.available_at, row.seq));
    Ok(waiting)
}

impl Waiting {
    fn due_at(&mut self, due_at: Timestamp) {
        self.next_due = Some(self.next_due.map_or(due_at, |next| next.min(due_at)));
    }
}

fn due_from(lane: Lane, from: Position) -> DueFrom {
    // The start lies before every time, those before the epoch included.
    let at_start = (from.due_at, from.due_seq) == (Timestamp::EPOCH, 0);
    let due_at = if at_start { Timestamp::from_micros(i64::MIN) } else { from.due_at };
    DueFrom { lane, due_at, due_seq: from.due_seq }
}
