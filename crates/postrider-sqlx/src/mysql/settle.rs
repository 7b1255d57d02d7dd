//! Settling: the fence, the rows, then the keys; one transaction.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use postrider_core::{
    EventId, Timestamp,
    event::limits::clean_error,
    store::{Change, HoldReason, Lane, Lease, Seq, Settled, Settlement},
    tx::Prefix,
};
use sqlx::{Connection, MySqlConnection};

use super::{
    hold::{self, Held, Key},
    lease,
    statement::{
        AT, LIST_MAX, Listed, Ready, Statement, bound, filled, json, micros, natural, set, text, time,
    },
};
use crate::connections::LockedLanes;

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) keep: Listed,
    pub(super) remove: Listed,
    pub(super) open: Listed,
    pub(super) lock: Listed,
    pub(super) change: Statement,
}

/// How a settle begins. A lock of somebody else's is waited for a second at most, which is the least that MySQL knows; then the settle goes
/// [around](Way::Around) it. What else runs on the connection later is tried again after as long.
const BEGIN: &str = "SET SESSION innodb_lock_wait_timeout = 1; BEGIN";

/// The columns that a delivered event keeps.
const KEPT: &str =
    "seq, lane, attempts, available_at, created_at, occurred_at, event_id, event_type, aggregate_type,
    aggregate_id, ordering_key, tenant_id, content_type, headers, last_error, payload, payload_bytes";

/// Delivered rows: only those that are neither dead nor of another lane, and that bear the id of an event that was delivered. A server that
/// lost its last transactions gives their numbers again.
const DELIVERED: &str = "FROM {p}event AS e FORCE INDEX (PRIMARY)
    WHERE e.seq IN ({list}) AND e.event_id IN ({list}) AND FIND_IN_SET(e.lane, ?) AND e.status IN (0, 2)";

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        Self {
            // REPLACE, because a settle must not fail over what a restored backup left behind.
            keep: Listed::of_values(
                &format!("REPLACE INTO {{p}}done ({KEPT}, done_at) SELECT {KEPT}, {AT} {DELIVERED}"),
                prefix,
            ),
            remove: Listed::of_values(&format!("DELETE e {DELIVERED}"), prefix),
            open: Listed::of_values(
                &format!(
                    "SELECT seq, lane, event_id, status, parked, attempts, {} AS available_at FROM {{p}}event FORCE INDEX (PRIMARY)
                     WHERE seq IN ({{list}})",
                    micros("available_at")
                ),
                prefix,
            ),
            lock: Listed::of_values(
                "SELECT seq FROM {p}event FORCE INDEX (PRIMARY) WHERE seq IN ({list}) FOR UPDATE SKIP LOCKED",
                prefix,
            ),
            change: Statement::new(
                "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
                     seq BIGINT PATH '$[0]', status INT PATH '$[1]', attempts BIGINT PATH '$[2]',
                     available_at BIGINT PATH '$[3]', error TEXT CHARACTER SET utf8mb4 PATH '$[4]')) AS s
                 STRAIGHT_JOIN {p}event AS e FORCE INDEX (PRIMARY) ON e.seq = s.seq
                 SET e.touched = 1, e.parked = IF(s.status = 0, e.parked, 0), e.status = IF(s.status = 0, e.status, s.status),
                     e.attempts = s.attempts,
                     e.available_at = COALESCE(
                         TIMESTAMP'1970-01-01 00:00:00' + INTERVAL s.available_at MICROSECOND, e.available_at),
                     e.last_error = COALESCE(s.error, e.last_error)",
                prefix,
            ),
        }
    }
}

/// A row as it stands before it is changed.
struct Row {
    lane: Lane,
    event_id: String,
    status: u8,
    parked: bool,
    attempts: u32,
    available_at: Timestamp,
}

/// A change of a row: `seq`, status, attempts, when it is due and what went wrong.
type Changed = (Seq, u8, u32, Option<i64>, Option<String>);

