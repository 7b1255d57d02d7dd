//! Who may deliver: taking, keeping, giving back, and proving it.
//!
//! Whatever changes the state of a lane's events locks the lane's row first, and several of them in lane order. So a lane has
//! one writer at a time, what was read under the lock stays true until its end, and nobody waits in a circle.

use std::time::Duration;

use postrider_core::{
    Timestamp,
    store::{AcquiredLane, LEASE_MAX, Lane, Lease, LeaseRequest, Leased, Marked, Renewed, Seq, Token},
    tx::Prefix,
};
use sqlx::{Connection, MySqlConnection, mysql::MySqlRow};

use crate::connections::renewal::Locked;

use super::{
    Inner,
    statement::{
        AT, LIST_MAX, Listed, NOW, Ready, Statement, bound, filled, json, maybe, maybe_time, micros, natural,
        span, text, time,
    },
};

/// Most characters of an owner's or instance's name that are stored.
const NAME_CHARS_MAX: usize = 255;

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    lanes: Statement,
    lanes_locked: Listed,
    cut: Listed,
    pub(super) lock: Listed,
    lock_some: Listed,
    take: Statement,
    renew: Listed,
    mark: Statement,
    release: Statement,
    now: Statement,
    members: Statement,
    member_locked: Statement,
    forget: Statement,
    cut_member: Statement,
    join: Statement,
    leave: Statement,
}

/// A list of lanes, each with its values, as a table that is read first.
const EACH_LANE: &str = "JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', epoch BIGINT PATH '$[1]',
    nonce BIGINT PATH '$[2]', sent_to BIGINT PATH '$[3]')) AS s STRAIGHT_JOIN {p}lane AS l FORCE INDEX (PRIMARY)
    ON l.lane = s.lane";

/// How long a lease or a membership was asked for, in microseconds. One that ends later from now was asked for before the clock was set back, and is cut
/// to that: anyone who asked for it cannot have more.
const LENGTH: &str = "COALESCE(lease_us, 3600000000)";

/// The same of a row that was read.
fn length(row: &MySqlRow) -> sqlx::Result<Duration> {
    Ok(maybe(row, "lease_us")?.map_or(LEASE_MAX, Duration::from_micros))
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let statement = |template: &str| Statement::new(template, prefix);
        let until = micros("leased_until");
        let lanes = format!(
            "SELECT lane, owner, epoch, nonce, {until} AS leased_until, lease_us, clean, sent_to, {NOW} AS now FROM {{p}}lane"
        );
        let locked = |some: &str| {
            let lock = format!(
                "SELECT lane, epoch, nonce, {NOW} AS now FROM {{p}}lane FORCE INDEX (PRIMARY)
                 WHERE lane IN ({{list}}) ORDER BY lane FOR UPDATE{some}"
            );
            Listed::of_values(&lock, prefix)
        };
        Self {
            lanes: statement(&format!("{lanes} ORDER BY lane")),
            // What others have locked is left out: they may be stopped in the middle of it.
            lanes_locked: Listed::of_values(
                &format!("{lanes} FORCE INDEX (PRIMARY) WHERE lane IN ({{list}}) ORDER BY lane FOR UPDATE SKIP LOCKED"),
                prefix,
            ),
            cut: Listed::of_values(
                &format!(
                    "UPDATE {{p}}lane FORCE INDEX (PRIMARY) SET leased_until = UTC_TIMESTAMP(6) + INTERVAL {LENGTH} MICROSECOND
                     WHERE lane IN ({{list}})"
                ),
                prefix,
            ),
            lock: locked(""),
            lock_some: locked(" SKIP LOCKED"),
            take: statement(&format!(
                "UPDATE {EACH_LANE} SET l.owner = ?, l.epoch = s.epoch, l.nonce = s.nonce, l.leased_until = {AT},
                 l.lease_us = ?, l.clean = 0, l.sent_to = s.sent_to"
            )),
            renew: Listed::of_values(
                &format!(
                    "UPDATE {{p}}lane FORCE INDEX (PRIMARY) SET leased_until = {AT}, lease_us = ? WHERE lane IN ({{list}})"
                ),
                prefix,
            ),
            mark: statement(&format!("UPDATE {EACH_LANE} SET l.sent_to = GREATEST(l.sent_to, s.sent_to)")),
            // Without a nonce the old token passes no fence any more.
            release: statement(&format!(
                "UPDATE {EACH_LANE} SET l.owner = NULL, l.nonce = NULL, l.leased_until = NULL, l.clean = (s.sent_to = 0),
                 l.sent_to = s.sent_to"
            )),
            now: statement(&format!("SELECT {NOW} AS now")),
            members: statement(&format!(
                "SELECT instance, {} AS until, lease_us, {NOW} AS now FROM {{p}}member",
                micros("until")
            )),
            member_locked: statement("SELECT instance FROM {p}member WHERE instance = ? FOR UPDATE SKIP LOCKED"),
            forget: statement("DELETE FROM {p}member WHERE instance = ?"),
            cut_member: statement(&format!(
                "UPDATE {{p}}member SET until = UTC_TIMESTAMP(6) + INTERVAL {LENGTH} MICROSECOND WHERE instance = ?"
            )),
            join: statement(&format!(
                "INSERT INTO {{p}}member (instance, until, lease_us) VALUES (?, {AT}, ?)
                 ON DUPLICATE KEY UPDATE until = VALUES(until), lease_us = VALUES(lease_us)"
            )),
            leave: statement("DELETE FROM {p}member WHERE instance = ?"),
        }
    }
}

