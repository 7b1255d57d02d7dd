//! What operators see and do.

use std::{
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
};

use postrider_core::{
    EventId, Timestamp,
    store::{DeadLetter, EventStatus, Hold, HoldReason, Seq, Stats},
};

use super::{
    hash::lane_of,
    lane::Held,
    row::{Row, Status, id_of},
    tables::Tables,
};

pub(super) fn dead(tables: &Tables, after: Seq, limit: usize) -> Vec<DeadLetter> {
    let letter = |seq: &Seq| {
        let row = tables.rows.get(*seq)?;
        let blocks = row.key().is_some_and(|key| {
            tables
                .lane(row.lane)
                .and_then(|lane| lane.headed_by(key, *seq))
                .is_some_and(|hold| hold.reason == HoldReason::Dead)
        });
        Some(DeadLetter {
            seq: *seq,
            id: row.id().clone(),
            event_type: row.event_type().to_owned(),
            key: row.key().map(|key| key.to_string()),
            attempts: row.attempts,
            error: row.last_error.as_deref().unwrap_or_default().to_owned(),
            blocks,
            created_at: row.created_at,
            died_at: Some(row.available_at),
        })
    };
    tables.dead.range((Excluded(after), Unbounded)).filter_map(letter).take(limit).collect()
}

pub(super) fn redrive(tables: &mut Tables, ids: &[EventId], now: Timestamp) -> u64 {
    let mut count = 0;
    for id in ids {
        let Some(seq) = find_dead(tables, id) else { continue };
        tables.change(seq, |row| {
            row.status = Status::Waiting;
            row.attempts = 0;
            row.available_at = now;
        });
        with_its_hold(tables, seq, |held| Held { until: Some(now), reason: HoldReason::Retry, ..held });
        count += 1;
    }
    count
}

pub(super) fn discard(tables: &mut Tables, ids: &[EventId]) -> u64 {
    let mut count = 0;
    for id in ids {
        let Some(seq) = find_dead(tables, id) else { continue };
        with_its_hold(tables, seq, |held| Held { until: None, reason: HoldReason::Returning, ..held });
        tables.remove(seq);
        count += 1;
    }
    count
}

pub(super) fn purge(tables: &mut Tables, before: Timestamp, limit: usize) -> u64 {
    let mut count = 0;
    while count < limit as u64 {
        let Some(oldest) = tables.done.first_entry().filter(|oldest| oldest.key().0 <= before) else { break };
        let ((done_at, _), kept) = oldest.remove_entry();
        let id = id_of(&kept.content);
        // The id may have been written and delivered once more since.
        if tables.done_ids.get(id) == Some(&done_at) {
            tables.done_ids.remove(id);
        }
        count += 1;
    }
    count
}

pub(super) fn stats(tables: &Tables, now: Timestamp) -> Stats {
    let oldest = tables.rows.iter().map(|(_, row)| row).find(|row| row.status != Status::Dead);
    Stats {
        pending: (tables.rows.len() - tables.dead.len()) as u64,
        waiting: tables.lanes().map(|lane| lane.waiting.len() as u64).sum(),
        due: tables.lanes().map(|lane| lane.waiting.range(..=(now, Seq::MAX)).count() as u64).sum(),
        parked: tables.lanes().map(|lane| lane.parked_rows()).sum(),
        dead: tables.dead.len() as u64,
        held_keys: tables.lanes().map(|lane| lane.held_keys() as u64).sum(),
        returning: tables.lanes().map(|lane| lane.returning().count() as u64).sum(),
        done: tables.done.len() as u64,
        oldest: oldest.map(|row| now.since(row.created_at)),
    }
}

pub(super) fn status(tables: &Tables, id: &EventId, now: Timestamp) -> EventStatus {
    let row = tables.seq_of(id.as_str()).and_then(|seq| tables.rows.get(seq));
    match row {
        Some(row) => status_of(row, now),
        None => tables
            .done_ids
            .get(id)
            .map_or(EventStatus::Absent, |done_at| EventStatus::Done { done_at: *done_at }),
    }
}

pub(super) fn why(tables: &Tables, key: &str) -> Option<Hold> {
    let number = lane_of(key, tables.lane_count());
    let lane = tables.lane(number)?;
    let held = lane.hold_of(key)?;
    Some(Hold {
        lane: number,
        key: key.to_owned(),
        seq: held.seq,
        reason: held.reason,
        until: held.until,
        parked: lane.parked_count(key) as u64,
    })
}

/// Where an event is that is not delivered. One that was written to be delivered later waits for its time, whether a claim has met it or
/// not.
pub(super) fn status_of(row: &Row, now: Timestamp) -> EventStatus {
    match row.status {
        Status::Dead => EventStatus::Dead {
            attempts: row.attempts,
            error: row.last_error.as_deref().unwrap_or_default().to_owned(),
        },
        _ if row.parked => EventStatus::Parked,
        Status::New if row.due_at().is_none_or(|due_at| due_at <= now) => EventStatus::New,
        Status::New | Status::Waiting => EventStatus::Waiting {
            attempts: row.attempts,
            available_at: row.available_at,
            error: row.last_error.as_deref().map(str::to_owned),
        },
    }
}

fn find_dead(tables: &Tables, id: &EventId) -> Option<Seq> {
    let seq = tables.seq_of(id.as_str())?;
    tables.dead.contains(&seq).then_some(seq)
}

/// Changes the hold of the row's key, if it is this row that the key waits for.
fn with_its_hold(tables: &mut Tables, seq: Seq, change: impl FnOnce(Held) -> Held) {
    let Some(row) = tables.rows.get(seq) else { return };
    let (Some(key), number) = (row.key().map(Arc::clone), row.lane) else { return };
    let Some(lane) = tables.lane_mut(number) else { return };
    if let Some(held) = lane.headed_by(&key, seq) {
        lane.hold(&key, change(held));
    }
}
