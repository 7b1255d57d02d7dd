//! The outbox in a SQLite database.
//!
//! SQLite has one writer, so `seq` grows in the order of commits and there is one lane. Its clock is that of the host:
//! instances on several hosts cannot share a SQLite file, and on one host they share its clock.
//!
//! # Layout
//!
//! * `connect`: from a name to a pool; `open_file`: whether the path still leads to the file that is open
//! * `schema` and `migrations/`: creating, upgrading and printing the tables
//! * `insert`: what an insert says and binds; `write` and `rusqlite` say it through a driver
//! * `lease`: who may deliver
//! * `claim/`: what is due, the usual way in one statement and the careful way in pages; `row` decodes it
//! * `settle`: what became of it
//! * `peek`: finding what nobody told of
//! * `operate`: what operators see and do; `orphans`: keys whose head was deleted; `pause`: what operators have told to wait
//! * `error`: what SQLite's result codes mean, and which of them are worth another try

mod claim;
mod connect;
mod error;
mod insert;
mod lease;
mod list;
mod open_file;
mod operate;
mod orphans;
mod pause;
mod peek;
#[cfg(test)]
mod plans;
mod row;
#[cfg(feature = "rusqlite")]
mod rusqlite;
mod schema;
mod settle;
mod statement;
mod write;

