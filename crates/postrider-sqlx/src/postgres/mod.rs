//! The outbox in a PostgreSQL database, 15 or later.
//!
//! A claim is one plain read over all lanes that one holds, a settle one statement under a share lock of their rows, and nothing
//! else is locked on the way of an event. It works through PgBouncer in transaction mode: nothing outlives a transaction then,
//! neither a prepared statement nor a setting, and only waking others up is left to polling.
//!
//! # Layout
//!
//! * `connect`, `session`: from a name to connections, and from a connection to what a verb runs on
//! * `schema` and `migrations/`: creating, upgrading and printing the tables, and who may do what with them; `home` finds them
//! * `rehearse`: whether all that delivery does can be done
//! * `write`: the writers for sqlx; what an insert says and binds is in `postrider-drivers`
//! * `lease`: who may deliver
//! * `claim/`: what is due, and what may still commit; `row` decodes it
//! * `settle`: what became of it
//! * `operate`, `list`: what operators see and do; `orphans`: keys whose head was deleted; `pause`: what operators have told to wait
//! * `notifier`: waking up other processes; `peek`: finding what nobody told of
//! * `error`: what PostgreSQL's states mean, and which of them are worth another try

mod claim;
pub(crate) mod connect;
pub(crate) mod error;
mod home;
mod identity;
mod lease;
mod list;
mod notifier;
mod operate;
mod orphans;
mod pause;
mod peek;
#[cfg(test)]
mod plans;
mod rehearse;
mod row;
mod schema;
mod session;
mod settle;
mod statement;
mod store;
mod write;

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicU32},
    time::Duration,
};

use postrider_core::{BoxFuture, ConfigError, Result, SchemaError, Target, tx::Prefix};
use sqlx::{PgPool, Postgres, Row as _, postgres::PgConnectOptions};

pub use self::write::PgTx;
use self::{
    connect::{Opening, Plans, Settings},
    notifier::Notifier,
    session::{ServerLimits, Session},
    statement::Shape,
};
#[cfg(feature = "profiles")]
pub(crate) use self::{schema::role, session::BEGIN};
pub use crate::Sqlx;
use crate::{
    Server,
    connections::{
        Conn, Connections, LockedLanes, Task,
        limits::{Limits, MIGRATION, OPERATOR},
        retry::retried,
    },
};

/// How many connections the verbs have at most: a claim, what it marks, a purge, operators.
const CONNECTIONS: u32 = 8;

/// The same for a store on a pool of the program's own, whose number of connections somebody has counted.
const CONNECTIONS_BESIDE: u32 = 4;

/// Settles have connections of their own, for batches and for attempts that are counted one by one; and renewals have one.
const SETTLING: u32 = 2;
const KEEPING: u32 = 1;

/// An outbox in a PostgreSQL database. Cloning it copies a pointer.
#[derive(Clone)]
pub struct PgStore(Arc<Inner>);

struct Inner {
    /// For those who write.
    pool: PgPool,
    /// For the verbs. Settles and renewals have their own: a program that uses up the others costs no lease.
    verbs: Connections<Postgres>,
    settling: Connections<Postgres>,
    keeping: Connections<Postgres>,
    /// For messages; without the password.
    place: String,
    shape: Shape,
    target: Target,
    lanes_wanted: Option<u32>,
    lanes: AtomicU32,
    watermarks: Mutex<claim::watermarks::Watermarks>,
    /// Whether the server says where its log ends, once it was asked.
    reads_log: OnceLock<bool>,
    notifier: Arc<Notifier>,
    lease: lease::Statements,
    claim: statement::Twice<claim::Statements>,
    settle: statement::Twice<settle::Statements>,
    locked_lanes: LockedLanes,
    operate: operate::Statements,
    orphans: orphans::Statements,
    pause: pause::Statements,
    peek: peek::Peeking,
}

/// How a verb runs.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// As one statement.
    Plain(Task),
    /// As several, in a transaction.
    Whole(Task),
    /// As one statement of those that keep leases.
    Keeping,
    /// In a transaction that may take as long as operators may.
    Long,
    /// In a transaction that waits for others who migrate.
    Migration,
}

impl Way {
    /// How long its caller waits, with all tries.
    fn limit(self, limits: Limits) -> Duration {
        match self {
            Self::Plain(_) | Self::Whole(_) | Self::Keeping => limits.verb(),
            Self::Long => OPERATOR,
            Self::Migration => MIGRATION,
        }
    }

