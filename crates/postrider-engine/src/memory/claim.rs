//! Claiming: reads what is due, chooses by the [rules](postrider_core::select) that all stores share, and writes back what it met on the way.

use std::{collections::HashSet, sync::Arc};

use postrider_core::{
    Timestamp,
    select::{self, Facts, FreedKey, Hold, List, RETURNING_KEYS_MAX, Rules, Selection, Selector, WriteBack},
    store::{Claim, Claimed, ClaimedEvent, HoldReason, Lane, LaneClaim, RowSummary, Seq},
};

use super::{
    faults::Faults,
    row::{Row, Status, id_of},
    seqs::seqs_of,
    streams::{Fresh, Waiting, next_due},
    tables::Tables,
};

/// How many waiting rows are read at a time.
const PAGE_ROWS: usize = 64;

pub(super) fn claim(tables: &mut Tables, claim: &Claim, now: Timestamp, faults: &Faults) -> Claimed {
    let (lanes, lost): (Vec<_>, Vec<_>) = claim.lanes.iter().partition(|lane| tables.is_held(&lane.lease));
    let lost = lost.into_iter().map(|lane| lane.lease.lane).collect();
    let mut claimed = Claimed { now, lost, ..Claimed::default() };
    let writes = Reading { tables, claim, lanes: &lanes, now }.choose(&mut claimed);
    write(tables, writes, faults, &mut claimed);
    let next = next_due(&lanes, now, tables);
    claimed.next_due = claimed.next_due.into_iter().chain(next).min();
    claimed
}

/// A row that a claim reads.
#[derive(Debug)]
struct Seen<'t> {
    seq: Seq,
    row: &'t Row,
    hold: Option<Hold>,
}

impl select::Row for Seen<'_> {
    fn facts(&self) -> Facts {
        Facts {
            lane: self.row.lane,
            seq: self.seq,
            is_fresh: self.row.status == Status::New,
            due_at: self.row.due_at(),
            hold: self.hold,
            bytes: self.row.weight_bytes,
            is_for_another_claim: false,
        }
    }

    fn summary(&self) -> RowSummary<'_> {
        self.row.summary(self.seq)
    }
}

struct Reading<'a> {
    tables: &'a Tables,
    claim: &'a Claim,
    /// The lanes that are held.
    lanes: &'a [&'a LaneClaim],
    now: Timestamp,
}

impl<'a> Reading<'a> {
    /// Chooses what is returned, notes where the next claim begins, and says what has to be written.
    fn choose(&self, claimed: &mut Claimed) -> WriteBack<Arc<str>> {
        let Self { tables, claim, lanes, now } = *self;
        let rules = Rules { now, in_flight: &claim.in_flight };
        let of_a_key_max = tables.returning_of_a_key_max;
        let mut selector = Selector::new(claim, rules).with_returning_of_a_key_max(of_a_key_max);
        let met_of = |number| lanes.iter().find(|lane| lane.lease.lane == number).map(|lane| lane.from.met);
        selector.freed(self.freed(of_a_key_max), |lane| met_of(lane).unwrap_or_default());
        selector.recheck(self.recheck());

        let mut fresh = Fresh::new(lanes, tables);
        let mut waiting = Waiting::new(lanes, now, tables);
        selector.extend(List::Fresh, Vec::new(), false);
        selector.extend(List::Waiting, Vec::new(), waiting.is_at_end());
        // Waiting rows may take half of what a claim reads.
        let (mut fresh_left, mut waiting_left) =
            (tables.scanned_rows_max, tables.scanned_rows_max.div_ceil(2));
        let mut read_to = 0;
        while let Some(list) = selector.run() {
            match list {
                List::Fresh if fresh_left == 0 => selector.stop(List::Fresh),
                List::Fresh => {
                    let chunk = fresh.next_chunk(tables, &claim.in_flight);
                    let mut page = Vec::new();
                    if let Some((number, bits)) = chunk {
                        let seqs = seqs_of(number, bits).filter_map(|seq| self.seen(seq));
                        page.extend(seqs.filter(|seen| !fresh.skips(seen.seq, seen.row)));
                    }
                    read_to = fresh.next_seq().saturating_sub(1);
                    if let Some(beyond) = page.get(fresh_left) {
                        read_to = beyond.seq - 1;
                        page.truncate(fresh_left);
                    }
                    fresh_left -= page.len();
                    selector.extend(List::Fresh, page, chunk.is_none());
                }
                List::Waiting if waiting_left == 0 => selector.stop(List::Waiting),
                List::Waiting => {
                    let rows = PAGE_ROWS.min(waiting_left);
                    let page = std::iter::from_fn(|| waiting.next(tables)).take(rows);
                    let page: Vec<Seen<'_>> = page.filter_map(|seq| self.seen(seq)).collect();
                    waiting_left = waiting_left.saturating_sub(rows);
                    fresh_left = fresh_left.saturating_sub(page.len());
                    selector.extend(List::Waiting, page, waiting.is_at_end());
                }
            }
        }
        let mut selection = selector.finish();

        let met = match selection.fresh.left.first() {
            Some(left) => left.seq.saturating_sub(1),
            None if selection.fresh.is_done => Seq::MAX,
            None => read_to,
        };
        let starts_over = claim.admission.is_none();
        let position = |lane: &&LaneClaim| {
            let number = lane.lease.lane;
            let due = selection.waiting_from(number, lane.from, starts_over);
            (number, fresh.position(lane, tables, met, due))
        };
        claimed.positions = lanes.iter().map(position).collect();
        claimed.more = selection.more || fresh.ends_at_a_front();
        claimed.again = selection.recheck_left().collect();
        claimed.next_due = selection.next_due.map(|due| due.since(now));
        let writes = selection.write_back();
        claimed.events = events(selection);
        writes
    }

