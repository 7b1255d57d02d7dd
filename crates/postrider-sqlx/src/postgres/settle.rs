//! Settling: the fence, the rows, then the keys.
//!
//! One statement does all of it, unless a key becomes free. Then whether something is parked behind it has to be asked after the
//! lanes were locked: a claim parks under the same lock, and a statement that waited for it still sees what was there before.

use std::{collections::HashSet, time::Duration};

use postrider_core::{
    event::limits::clean_error,
    store::{Change, HoldReason, Lane, Lease, Seq, Settled, Settlement},
};
use sqlx::{PgConnection, Row};

use super::{
    lease::{self, with_tokens},
    statement::{Shape, Statement, integer, natural, small, span},
};
use crate::connections::LockedLanes;

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    /// Only deliveries, without and with a retention. They answer with no more than how many rows it were: returning something for
    /// each row takes as long as removing it.
    pub(super) delete: Statement,
    pub(super) keep: Statement,
    /// Outcomes of all kinds, without and with a retention.
    pub(super) delete_and_change: Statement,
    pub(super) keep_and_change: Statement,
    pub(super) free: Statement,
    pub(super) release: Statement,
    pub(super) locked: Statement,
}

/// The fence: all lanes are held by these tokens, or nothing is written. The share lock lets other settles pass and stops anyone who
/// wants to take a lane over. A gate in front of everything costs nothing; a join with the lanes that were locked is planned as a
/// nested loop and halves the speed. Behind the gate nobody else's lock is waited for longer than a moment: see [`settle_around`].
const FENCE: &str = "
    locked AS MATERIALIZED (
        SELECT l.lane FROM {p}lane AS l
        JOIN unnest($1::integer[], $2::bigint[], $3::bigint[]) AS t (lane, epoch, nonce)
          ON l.lane = t.lane AND l.epoch = t.epoch AND l.nonce = t.nonce
        ORDER BY l.lane FOR SHARE OF l
    ), gate AS MATERIALIZED (
        SELECT count(*) = cardinality($1) AS open, cardinality($1) = (SELECT count(*) FROM {p}lane) AS all_lanes,
               set_config('lock_timeout', '100ms', true) AS waits FROM locked
    )";

/// Delivered rows: only those that are neither dead nor of another lane, and that bear the id of an event that was delivered: a server that
/// lost its last transactions gives their numbers again. The numbers `$4` are in order, so that a row's place among them is found by halving, and
/// its id is the one at that place. Only values of a fixed size are found by their place at once, hence `name`, which cuts ids of more than 63 bytes;
/// these are looked for among the others. A lane is looked for among the others for each row, so not if all of them are there.
const REMOVED: &str = "
    DELETE FROM {p}event AS e
    WHERE (SELECT open FROM gate) AND e.seq = ANY ($4::bigint[]) AND e.status IN (0, 2)
      AND (e.event_id = ((SELECT $5::text[]::name[]))[width_bucket(e.seq, $4)] OR e.event_id = ANY ($5))
      AND ((SELECT all_lanes FROM gate) OR e.lane = ANY ($1))";

/// The columns that a delivered event keeps.
const KEPT: &str =
    "seq, available_at, created_at, occurred_at, attempts, lane, event_id, event_type, aggregate_type,
    aggregate_id, ordering_key, tenant_id, content_type, headers, last_error, payload, payload_bytes";

/// Rows that wait or are dead, and the keys that wait for them. The last conditions find a repeated settle: a wait that has begun is not begun
/// anew before it is over, and an attempt (status 0) is counted once. A count leaves its row where it is, and due, so that the wait which follows
/// is told from one that has begun. What is dead is never due, so its time says since when.
const CHANGED: &str = "
    clock AS MATERIALIZED (
        SELECT clock_timestamp() AS now
    ), change AS MATERIALIZED (
        SELECT c.*, (SELECT now FROM clock) + c.after_us * interval '1 microsecond' AS until
        FROM unnest($6::bigint[], $7::integer[], $8::smallint[], $9::integer[], $10::bigint[], $11::text[], $12::text[],
                    $13::text[], $14::text[]) WITH ORDINALITY
             AS c (seq, lane, status, attempts, after_us, error, key, reason, event_id, place)
    ), changed AS (
        UPDATE {p}event AS e
        SET status = CASE c.status WHEN 0 THEN e.status ELSE c.status END, attempts = c.attempts,
            parked = e.parked AND c.status = 0,
            available_at = CASE c.status WHEN 0 THEN least(e.available_at, (SELECT now FROM clock))
                                         WHEN 2 THEN c.until ELSE (SELECT now FROM clock) END,
            last_error = coalesce(c.error, e.last_error)
        FROM change AS c
        WHERE (SELECT open FROM gate) AND e.seq = c.seq AND e.event_id = c.event_id AND e.lane = c.lane AND e.status IN (0, 2)
          AND NOT (c.status = 0 AND e.attempts >= c.attempts)
          AND NOT (c.status = 2 AND e.status = 2 AND NOT e.parked AND e.attempts = c.attempts
                   AND e.available_at > (SELECT now FROM clock))
        RETURNING e.seq
    ), held AS (
        INSERT INTO {p}hold (lane, effective_key, seq, until, reason)
        SELECT DISTINCT ON (c.lane, c.key) c.lane, c.key, c.seq, c.until, c.reason
        FROM change AS c JOIN changed ON changed.seq = c.seq
        WHERE c.key IS NOT NULL AND c.reason IS NOT NULL
        ORDER BY c.lane, c.key, c.place DESC
        ON CONFLICT (lane, effective_key)
        DO UPDATE SET seq = excluded.seq, until = excluded.until, reason = excluded.reason
    )";