    /// How long the server lets it take.
    fn on_server(self, limits: Limits) -> ServerLimits {
        match self {
            Self::Plain(_) | Self::Whole(_) | Self::Keeping => limits.into(),
            Self::Long => ServerLimits::from(limits).with_statements(OPERATOR),
            Self::Migration => ServerLimits::of(MIGRATION),
        }
    }
}

/// How a [`PgStore`] is put together.
///
/// ```no_run
/// # async fn open() -> postrider_core::Result<()> {
/// use postrider_sqlx::PgStore;
/// let store = PgStore::builder().lanes(128).connections(4).connect("postgres://app@localhost/shop").await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct PgStoreBuilder {
    prefix: Prefix,
    lanes: Option<u32>,
    pooled: Option<bool>,
    connections: Option<u32>,
}

impl PgStoreBuilder {
    /// A prefix for the tables other than `postrider_`. They lie in the one schema of the connection's `search_path` that has them, and are
    /// made in its first.
    #[must_use]
    pub fn prefix(mut self, prefix: Prefix) -> Self {
        self.prefix = prefix;
        self
    }

    /// How many lanes `migrate` makes: at most so many instances deliver at once. 64 if nothing is said and there are no tables
    /// yet; otherwise what is there. A number that differs from what is there is an error, unless the outbox is empty.
    #[must_use]
    pub fn lanes(mut self, lanes: u32) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// Whether a pooler such as PgBouncer hands each transaction to another connection. Found out by
    /// [`connect`](PgStoreBuilder::connect) if nothing is said; a name can say it with `pgbouncer=true` or `false`.
    #[must_use]
    pub fn pooled(mut self, pooled: bool) -> Self {
        self.pooled = Some(pooled);
        self
    }

    /// Most connections of a pool; 8 if nothing is said, or 4 on a pool of the program's own. There is one for the verbs and, once somebody uses it,
    /// another for transactions that [`PgStore::pool`] is asked for. Beyond these, settles have at most two connections of their own, renewals have
    /// one, and one more listens.
    #[must_use]
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Connects to `postgres://user:password@host:port/database`, with the parameters that sqlx knows. Call
    /// [`migrate`](postrider_core::Store::migrate) next.
    pub async fn connect(self, url: &str) -> Result<PgStore> {
        self.check()?;
        let named = connect::parse(url)?;
        let pooled = match self.pooled.or(named.pooled) {
            Some(pooled) => pooled,
            None => connect::is_pooled(&named.options).await?,
        };
        let connections = self.connections.unwrap_or(CONNECTIONS);
        // A pooler refuses a client that asks for settings.
        let settings = (!pooled).then_some(Settings { plans: Plans::Ours, statements: None });
        let mut opening =
            Opening { pool: connect::pool(connections), options: named.options.clone(), settings };
        if !pooled {
            opening.options = home::fixed(&opening, &self.prefix).await?;
        }
        let verbs = opening.at_once(connections).await?;
        let pool = connect::pool(connections).connect_lazy_with(named.options);
        self.pooled(pooled).on(pool, verbs, &opening)
    }

    /// An outbox in a database that the program has a pool for already. The verbs open connections of their own, with the options of the pool's: a
    /// program that has all of its connections in transactions does not stop delivery. Behind a pooler, say so with
    /// [`pooled`](PgStoreBuilder::pooled).
    pub fn with_pool(self, pool: PgPool) -> Result<PgStore> {
        let settings =
            (!self.pooled.unwrap_or(false)).then_some(Settings { plans: Plans::Ours, statements: None });
        let options = PgConnectOptions::clone(&pool.connect_options());
        let opening = Opening { pool: pool.options().clone(), options, settings };
        let verbs = opening.lazily(self.connections.unwrap_or(CONNECTIONS_BESIDE));
        self.on(pool, verbs, &opening)
    }