/// What a settle does about rows that somebody else has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It waits for them, since there are hardly ever any.
    Straight,
    /// It leaves them alone, and says which they are.
    Around,
}

/// Events whose rows were locked when they were to be settled last.
#[derive(Debug, Default)]
pub(super) struct Locked(Mutex<HashSet<Seq>>);

impl Locked {
    /// Whether one of these was.
    pub(super) fn has_any(&self, settlements: &[Settlement]) -> bool {
        let locked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !locked.is_empty() && settlements.iter().any(|settlement| locked.contains(&settlement.seq))
    }

    /// These were settled, but for those that are locked.
    pub(super) fn note(&self, settlements: &[Settlement], locked: &[Seq]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        settlements.iter().for_each(|settlement| _ = known.remove(&settlement.seq));
        known.extend(locked);
    }
}

/// What a settle works with.
pub(super) struct Settle<'a> {
    pub(super) sql: &'a Statements,
    pub(super) lease: &'a lease::Statements,
    pub(super) hold: &'a hold::Statements,
    pub(super) locked_lanes: &'a LockedLanes,
}

impl Settle<'_> {
    /// Writes outcomes under the fence, all of them or none.
    pub(super) async fn settle(
        &self,
        conn: &mut MySqlConnection,
        leases: &[Lease],
        settlements: &[Settlement],
        retention: Duration,
        way: Way,
    ) -> sqlx::Result<Settled> {
        let mut tx = conn.begin_with(BEGIN).await?;
        let in_order = lease::in_order(leases.iter().copied());
        let fence = match way {
            Way::Straight => lease::fence(self.lease, &mut tx, &in_order).await?,
            Way::Around => lease::fence_around(self.lease, &mut tx, &in_order).await?,
        };
        self.locked_lanes.note(&fence.locked);
        let mut lost = fence.lost;
        // An outcome of a lane that nobody proved to hold is as lost as one that was taken away.
        let unproved = |lane: &Lane| !leases.iter().any(|lease| lease.lane == *lane);
        lost.extend(settlements.iter().map(|settlement| settlement.lane).filter(unproved));
        if !lost.is_empty() {
            lost.sort_unstable();
            lost.dedup();
            tx.rollback().await?;
            return Ok(Settled { lost, ..Settled::default() });
        }
        let (of_locked_lanes, of_others): (Vec<&Settlement>, Vec<&Settlement>) =
            settlements.iter().partition(|settlement| fence.locked.contains(&settlement.lane));
        let mut locked = match way {
            Way::Straight => HashSet::new(),
            Way::Around => self.locked(&mut tx, &of_others).await?,
        };
        locked.extend(of_locked_lanes.iter().map(|settlement| settlement.seq));
        let free: Vec<Settlement>;
        let settlements = if locked.is_empty() {
            settlements
        } else {
            let is_free = |settlement: &&Settlement| !locked.contains(&settlement.seq);
            free = settlements.iter().filter(is_free).cloned().collect();
            &free
        };
        let mut applied = self.deliver(&mut tx, leases, settlements, retention, fence.now).await?;
        let changed = self.change(&mut tx, settlements, fence.now).await?;
        applied += changed.len() as u64;
        self.settle_keys(&mut tx, settlements, &changed, fence.now).await?;
        tx.commit().await?;
        let mut locked: Vec<Seq> = locked.into_iter().collect();
        locked.sort_unstable();
        Ok(Settled { applied, locked, ..Settled::default() })
    }

    /// Locks the rows and holds that are to be changed, as far as nobody else has, and says which events are the others'.
    async fn locked(
        &self,
        conn: &mut MySqlConnection,
        settlements: &[&Settlement],
    ) -> sqlx::Result<HashSet<Seq>> {
        let seqs: Vec<Seq> = settlements.iter().map(|settlement| settlement.seq).collect();
        let mut ours = HashSet::with_capacity(seqs.len());
        for seqs in seqs.chunks(LIST_MAX) {
            let query = filled(seqs).fold(self.sql.lock.query(seqs.len()), |query, seq| query.bind(seq));
            for row in query.fetch_all(&mut *conn).await? {
                ours.insert(natural::<Seq>(&row, "seq")?);
            }
        }
        let rows = self.open(conn, &seqs).await?;
        let key_of = |settlement: &Settlement| {
            let key =
                settlement.key.as_deref().filter(|_| settlement.held || settlement.change != Change::Done)?;
            Some(Key { lane: settlement.lane, key: key.to_owned() })
        };
        let keys: Vec<Key> = settlements.iter().filter_map(|settlement| key_of(settlement)).collect();
        let held = hold::locked(self.hold, conn, &keys).await?;
        let locked = settlements.iter().filter(|settlement| {
            let there =
                rows.get(&settlement.seq).is_some_and(|row| settlement.event_id == row.event_id.as_str());
            (there && !ours.contains(&settlement.seq))
                || key_of(settlement).is_some_and(|key| held.contains(&key))
        });
        Ok(locked.map(|settlement| settlement.seq).collect())
    }

    /// Moves or deletes what was delivered, and says how many there were.
    async fn deliver(
        &self,
        conn: &mut MySqlConnection,
        leases: &[Lease],
        settlements: &[Settlement],
        retention: Duration,
        now: Timestamp,
    ) -> sqlx::Result<u64> {
        let done = settlements.iter().filter(|settlement| settlement.change == Change::Done);
        let mut done: Vec<(Seq, &EventId)> = done.map(|done| (done.seq, &done.event_id)).collect();
        // In the order of the table, so that neighbours are found together.
        done.sort_unstable();
        let lanes = set(leases.iter().map(|lease| lease.lane));
        let mut delivered = 0;
        for done in done.chunks(LIST_MAX) {
            if !retention.is_zero() {
                let keep = self.sql.keep.query(done.len()).bind(bound(now));
                named(keep, done).bind(lanes.clone()).execute(&mut *conn).await?;
            }
            let remove = named(self.sql.remove.query(done.len()), done);
            delivered += remove.bind(lanes.clone()).execute(&mut *conn).await?.rows_affected();
        }
        Ok(delivered)
    }

    /// Changes the rows that wait or are dead, and says which were. Nobody else changes them meanwhile: their lanes are locked.
    async fn change(
        &self,
        conn: &mut MySqlConnection,
        settlements: &[Settlement],
        now: Timestamp,
    ) -> sqlx::Result<HashSet<Seq>> {
        let wanted = settlements.iter().filter(|settlement| settlement.change != Change::Done);
        let wanted: Vec<Seq> = wanted.map(|settlement| settlement.seq).collect();
        let rows = self.open(conn, &wanted).await?;
        let open = |settlement: &Settlement| {
            rows.get(&settlement.seq).filter(|row| {
                row.lane == settlement.lane
                    && settlement.event_id == row.event_id.as_str()
                    && row.status != 3
                    && !is_repeated(row, &settlement.change, now)
            })
        };
        let changes: Vec<Changed> = settlements
            .iter()
            .filter_map(|settlement| changed(settlement, open(settlement)?.available_at, now))
            .collect();
        if !changes.is_empty() {
            self.sql.change.query().bind(json(&changes)?).execute(conn).await?;
        }
        Ok(changes.iter().map(|(seq, ..)| *seq).collect())
    }

    /// How these rows stand.
    async fn open(&self, conn: &mut MySqlConnection, seqs: &[Seq]) -> sqlx::Result<HashMap<Seq, Row>> {
        let mut rows = HashMap::with_capacity(seqs.len());
        for seqs in seqs.chunks(LIST_MAX) {
            let query = filled(seqs).fold(self.sql.open.query(seqs.len()), |query, seq| query.bind(seq));
            for row in query.fetch_all(&mut *conn).await? {
                let state = Row {
                    lane: natural(&row, "lane")?,
                    event_id: text(&row, "event_id")?.unwrap_or_default(),
                    status: natural(&row, "status")?,
                    parked: natural::<u8>(&row, "parked")? != 0,
                    attempts: natural(&row, "attempts")?,
                    available_at: time(&row, "available_at")?,
                };
                rows.insert(natural(&row, "seq")?, state);
            }
        }
        Ok(rows)
    }

    /// Frees and holds the keys of what was settled.
    async fn settle_keys(
        &self,
        conn: &mut MySqlConnection,
        settlements: &[Settlement],
        changed: &HashSet<Seq>,
        now: Timestamp,
    ) -> sqlx::Result<()> {
        // Delivered heads whose rows are still there were dead before, and their keys wait for a person.
        let heads = settlements.iter().filter(|s| s.held && s.key.is_some() && s.change == Change::Done);
        let survivors = self.open(conn, &heads.map(|settlement| settlement.seq).collect::<Vec<_>>()).await?;
        let (mut freed, mut held) = (Vec::<(Key, Seq)>::new(), Vec::<Held>::new());
        for Settlement { lane, seq, key, held: was_held, change, .. } in settlements {
            let Some(key) = key.as_deref().map(|key| Key { lane: *lane, key: key.to_owned() }) else {
                continue;
            };
            let was_changed = changed.contains(seq);
            match change {
                Change::Done if *was_held && !survivors.contains_key(seq) => freed.push((key, *seq)),
                Change::Wait { after, reason, .. } if was_changed => {
                    held.push(Held { key, seq: *seq, until: Some(now.plus(*after)), reason: *reason });
                }
                Change::Dead { block: true, .. } if was_changed => {
                    held.push(Held { key, seq: *seq, until: None, reason: HoldReason::Dead });
                }
                Change::Dead { block: false, .. } if *was_held && was_changed => freed.push((key, *seq)),
                _ => {}
            }
        }
        // Frees first: where one event of a key frees it and a later one holds it, it is held.
        hold::free(self.hold, conn, &freed).await?;
        hold::hold(self.hold, conn, &held).await
    }
}

