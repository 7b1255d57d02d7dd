//! The outbox in a MySQL or MariaDB database: MySQL 8.0.17, MariaDB 10.6, and later.
//!
//! The database computes each event's lane, so every writer agrees, a plain `INSERT` included. Its clock is the one that counts.
//!
//! # Late commits
//!
//! A row draws its place in the order when it is inserted and can be seen when its transaction commits. Claims read forward and
//! scan back for what committed behind them (decision 8). A transaction that commits more than a minute after it wrote its event
//! is found by the engine's next scan from the bottom, within a minute.
//!
//! # Layout
//!
//! * `connect`: from a name to a pool
//! * `schema` and `migrations/`: creating, upgrading and printing the tables; `rehearse`: whether all that delivery does can be done
//! * `insert`: what an insert says and binds; `write` says it through sqlx
//! * `lease`: who may deliver, and the fence
//! * `claim/`: what is due; `row` decodes it
//! * `settle`: what became of it; `hold` sees to the keys
//! * `peek`: finding what nobody told of
//! * `operate`: what operators see and do; `orphans`: keys whose head was deleted; `pause`: what operators have told to wait
//! * `row_log`: whether the server's log lets us write
//! * `error`: what error codes mean, and which of them are worth another try
//! * `statement`: what SQL texts are made of

mod claim;
pub(crate) mod connect;
pub(crate) mod error;
mod hold;
mod insert;
mod lease;
mod list;
mod operate;
mod orphans;
mod pause;
mod peek;
mod rehearse;
mod row;
pub(crate) mod row_log;
mod schema;
mod settle;
mod statement;
#[cfg(test)]
mod tests;
mod write;

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{
    BoxFuture, ConfigError, EventId, Result, Store, Target,
    event::limits::clean_error,
    store::{
        Claim, Claimed, DeadLetter, EventStatus, Features, HeldKey, Hold, Instances, Keeps, Lane, Lease,
        LeaseRequest, Leased, ListedEvent, Listing, Marked, Oldest, Orphans, Pause, Paused, Peek, Renewed,
        Seq, Settled, Settlement, Stats, Subject, TypeCount, too_many_pauses,
    },
    tx::Prefix,
};
use sqlx::{AssertSqlSafe, Connection, MySql, MySqlPool, Row as _};

pub(crate) use self::schema::account;
pub use self::write::MysqlTx;
use crate::{
    Server,
    connections::{
        Conn, Connections, LockedLanes, Task,
        limits::{Limits, MIGRATION, OPERATOR},
        release::released,
        renewal::{Locked, renewed},
        retry::retried,
    },
    high_water::HighWater,
    shared_verbs::{shared_verbs, verb},
};

/// Most connections of the verbs: a claim, what it marks, what is paused. Settles have their own, for batches and for attempts that are counted one by one;
/// renewals have one; and so have operators, with the purge.
const VERBS: u32 = 3;
const SETTLING: u32 = 2;
const KEEPING: u32 = 1;
const OPERATING: u32 = 3;

/// The number of the next event. MySQL would answer from what it knew yesterday; MariaDB knows no such setting, and does not read it.
const NEXT_SEQ: &str = "SET @postrider = 0 /*!80000 , SESSION information_schema_stats_expiry = 0 */;
    SELECT AUTO_INCREMENT AS next FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{p}event'";

/// How many lanes an outbox has unless somebody asks for another number.
pub const LANES_DEFAULT: u32 = 64;

/// Most lanes that an outbox can have.
pub const LANES_MAX: u32 = 1024;

/// An outbox in a MySQL or MariaDB database. Cloning it copies a pointer.
#[derive(Clone)]
pub struct MysqlStore(Arc<Inner>);

struct Inner {
    pool: MySqlPool,
    /// What the verbs run on. Settles and renewals have their own: a program that uses up the others costs no lease.
    verbs: Connections<MySql>,
    settling: Connections<MySql>,
    keeping: Connections<MySql>,
    operating: Connections<MySql>,
    /// For messages.
    place: String,
    target: Target,
    /// The number of lanes that was asked for, if one was.
    lanes_wanted: Option<u32>,
    /// The number of lanes that there are, as far as is known.
    lanes: AtomicU32,
    lease: lease::Statements,
    claim: claim::Statements,
    hold: hold::Statements,
    settle: settle::Statements,
    operate: operate::Statements,
    orphans: orphans::Statements,
    pause: pause::Statements,
    late: claim::LateCommits,
    typical: claim::TypicalRow,
    peek: peek::Peeking,
    locked: settle::Locked,
    locked_lanes: LockedLanes,
    next_seq: String,
    high_water: HighWater,
}