    fn on(self, pool: PgPool, verbs: Connections<Postgres>, opening: &Opening) -> Result<PgStore> {
        self.check()?;
        let place = connect::place(&opening.options);
        let pooled = self.pooled.unwrap_or(false);
        let shape = Shape { prefix: self.prefix, prepared: !pooled, flood: false };
        Ok(PgStore(Arc::new(Inner {
            pool,
            verbs,
            settling: opening.lazily(SETTLING),
            keeping: opening.lazily(KEEPING),
            place,
            target: postrider_drivers::postgres::target(&shape.prefix, !pooled),
            lanes_wanted: self.lanes,
            lanes: AtomicU32::new(self.lanes.unwrap_or(schema::LANES_DEFAULT)),
            watermarks: Mutex::default(),
            notifier: Arc::new(Notifier::new(&shape.prefix, (!pooled).then(|| opening.session()))),
            reads_log: OnceLock::new(),
            lease: lease::Statements::new(&shape),
            claim: statement::Twice::new(&shape, claim::Statements::new),
            settle: statement::Twice::new(&shape, settle::Statements::new),
            locked_lanes: LockedLanes::default(),
            operate: operate::Statements::new(&shape),
            orphans: orphans::Statements::new(&shape),
            pause: pause::Statements::new(&shape),
            peek: peek::Peeking::new(&shape),
            shape,
        })))
    }

    fn check(&self) -> Result<()> {
        let between = |setting, value: Option<u32>, most: u32| match value.filter(|v| *v == 0 || *v > most) {
            Some(value) => {
                let allowed = format!("between 1 and {most}");
                Err(ConfigError::OutOfRange { setting, value: value.to_string(), allowed })
            }
            None => Ok(()),
        };
        between("lanes", self.lanes, schema::LANES_MAX)?;
        Ok(between("connections", self.connections, u32::MAX)?)
    }
}

impl PgStore {
    /// How to open one with more than a name.
    pub fn builder() -> PgStoreBuilder {
        PgStoreBuilder::default()
    }

    /// Connects to `postgres://user:password@host:port/database`. Call [`migrate`](postrider_core::Store::migrate) next.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// An outbox in a database that the program has a pool for already, with no pooler before it.
    pub fn new(pool: PgPool) -> Result<Self> {
        Self::builder().with_pool(pool)
    }

    /// Which product and version the database is.
    pub async fn server(&self) -> Result<Server> {
        let told = self.run_in(Way::Plain(Task::Seldom), "ask for the version", |mut session| async move {
            let row = sqlx::raw_sql("SELECT version()").fetch_one(&mut *session).await?;
            session.commit().await?;
            row.try_get::<String, _>(0)
        });
        Ok(Server::of_postgres(&told.await?)?)
    }

    /// An error unless the database can keep every text, and the search path leads to one set of tables at most. In an encoding other than
    /// UTF-8 some texts cannot be written, and in none at all (SQL_ASCII) what is read may be no text.
    async fn require_fitting(&self) -> Result<()> {
        let prefix = &self.0.shape.prefix;
        let ask = move |mut session: Session| async move {
            let encoding = sqlx::raw_sql("SHOW server_encoding").fetch_one(&mut *session).await?;
            let home = home::find(&mut session, prefix).await?;
            session.commit().await?;
            Ok((encoding.try_get::<String, _>(0)?, home))
        };
        let (found, home) = self.run("ask for the encoding", ask).await?;
        if found != connect::ENCODING {
            let (setting, needed) = ("server_encoding", connect::ENCODING_NEEDED);
            return Err(SchemaError::Setting { setting, found, needed }.into());
        }
        Ok(home.map(drop)?)
    }

    /// Closes all connections. Call it when the engine has shut down.
    pub async fn close(&self) {
        self.0.notifier.close().await;
        for connections in [&self.0.verbs, &self.0.settling, &self.0.keeping] {
            connections.close().await;
        }
        self.0.pool.close().await;
    }

    /// A pool for transactions that write events: the one that the store was given, or one with the server's own settings, whose connections
    /// are made when they are asked for. The verbs of a store that was given a name have another: their plans would not suit others.
    pub fn pool(&self) -> &PgPool {
        &self.0.pool
    }

    /// Whether statements are kept from outliving a transaction because a pooler stands before the server.
    pub fn is_pooled(&self) -> bool {
        !self.0.shape.prepared
    }

    /// The SQL that [`migrate`](postrider_core::Store::migrate) would run on an empty database, to be read or applied by hand.
    ///
    /// ```
    /// use postrider_core::tx::Prefix;
    /// let sql = postrider_sqlx::PgStore::schema_sql(&Prefix::default(), 64);
    /// assert!(sql.contains("CREATE TABLE postrider_event"));
    /// ```
    pub fn schema_sql(prefix: &Prefix, lanes: u32) -> String {
        schema::schema_sql(prefix, lanes)
    }

