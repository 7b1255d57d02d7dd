//! Who may deliver: taking, keeping, giving back, and proving it.

use std::time::Duration;

use postrider_core::{
    Timestamp,
    store::{AcquiredLane, LEASE_MAX, Lane, Lease, LeaseRequest, Leased, Marked, Renewed, Seq, Token},
    tx::Prefix,
};
use sqlx::{Connection, Row, SqliteConnection};

use super::{
    Inner,
    statement::{Statement, integer, natural},
};

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    lanes: Statement,
    tokens: Statement,
    take: Statement,
    cut: Statement,
    renew: Statement,
    mark: Statement,
    release: Statement,
    forget: Statement,
    cut_members: Statement,
    join: Statement,
    members: Statement,
    leave: Statement,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let statement = |template| Statement::new(template, prefix);
        Self {
            lanes: statement("SELECT lane, owner, epoch, nonce, leased_until, lease_us, clean, sent_to FROM {p}lane ORDER BY lane"),
            tokens: statement("SELECT lane, epoch, nonce FROM {p}lane"),
            take: statement(
                "UPDATE {p}lane SET owner = ?2, epoch = ?3, nonce = ?4, leased_until = ?5, lease_us = ?7, clean = 0, sent_to = ?6
                 WHERE lane = ?1",
            ),
            cut: statement("UPDATE {p}lane SET leased_until = ?2 WHERE lane = ?1"),
            mark: statement(
                "UPDATE {p}lane SET sent_to = max(sent_to, ?4) WHERE lane = ?1 AND epoch = ?2 AND nonce = ?3",
            ),
            forget: statement("DELETE FROM {p}member WHERE until <= ?1"),
            cut_members: statement("UPDATE {p}member SET until = ?1 + lease_us WHERE until > ?1 + lease_us"),
            join: statement(
                "INSERT INTO {p}member (instance, until, lease_us) VALUES (?1, ?2, ?3)
                 ON CONFLICT (instance) DO UPDATE SET until = excluded.until, lease_us = excluded.lease_us",
            ),
            members: statement("SELECT count(*) FROM {p}member"),
            leave: statement("DELETE FROM {p}member WHERE instance = ?1"),
            renew: statement(
                "UPDATE {p}lane SET leased_until = ?4, lease_us = ?5 WHERE lane = ?1 AND epoch = ?2 AND nonce = ?3",
            ),
            // Without a nonce the old token passes no fence any more.
            release: statement(
                "UPDATE {p}lane SET owner = NULL, nonce = NULL, leased_until = NULL, clean = (?4 = 0), sent_to = ?4
                 WHERE lane = ?1 AND epoch = ?2 AND nonce = ?3",
            ),
        }
    }
}

/// Takes lanes that are free or whose lease has run out, as many as are wanted. An owner's name is no token: its own lanes are as taken as
/// anybody's.
pub(super) async fn lease(
    sql: &Statements,
    conn: &mut SqliteConnection,
    request: &LeaseRequest,
) -> sqlx::Result<Leased> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let now = Timestamp::now();
    let mut leased = Leased::default();
    let mut nonces = request.nonces();
    for row in sql.lanes.query().fetch_all(&mut *tx).await? {
        let lane: i64 = row.try_get("lane")?;
        let owner: Option<String> = row.try_get("owner")?;
        let until = row.try_get::<Option<i64>, _>("leased_until")?.map(Timestamp::from_micros);
        let length = row
            .try_get::<Option<i64>, _>("lease_us")?
            .map_or(LEASE_MAX, |us| Duration::from_micros(natural(us)));
        match until {
            Some(until) if owner.is_some() && until > now => {
                if until.since(now) > length {
                    // It cannot last longer: it was taken before the clock was set back.
                    sql.cut.query().bind(lane).bind(now.plus(length).as_micros()).execute(&mut *tx).await?;
                }
                let left = until.since(now).min(length);
                leased.next_expiry = Some(leased.next_expiry.map_or(left, |next| next.min(left)));
            }
            _ if leased.taken.len() >= request.most => {}
            _ => {
                let clean: bool = row.try_get("clean")?;
                let suspect_to = if clean { 0 } else { row.try_get::<i64, _>("sent_to")? };
                let epoch = row.try_get::<i64, _>("epoch")?.saturating_add(1);
                let nonce = nonces.next().unwrap_or_default();
                sql.take
                    .query()
                    .bind(lane)
                    .bind(&request.owner)
                    .bind(epoch)
                    .bind(integer(nonce))
                    .bind(now.plus(request.ttl).as_micros())
                    .bind(suspect_to)
                    .bind(integer(request.ttl.as_micros()))
                    .execute(&mut *tx)
                    .await?;
                let token = Token { epoch: natural(epoch), nonce };
                let lease = Lease { lane: natural(lane), token };
                leased.taken.push(AcquiredLane { lease, suspect_to: natural(suspect_to) });
            }
        }
    }
    tx.commit().await?;
    Ok(leased)
}