impl MysqlStore {
    /// Connects to `mysql://user:password@host:port/database`. Call [`migrate`](Store::migrate) next.
    ///
    /// The verbs have at most nine connections of their own, whose sessions are in UTC, at READ COMMITTED, and have time limits that follow from the
    /// lease.
    pub async fn connect(url: &str) -> Result<Self> {
        let options = connect::parse(url)?;
        Ok(Self::new(connect::connect(&options).await?))
    }

    /// An outbox in a database that the program has a pool for already. The verbs open connections of their own, with the options of
    /// the pool's.
    pub fn new(pool: MySqlPool) -> Self {
        Self::made(pool, Prefix::default(), None)
    }

    /// The same outbox with a prefix for its tables other than `postrider_`.
    #[must_use]
    pub fn with_prefix(self, prefix: Prefix) -> Self {
        Self::made(self.0.pool.clone(), prefix, self.0.lanes_wanted)
    }

    /// The same outbox with another number of lanes than 64. It is written down by the first [`migrate`](Store::migrate); a later one
    /// changes it if the outbox is empty and no instance runs, and fails otherwise. Without this the number is what was written down.
    pub fn with_lanes(self, lanes: u32) -> Result<Self> {
        if !(1..=LANES_MAX).contains(&lanes) {
            let allowed = format!("1 to {LANES_MAX}");
            return Err(
                ConfigError::OutOfRange { setting: "lanes", value: lanes.to_string(), allowed }.into()
            );
        }
        Ok(Self::made(self.0.pool.clone(), self.0.target.prefix.clone(), Some(lanes)))
    }

    fn made(pool: MySqlPool, prefix: Prefix, lanes_wanted: Option<u32>) -> Self {
        let options = pool.connect_options();
        Self(Arc::new(Inner {
            verbs: connect::verbs(&options, VERBS),
            settling: connect::verbs(&options, SETTLING),
            keeping: connect::verbs(&options, KEEPING),
            operating: connect::operators(&options, OPERATING),
            place: connect::place(&options),
            pool,
            target: insert::target(&prefix),
            lanes_wanted,
            lanes: AtomicU32::new(lanes_wanted.unwrap_or(LANES_DEFAULT)),
            lease: lease::Statements::new(&prefix),
            claim: claim::Statements::new(&prefix),
            hold: hold::Statements::new(&prefix),
            settle: settle::Statements::new(&prefix),
            operate: operate::Statements::new(&prefix),
            orphans: orphans::Statements::new(&prefix),
            pause: pause::Statements::new(&prefix),
            late: claim::LateCommits::default(),
            typical: claim::TypicalRow::default(),
            peek: peek::Peeking::new(&prefix),
            locked: settle::Locked::default(),
            locked_lanes: LockedLanes::default(),
            next_seq: statement::splice(NEXT_SEQ, &prefix),
            high_water: HighWater::default(),
        }))
    }

    /// Which product and version the database is.
    pub async fn server(&self) -> Result<Server> {
        let told = self.run("ask for the version", |mut conn| async move {
            sqlx::raw_sql("SELECT VERSION()").fetch_one(&mut *conn).await?.try_get::<String, _>(0)
        });
        let told = told.await?;
        Ok(Server::of_mysql(&told)?)
    }

    /// An error where the server's log refuses every write of ours.
    async fn require_row_log(&self) -> Result<()> {
        let ask = |mut conn: Conn<MySql>| async move {
            let rows = sqlx::raw_sql(row_log::ASK).fetch_all(&mut *conn).await?;
            let pairs = rows
                .iter()
                .map(|row| Ok((statement::text(row, "Variable_name")?, statement::text(row, "Value")?)));
            pairs.collect::<sqlx::Result<Vec<_>>>()
        };
        let found = self.run("ask for the log's format", ask).await?;
        Ok(row_log::refusal(found.into_iter()).map_or(Ok(()), Err)?)
    }

    /// Closes all connections, those of [`pool`](MysqlStore::pool) included.
    pub async fn close(&self) {
        let Inner { verbs, settling, keeping, operating, .. } = &*self.0;
        for connections in [verbs, settling, keeping, operating] {
            connections.close().await;
        }
        self.0.peek.close().await;
        self.0.pool.close().await;
    }

    /// The pool for the program's own transactions. The verbs do not run on it.
    pub fn pool(&self) -> &MySqlPool {
        &self.0.pool
    }

    /// The SQL that [`migrate`](Store::migrate) would run on an empty database, to be read or applied by hand.
    ///
    /// ```
    /// use postrider_core::tx::Prefix;
    /// let sql = postrider_sqlx::MysqlStore::schema_sql(&Prefix::default(), 64);
    /// assert!(sql.contains("CREATE TABLE IF NOT EXISTS postrider_event"));
    /// ```
    pub fn schema_sql(prefix: &Prefix, lanes: u32) -> String {
        schema::schema_sql(prefix, lanes)
    }