    /// The rights of a role that writes events, of one that delivers them, and of one that operators use.
    ///
    /// ```
    /// use postrider_core::tx::Prefix;
    /// let sql = postrider_sqlx::PgStore::grants_sql(&Prefix::default(), "shop", "relay", "operator");
    /// assert!(sql.contains("ON postrider_done TO \"relay\""));
    /// ```
    pub fn grants_sql(prefix: &Prefix, writer: &str, relay: &str, operator: &str) -> String {
        schema::grants_sql(prefix, writer, relay, operator)
    }

    /// Runs a verb of one statement, and again if the database could not do it. `what` says what the verb cannot do if it fails.
    fn run<'a, T, F>(
        &'a self,
        what: &'static str,
        verb: impl Fn(Session) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        self.run_in(Way::Plain(Task::Other), what, verb)
    }

    /// Runs a verb of several statements, as one transaction.
    fn run_whole<'a, T, F>(
        &'a self,
        what: &'static str,
        verb: impl Fn(Session) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        self.run_in(Way::Whole(Task::Other), what, verb)
    }

    /// Runs a verb that keeps leases, on the connection for these.
    fn run_keeping<'a, T, F>(
        &'a self,
        what: &'static str,
        verb: impl Fn(Session) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        self.run_in(Way::Keeping, what, verb)
    }

    /// Runs a verb of operators, which may take its time.
    fn run_long<'a, T, F>(
        &'a self,
        what: &'static str,
        verb: impl Fn(Session) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        self.run_in(Way::Long, what, verb)
    }

    fn run_in<'a, T, F>(
        &'a self,
        way: Way,
        what: &'static str,
        verb: impl Fn(Session) -> F + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T>>
    where
        T: Send + 'a,
        F: Future<Output = sqlx::Result<T>> + Send + 'a,
    {
        Box::pin(async move {
            let (verb, (connections, task)) = (&verb, self.connections(way));
            let limits = connections.limits();
            let attempt = move |until| {
                connections.attempt(until, task, move |conn| async move {
                    verb(self.session(way, limits, conn).await?).await
                })
            };
            let may_pass = |error: &sqlx::Error| {
                if error::is_stale_plan(error) {
                    connections.renew();
                }
                error::may_pass(error)
            };
            let done = retried(way.limit(limits), may_pass, attempt).await;
            done.map_err(|error| error::of_sqlx(error, format!("cannot {what} in {}", self.0.place)))
        })
    }

    fn connections(&self, way: Way) -> (&Connections<Postgres>, Task) {
        let Inner { verbs, settling, keeping, .. } = &*self.0;
        match way {
            Way::Plain(Task::Settle) | Way::Whole(Task::Settle) => (settling, Task::Settle),
            Way::Plain(task) | Way::Whole(task) => (verbs, task),
            Way::Keeping => (keeping, Task::Seldom),
            Way::Long | Way::Migration => (verbs, Task::Seldom),
        }
    }

    /// What a verb runs on. Behind a pooler even a single statement is a transaction: the driver sends it in two parts, and
    /// another connection would not know the first of them.
    async fn session(&self, way: Way, limits: Limits, conn: Conn<Postgres>) -> sqlx::Result<Session> {
        match way {
            _ if self.is_pooled() => Session::pooled(conn, way.on_server(limits)).await,
            Way::Plain(_) | Way::Keeping => Ok(Session::plain(conn)),
            Way::Whole(_) => Session::whole(conn, None).await,
            Way::Long | Way::Migration => Session::whole(conn, Some(way.on_server(limits))).await,
        }
    }

    /// From now on verbs have the limits of this lease.
    fn set_lease(&self, lease: Duration) {
        let Inner { verbs, settling, keeping, .. } = &*self.0;
        [verbs, settling, keeping].into_iter().for_each(|of| of.set_limits(Limits::of_lease(lease)));
    }
}

impl fmt::Debug for PgStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgStore")
            .field("place", &self.0.place)
            .field("prefix", &self.0.shape.prefix)
            .field("pooled", &self.is_pooled())
            .finish_non_exhaustive()
    }
}