/// Holds that an event `f` frees: its own, and those that are on their way out. Not if it was delivered and its row is still
/// there: then it was dead before, and its key waits for a person.
const FREED: &str = "
    FROM unnest($1::integer[], $2::text[], $3::bigint[], $4::boolean[]) AS f (lane, key, seq, delivered)
    WHERE h.lane = f.lane AND h.effective_key = f.key AND (h.seq = f.seq OR h.reason = 'returning')
      AND NOT (f.delivered AND EXISTS (SELECT 1 FROM {p}event AS e WHERE e.seq = f.seq))";

/// Locks the rows and the holds that a settle is to change, as far as nobody else has. Answers with the events of the others.
const LOCKED: &str = "
    WITH named AS MATERIALIZED (
        SELECT n.* FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::text[]) AS n (seq, event_id, lane, key)
    ), ours AS MATERIALIZED (
        SELECT e.seq FROM {p}event AS e JOIN named AS n ON e.seq = n.seq AND e.event_id = n.event_id
        ORDER BY e.seq FOR UPDATE OF e SKIP LOCKED
    ), held AS MATERIALIZED (
        SELECT h.lane, h.effective_key FROM {p}hold AS h JOIN named AS n ON h.lane = n.lane AND h.effective_key = n.key
        ORDER BY h.lane, h.effective_key FOR UPDATE OF h SKIP LOCKED
    )
    SELECT n.seq FROM named AS n
    WHERE (EXISTS (SELECT 1 FROM {p}event AS e WHERE e.seq = n.seq AND e.event_id = n.event_id)
           AND NOT EXISTS (SELECT 1 FROM ours WHERE ours.seq = n.seq))
       OR (EXISTS (SELECT 1 FROM {p}hold AS h WHERE h.lane = n.lane AND h.effective_key = n.key)
           AND NOT EXISTS (SELECT 1 FROM held WHERE held.lane = n.lane AND held.effective_key = n.key))";

impl Statements {
    pub(super) fn new(shape: &Shape) -> Self {
        let statement = |template: &str| Statement::new(template, shape);
        // Both tables have these columns, and only one of them is meant.
        let kept_of_e =
            KEPT.split(',').map(|column| format!("e.{}", column.trim())).collect::<Vec<_>>().join(", ");
        let gone = format!("gone AS ({REMOVED} RETURNING {kept_of_e})");
        let keep =
            format!("INSERT INTO {{p}}done ({KEPT}, done_at) SELECT {KEPT}, clock_timestamp() FROM gone");
        let answer = "SELECT (SELECT count(*) FROM removed) AS removed, ARRAY (SELECT seq FROM changed) AS changed,
                             CASE WHEN NOT gate.open THEN ARRAY (SELECT lane FROM locked) END AS held FROM gate";
        Self {
            delete: statement(&format!("WITH {FENCE} {REMOVED}")),
            keep: statement(&format!("WITH {FENCE}, {gone} {keep}")),
            delete_and_change: statement(&format!(
                "WITH {FENCE}, removed AS ({REMOVED} RETURNING 1), {CHANGED} {answer}"
            )),
            keep_and_change: statement(&format!(
                "WITH {FENCE}, {gone}, removed AS ({keep} RETURNING 1), {CHANGED} {answer}"
            )),
            free: statement(&format!(
                "DELETE FROM {{p}}hold AS h USING {} AND NOT EXISTS (
                     SELECT 1 FROM {{p}}event AS e WHERE e.lane = h.lane AND {{key}} = h.effective_key AND e.parked)",
                FREED.trim_start().trim_start_matches("FROM")
            )),
            release: statement(&format!(
                "UPDATE {{p}}hold AS h SET reason = 'returning', until = NULL {FREED} AND h.reason <> 'returning'"
            )),
            locked: statement(LOCKED),
        }
    }
}

