//! Who may deliver: taking, keeping, giving back, and proving it.

use std::time::Duration;

use postrider_core::{
    Timestamp,
    store::{Lane, Lease, LeaseRequest, Leased, Token},
    tx::Prefix,
};
use sqlx::{Connection, Row, SqliteConnection};

use super::statement::{Statement, integer, natural};

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    lanes: Statement,
    take: Statement,
    renew: Statement,
    release: Statement,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let statement = |template| Statement::new(template, prefix);
        Self {
            lanes: statement("SELECT lane, owner, epoch, nonce, leased_until FROM {p}lane ORDER BY lane"),
            take: statement(
                "UPDATE {p}lane SET owner = ?2, epoch = ?3, nonce = ?4, leased_until = ?5 WHERE lane = ?1",
            ),
            renew: statement(
                "UPDATE {p}lane SET leased_until = ?4 WHERE lane = ?1 AND epoch = ?2 AND nonce = ?3",
            ),
            // Without a nonce the old token passes no fence any more.
            release: statement(
                "UPDATE {p}lane SET owner = NULL, nonce = NULL, leased_until = NULL
                 WHERE lane = ?1 AND epoch = ?2 AND nonce = ?3",
            ),
        }
    }
}

/// Takes every lane that is free or whose lease has run out. An owner's name is no token: its own lanes are as taken as
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
        match until {
            Some(until) if owner.is_some() && until > now => {
                let left = until.since(now);
                leased.next_expiry = Some(leased.next_expiry.map_or(left, |next| next.min(left)));
            }
            _ => {
                let epoch = row.try_get::<i64, _>("epoch")?.saturating_add(1);
                let nonce = nonces.next().unwrap_or_default();
                sql.take
                    .query()
                    .bind(lane)
                    .bind(&request.owner)
                    .bind(epoch)
                    .bind(integer(nonce))
                    .bind(now.plus(request.ttl).as_micros())
                    .execute(&mut *tx)
                    .await?;
                let token = Token { epoch: natural(epoch), nonce };
                leased.leases.push(Lease { lane: natural(lane), token });
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
) -> sqlx::Result<Vec<Lane>> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let until = Timestamp::now().plus(ttl).as_micros();
    let mut held = Vec::with_capacity(leases.len());
    for Lease { lane, token } in leases {
        let renewed = sql
            .renew
            .query()
            .bind(lane)
            .bind(integer(token.epoch))
            .bind(integer(token.nonce))
            .bind(until)
            .execute(&mut *tx)
            .await?;
        if renewed.rows_affected() > 0 {
            held.push(*lane);
        }
    }
    tx.commit().await?;
    Ok(held)
}

/// Gives back the lanes that are still held by these tokens.
pub(super) async fn release(
    sql: &Statements,
    conn: &mut SqliteConnection,
    leases: &[Lease],
) -> sqlx::Result<()> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    for Lease { lane, token } in leases {
        let release = sql.release.query().bind(lane).bind(integer(token.epoch)).bind(integer(token.nonce));
        release.execute(&mut *tx).await?;
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
    for row in sql.lanes.query().fetch_all(conn).await? {
        if let Some(nonce) = row.try_get::<Option<i64>, _>("nonce")? {
            let token = Token { epoch: natural(row.try_get("epoch")?), nonce: natural(nonce) };
            held.push(Lease { lane: natural(row.try_get("lane")?), token });
        }
    }
    Ok(leases.filter(|lease| !held.contains(lease)).map(|lease| lease.lane).collect())
}
