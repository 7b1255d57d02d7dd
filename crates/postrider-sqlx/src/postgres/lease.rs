//! Who may deliver: taking, keeping, giving back, and proving it. Everybody locks lanes in their order, or they would wait for
//! each other.

use std::time::Duration;

use postrider_core::store::{AcquiredLane, Lane, Lease, LeaseRequest, Leased, Marked, Renewed, Seq, Token};
use sqlx::{PgConnection, Postgres, Row, postgres::PgArguments, query::Query};

use crate::connections::renewal::Locked;

use super::{
    Inner,
    statement::{Shape, Statement, integer, natural, small, span},
};

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    lease: Statement,
    renew: Statement,
    renew_waiting: Statement,
    mark: Statement,
    mark_waiting: Statement,
    release: Statement,
    join: Statement,
    leave: Statement,
    lock: Statement,
    lock_some: Statement,
}

/// The lanes that are held by the tokens `$1` to `$3`, locked against everybody else until the end of the transaction. After
/// waiting for the lock the token is compared again, with the row as it is then.
const OURS: &str = "
    SELECT l.lane FROM {p}lane AS l
    JOIN unnest($1::integer[], $2::bigint[], $3::bigint[]) AS t (lane, epoch, nonce)
      ON l.lane = t.lane AND l.epoch = t.epoch AND l.nonce = t.nonce
    ORDER BY l.lane FOR NO KEY UPDATE OF l";

/// A lane `l` that can be taken at the time of `clock`.
const FREE: &str = "(l.owner IS NULL OR l.leased_until IS NULL OR l.leased_until <= (SELECT now FROM clock))";

/// How long a lease or a membership `l` was asked for. One that ends later from now was asked for before the clock was set back, and is cut to that:
/// anyone who asked for it cannot have more.
const LENGTH: &str = "coalesce(l.lease_us, 3600000000) * interval '1 microsecond'";

