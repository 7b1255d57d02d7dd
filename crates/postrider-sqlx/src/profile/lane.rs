//! The one lane of an external outbox table: who delivers from it, in a small table of ours beside it. Its token is the fence.

use std::time::Duration;

use postrider_core::{
    Timestamp,
    store::{AcquiredLane, LEASE_MAX, Lane, Lease, LeaseRequest, Leased, Renewed, Seq, Token},
};

use crate::connections::renewal::Locked;

use super::{Profile, db::Tx, mind::Mind, pause, recover, shape::Shape, sql::Kind};

/// The number of the lane.
pub(super) const LANE: Lane = 0;

/// Our own tables.
pub(super) const OURS: [&str; 3] = ["lane", "dead", "pause"];

/// Most characters of an owner's name that are stored.
const NAME_CHARS_MAX: usize = 255;

/// The lane's row.
struct Row {
    owned: bool,
    epoch: u64,
    nonce: Option<u64>,
    until: Option<Timestamp>,
    /// How long the lease was asked for.
    length: Duration,
    clean: bool,
    now: Timestamp,
}

impl Row {
    /// How long its lease still holds, if it does. No longer than it was asked for: one that ends later was taken before the clock was set back.
    fn left(&self) -> Option<Duration> {
        let until = self.until.filter(|until| self.owned && *until > self.now)?;
        Some(until.since(self.now).min(self.length))
    }

    fn is_held_by(&self, lease: Lease) -> bool {
        let token = self.nonce.map(|nonce| Token { epoch: self.epoch, nonce });
        lease.lane == LANE && token == Some(lease.token)
    }

    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| until.since(self.now) > self.length)
    }
}

