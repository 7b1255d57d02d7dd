//! Settling: outcomes, under the fence.

use std::time::Duration;

use postrider_core::{
    Result, Timestamp,
    event::limits::clean_error,
    store::{Change, HoldReason, Lane, Lease, Settled, Settlement},
};

use crate::mutations::{self, Mutation};

use super::{
    faults::Faults,
    lane::Held,
    row::{Row, Status},
    tables::Tables,
};

pub(super) fn settle(
    tables: &mut Tables,
    leases: &[Lease],
    settlements: &[Settlement],
    retention: Duration,
    now: Timestamp,
    faults: &Faults,
) -> Result<Settled> {
    let lost = lost(tables, leases, settlements);
    if !lost.is_empty() {
        return Ok(Settled { lost, ..Settled::default() });
    }
    faults.refuse(settlements)?;
    let (mut applied, mut locked) = (0, Vec::new());
    for settlement in settlements {
        let lane_is_locked = tables.lane(settlement.lane).is_some_and(|lane| lane.locked);
        if lane_is_locked || faults.is_locked(&settlement.event_id) && is_open(tables, settlement, now) {
            locked.push(settlement.seq);
        } else {
            applied += u64::from(apply(tables, settlement, retention, now));
        }
    }
    Ok(Settled { applied, locked, ..Settled::default() })
}

/// The lanes that the caller may not settle: somebody else's, and those it brought no lease for.
fn lost(tables: &Tables, leases: &[Lease], settlements: &[Settlement]) -> Vec<Lane> {
    let foreign = leases.iter().filter(|lease| !tables.is_held(lease)).map(|lease| lease.lane);
    let mut leased = vec![false; tables.lane_count() as usize];
    for lease in leases {
        if let Some(leased) = leased.get_mut(lease.lane as usize) {
            *leased = true;
        }
    }
    let unleased = settlements
        .iter()
        .map(|settlement| settlement.lane)
        .filter(|lane| leased.get(*lane as usize) != Some(&true));
    let mut lost: Vec<Lane> = foreign.chain(unleased).collect();
    lost.sort_unstable();
    lost.dedup();
    lost
}

/// Whether there is a row that the settlement changes: not one that is delivered or dead, nor one that has this state already.
fn is_open(tables: &Tables, settlement: &Settlement, now: Timestamp) -> bool {
    let named = |row: &Row| *row.id() == settlement.event_id || mutations::active(Mutation::SettleBySeqAlone);
    tables.rows.get(settlement.seq).is_some_and(|row| {
        row.status != Status::Dead
            && row.lane == settlement.lane
            && named(row)
            && !is_repeated(row, &settlement.change, now)
    })
}

/// Says whether the row was changed.
fn apply(tables: &mut Tables, settlement: &Settlement, retention: Duration, now: Timestamp) -> bool {
    let seq = settlement.seq;
    if !is_open(tables, settlement, now) {
        return false;
    }
    let held = match &settlement.change {
        Change::Done => {
            if let Some(row) = tables.remove(seq).filter(|_| !retention.is_zero()) {
                tables.done_ids.insert(row.id().clone(), now);
                tables.done.insert((now, seq), row.into());
            }
            None
        }
        Change::Wait { after, attempts, error, reason } => {
            let until = now.plus(*after);
            tables.change(seq, |row| {
                row.status = Status::Waiting;
                row.parked = false;
                row.available_at = until;
                row.attempts = *attempts;
                if let Some(error) = error {
                    row.last_error = Some(clean_error(error).into());
                }
            });
            Some(Held { seq, until: Some(until), reason: *reason })
        }
        Change::Attempt { attempts } => {
            // It stays where it is, and due: so the wait that follows is told from one that has begun.
            tables.change(seq, |row| {
                row.available_at = row.available_at.min(now);
                row.attempts = *attempts;
                if mutations::active(Mutation::CountedAttemptIsNew) {
                    row.status = Status::New;
                }
            });
            return true;
        }
        Change::Dead { attempts, error, block } => {
            tables.change(seq, |row| {
                row.status = Status::Dead;
                row.parked = false;
                row.attempts = *attempts;
                // It is never due, so its time says since when.
                row.available_at = now;
                row.last_error = Some(clean_error(error).into());
            });
            block.then_some(Held { seq, until: None, reason: HoldReason::Dead })
        }
    };
    if let (Some(key), Some(lane)) = (&settlement.key, tables.lane_mut(settlement.lane)) {
        match held {
            Some(held) => lane.hold(key, held),
            None if settlement.held => lane.free(key, seq),
            None => {}
        }
    }
    true
}

/// Whether this change was made already: a wait that has begun is not begun anew before it is over, and an attempt is counted once.
fn is_repeated(row: &Row, change: &Change, now: Timestamp) -> bool {
    match change {
        Change::Wait { attempts, .. } => {
            row.status == Status::Waiting
                && !row.parked
                && row.attempts == *attempts
                && row.available_at > now
        }
        Change::Attempt { attempts } => {
            row.attempts >= *attempts && !mutations::active(Mutation::CountedAttemptIsNew)
        }
        Change::Done | Change::Dead { .. } => false,
    }
}