/// Binds the numbers and then the ids of rows.
fn named(query: Ready, rows: &[(Seq, &EventId)]) -> Ready {
    let query = filled(rows).fold(query, |query, (seq, _)| query.bind(seq));
    filled(rows).fold(query, |query, (_, id)| query.bind(id.as_str().to_owned()))
}

/// What a settlement makes of its row, which was due then; none for what was delivered.
fn changed(settlement: &Settlement, due: Timestamp, now: Timestamp) -> Option<Changed> {
    let seq = settlement.seq;
    match &settlement.change {
        Change::Done => None,
        Change::Wait { after, attempts, error, .. } => {
            let error = error.as_deref().map(clean_error);
            Some((seq, 2, *attempts, Some(bound(now.plus(*after))), error))
        }
        // It stays where it is, and due: so the wait that follows is told from one that has begun.
        Change::Attempt { attempts } => Some((seq, 0, *attempts, Some(bound(due.min(now))), None)),
        // It is never due, so its time says since when it is dead.
        Change::Dead { attempts, error, .. } => {
            Some((seq, 3, *attempts, Some(bound(now)), Some(clean_error(error))))
        }
    }
}

/// Whether this change was made already: a wait that has begun is not begun anew before it is over, and an attempt is counted once.
fn is_repeated(row: &Row, change: &Change, now: Timestamp) -> bool {
    match change {
        Change::Wait { attempts, .. } => {
            row.status == 2 && !row.parked && row.attempts == *attempts && row.available_at > now
        }
        Change::Attempt { attempts } => row.attempts >= *attempts,
        Change::Done | Change::Dead { .. } => false,
    }
}
