//! The outbox in a PostgreSQL database, 15 or later.
//!
//! A claim is one plain read over all lanes that one holds, a settle one statement under a share lock of their rows, and nothing
//! else is locked on the way of an event. It works through PgBouncer in transaction mode: nothing outlives a transaction then,
//! neither a prepared statement nor a setting, and only waking others up is left to polling.
//!
//! # Layout
//!
//! * `connect`, `session` and `warm`: from a name to a pool, and from a pool to what a verb runs on
//! * `schema` and `migrations/`: creating, upgrading and printing the tables, and who may do what with them
//! * `write`: the writers for sqlx; what an insert says and binds is in `postrider-drivers`
//! * `lease`: who may deliver
//! * `claim/`: what is due, and what may still commit; `row` decodes it
//! * `settle`: what became of it
//! * `operate`, `list`: what operators see and do; `pause`: what they have told to wait
//! * `announce`: waking up other processes; `peek`: finding what nobody told of
//! * `error`: what PostgreSQL's states mean, and which of them are worth another try

mod announce;
mod claim;
pub(crate) mod connect;
pub(crate) mod error;
mod lease;
mod list;
mod operate;
mod pause;
mod peek;
#[cfg(test)]
mod plans;
mod row;
mod schema;
mod session;
mod settle;
mod statement;
mod store;
mod warm;
mod write;

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{BoxFuture, ConfigError, Result, Target, tx::Prefix};
use sqlx::{PgPool, Row as _, postgres::PgConnectOptions};

#[cfg(feature = "profiles")]
pub(crate) use self::schema::role;
pub use self::write::PgTx;
use self::{
    announce::Bell,
    session::{Session, patiently},
    statement::Shape,
    warm::{Task, Warm},
};
use crate::Server;
pub use crate::Sqlx;

/// How long a transaction of ours may take before anybody has asked for a lease; afterwards a third of that.
const TRANSACTION_MAX: Duration = Duration::from_secs(5);

/// How many connections a store has at most: a claim, a settle, a renewal, an operator.
const CONNECTIONS: u32 = 8;

/// An outbox in a PostgreSQL database. Cloning it copies a pointer.
#[derive(Clone)]
pub struct PgStore(Arc<Inner>);

struct Inner {
    /// For those who write.
    pool: PgPool,
    /// For the verbs; the same one if the program has brought it, or behind a pooler.
    verbs: PgPool,
    /// Whether its connections plan as claims want it.
    planned: bool,
    warm: Arc<Warm>,
    /// For messages; without the password.
    place: String,
    shape: Shape,
    target: Target,
    lanes_wanted: Option<u32>,
    lanes: AtomicU32,
    /// The last lease that was asked for.
    lease_ms: AtomicU64,
    looks: Mutex<claim::trail::Looks>,
    bell: Arc<Bell>,
    lease: lease::Statements,
    claim: statement::Twice<claim::Statements>,
    settle: statement::Twice<settle::Statements>,
    operate: operate::Statements,
    pause: pause::Statements,
    peek: peek::Peeking,
}

/// How a verb runs.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// As one statement, if it can.
    Plain(Task),
    /// As one statement in a transaction.
    Single,
    /// As several, in a transaction.
    Whole,
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
    /// A prefix for the tables other than `postrider_`. They lie in the first schema of the connection's `search_path`.
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

    /// Most connections of a pool; 8 if nothing is said. There is one for the verbs and, once somebody uses it, another for
    /// transactions that [`PgStore::pool`] is asked for; one more connection listens.
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
        // A pooler refuses whoever asks for settings.
        if pooled {
            let pool = connect::connect(named.options, connections).await?;
            return self.pooled(true).on_pools(pool.clone(), pool, false);
        }
        let verbs = connect::connect(named.options.clone().options(connect::PLANNER), connections).await?;
        let pool = connect::pool(connections).connect_lazy_with(named.options);
        self.pooled(false).on_pools(pool, verbs, true)
    }

    /// An outbox in a database that the program has a pool for already. The pool's settings stay as they are; behind a
    /// pooler, say so with [`pooled`](PgStoreBuilder::pooled).
    pub fn with_pool(self, pool: PgPool) -> Result<PgStore> {
        self.on_pools(pool.clone(), pool, false)
    }

    fn on_pools(self, pool: PgPool, verbs: PgPool, planned: bool) -> Result<PgStore> {
        self.check()?;
        let options = PgConnectOptions::clone(&pool.connect_options());
        let place = connect::place(&options);
        let pooled = self.pooled.unwrap_or(false);
        let shape = Shape { prefix: self.prefix, prepared: !pooled, flood: false };
        Ok(PgStore(Arc::new(Inner {
            pool,
            verbs,
            planned,
            warm: Arc::default(),
            place,
            target: postrider_drivers::postgres::target(&shape.prefix, !pooled),
            lanes_wanted: self.lanes,
            lanes: AtomicU32::new(self.lanes.unwrap_or(schema::LANES_DEFAULT)),
            lease_ms: AtomicU64::new(0),
            looks: Mutex::default(),
            bell: Arc::new(Bell::new(&shape.prefix, (!pooled).then_some(options))),
            lease: lease::Statements::new(&shape),
            claim: statement::Twice::new(&shape, claim::Statements::new),
            settle: statement::Twice::new(&shape, settle::Statements::new),
            operate: operate::Statements::new(&shape),
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
        let ask = || async {
            sqlx::raw_sql("SELECT version()").fetch_one(&self.0.verbs).await?.try_get::<String, _>(0)
        };
        let told = patiently(ask).await;
        let told = told.map_err(|error| error::of_sqlx(error, "cannot ask the database for its version"))?;
        Ok(Server::of_postgres(&told)?)
    }

    /// Closes all connections. Call it when the engine has shut down.
    pub async fn close(&self) {
        self.0.bell.close().await;
        self.0.verbs.close().await;
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
        self.run_in(Way::Whole, what, verb)
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
            let verb = &verb;
            let done = patiently(move || async move { verb(self.session(way).await?).await }).await;
            done.map_err(|error| error::of_sqlx(error, format!("cannot {what} in {}", self.0.place)))
        })
    }

    /// What a verb runs on. Behind a pooler even a single statement is a transaction: the driver sends it in two parts, and
    /// another connection would not know the first of them.
    async fn session(&self, way: Way) -> sqlx::Result<Session> {
        let Inner { verbs, warm, .. } = &*self.0;
        match way {
            Way::Whole => Session::whole(verbs, self.transaction_max()).await,
            Way::Plain(task) if !self.is_pooled() => Session::plain(verbs, warm, task).await,
            Way::Plain(_) | Way::Single => Session::single(verbs, self.transaction_max()).await,
        }
    }

    /// Shorter than a lease: a transaction may keep somebody from taking lanes over.
    fn transaction_max(&self) -> Duration {
        match self.0.lease_ms.load(Relaxed) {
            0 => TRANSACTION_MAX,
            lease_ms => Duration::from_millis(lease_ms / 3).min(TRANSACTION_MAX),
        }
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