/// Whether these outcomes may free a key, so that a settle of them is more than one statement.
pub(super) fn frees(settlements: &[Settlement]) -> bool {
    settlements.iter().any(|settlement| free(settlement).is_some())
}

/// The key that an outcome frees, if it is written.
fn free(settlement: &Settlement) -> Option<&str> {
    let frees = matches!(settlement.change, Change::Done | Change::Dead { block: false, .. });
    settlement.key.as_deref().filter(|_| settlement.held && frees)
}

/// Writes outcomes under the fence, all of them or none.
pub(super) async fn settle(
    sql: &Statements,
    lease_sql: &lease::Statements,
    conn: &mut PgConnection,
    leases: &[Lease],
    settlements: &[Settlement],
    retention: Duration,
) -> sqlx::Result<Settled> {
    // An outcome of a lane that nobody proved to hold is as lost as one that was taken away.
    let unproved = |lane: &Lane| !leases.iter().any(|lease| lease.lane == *lane);
    let mut lost: Vec<Lane> = settlements.iter().map(|settlement| settlement.lane).filter(unproved).collect();
    let frees = frees(settlements);
    if frees || !lost.is_empty() {
        lost.extend(lease::lock(lease_sql, conn, leases.iter().copied()).await?);
    }
    if !lost.is_empty() {
        lost.sort_unstable();
        lost.dedup();
        return Ok(Settled { lost, ..Settled::default() });
    }
    let (settled, changed) = write(sql, conn, leases, settlements, retention).await?;
    if frees && settled.lost.is_empty() {
        free_keys(sql, conn, settlements, &changed).await?;
    }
    Ok(settled)
}

/// Writes outcomes around what somebody else has locked, lanes, rows or holds, in the transaction of the session: the quick way waits for such a
/// lock, inside its lane locks, so it is given up soon. To skip locked rows there would cost each settle what few have use for.
pub(super) async fn settle_around(
    sql: &Statements,
    (lease_sql, locked_lanes): (&lease::Statements, &LockedLanes),
    conn: &mut PgConnection,
    leases: &[Lease],
    settlements: &[Settlement],
    retention: Duration,
) -> sqlx::Result<Settled> {
    let fence = lease::lock_some(lease_sql, conn, leases.iter().copied()).await?;
    locked_lanes.note(&fence.locked);
    if !fence.lost.is_empty() {
        return Ok(Settled { lost: fence.lost, ..Settled::default() });
    }
    let is_locked = |lane: Lane| fence.locked.contains(&lane);
    let leases: Vec<Lease> = leases.iter().copied().filter(|lease| !is_locked(lease.lane)).collect();
    let of_locked_lanes = settlements.iter().filter(|settlement| is_locked(settlement.lane));
    let of_locked_lanes: HashSet<Seq> = of_locked_lanes.map(|settlement| settlement.seq).collect();
    let asked = settlements;
    let settlements: Vec<Settlement> =
        settlements.iter().filter(|settlement| !is_locked(settlement.lane)).cloned().collect();
    let held_key = |settlement: &Settlement| {
        settlement
            .key
            .as_deref()
            .filter(|_| settlement.held || settlement.change != Change::Done)
            .map(str::to_owned)
    };
    let query = sql.locked.query();
    let query = query.bind(settlements.iter().map(|settlement| integer(settlement.seq)).collect::<Vec<_>>());
    let ids = settlements.iter().map(|settlement| settlement.event_id.as_str());
    let query = query.bind(ids.collect::<Vec<_>>());
    let query = query.bind(settlements.iter().map(|settlement| small(settlement.lane)).collect::<Vec<_>>());
    let query = query.bind(settlements.iter().map(held_key).collect::<Vec<_>>());
    let rows = query.fetch_all(&mut *conn).await?;
    let mut locked: HashSet<Seq> =
        rows.iter().map(|row| row.try_get(0).map(natural)).collect::<sqlx::Result<_>>()?;
    let free: Vec<Settlement> =
        settlements.iter().filter(|settlement| !locked.contains(&settlement.seq)).cloned().collect();
    let settled = match free.is_empty() {
        true => Settled::default(),
        false => settle(sql, lease_sql, conn, &leases, &free, retention).await?,
    };
    locked.extend(of_locked_lanes);
    let locked = asked.iter().map(|settlement| settlement.seq).filter(|seq| locked.contains(seq));
    Ok(Settled { locked: locked.collect(), ..settled })
}