impl Statements {
    pub(super) fn new(shape: &Shape) -> Self {
        let statement = |template: &str| Statement::new(template, shape);
        // Of the lanes that were ours when it began, says which could not be locked.
        let renew = |locked: &str| {
            statement(&format!(
                "WITH ours AS MATERIALIZED ({OURS}{locked}), renewed AS (
                     UPDATE {{p}}lane AS l
                     SET leased_until = clock_timestamp() + $4::bigint * interval '1 microsecond', lease_us = $4
                     FROM ours WHERE l.lane = ours.lane RETURNING l.lane
                 )
                 SELECT l.lane, EXISTS (SELECT 1 FROM renewed WHERE renewed.lane = l.lane) AS renewed
                 FROM {{p}}lane AS l
                 JOIN unnest($1::integer[], $2::bigint[], $3::bigint[]) AS t (lane, epoch, nonce)
                   ON l.lane = t.lane AND l.epoch = t.epoch AND l.nonce = t.nonce
                 ORDER BY l.lane"
            ))
        };
        let mark = |locked: &str| {
            statement(&format!(
                "WITH ours AS MATERIALIZED ({OURS}{locked}), marked AS (
                     UPDATE {{p}}lane AS l SET sent_to = greatest(l.sent_to, m.seq)
                     FROM ours JOIN unnest($1, $4::bigint[]) AS m (lane, seq) ON m.lane = ours.lane
                     WHERE l.lane = ours.lane RETURNING l.lane
                 )
                 SELECT l.lane, EXISTS (SELECT 1 FROM marked WHERE marked.lane = l.lane) AS marked
                 FROM {{p}}lane AS l
                 JOIN unnest($1::integer[], $2::bigint[], $3::bigint[]) AS t (lane, epoch, nonce)
                   ON l.lane = t.lane AND l.epoch = t.epoch AND l.nonce = t.nonce"
            ))
        };
        Self {
            // What others have locked is left out: they may be stopped in the middle of it.
            lease: statement(&format!(
                "WITH clock AS MATERIALIZED (
                     SELECT clock_timestamp() AS now
                 ), free AS MATERIALIZED (
                     SELECT l.lane FROM {{p}}lane AS l WHERE {FREE} ORDER BY l.lane LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
                 ), numbered AS (
                     SELECT free.lane, row_number() OVER (ORDER BY free.lane) AS number FROM free
                 ), taken AS (
                     UPDATE {{p}}lane AS l
                     SET owner = $1, epoch = l.epoch + 1, nonce = ($4::bigint[])[n.number],
                         leased_until = (SELECT now FROM clock) + $2::bigint * interval '1 microsecond', lease_us = $2,
                         sent_to = CASE WHEN l.clean THEN 0 ELSE l.sent_to END, clean = false
                     FROM numbered AS n WHERE l.lane = n.lane
                     RETURNING l.lane, l.epoch, l.nonce, l.sent_to
                 ), late AS MATERIALIZED (
                     SELECT l.lane FROM {{p}}lane AS l
                     WHERE l.owner IS NOT NULL AND l.leased_until > (SELECT now FROM clock) + {LENGTH}
                     ORDER BY l.lane FOR NO KEY UPDATE SKIP LOCKED
                 ), cut AS (
                     UPDATE {{p}}lane AS l SET leased_until = clock_timestamp() + {LENGTH} FROM late WHERE l.lane = late.lane
                 )
                 SELECT taken.lane, taken.epoch, taken.nonce, taken.sent_to, NULL::bigint AS left_us, 0::bigint AS locked FROM taken
                 UNION ALL
                 SELECT NULL, NULL, NULL, NULL,
                        (SELECT (extract(epoch FROM min(least(l.leased_until - clock.now, {LENGTH}))) * 1000000)::bigint
                         FROM {{p}}lane AS l WHERE l.owner IS NOT NULL AND l.leased_until > clock.now),
                        CASE WHEN (SELECT count(*) FROM free) < $3
                             THEN (SELECT count(*) FROM {{p}}lane AS l WHERE {FREE}) - (SELECT count(*) FROM free) ELSE 0 END
                 FROM clock
                 ORDER BY 1"
            )),
            renew: renew(" SKIP LOCKED"),
            renew_waiting: renew(""),
            mark: mark(" SKIP LOCKED"),
            mark_waiting: mark(""),
            // Without a nonce the old token passes no fence any more. Of the lanes that were ours when it began, says which could not be locked.
            release: statement(&format!(
                "WITH ours AS MATERIALIZED ({OURS} SKIP LOCKED), released AS (
                     UPDATE {{p}}lane AS l
                     SET owner = NULL, nonce = NULL, leased_until = NULL, clean = (m.seq = 0), sent_to = m.seq
                     FROM ours JOIN unnest($1, $4::bigint[]) AS m (lane, seq) ON m.lane = ours.lane
                     WHERE l.lane = ours.lane RETURNING l.lane
                 )
                 SELECT l.lane FROM {{p}}lane AS l
                 JOIN unnest($1::integer[], $2::bigint[], $3::bigint[]) AS t (lane, epoch, nonce)
                   ON l.lane = t.lane AND l.epoch = t.epoch AND l.nonce = t.nonce
                 WHERE NOT EXISTS (SELECT 1 FROM released WHERE released.lane = l.lane)"
            )),
            // Who is gone is forgotten by the next who comes; two who do it at once do not wait for each other, nor for anybody's lock.
            join: statement(&format!(
                "WITH clock AS MATERIALIZED (
                     SELECT clock_timestamp() AS now
                 ), forgotten AS (
                     DELETE FROM {{p}}member WHERE instance IN (
                         SELECT m.instance FROM {{p}}member AS m
                         WHERE m.until <= (SELECT now FROM clock) AND m.instance <> $1
                         ORDER BY m.instance FOR UPDATE SKIP LOCKED)
                 ), late AS MATERIALIZED (
                     SELECT l.instance FROM {{p}}member AS l
                     WHERE l.until > (SELECT now FROM clock) + {LENGTH} AND l.instance <> $1
                     ORDER BY l.instance FOR NO KEY UPDATE SKIP LOCKED
                 ), cut AS (
                     UPDATE {{p}}member AS l SET until = clock_timestamp() + {LENGTH} FROM late WHERE l.instance = late.instance
                 ), own AS MATERIALIZED (
                     SELECT m.instance FROM {{p}}member AS m WHERE m.instance = $1 FOR NO KEY UPDATE SKIP LOCKED
                 ), stayed AS (
                     UPDATE {{p}}member AS m
                     SET until = clock_timestamp() + $2::bigint * interval '1 microsecond', lease_us = $2
                     FROM own WHERE m.instance = own.instance
                 ), joined AS (
                     INSERT INTO {{p}}member (instance, until, lease_us)
                     SELECT $1, clock.now + $2::bigint * interval '1 microsecond', $2 FROM clock
                     WHERE NOT EXISTS (SELECT 1 FROM {{p}}member AS m WHERE m.instance = $1)
                     ON CONFLICT (instance) DO NOTHING
                 )
                 SELECT count(*) + 1 FROM {{p}}member AS m, clock WHERE m.until > clock.now AND m.instance <> $1"
            )),
            leave: statement("DELETE FROM {p}member WHERE instance = $1"),
            lock: statement(OURS),
            // Of the lanes that are ours, says which could be locked.
            lock_some: statement(&format!(
                "WITH ours AS MATERIALIZED ({OURS} SKIP LOCKED)
                 SELECT l.lane, EXISTS (SELECT 1 FROM ours WHERE ours.lane = l.lane) AS free
                 FROM {{p}}lane AS l
                 JOIN unnest($1::integer[], $2::bigint[], $3::bigint[]) AS t (lane, epoch, nonce)
                   ON l.lane = t.lane AND l.epoch = t.epoch AND l.nonce = t.nonce
                 ORDER BY l.lane"
            )),
        }
    }
}