/// The SQL of our own tables.
pub(super) fn tables(kind: Kind, profile: &Profile) -> [String; 3] {
    let [lane, dead, paused] = OURS.map(|name| kind.table(&profile.beside.with_suffix(name)));
    let (text, time) = kind.pick(
        ("varchar(255)", "timestamptz"),
        ("varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "datetime(6)"),
    );
    let id = kind.pick("varchar(255)", "varchar(255) CHARACTER SET utf8mb4");
    [
        format!(
            "CREATE TABLE IF NOT EXISTS {lane} (source {text} NOT NULL PRIMARY KEY, owner {text}, \
             epoch bigint NOT NULL DEFAULT 0, nonce bigint, leased_until {time}, lease_us bigint, clean smallint NOT NULL DEFAULT 1)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {dead} (source {text} NOT NULL, event_id {id} NOT NULL, attempts int NOT NULL, \
             error text NOT NULL, dead_at {time} NOT NULL, PRIMARY KEY (source, event_id))"
        ),
        pause::table(kind, &paused),
    ]
}

/// The rights of one who delivers and of one who operates, as SQL.
pub(super) fn grants(kind: Kind, profile: &Profile, relay: &str, operator: &str) -> String {
    let [relay, operator] = [relay, operator].map(|role| kind.role(role));
    let table = kind.table(&profile.table);
    let [lane, dead, pause] = OURS.map(|name| kind.table(&profile.beside.with_suffix(name)));
    let deletes = if profile.deletes() { ", DELETE" } else { "" };
    format!(
        "-- Who delivers.\n\
         GRANT SELECT, UPDATE{deletes} ON {table} TO {relay};\n\
         GRANT SELECT, INSERT, UPDATE ON {lane} TO {relay};\n\
         GRANT SELECT, INSERT, DELETE ON {dead} TO {relay};\n\
         GRANT SELECT, INSERT, DELETE ON {pause} TO {relay};\n\n\
         -- Who looks at events, tries dead ones again, discards them, pauses and resumes.\n\
         GRANT SELECT, UPDATE, DELETE ON {table} TO {operator};\n\
         GRANT SELECT ON {lane} TO {operator};\n\
         GRANT SELECT, DELETE ON {dead} TO {operator};\n\
         GRANT SELECT, INSERT, DELETE ON {pause} TO {operator};\n"
    )
}

/// Makes our tables, and the row of this source.
pub(super) async fn migrate(shape: &Shape, tx: &mut Tx) -> sqlx::Result<()> {
    if !shape.kind.is_mysql() {
        // Two who create the same table at once would fail; any number that others do not use will do.
        tx.fetch(shape.sql("SELECT pg_advisory_xact_lock(7308332171)::text")).await?;
    }
    for (name, create) in OURS.into_iter().zip(tables(shape.kind, &shape.profile)) {
        // Anyone who may not create tables may still use those that are there.
        if !exists(shape, tx, name).await? {
            tx.execute(shape.sql(create)).await?;
        }
    }
    let ignore = shape.kind.pick(("", " ON CONFLICT DO NOTHING"), (" IGNORE", ""));
    let mut sql = shape.sql(format!("INSERT{} INTO {} (source) VALUES (", ignore.0, shape.ours("lane")));
    sql.bind(shape.source(), "text").push(")").push(ignore.1);
    tx.execute(sql).await?;
    Ok(())
}

/// Whether one of our tables is there.
pub(super) async fn exists(shape: &Shape, tx: &mut Tx, name: &'static str) -> sqlx::Result<bool> {
    let table = shape.profile.beside.with_suffix(name);
    let mut sql;
    if shape.kind.is_mysql() {
        sql = shape.sql("SELECT '1' FROM information_schema.tables WHERE table_schema = ");
        match &table.schema {
            Some(schema) => sql.bind(schema.as_str(), "text"),
            None => sql.push("DATABASE()"),
        };
        sql.push(" AND table_name = ").bind(table.name.as_str(), "text");
    } else {
        sql = shape.sql("SELECT '1' WHERE to_regclass(");
        sql.bind(shape.kind.table(&table), "text").push(") IS NOT NULL");
    }
    Ok(!tx.fetch(sql).await?.is_empty())
}

/// The lane's row, locked as said; none if another session has locked it and that is not waited for.
async fn read(shape: &Shape, tx: &mut Tx, lock: &str) -> sqlx::Result<Option<Row>> {
    let kind = shape.kind;
    let columns = ["epoch", "nonce", "clean", "owner IS NOT NULL"].map(|column| kind.text(column)).join(", ");
    let (until, now) = (kind.micros("leased_until"), kind.micros(kind.now()));
    let length = kind.text("lease_us");
    let mut sql = shape.sql(format!(
        "SELECT {columns}, {until}, {now}, {length} FROM {} WHERE source = ",
        shape.ours("lane")
    ));
    sql.bind(shape.source(), "text").push(lock);
    let rows = tx.fetch(sql).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let unsigned = |column| row.number(column).and_then(|number| u64::try_from(number).ok());
    Ok(Some(Row {
        epoch: unsigned(0).unwrap_or_default(),
        nonce: unsigned(1),
        clean: row.number(2) != Some(0),
        owned: row.text(3).is_some_and(|owned| owned == "true" || owned == "1"),
        until: row.number(4).map(Timestamp::from_micros),
        now: Timestamp::from_micros(row.number(5).unwrap_or_default()),
        length: unsigned(6).map_or(LEASE_MAX, Duration::from_micros),
    }))
}

/// The fence: nobody takes the lane before the transaction ends. Says the database's clock; none if the lane is lost.
pub(super) async fn fence(shape: &Shape, tx: &mut Tx, lease: Lease) -> sqlx::Result<Option<Timestamp>> {
    let row = read(shape, tx, shape.kind.pick(" FOR SHARE", " LOCK IN SHARE MODE")).await?;
    let row = row.ok_or(sqlx::Error::RowNotFound)?;
    Ok(row.is_held_by(lease).then_some(row.now))
}

/// Takes the lane if it is free or its lease has run out. What the last owner left behind is seen to in the same transaction.
pub(super) async fn lease(
    shape: &Shape,
    tx: &mut Tx,
    mind: &mut Mind,
    request: &LeaseRequest,
) -> sqlx::Result<Leased> {
    // Without a lock first: anyone who stands by keeps nobody waiting.
    let seen = read(shape, tx, "").await?.ok_or(sqlx::Error::RowNotFound)?;
    if let Some(left) = seen.left()
        && !seen.is_late()
    {
        return Ok(Leased { next_expiry: Some(left), ..Leased::default() });
    }
    let Some(row) = read(shape, tx, " FOR UPDATE SKIP LOCKED").await? else {
        return Ok(Leased { locked: 1, next_expiry: seen.left(), ..Leased::default() });
    };
    if let Some(left) = row.left() {
        if row.is_late() {
            let mut sql = shape.sql(format!("UPDATE {} SET leased_until = ", shape.ours("lane")));
            sql.after_now(micros(row.length)).push(" WHERE source = ").bind(shape.source(), "text");
            tx.execute(sql).await?;
        }
        return Ok(Leased { next_expiry: Some(left), ..Leased::default() });
    }
    if request.most == 0 {
        return Ok(Leased::default());
    }
    let token =
        Token { epoch: row.epoch.saturating_add(1), nonce: request.nonces().next().unwrap_or_default() };
    let owner: String = request.owner.chars().take(NAME_CHARS_MAX).collect();
    let mut sql = shape.sql(format!("UPDATE {} SET clean = 0, owner = ", shape.ours("lane")));
    sql.bind(owner, "text").push(", epoch = ").bind_number(signed(token.epoch), "bigint");
    sql.push(", nonce = ").bind_number(signed(token.nonce), "bigint");
    sql.push(", leased_until = ").after_now(micros(request.ttl));
    sql.push(", lease_us = ").bind_number(micros(request.ttl), "bigint");
    sql.push(" WHERE source = ").bind(shape.source(), "text");
    tx.execute(sql).await?;

    let lease = Lease { lane: LANE, token };
    mind.begin(lease);
    let last = row.nonce.map(|nonce| Token { epoch: row.epoch, nonce });
    if let Some(last) = last.filter(|_| !row.clean) {
        recover::from_the_last_owner(shape, tx, mind, last).await?;
    }
    recover::look_around(shape, tx, mind, true).await?;
    let suspect_to = if mind.suspects.is_empty() { 0 } else { super::mind::SUSPECT_TO };
    Ok(Leased { taken: vec![AcquiredLane { lease, suspect_to }], ..Leased::default() })
}

/// Extends the lease.
pub(super) async fn renew(
    shape: &Shape,
    tx: &mut Tx,
    lease: Lease,
    ttl: Duration,
    locked: Locked,
) -> sqlx::Result<Renewed> {
    let lock = if locked == Locked::Skip { " FOR UPDATE SKIP LOCKED" } else { " FOR UPDATE" };
    let Some(row) = read(shape, tx, lock).await? else {
        return Ok(Renewed { locked: vec![LANE], ..Renewed::default() });
    };
    if !row.is_held_by(lease) {
        return Ok(Renewed::default());
    }
    let mut sql = shape.sql(format!("UPDATE {} SET leased_until = ", shape.ours("lane")));
    sql.after_now(micros(ttl)).push(", lease_us = ").bind_number(micros(ttl), "bigint");
    held(shape, &mut sql, lease);
    tx.execute(sql).await?;
    Ok(Renewed { held: vec![LANE], ..Renewed::default() })
}

/// Gives the lane back, unless another session has locked it. Rows that are in memory are no longer claimed, but for those up to the given place: the
/// next owner is to find them as the last one left them.
pub(super) async fn release(
    shape: &Shape,
    tx: &mut Tx,
    mind: &Mind,
    lease: Lease,
    suspects: Seq,
) -> sqlx::Result<Vec<Lane>> {
    let Some(row) = read(shape, tx, " FOR UPDATE SKIP LOCKED").await? else { return Ok(vec![LANE]) };
    if !row.is_held_by(lease) {
        return Ok(Vec::new());
    }
    let unsent: Vec<Seq> = mind.given_back(&[]).into_iter().filter(|seq| *seq > suspects).collect();
    recover::unmark(shape, tx, mind, &unsent).await?;
    recover::unmark_uncertain(shape, tx, mind).await?;
    let mut sql = shape.sql(format!("UPDATE {} SET owner = NULL, leased_until = NULL, ", shape.ours("lane")));
    // The next owner needs the token of the one that has left something behind.
    sql.push(if suspects == 0 { "nonce = NULL, clean = 1" } else { "clean = 0" });
    held(shape, &mut sql, lease);
    tx.execute(sql).await?;
    Ok(Vec::new())
}

fn held(shape: &Shape, sql: &mut super::sql::Sql, lease: Lease) {
    sql.push(" WHERE source = ").bind(shape.source(), "text");
    sql.push(" AND epoch = ").bind_number(signed(lease.token.epoch), "bigint");
    sql.push(" AND nonce = ").bind_number(signed(lease.token.nonce), "bigint");
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// No time that is written lies further away: MySQL knows no year after 9999.
const FAR: Duration = Duration::from_secs(1000 * 366 * 86_400);

/// A duration as a number to bind.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.min(FAR).as_micros()).unwrap_or(i64::MAX)
}