/// The rows, and the keys that are held; says which rows were changed.
async fn write(
    sql: &Statements,
    conn: &mut PgConnection,
    leases: &[Lease],
    settlements: &[Settlement],
    retention: Duration,
) -> sqlx::Result<(Settled, HashSet<Seq>)> {
    let done = settlements.iter().filter(|settlement| settlement.change == Change::Done);
    let mut done: Vec<(i64, &str)> =
        done.map(|settlement| (integer(settlement.seq), settlement.event_id.as_str())).collect();
    done.sort_unstable();
    let (done_seqs, done_ids): (Vec<i64>, Vec<&str>) = done.into_iter().unzip();
    let changes = Changes::of(settlements);
    let (simple, full) = match retention.is_zero() {
        true => (&sql.delete, &sql.delete_and_change),
        false => (&sql.keep, &sql.keep_and_change),
    };
    let leases = leases.iter().copied();
    if changes.seq.is_empty() {
        let query = with_tokens(simple, leases.clone()).bind(&done_seqs).bind(&done_ids);
        let removed = query.execute(&mut *conn).await?.rows_affected();
        if removed > 0 {
            return Ok((Settled { applied: removed, ..Settled::default() }, HashSet::new()));
        }
        // All was settled before, or the fence was closed. Which of them it was is told by the lock alone, so it is asked for once more.
    }
    let query = with_tokens(full, leases.clone()).bind(done_seqs).bind(done_ids);
    let query = query.bind(changes.seq).bind(changes.lane).bind(changes.status).bind(changes.attempts);
    let query = query.bind(changes.after_us).bind(changes.error);
    let query = query.bind(changes.key).bind(changes.reason).bind(changes.event_id);
    let row = query.fetch_one(conn).await?;
    let changed: HashSet<Seq> =
        row.try_get::<Option<Vec<i64>>, _>("changed")?.into_iter().flatten().map(natural).collect();
    let lost = match row.try_get::<Option<Vec<i32>>, _>("held")? {
        Some(held) => leases.map(|lease| lease.lane).filter(|lane| !held.contains(&small(*lane))).collect(),
        None => Vec::new(),
    };
    let applied = natural::<u64>(row.try_get("removed")?) + changed.len() as u64;
    Ok((Settled { applied, lost, ..Settled::default() }, changed))
}

/// Rows that wait, are dead, or are counted an attempt of, column by column.
#[derive(Default)]
struct Changes {
    seq: Vec<i64>,
    lane: Vec<i32>,
    status: Vec<i16>,
    attempts: Vec<i32>,
    after_us: Vec<Option<i64>>,
    error: Vec<Option<String>>,
    key: Vec<Option<String>>,
    /// Why its key waits; none if it does not.
    reason: Vec<Option<&'static str>>,
    event_id: Vec<String>,
}

impl Changes {
    fn of(settlements: &[Settlement]) -> Self {
        let mut all = Self::default();
        for settlement in settlements {
            let (status, attempts, after, error, reason) = match &settlement.change {
                Change::Done => continue,
                Change::Wait { after, attempts, error, reason } => {
                    (2, *attempts, Some(span(*after)), error.as_deref(), Some(reason.as_str()))
                }
                Change::Attempt { attempts } => (0, *attempts, None, None, None),
                Change::Dead { attempts, error, block } => {
                    let reason = block.then_some(HoldReason::Dead.as_str());
                    (3, *attempts, None, Some(error.as_str()), reason)
                }
            };
            all.seq.push(integer(settlement.seq));
            all.lane.push(small(settlement.lane));
            all.status.push(status);
            all.attempts.push(small(attempts));
            all.after_us.push(after);
            all.error.push(error.map(clean_error));
            all.key.push(settlement.key.as_deref().map(str::to_owned));
            all.reason.push(reason);
            all.event_id.push(settlement.event_id.as_str().to_owned());
        }
        all
    }
}

/// Frees the keys of what was settled. A key that a later event of the same batch holds is not freed: its hold names that one.
async fn free_keys(
    sql: &Statements,
    conn: &mut PgConnection,
    settlements: &[Settlement],
    changed: &HashSet<Seq>,
) -> sqlx::Result<()> {
    let freed: Vec<(&Settlement, &str)> = settlements
        .iter()
        .filter(|settlement| settlement.change == Change::Done || changed.contains(&settlement.seq))
        .filter_map(|settlement| Some((settlement, free(settlement)?)))
        .collect();
    if freed.is_empty() {
        return Ok(());
    }
    for statement in [&sql.free, &sql.release] {
        statement
            .query()
            .bind(freed.iter().map(|(settlement, _)| small(settlement.lane)).collect::<Vec<_>>())
            .bind(freed.iter().map(|(_, key)| *key).collect::<Vec<_>>())
            .bind(freed.iter().map(|(settlement, _)| integer(settlement.seq)).collect::<Vec<_>>())
            .bind(freed.iter().map(|(settlement, _)| settlement.change == Change::Done).collect::<Vec<_>>())
            .execute(&mut *conn)
            .await?;
    }
    Ok(())
}