/// A lane, its token, and how far events of it may be under way; as [`EACH_LANE`] reads it.
type Row = (Lane, u64, u64, Seq);

fn row(lease: &Lease, sent_to: Seq) -> Row {
    (lease.lane, lease.token.epoch, lease.token.nonce, sent_to)
}

/// Takes lanes that are free or whose lease has run out, as many as are wanted. An owner's name is no token: its own lanes are as taken as
/// anybody's. Also says how many lanes there are.
pub(super) async fn lease(
    sql: &Statements,
    conn: &mut MySqlConnection,
    request: &LeaseRequest,
) -> sqlx::Result<(Leased, u32)> {
    // Read without a lock first: where nothing is to be had, nobody's settle is kept waiting.
    let rows = sql.lanes.query().fetch_all(&mut *conn).await?;
    let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let seen = choose(&rows, request)?;
    let wanted: Vec<Lane> = seen.lanes().collect();
    if wanted.is_empty() {
        return Ok((seen.leased, count));
    }
    let mut tx = conn.begin().await?;
    let mut rows = Vec::with_capacity(wanted.len());
    for lanes in wanted.chunks(LIST_MAX) {
        rows.extend(over(&sql.lanes_locked, lanes).fetch_all(&mut *tx).await?);
    }
    let Choice { mut leased, late } = choose(&rows, request)?;
    if let Some(first) = rows.first().filter(|_| !leased.taken.is_empty()) {
        let until = time(first, "now")?.plus(request.ttl);
        let taken: Vec<Row> = leased.taken.iter().map(|taken| row(&taken.lease, taken.suspect_to)).collect();
        let take = sql.take.query().bind(json(&taken)?).bind(name(&request.owner)).bind(bound(until));
        take.bind(span(request.ttl)).execute(&mut *tx).await?;
    }
    for lanes in late.chunks(LIST_MAX) {
        over(&sql.cut, lanes).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    leased.next_expiry = seen.leased.next_expiry;
    leased.locked = wanted.len().saturating_sub(rows.len());
    Ok((leased, count))
}

/// A statement over a list of lanes.
fn over(statement: &Listed, lanes: &[Lane]) -> Ready {
    filled(lanes).fold(statement.query(lanes.len()), |query, lane| query.bind(lane))
}

/// What to do about lanes that were read.
#[derive(Default)]
struct Choice {
    leased: Leased,
    /// Those whose lease ends later than it can.
    late: Vec<Lane>,
}

impl Choice {
    fn lanes(&self) -> impl Iterator<Item = Lane> {
        let taken = self.leased.taken.iter().map(|taken| taken.lease.lane);
        taken.chain(self.late.iter().copied())
    }
}

/// Which lanes can be taken, and which leases are to be cut.
fn choose(rows: &[MySqlRow], request: &LeaseRequest) -> sqlx::Result<Choice> {
    let Choice { mut leased, mut late } = Choice::default();
    let mut nonces = request.nonces();
    for row in rows {
        let now = time(row, "now")?;
        let owner = text(row, "owner")?;
        match maybe_time(row, "leased_until")? {
            Some(until) if owner.is_some() && until > now => {
                let (left, length) = (until.since(now), length(row)?);
                if left > length {
                    late.push(natural(row, "lane")?);
                }
                let left = left.min(length);
                leased.next_expiry = Some(leased.next_expiry.map_or(left, |next| next.min(left)));
            }
            _ if leased.taken.len() >= request.most => {}
            _ => {
                let clean = natural::<u8>(row, "clean")? != 0;
                let suspect_to = if clean { 0 } else { natural(row, "sent_to")? };
                let epoch = natural::<u64>(row, "epoch")?.saturating_add(1);
                let token = Token { epoch, nonce: nonces.next().unwrap_or_default() };
                leased
                    .taken
                    .push(AcquiredLane { lease: Lease { lane: natural(row, "lane")?, token }, suspect_to });
            }
        }
    }
    Ok(Choice { leased, late })
}

/// What the fence said.
#[derive(Debug, Default)]
pub(super) struct Fence {
    /// The lanes that are somebody else's by now. Whether a lease has run out does not matter, only whether somebody took it.
    pub(super) lost: Vec<Lane>,
    /// Lanes that another session has locked; whose they are is not known.
    pub(super) locked: Vec<Lane>,
    /// The database's clock when it was asked.
    pub(super) now: Timestamp,
}

/// The fence: locks the lanes in lane order and says which are lost. Inside of a transaction the answer stays true until its
/// end. The leases must be in lane order.
pub(super) async fn fence(
    sql: &Statements,
    conn: &mut MySqlConnection,
    leases: &[Lease],
) -> sqlx::Result<Fence> {
    let mut fence = Fence::default();
    for leases in leases.chunks(super::statement::LIST_MAX) {
        let lanes: Vec<Lane> = leases.iter().map(|lease| lease.lane).collect();
        let mut query = sql.lock.query(lanes.len());
        for lane in filled(&lanes) {
            query = query.bind(lane);
        }
        let rows = query.fetch_all(&mut *conn).await?;
        let held = rows.iter().map(token).collect::<sqlx::Result<Vec<_>>>()?;
        if let Some(row) = rows.first() {
            fence.now = time(row, "now")?;
        }
        fence
            .lost
            .extend(leases.iter().filter(|lease| !held.contains(&Some(**lease))).map(|lease| lease.lane));
    }
    Ok(fence)
}

/// The same around what another session has locked.
pub(super) async fn fence_around(
    sql: &Statements,
    conn: &mut MySqlConnection,
    leases: &[Lease],
) -> sqlx::Result<Fence> {
    let mut fence =
        Fence { now: time(&sql.now.query().fetch_one(&mut *conn).await?, "now")?, ..Fence::default() };
    for leases in leases.chunks(LIST_MAX) {
        let lanes: Vec<Lane> = leases.iter().map(|lease| lease.lane).collect();
        let rows = over(&sql.lock_some, &lanes).fetch_all(&mut *conn).await?;
        let held = rows.iter().map(token).collect::<sqlx::Result<Vec<_>>>()?;
        let met = rows.iter().map(|row| natural(row, "lane")).collect::<sqlx::Result<Vec<Lane>>>()?;
        for lease in leases {
            if !met.contains(&lease.lane) {
                fence.locked.push(lease.lane);
            } else if !held.contains(&Some(*lease)) {
                fence.lost.push(lease.lane);
            }
        }
    }
    Ok(fence)
}

/// Locks those of these lanes that no other session has locked, and says which they are. The lanes must be in lane order.
pub(super) async fn lock_some(
    sql: &Statements,
    conn: &mut MySqlConnection,
    lanes: &[Lane],
) -> sqlx::Result<Vec<Lane>> {
    let rows = over(&sql.lock_some, lanes).fetch_all(conn).await?;
    rows.iter().map(|row| natural(row, "lane")).collect()
}

/// By which token a lane is held, if it is.
pub(super) fn token(row: &MySqlRow) -> sqlx::Result<Option<Lease>> {
    let (lane, epoch) = (natural(row, "lane")?, natural(row, "epoch")?);
    Ok(maybe(row, "nonce")?.map(|nonce| Lease { lane, token: Token { epoch, nonce } }))
}

/// Leases in lane order, each once: what is locked in another order deadlocks.
pub(super) fn in_order(leases: impl Iterator<Item = Lease>) -> Vec<Lease> {
    let mut leases: Vec<Lease> = leases.collect();
    leases.sort_unstable_by_key(|lease| lease.lane);
    leases.dedup();
    leases
}

/// Extends the leases that still hold, and says which those are.
pub(super) async fn renew(
    sql: &Statements,
    conn: &mut MySqlConnection,
    leases: &[Lease],
    ttl: Duration,
    locked: Locked,
) -> sqlx::Result<Renewed> {
    let lock = if locked == Locked::Skip { &sql.lock_some } else { &sql.lock };
    let mut renewed = Renewed::default();
    let mut tx = conn.begin().await?;
    for leases in in_order(leases.iter().copied()).chunks(LIST_MAX) {
        let lanes: Vec<Lane> = leases.iter().map(|lease| lease.lane).collect();
        let rows = over(lock, &lanes).fetch_all(&mut *tx).await?;
        let Some(first) = rows.first() else {
            renewed.locked.extend(lanes);
            continue;
        };
        let until = bound(time(first, "now")?.plus(ttl));
        let tokens = rows.iter().map(token).collect::<sqlx::Result<Vec<_>>>()?;
        let met = rows.iter().map(|row| natural(row, "lane")).collect::<sqlx::Result<Vec<Lane>>>()?;
        let held = leases.iter().filter(|lease| tokens.contains(&Some(**lease)));
        let held: Vec<Lane> = held.map(|lease| lease.lane).collect();
        if !held.is_empty() {
            let renew = sql.renew.query(held.len()).bind(until).bind(span(ttl));
            filled(&held).fold(renew, |query, lane| query.bind(lane)).execute(&mut *tx).await?;
        }
        renewed.locked.extend(lanes.into_iter().filter(|lane| !met.contains(lane)));
        renewed.held.extend(held);
    }
    tx.commit().await?;
    Ok(renewed)
}

/// Raises the marks of the lanes that still are held, and says which are not and which another session has locked.
pub(super) async fn mark_sent(
    sql: &Statements,
    conn: &mut MySqlConnection,
    marks: &[(Lease, Seq)],
    locked: Locked,
) -> sqlx::Result<Marked> {
    let fence = each(sql, &sql.mark, conn, marks, locked).await?;
    Ok(Marked { lost: fence.lost, locked: fence.locked })
}

/// Gives back the lanes that are still held by these tokens, and says which another session has locked.
pub(super) async fn release(
    sql: &Statements,
    conn: &mut MySqlConnection,
    lanes: &[(Lease, Seq)],
) -> sqlx::Result<Vec<Lane>> {
    Ok(each(sql, &sql.release, conn, lanes, Locked::Skip).await?.locked)
}

/// Runs a statement over the lanes that are still held, and says which are not.
async fn each(
    sql: &Statements,
    statement: &Statement,
    conn: &mut MySqlConnection,
    lanes: &[(Lease, Seq)],
    locked: Locked,
) -> sqlx::Result<Fence> {
    let mut tx = conn.begin().await?;
    let leases = in_order(lanes.iter().map(|(lease, _)| *lease));
    let fence = match locked {
        Locked::Wait => fence(sql, &mut tx, &leases).await?,
        Locked::Skip => fence_around(sql, &mut tx, &leases).await?,
    };
    let held = |lane: &Lane| !fence.lost.contains(lane) && !fence.locked.contains(lane);
    let held = lanes.iter().filter(|(lease, _)| held(&lease.lane));
    let held: Vec<Row> = held.map(|(lease, seq)| row(lease, *seq)).collect();
    if !held.is_empty() {
        statement.query().bind(json(&held)?).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(fence)
}

/// Says that an instance is there, and how many there are.
pub(super) async fn join(
    Inner { lease: sql, .. }: &Inner,
    conn: &mut MySqlConnection,
    instance: &str,
    ttl: Duration,
) -> sqlx::Result<u32> {
    let own = name(instance);
    let (mut others, mut is_new, mut gone, mut late) = (0, true, Vec::new(), Vec::new());
    for row in sql.members.query().fetch_all(&mut *conn).await? {
        let member = text(&row, "instance")?.unwrap_or_default();
        let (now, until) = (time(&row, "now")?, time(&row, "until")?);
        if member == own {
            is_new = false;
        } else if until <= now {
            gone.push(member);
        } else {
            others += 1;
            if until.since(now) > length(&row)? {
                late.push(member);
            }
        }
    }
    let mut tx = conn.begin().await?;
    let now = time(&sql.now.query().fetch_one(&mut *tx).await?, "now")?;
    // What another session has locked is left as it is; nobody waits for it.
    if is_new || is_free(sql, &mut tx, &own).await? {
        let join = sql.join.query().bind(own).bind(bound(now.plus(ttl))).bind(span(ttl));
        join.execute(&mut *tx).await?;
    }
    for (statement, members) in [(&sql.forget, gone), (&sql.cut_member, late)] {
        for member in members {
            if is_free(sql, &mut tx, &member).await? {
                statement.query().bind(member).execute(&mut *tx).await?;
            }
        }
    }
    tx.commit().await?;
    Ok(others + 1)
}

/// Locks a member's row, unless somebody else has.
async fn is_free(sql: &Statements, conn: &mut MySqlConnection, member: &str) -> sqlx::Result<bool> {
    let member = sql.member_locked.query().bind(member.to_owned());
    Ok(member.fetch_optional(conn).await?.is_some())
}

/// Says that an instance is gone.
pub(super) async fn leave(
    Inner { lease: sql, .. }: &Inner,
    conn: &mut MySqlConnection,
    instance: &str,
) -> sqlx::Result<()> {
    sql.leave.query().bind(name(instance)).execute(conn).await?;
    Ok(())
}

/// A name as long as its column is.
fn name(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}