type Bound = Query<'static, Postgres, PgArguments>;

/// A statement with the lanes and tokens of leases as its first three values.
pub(super) fn with_tokens(statement: &Statement, leases: impl Iterator<Item = Lease> + Clone) -> Bound {
    statement
        .query()
        .bind(leases.clone().map(|lease| small(lease.lane)).collect::<Vec<i32>>())
        .bind(leases.clone().map(|lease| integer(lease.token.epoch)).collect::<Vec<i64>>())
        .bind(leases.map(|lease| integer(lease.token.nonce)).collect::<Vec<i64>>())
}

/// The lanes that a statement names, one in each row.
async fn lanes(conn: &mut PgConnection, query: Bound) -> sqlx::Result<Vec<Lane>> {
    let rows = query.fetch_all(conn).await?;
    let mut lanes = rows
        .iter()
        .map(|row| Ok(natural(row.try_get::<i32, _>(0)?.into())))
        .collect::<sqlx::Result<Vec<Lane>>>()?;
    lanes.sort_unstable();
    Ok(lanes)
}

/// Takes lanes that are free or whose lease has run out, as many as are wanted. An owner's name is no token: its own lanes are
/// as taken as anybody's.
pub(super) async fn lease(
    Inner { lease: sql, .. }: &Inner,
    conn: &mut PgConnection,
    request: &LeaseRequest,
    lanes: usize,
) -> sqlx::Result<Leased> {
    let most = request.most.min(lanes);
    let nonces: Vec<i64> = request.nonces().take(most).map(integer).collect();
    let query =
        sql.lease.query().bind(&request.owner).bind(span(request.ttl)).bind(integer(most)).bind(nonces);
    let mut leased = Leased::default();
    for row in query.fetch_all(conn).await? {
        let Some(lane) = row.try_get::<Option<i32>, _>("lane")? else {
            let left = row.try_get::<Option<i64>, _>("left_us")?.map(natural::<u64>);
            leased.next_expiry = left.map(Duration::from_micros);
            leased.locked = natural(row.try_get("locked")?);
            continue;
        };
        let token = Token { epoch: natural(row.try_get("epoch")?), nonce: natural(row.try_get("nonce")?) };
        let lease = Lease { lane: natural(lane.into()), token };
        leased.taken.push(AcquiredLane { lease, suspect_to: natural(row.try_get("sent_to")?) });
    }
    Ok(leased)
}