    /// The rights of a user who writes events, of one who delivers them, and of one whom operators use. A name without an `@` and a
    /// host is that of a user from anywhere.
    ///
    /// ```
    /// use postrider_core::tx::Prefix;
    /// let sql = postrider_sqlx::MysqlStore::grants_sql(&Prefix::default(), "shop", "relay@10.0.0.7", "operator");
    /// assert!(sql.contains("GRANT INSERT, SELECT ON postrider_event TO 'shop'@'%'"));
    /// assert!(sql.contains("ON postrider_done TO 'relay'@'10.0.0.7'"));
    /// ```
    pub fn grants_sql(prefix: &Prefix, writer: &str, relay: &str, operator: &str) -> String {
        schema::grants_sql(prefix, writer, relay, operator)
    }

    /// An error if the database went back in time: a failover lost its last transactions, or a backup was restored. What was met is
    /// forgotten then, because its numbers are given again.
    async fn check_time(&self) -> Result<()> {
        let Inner { next_seq, high_water, late, peek, place, .. } = &*self.0;
        if !high_water.is_due() {
            return Ok(());
        }
        let next = self.run("ask for the next number", move |mut conn| async move {
            // Safe because a template is a constant of this crate and a prefix is a plain identifier.
            let rows = sqlx::raw_sql(AssertSqlSafe(next_seq.clone())).fetch_all(&mut *conn).await?;
            rows.first().map(|row| statement::maybe::<Seq>(row, "next")).transpose()
        });
        // One that is not answered tells nothing: what is wrong is told by the verb that follows.
        let Ok(Some(Some(next))) = next.await else { return Ok(()) };
        Ok(high_water.rise(next, place).inspect_err(|_| {
            late.forget();
            peek.forget();
        })?)
    }

    /// Runs a verb on a connection, and again if another try may help. `what` says what the verb cannot do if it fails.
    fn run<'a, T, F>(
        &'a self,
        what: &'static str,
        verb: impl Fn(Conn<MySql>) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        let Inner { verbs, .. } = &*self.0;
        self.run_on(verbs, verbs.limits().verb(), what, verb)
    }

    /// The same for what settles.
    fn run_settling<'a, T, F>(
        &'a self,
        what: &'static str,
        verb: impl Fn(Conn<MySql>) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        let Inner { settling, .. } = &*self.0;
        self.run_on(settling, settling.limits().verb(), what, verb)
    }

    /// The same for what keeps leases.
    fn run_keeping<'a, T, F>(
        &'a self,
        what: &'static str,
        verb: impl Fn(Conn<MySql>) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        let Inner { keeping, .. } = &*self.0;
        self.run_on(keeping, keeping.limits().verb(), what, verb)
    }

    /// The same for operators, who may take their time.
    fn run_long<'a, T, F>(
        &'a self,
        what: &'static str,
        verb: impl Fn(Conn<MySql>) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        self.run_on(&self.0.operating, OPERATOR, what, verb)
    }

    fn run_on<'a, T, F>(
        &'a self,
        connections: &'a Connections<MySql>,
        limit: Duration,
        what: &'static str,
        verb: impl Fn(Conn<MySql>) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        Box::pin(async move {
            let verb = &verb;
            let attempt = move |until| connections.attempt(until, Task::Seldom, verb);
            let done = retried(limit, error::may_pass, attempt).await;
            done.map_err(|error| error::of_sqlx(error, format!("cannot {what} in {}", self.0.place)))
        })
    }

    /// From now on verbs have the limits of this lease.
    fn set_lease(&self, lease: Duration) {
        let Inner { verbs, settling, keeping, operating, .. } = &*self.0;
        [verbs, settling, keeping, operating]
            .into_iter()
            .for_each(|of| of.set_limits(Limits::of_lease(lease)));
    }
}

impl fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlStore")
            .field("place", &self.0.place)
            .field("prefix", &self.0.target.prefix)
            .finish_non_exhaustive()
    }
}

impl Store for MysqlStore {
    fn features(&self) -> Features {
        Features {
            lanes: self.0.lanes.load(Relaxed),
            shared_clock: true,
            late_commits: true,
            keeps: Keeps::ALL,
        }
    }

