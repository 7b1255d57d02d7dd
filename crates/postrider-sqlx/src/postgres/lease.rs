//! Who may deliver: taking, keeping, giving back, and proving it. Everybody locks lanes in their order, or they would wait for
//! each other.

use std::time::Duration;

use postrider_core::store::{LEASE_MAX, Lane, Lease, LeaseRequest, Leased, Seq, Taken, Token};
use sqlx::{PgConnection, Postgres, Row, postgres::PgArguments, query::Query};

use super::statement::{Shape, Statement, integer, natural, small, span};

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    lease: Statement,
    renew: Statement,
    mark: Statement,
    release: Statement,
    join: Statement,
    leave: Statement,
    lock: Statement,
}

/// The lanes that are held by the tokens `$1` to `$3`, locked against everybody else until the end of the transaction. After
/// waiting for the lock the token is compared again, with the row as it is then.
const OURS: &str = "
    SELECT l.lane FROM {p}lane AS l
    JOIN unnest($1::integer[], $2::bigint[], $3::bigint[]) AS t (lane, epoch, nonce)
      ON l.lane = t.lane AND l.epoch = t.epoch AND l.nonce = t.nonce
    ORDER BY l.lane FOR NO KEY UPDATE OF l";

impl Statements {
    pub(super) fn new(shape: &Shape) -> Self {
        let statement = |template: &str| Statement::new(template, shape);
        Self {
            lease: statement(
                "WITH clock AS MATERIALIZED (
                     SELECT clock_timestamp() AS now
                 ), free AS MATERIALIZED (
                     SELECT l.lane FROM {p}lane AS l
                     WHERE l.owner IS NULL OR l.leased_until IS NULL OR l.leased_until <= (SELECT now FROM clock)
                     ORDER BY l.lane LIMIT $3 FOR NO KEY UPDATE
                 ), numbered AS (
                     SELECT free.lane, row_number() OVER (ORDER BY free.lane) AS number FROM free
                 ), taken AS (
                     UPDATE {p}lane AS l
                     SET owner = $1, epoch = l.epoch + 1, nonce = ($4::bigint[])[n.number],
                         leased_until = (SELECT now FROM clock) + $2::bigint * interval '1 microsecond',
                         sent_to = CASE WHEN l.clean THEN 0 ELSE l.sent_to END, clean = false
                     FROM numbered AS n WHERE l.lane = n.lane
                     RETURNING l.lane, l.epoch, l.nonce, l.sent_to
                 )
                 SELECT taken.lane, taken.epoch, taken.nonce, taken.sent_to, NULL::bigint AS left_us FROM taken
                 UNION ALL
                 SELECT NULL, NULL, NULL, NULL, (extract(epoch FROM min(l.leased_until) - clock.now) * 1000000)::bigint
                 FROM {p}lane AS l, clock WHERE l.owner IS NOT NULL AND l.leased_until > clock.now GROUP BY clock.now
                 ORDER BY 1",
            ),
            renew: statement(&format!(
                "WITH ours AS MATERIALIZED ({OURS})
                 UPDATE {{p}}lane AS l SET leased_until = clock_timestamp() + $4::bigint * interval '1 microsecond'
                 FROM ours WHERE l.lane = ours.lane RETURNING l.lane"
            )),
            mark: statement(&format!(
                "WITH ours AS MATERIALIZED ({OURS})
                 UPDATE {{p}}lane AS l SET sent_to = greatest(l.sent_to, m.seq)
                 FROM ours JOIN unnest($1, $4::bigint[]) AS m (lane, seq) ON m.lane = ours.lane
                 WHERE l.lane = ours.lane RETURNING l.lane"
            )),
            // Without a nonce the old token passes no fence any more.
            release: statement(&format!(
                "WITH ours AS MATERIALIZED ({OURS})
                 UPDATE {{p}}lane AS l
                 SET owner = NULL, nonce = NULL, leased_until = NULL, clean = (m.seq = 0), sent_to = m.seq
                 FROM ours JOIN unnest($1, $4::bigint[]) AS m (lane, seq) ON m.lane = ours.lane
                 WHERE l.lane = ours.lane RETURNING l.lane"
            )),
            // Who is gone is forgotten by whoever comes by; two who do it at once do not wait for each other.
            join: statement(
                "WITH clock AS MATERIALIZED (
                     SELECT clock_timestamp() AS now
                 ), forgotten AS (
                     DELETE FROM {p}member WHERE instance IN (
                         SELECT m.instance FROM {p}member AS m
                         WHERE m.until <= (SELECT now FROM clock) AND m.instance <> $1
                         ORDER BY m.instance FOR UPDATE SKIP LOCKED)
                 ), joined AS (
                     INSERT INTO {p}member (instance, until)
                     SELECT $1, clock.now + $2::bigint * interval '1 microsecond' FROM clock
                     ON CONFLICT (instance) DO UPDATE SET until = excluded.until
                 )
                 SELECT count(*) + 1 FROM {p}member AS m, clock WHERE m.until > clock.now AND m.instance <> $1",
            ),
            leave: statement("DELETE FROM {p}member WHERE instance = $1"),
            lock: statement(OURS),
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
    sql: &Statements,
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
            // A lane that is leased for longer than anybody may ask for was leased by another clock.
            leased.next_expiry = left.map(|left| Duration::from_micros(left).min(LEASE_MAX));
            continue;
        };
        let token = Token { epoch: natural(row.try_get("epoch")?), nonce: natural(row.try_get("nonce")?) };
        let lease = Lease { lane: natural(lane.into()), token };
        leased.taken.push(Taken { lease, suspect_to: natural(row.try_get("sent_to")?) });
    }
    Ok(leased)
}