/// Extends the leases that still hold, and says which those are.
pub(super) async fn renew(
    sql: &Statements,
    conn: &mut PgConnection,
    leases: &[Lease],
    ttl: Duration,
    locked: Locked,
) -> sqlx::Result<Renewed> {
    let statement = if locked == Locked::Skip { &sql.renew } else { &sql.renew_waiting };
    let mut renewed = Renewed::default();
    for row in with_tokens(statement, leases.iter().copied()).bind(span(ttl)).fetch_all(conn).await? {
        let lanes = if row.try_get("renewed")? { &mut renewed.held } else { &mut renewed.locked };
        lanes.push(natural(row.try_get::<i32, _>("lane")?.into()));
    }
    Ok(renewed)
}

/// Raises the marks of the lanes that still are held, and says which are not and which another session has locked.
pub(super) async fn mark_sent(
    sql: &Statements,
    conn: &mut PgConnection,
    marks: &[(Lease, Seq)],
    locked: Locked,
) -> sqlx::Result<Marked> {
    let statement = if locked == Locked::Skip { &sql.mark } else { &sql.mark_waiting };
    let seqs: Vec<i64> = marks.iter().map(|(_, seq)| integer(*seq)).collect();
    let query = with_tokens(statement, marks.iter().map(|(lease, _)| *lease)).bind(seqs);
    let (mut marked, mut ours) = (Marked::default(), Vec::new());
    for row in query.fetch_all(conn).await? {
        let lane: Lane = natural(row.try_get::<i32, _>("lane")?.into());
        ours.push(lane);
        if !row.try_get::<bool, _>("marked")? {
            marked.locked.push(lane);
        }
    }
    marked.lost = marks.iter().map(|(lease, _)| lease.lane).filter(|lane| !ours.contains(lane)).collect();
    Ok(marked)
}

/// Gives back the lanes that are still held by these tokens, and says which another session has locked.
pub(super) async fn release(
    sql: &Statements,
    conn: &mut PgConnection,
    released: &[(Lease, Seq)],
) -> sqlx::Result<Vec<Lane>> {
    let seqs: Vec<i64> = released.iter().map(|(_, seq)| integer(*seq)).collect();
    lanes(conn, with_tokens(&sql.release, released.iter().map(|(lease, _)| *lease)).bind(seqs)).await
}

/// The fence, for what takes more than one statement: locks the lanes that are held by these tokens, and says which are not.
pub(super) async fn lock(
    sql: &Statements,
    conn: &mut PgConnection,
    leases: impl Iterator<Item = Lease> + Clone,
) -> sqlx::Result<Vec<Lane>> {
    let held = lanes(conn, with_tokens(&sql.lock, leases.clone())).await?;
    Ok(leases.map(|lease| lease.lane).filter(|lane| !held.contains(lane)).collect())
}

/// What a fence that waits for nobody found.
#[derive(Debug, Default)]
pub(super) struct Fence {
    /// The lanes that are somebody else's by now.
    pub(super) lost: Vec<Lane>,
    /// Those that are ours, and that another session has locked.
    pub(super) locked: Vec<Lane>,
}

/// The same around what another session has locked.
pub(super) async fn lock_some(
    sql: &Statements,
    conn: &mut PgConnection,
    leases: impl Iterator<Item = Lease> + Clone,
) -> sqlx::Result<Fence> {
    let mut fence = Fence::default();
    let mut ours = Vec::new();
    for row in with_tokens(&sql.lock_some, leases.clone()).fetch_all(conn).await? {
        let lane: Lane = natural(row.try_get::<i32, _>("lane")?.into());
        ours.push(lane);
        if !row.try_get::<bool, _>("free")? {
            fence.locked.push(lane);
        }
    }
    fence.lost = leases.map(|lease| lease.lane).filter(|lane| !ours.contains(lane)).collect();
    Ok(fence)
}

/// Says that an instance is there, and how many there are.
pub(super) async fn join(
    Inner { lease: sql, .. }: &Inner,
    conn: &mut PgConnection,
    instance: &str,
    ttl: Duration,
) -> sqlx::Result<u32> {
    let members: i64 = sql.join.query().bind(instance).bind(span(ttl)).fetch_one(conn).await?.try_get(0)?;
    Ok(natural(members))
}

/// Says that an instance is gone.
pub(super) async fn leave(
    Inner { lease: sql, .. }: &Inner,
    conn: &mut PgConnection,
    instance: &str,
) -> sqlx::Result<()> {
    sql.leave.query().bind(instance).execute(conn).await?;
    Ok(())
}