    fn seen(&self, seq: Seq) -> Option<Seen<'a>> {
        let row = self.tables.rows.get(seq)?;
        let hold = || {
            let lane = self.tables.lane(row.lane).filter(|lane| lane.held_keys() > 0)?;
            let held = lane.hold_of(row.key()?)?;
            Some(Hold { head: held.seq, is_returning: held.reason == HoldReason::Returning })
        };
        Some(Seen { seq, row, hold: hold() })
    }

    /// What has to be checked again, in order; some may be gone, dead or parked.
    fn recheck(&self) -> Vec<Seen<'a>> {
        let mut seqs: Vec<Seq> = self.lanes.iter().flat_map(|lane| lane.again.iter().copied()).collect();
        seqs.sort_unstable();
        seqs.dedup();
        let seen = seqs.into_iter().filter_map(|seq| self.seen(seq));
        seen.filter(|seen| !seen.row.parked && seen.row.status != Status::Dead).collect()
    }

    /// The freed keys of all lanes, oldest head first.
    fn freed(&self, of_a_key_max: usize) -> Vec<FreedKey<Seen<'a>, Arc<str>>> {
        let mut keys: Vec<(Seq, Lane, &Arc<str>)> = Vec::new();
        for LaneClaim { lease, .. } in self.lanes {
            let Some(lane) = self.tables.lane(lease.lane) else { continue };
            let of_lane = lane.returning().take(RETURNING_KEYS_MAX + 1);
            keys.extend(of_lane.map(|(head, key)| (*head, lease.lane, key)));
        }
        keys.sort_unstable();
        let parked = |lane: Lane, key: &Arc<str>| {
            let lane = self.tables.lane(lane);
            let parked = lane.into_iter().flat_map(|lane| lane.parked_of(key)).take(of_a_key_max + 1);
            parked.filter_map(|seq| self.seen(seq)).collect()
        };
        let freed = keys.into_iter().take(RETURNING_KEYS_MAX + 1);
        freed
            .map(|(head, lane, key)| FreedKey { lane, head, key: Arc::clone(key), parked: parked(lane, key) })
            .collect()
    }
}

/// What was chosen, in order.
fn events(selection: Selection<Seen<'_>, Arc<str>>) -> Vec<ClaimedEvent> {
    let event = |(Seen { seq, row, .. }, held): (Seen<'_>, bool)| ClaimedEvent {
        lane: row.lane,
        seq,
        attempts: row.attempts,
        held,
        created_at: row.created_at,
        event: row.content.clone().map_err(|undecodable| *undecodable),
    };
    let mut events: Vec<ClaimedEvent> = selection.into_chosen().map(event).collect();
    events.sort_unstable_by_key(|event| event.seq);
    events
}

/// Writes back what a claim met. What somebody else has locked stays as it is, and is checked again by the next claim.
fn write(tables: &mut Tables, writes: WriteBack<Arc<str>>, faults: &Faults, claimed: &mut Claimed) {
    for (lane, seq) in writes.park {
        match is_locked(tables, faults, seq) {
            true => claimed.again.push((lane, seq)),
            false => tables.change(seq, |row| row.parked = true),
        }
    }
    for (lane, seq) in writes.delay {
        match is_locked(tables, faults, seq) {
            true => claimed.again.push((lane, seq)),
            false => tables.change(seq, |row| row.status = Status::Waiting),
        }
    }
    // Behind a row that is locked the later ones of its key stay parked too: unparked, they would be read before it.
    let mut stuck: HashSet<(Lane, Arc<str>)> = HashSet::new();
    for (lane, seq) in writes.unpark {
        let Some(key) = tables.rows.get(seq).and_then(Row::key).map(Arc::clone) else { continue };
        if is_locked(tables, faults, seq) {
            stuck.insert((lane, key));
        } else if !stuck.contains(&(lane, key)) {
            tables.unpark(seq);
        }
    }
    // After the parking, which may just have put a row behind one of them.
    for (number, key) in writes.free {
        if let Some(lane) =
            tables.lane_mut(number).filter(|lane| !lane.locked && lane.parked_count(&key) == 0)
        {
            lane.drop_hold(&key);
        }
    }
    claimed.again.sort_unstable();
    claimed.again.dedup();
}

/// Whether somebody else has locked this row, or its lane.
fn is_locked(tables: &Tables, faults: &Faults, seq: Seq) -> bool {
    tables.rows.get(seq).is_some_and(|row| {
        let lane_is_locked = || tables.lane(row.lane).is_some_and(|lane| lane.locked);
        faults.is_locked(id_of(&row.content)) || lane_is_locked()
    })
}