use std::{
    fmt,
    future::Future,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postrider_core::{
    BoxFuture, EventId, Result, SchemaError, Store, StoreError, StoreErrorKind, Target,
    event::limits::clean_error,
    store::{
        Claim, Claimed, DeadLetter, EventStatus, Features, HeldKey, Hold, Instances, Keeps, Lane, Lease,
        LeaseRequest, Leased, ListedEvent, Listing, Marked, Oldest, Orphans, Pause, Paused, Peek, Renewed,
        Seq, Settled, Settlement, Stats, Subject, TypeCount, too_many_pauses,
    },
    tx::Prefix,
};
use sqlx::{Row as _, Sqlite, SqlitePool, pool::PoolConnection};

use self::open_file::{Found, OpenFile};
#[cfg(feature = "rusqlite")]
pub use self::rusqlite::Rusqlite;
pub use self::write::SqliteTx;
pub use crate::Sqlx;
use crate::{
    Server,
    connections::{
        limits::{Limits, MIGRATION, OPERATOR},
        retry::retried,
    },
    high_water::HighWater,
    shared_verbs::{shared_verbs, verb},
};

/// An outbox in a SQLite database. Cloning it copies a pointer.
#[derive(Clone)]
pub struct SqliteStore(Arc<Inner>);

struct Inner {
    /// For those who write.
    pool: SqlitePool,
    /// For the verbs, which do not wait for what the program does with its connections. Settles and renewals have their own: anyone who uses up the
    /// others costs no lease.
    verbs: SqlitePool,
    settling: SqlitePool,
    keeping: SqlitePool,
    open_file: Arc<OpenFile>,
    /// What verbs may take.
    limits: Mutex<Limits>,
    /// For messages.
    file: String,
    target: Target,
    lease: lease::Statements,
    claim: claim::Statements,
    settle: settle::Statements,
    operate: operate::Statements,
    orphans: orphans::Statements,
    pause: pause::Statements,
    peek: peek::Peeking,
    last_seq: statement::Statement,
    high_water: HighWater,
}

impl SqliteStore {
    /// Opens `sqlite::memory:`, `sqlite://path`, `sqlite:path` or a plain path. A missing file is created, in a folder
    /// that exists. Call [`migrate`](Store::migrate) next.
    ///
    /// A file is put into WAL mode with `synchronous = NORMAL`, and a lock is waited for five seconds. A database in
    /// memory has exactly one connection: a transaction that stays open on it stops everything else.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with_prefix(url, Prefix::default()).await
    }

    /// As [`connect`](SqliteStore::connect), with a prefix for the tables other than `postrider_`.
    pub async fn connect_with_prefix(url: &str, prefix: Prefix) -> Result<Self> {
        let (pool, file) = connect::connect(url).await?;
        Ok(Self::on(pool, file, prefix))
    }

    /// An outbox in a database that the program has a pool for already. The pool's settings stay as they are; WAL mode
    /// and a busy timeout are recommended.
    pub fn new(pool: SqlitePool) -> Self {
        Self::with_prefix(pool, Prefix::default())
    }

    /// As [`new`](SqliteStore::new), with a prefix for the tables other than `postrider_`.
    pub fn with_prefix(pool: SqlitePool, prefix: Prefix) -> Self {
        let file = connect::file_of(&pool);
        Self::on(pool, file, prefix)
    }

    fn on(pool: SqlitePool, open_file: Arc<OpenFile>, prefix: Prefix) -> Self {
        let file = pool.connect_options().get_filename().display().to_string();
        let beside = |connections| connect::beside(&pool, &open_file, connections);
        Self(Arc::new(Inner {
            verbs: beside(connect::CONNECTIONS_MAX),
            settling: beside(1),
            keeping: beside(1),
            open_file,
            limits: Mutex::default(),
            pool,
            file,
            target: insert::target(&prefix),
            lease: lease::Statements::new(&prefix),
            claim: claim::Statements::new(&prefix),
            settle: settle::Statements::new(&prefix),
            operate: operate::Statements::new(&prefix),
            orphans: orphans::Statements::new(&prefix),
            pause: pause::Statements::new(&prefix),
            peek: peek::Peeking::new(&prefix),
            last_seq: statement::Statement::new(
                "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = '{p}event'",
                &prefix,
            ),
            high_water: HighWater::default(),
        }))
    }

    /// Which product and version the database is.
    pub async fn server(&self) -> Result<Server> {
        let ask = |mut conn: PoolConnection<Sqlite>| async move {
            sqlx::raw_sql("SELECT sqlite_version()").fetch_one(&mut *conn).await?.try_get::<String, _>(0)
        };
        Ok(Server::of_sqlite(&self.run("ask for the version", ask).await?)?)
    }

    /// An error in a file whose texts are kept as UTF-16: their sizes, which claims and the table itself go by, would be other ones there.
    async fn require_utf8(&self) -> Result<()> {
        let ask = |mut conn: PoolConnection<Sqlite>| async move {
            sqlx::raw_sql("PRAGMA encoding").fetch_one(&mut *conn).await?.try_get::<String, _>(0)
        };
        let found = self.run("ask for the encoding", ask).await?;
        if found == "UTF-8" {
            return Ok(());
        }
        let needed =
            "UTF-8: have the outbox in another file, or make this one anew after `PRAGMA encoding = 'UTF-8'`";
        Err(SchemaError::Setting { setting: "encoding", found, needed }.into())
    }

    /// Closes all connections; the last one merges the write-ahead log into the file. Call it when the engine has shut
    /// down, if somebody is to copy the file.
    pub async fn close(&self) {
        // From now on the pool counts as closed, and nobody opens another connection to peek.
        let Inner { pool, verbs, settling, keeping, peek, .. } = &*self.0;
        let closed = pool.close();
        for pool in [verbs, settling, keeping] {
            pool.close().await;
        }
        peek.close().await;
        closed.await;
    }

    /// The pool for transactions that write events. The verbs have connections of their own to the same file, but for a database in memory.
    pub fn pool(&self) -> &SqlitePool {
        &self.0.pool
    }

    /// The SQL that [`migrate`](Store::migrate) would run on an empty database, to be read or applied by hand.
    ///
    /// ```
    /// use postrider_core::tx::Prefix;
    /// let sql = postrider_sqlx::SqliteStore::schema_sql(&Prefix::default());
    /// assert!(sql.contains("CREATE TABLE postrider_event"));
    /// ```
    pub fn schema_sql(prefix: &Prefix) -> String {
        schema::schema_sql(prefix)
    }

    /// Runs a verb on a connection, and again if it met a lock. `what` says what the verb cannot do if it fails.
    fn run<'a, T, F>(
        &'a self,
        what: &'static str,
        verb: impl Fn(PoolConnection<Sqlite>) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        self.run_on(&self.0.verbs, self.limits().verb(), what, verb)
    }

    /// The same for what settles.
    fn run_settling<'a, T, F>(
        &'a self,
        what: &'static str,
        verb: impl Fn(PoolConnection<Sqlite>) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        self.run_on(&self.0.settling, self.limits().verb(), what, verb)
    }

    /// The same for what keeps the lease.
    fn run_keeping<'a, T, F>(
        &'a self,
        what: &'static str,
        verb: impl Fn(PoolConnection<Sqlite>) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        self.run_on(&self.0.keeping, self.limits().verb(), what, verb)
    }

    /// The same for operators, who may take their time.
    fn run_long<'a, T, F>(
        &'a self,
        what: &'static str,
        verb: impl Fn(PoolConnection<Sqlite>) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        self.run_on(&self.0.verbs, OPERATOR, what, verb)
    }

    fn run_on<'a, T, F>(
        &'a self,
        pool: &'a SqlitePool,
        limit: Duration,
        what: &'static str,
        verb: impl Fn(PoolConnection<Sqlite>) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        Box::pin(async move {
            let verb = &verb;
            let attempt = move |until| async move {
                // What SQLite does meanwhile it does to its end, in a thread of its own; then the pool has the connection again.
                let trying = async { verb(connect::acquire(pool).await?).await };
                let tried = tokio::time::timeout_at(until, trying).await;
                tried.unwrap_or_else(|_| {
                    let what = format!("not done within {limit:.1?}");
                    Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, what)))
                })
            };
            let done = retried(limit, error::is_busy, attempt).await;
            done.map_err(|error| error::of_sqlx(error, format!("cannot {what} in {}", self.0.file)))
        })
    }

    fn limits(&self) -> Limits {
        *self.0.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on verbs have the limits of this lease.
    fn set_lease(&self, lease: Duration) {
        *self.0.limits.lock().unwrap_or_else(PoisonError::into_inner) = Limits::of_lease(lease);
    }

    /// An error if the path leads to another file than the one that was opened: once if that can be delivered from, and for as long as nothing can.
    async fn check_file(&self) -> Result<()> {
        let Inner { open_file, high_water, peek, file, .. } = &*self.0;
        let what = || format!("cannot claim events in {file}");
        match open_file.look() {
            Found::Same => Ok(()),
            Found::Another => {
                high_water.forget();
                peek.close().await;
                let told = "another file was put in its place, and is delivered from";
                Err(StoreError::new(StoreErrorKind::WentBack, what(), told).into())
            }
            Found::Wrong(why) => Err(StoreError::new(StoreErrorKind::Unreachable, what(), why).into()),
        }
    }

    /// An error if the file went back in time: it was restored from a backup.
    async fn check_time(&self) -> Result<()> {
        let Inner { last_seq, high_water, file, .. } = &*self.0;
        if !high_water.is_due() {
            return Ok(());
        }
        let last = self.run("ask for the last number", move |mut conn| async move {
            last_seq.query().fetch_one(&mut *conn).await?.try_get(0)
        });
        let last: i64 = last.await?;
        Ok(high_water.rise(statement::natural(last), file)?)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("file", &self.0.file)
            .field("prefix", &self.0.target.prefix)
            .finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    fn features(&self) -> Features {
        Features { lanes: 1, shared_clock: false, late_commits: false, keeps: Keeps::ALL }
    }

    fn target(&self) -> &Target {
        &self.0.target
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.server().await?.require_known()?;
            self.require_utf8().await
        })
    }

    fn rehearse(&self, migrate: bool) -> BoxFuture<'_, Result<()>> {
        let Inner { target, .. } = &*self.0;
        Box::pin(async move {
            self.check().await?;
            let rehearse = move |mut conn: PoolConnection<Sqlite>| async move {
                schema::rehearse(&mut conn, &target.prefix, migrate).await
            };
            Ok(self.run("do what delivering does", rehearse).await??)
        })
    }

    fn migrate(&self) -> BoxFuture<'_, Result<()>> {
        let Inner { target, .. } = &*self.0;
        Box::pin(async move {
            self.check().await?;
            let migrate = move |mut conn: PoolConnection<Sqlite>| async move {
                schema::migrate(&mut conn, &target.prefix).await
            };
            Ok(self.run_on(&self.0.verbs, MIGRATION, "create the tables", migrate).await??)
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> BoxFuture<'a, Result<Leased>> {
        let Inner { lease: sql, .. } = &*self.0;
        self.set_lease(request.ttl);
        self.run_keeping(
            "take lanes",
            move |mut conn| async move { lease::lease(sql, &mut conn, request).await },
        )
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], ttl: Duration) -> BoxFuture<'a, Result<Renewed>> {
        let Inner { lease: sql, .. } = &*self.0;
        self.run_keeping("renew leases", move |mut conn| async move {
            lease::renew(sql, &mut conn, leases, ttl).await
        })
    }

    fn mark_sent<'a>(&'a self, marks: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Marked>> {
        let Inner { lease: sql, .. } = &*self.0;
        self.run("mark what is under way", move |mut conn| async move {
            lease::mark_sent(sql, &mut conn, marks).await
        })
    }

    fn release<'a>(&'a self, lanes: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Vec<Lane>>> {
        let Inner { lease: sql, .. } = &*self.0;
        self.run_keeping("release lanes", move |mut conn| async move {
            lease::release(sql, &mut conn, lanes).await?;
            // There are no locks of rows.
            Ok(Vec::new())
        })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Claimed>> {
        let Inner { claim: sql, lease, .. } = &*self.0;
        let claiming = self.run("claim events", move |mut conn| async move {
            claim::claim(sql, lease, &mut conn, claim).await
        });
        Box::pin(async move {
            self.check_file().await?;
            let claimed = claiming.await?;
            // What it met is of no use if it was met in another time.
            self.check_time().await?;
            Ok(claimed)
        })
    }

    fn peek(&self) -> BoxFuture<'_, Result<Option<Peek>>> {
        let Inner { peek, pool, file, .. } = &*self.0;
        let cannot = move |error| error::of_sqlx(error, format!("cannot peek at the events in {file}"));
        Box::pin(async move { peek.peek(pool).await.map_err(cannot) })
    }

    fn settle<'a>(
        &'a self,
        leases: &'a [Lease],
        settlements: &'a [Settlement],
        retention: Duration,
    ) -> BoxFuture<'a, Result<Settled>> {
        let Inner { settle: sql, lease, .. } = &*self.0;
        self.run_settling("settle events", move |mut conn| async move {
            settle::settle(sql, lease, &mut conn, leases, settlements, retention).await
        })
    }

    shared_verbs!(pause: run);
}