    fn target(&self) -> &Target {
        &self.0.target
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.server().await?.require_known()?;
            self.require_row_log().await
        })
    }

    fn rehearse(&self, migrate: bool) -> BoxFuture<'_, Result<()>> {
        let Inner { target, .. } = &*self.0;
        Box::pin(async move {
            self.check().await?;
            let rehearse = move |mut conn: Conn<MySql>| async move {
                let mut tx = conn.begin().await?;
                let rehearsed = rehearse::rehearse(&mut tx, &target.prefix, migrate).await;
                tx.rollback().await?;
                rehearsed
            };
            Ok(self.run("do what delivering does", rehearse).await??)
        })
    }

    fn migrate(&self) -> BoxFuture<'_, Result<()>> {
        let Inner { target, lanes_wanted, lanes, .. } = &*self.0;
        Box::pin(async move {
            self.check().await?;
            // The connection is closed in any case: the lock that keeps others away ends with it.
            let migrate = move |mut conn: Conn<MySql>| async move {
                connect::for_migration(&mut conn).await?;
                schema::migrate(&mut conn, &target.prefix, *lanes_wanted, LANES_DEFAULT).await
            };
            let migrated = self.run_on(&self.0.operating, MIGRATION, "create the tables", migrate);
            lanes.store(migrated.await??, Relaxed);
            Ok(())
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> BoxFuture<'a, Result<Leased>> {
        let Inner { lease: sql, lanes, .. } = &*self.0;
        self.set_lease(request.ttl);
        self.run_keeping("take lanes", move |mut conn| async move {
            let (leased, count) = lease::lease(sql, &mut conn, request).await?;
            // Anyone who applied the schema by hand never called migrate.
            lanes.store(count, Relaxed);
            Ok(leased)
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], ttl: Duration) -> BoxFuture<'a, Result<Renewed>> {
        let Inner { lease: sql, .. } = &*self.0;
        Box::pin(renewed(leases, move |leases, locked| {
            self.run_keeping("renew leases", move |mut conn| {
                let leases = Arc::clone(&leases);
                async move { lease::renew(sql, &mut conn, &leases, ttl, locked).await }
            })
        }))
    }

    fn mark_sent<'a>(&'a self, marks: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Marked>> {
        let Inner { lease: sql, locked_lanes, .. } = &*self.0;
        self.run("mark what is under way", move |mut conn| async move {
            if !locked_lanes.are_likely() {
                match lease::mark_sent(sql, &mut conn, marks, Locked::Wait).await {
                    Err(error) if error::is_locked(&error) => {}
                    marked => return marked,
                }
            }
            let marked = lease::mark_sent(sql, &mut conn, marks, Locked::Skip).await?;
            locked_lanes.note(&marked.locked);
            Ok(marked)
        })
    }

    fn release<'a>(&'a self, lanes: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Vec<Lane>>> {
        let Inner { lease: sql, .. } = &*self.0;
        Box::pin(released(lanes, move |lanes| {
            self.run_keeping("release lanes", move |mut conn| {
                let lanes = Arc::clone(&lanes);
                async move { lease::release(sql, &mut conn, &lanes).await }
            })
        }))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Claimed>> {
        let Inner { claim: sql, lease, hold, late, locked_lanes, typical, lanes, peek, .. } = &*self.0;
        let claiming = self.run("claim events", move |mut conn| async move {
            let lanes = lanes.load(Relaxed);
            claim::Claiming { sql, lease, hold, late, locked_lanes, typical, lanes }
                .claim(&mut conn, claim)
                .await
        });
        Box::pin(async move {
            // Before the claim: what that has met is noted, and nothing may fail afterwards.
            self.check_time().await?;
            let claimed = claiming.await?;
            peek.claimed(&claimed);
            Ok(claimed)
        })
    }

    fn peek(&self) -> BoxFuture<'_, Result<Option<Peek>>> {
        let cannot = |error| error::of_sqlx(error, format!("cannot peek at the events in {}", self.0.place));
        Box::pin(async move { self.0.peek.peek(&self.0.verbs).await.map_err(cannot) })
    }

    fn settle<'a>(
        &'a self,
        leases: &'a [Lease],
        settlements: &'a [Settlement],
        retention: Duration,
    ) -> BoxFuture<'a, Result<Settled>> {
        let Inner { settle: sql, lease, hold, locked, locked_lanes, .. } = &*self.0;
        self.run_settling("settle events", move |mut conn| async move {
            let settle = settle::Settle { sql, lease, hold, locked_lanes };
            // What was locked a moment ago is not waited for once more.
            if !locked.has_any(settlements) && !locked_lanes.are_likely() {
                let way = settle::Way::Straight;
                match settle.settle(&mut conn, leases, settlements, retention, way).await {
                    Err(error) if error::is_locked(&error) => {}
                    settled => return settled,
                }
            }
            let way = settle::Way::Around;
            let settled = settle.settle(&mut conn, leases, settlements, retention, way).await?;
            locked.note(settlements, &settled.locked);
            Ok(settled)
        })
    }

    shared_verbs!(pause: run);
}