/// Extends the leases that still hold, and says which those are.
pub(super) async fn renew(
    sql: &Statements,
    conn: &mut SqliteConnection,
    leases: &[Lease],
    ttl: Duration,
) -> sqlx::Result<Renewed> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let until = Timestamp::now().plus(ttl).as_micros();
    let mut renewed_lanes = Renewed::default();
    for Lease { lane, token } in leases {
        let renewed = sql
            .renew
            .query()
            .bind(lane)
            .bind(integer(token.epoch))
            .bind(integer(token.nonce))
            .bind(until)
            .bind(integer(ttl.as_micros()))
            .execute(&mut *tx)
            .await?;
        if renewed.rows_affected() > 0 {
            renewed_lanes.held.push(*lane);
        }
    }
    tx.commit().await?;
    Ok(renewed_lanes)
}

/// Raises the marks of the lanes that still are held, and says which are not.
pub(super) async fn mark_sent(
    sql: &Statements,
    conn: &mut SqliteConnection,
    marks: &[(Lease, Seq)],
) -> sqlx::Result<Marked> {
    // Each is a statement of its own, and a transaction of its own. There is one lane.
    let mut marked = Marked::default();
    for (Lease { lane, token }, seq) in marks {
        let mark = sql.mark.query().bind(lane).bind(integer(token.epoch)).bind(integer(token.nonce));
        if mark.bind(integer(*seq)).execute(&mut *conn).await?.rows_affected() == 0 {
            marked.lost.push(*lane);
        }
    }
    Ok(marked)
}

/// Says that an instance is there, and how many there are.
pub(super) async fn join(
    Inner { lease: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
    instance: &str,
    ttl: Duration,
) -> sqlx::Result<u32> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let now = Timestamp::now();
    sql.forget.query().bind(now.as_micros()).execute(&mut *tx).await?;
    sql.cut_members.query().bind(now.as_micros()).execute(&mut *tx).await?;
    let join = sql.join.query().bind(instance).bind(now.plus(ttl).as_micros());
    join.bind(integer(ttl.as_micros())).execute(&mut *tx).await?;
    let members: i64 = sql.members.query().fetch_one(&mut *tx).await?.try_get(0)?;
    tx.commit().await?;
    Ok(natural(members))
}

/// Says that an instance is gone.
pub(super) async fn leave(
    Inner { lease: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
    instance: &str,
) -> sqlx::Result<()> {
    sql.leave.query().bind(instance).execute(conn).await?;
    Ok(())
}

/// Gives back the lanes that are still held by these tokens.
pub(super) async fn release(
    sql: &Statements,
    conn: &mut SqliteConnection,
    lanes: &[(Lease, Seq)],
) -> sqlx::Result<()> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    for (Lease { lane, token }, suspect_to) in lanes {
        let release = sql.release.query().bind(lane).bind(integer(token.epoch)).bind(integer(token.nonce));
        release.bind(integer(*suspect_to)).execute(&mut *tx).await?;
    }
    tx.commit().await
}

/// The fence: which of these lanes are somebody else's by now. Whether a lease has run out does not matter, only whether
/// somebody took it. Inside a write transaction the answer stays true until its end.
pub(super) async fn lost(
    sql: &Statements,
    conn: &mut SqliteConnection,
    leases: impl Iterator<Item = Lease>,
) -> sqlx::Result<Vec<Lane>> {
    let mut held = Vec::new();
    for row in sql.tokens.query().fetch_all(conn).await? {
        if let Some(nonce) = row.try_get::<Option<i64>, _>(2)? {
            let token = Token { epoch: natural(row.try_get(1)?), nonce: natural(nonce) };
            held.push(Lease { lane: natural(row.try_get(0)?), token });
        }
    }
    Ok(leases.filter(|lease| !held.contains(lease)).map(|lease| lease.lane).collect())
}