/// Extends the leases that still hold, and says which those are.
pub(super) async fn renew(
    sql: &Statements,
    conn: &mut PgConnection,
    leases: &[Lease],
    ttl: Duration,
) -> sqlx::Result<Vec<Lane>> {
    lanes(conn, with_tokens(&sql.renew, leases.iter().copied()).bind(span(ttl))).await
}

/// Raises the marks of the lanes that still are held, and says which are not.
pub(super) async fn mark_sent(
    sql: &Statements,
    conn: &mut PgConnection,
    marks: &[(Lease, Seq)],
) -> sqlx::Result<Vec<Lane>> {
    let seqs: Vec<i64> = marks.iter().map(|(_, seq)| integer(*seq)).collect();
    let held = lanes(conn, with_tokens(&sql.mark, marks.iter().map(|(lease, _)| *lease)).bind(seqs)).await?;
    Ok(marks.iter().map(|(lease, _)| lease.lane).filter(|lane| !held.contains(lane)).collect())
}

/// Gives back the lanes that are still held by these tokens.
pub(super) async fn release(
    sql: &Statements,
    conn: &mut PgConnection,
    released: &[(Lease, Seq)],
) -> sqlx::Result<()> {
    let seqs: Vec<i64> = released.iter().map(|(_, seq)| integer(*seq)).collect();
    lanes(conn, with_tokens(&sql.release, released.iter().map(|(lease, _)| *lease)).bind(seqs)).await?;
    Ok(())
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

/// Says that an instance is there, and how many there are.
pub(super) async fn join(
    sql: &Statements,
    conn: &mut PgConnection,
    instance: &str,
    ttl: Duration,
) -> sqlx::Result<u32> {
    let members: i64 = sql.join.query().bind(instance).bind(span(ttl)).fetch_one(conn).await?.try_get(0)?;
    Ok(natural(members))
}

/// Says that an instance is gone.
pub(super) async fn leave(sql: &Statements, conn: &mut PgConnection, instance: &str) -> sqlx::Result<()> {
    sql.leave.query().bind(instance).execute(conn).await?;
    Ok(())
}
