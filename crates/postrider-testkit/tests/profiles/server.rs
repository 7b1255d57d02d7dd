//! A database for one test, statements that run on either server, and an engine over a profile.

use std::{
    collections::BTreeMap,
    env, process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use postrider::{Delivery, OnDead, Outbox, Outcome};
use postrider_sqlx::profile::{Profile, ProfileStore};
use postrider_testkit::conformance::{Checked, Failure};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Mysql,
}

pub(crate) const BOTH: [Kind; 2] = [Kind::Postgres, Kind::Mysql];

/// A schema that goes away with its test.
pub(crate) struct Database {
    pub(crate) kind: Kind,
    pub(crate) url: String,
    name: String,
    /// It is a database of PostgreSQL's, and not a schema in one.
    whole: bool,
    conn: tokio::sync::Mutex<Conn>,
}

/// A user of a database.
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) url: String,
}

/// The test's own connection.
enum Conn {
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

impl Conn {
    async fn open(kind: Kind, url: &str) -> Result<Self, Failure> {
        Ok(match kind {
            Kind::Postgres => Self::Postgres(PgConnection::connect(url).await?),
            Kind::Mysql => Self::Mysql(MySqlConnection::connect(url).await?),
        })
    }

    async fn run(&mut self, sql: &str) -> Checked {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Postgres(conn) => _ = sqlx::raw_sql(sql).execute(conn).await?,
            Self::Mysql(conn) => _ = sqlx::raw_sql(sql).execute(conn).await?,
        }
        Ok(())
    }
}

fn server(kind: Kind) -> Result<String, Failure> {
    let variable = match kind {
        Kind::Postgres => "POSTRIDER_TEST_POSTGRES_URL",
        Kind::Mysql => "POSTRIDER_TEST_MYSQL_URL",
    };
    env::var(variable).map_err(|_| {
        format!(
            "{variable} names no server: run `cargo xtask services up` and `eval $(cargo xtask services env)`"
        )
        .into()
    })
}

impl Database {
    pub(crate) async fn new(kind: Kind, ddl: &str) -> Result<Self, Failure> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let server = server(kind)?;
        let name = format!("profile_{}_{}", process::id(), NUMBERS.fetch_add(1, Relaxed));
        let (base, _) = server.split_once('?').unwrap_or((&server, ""));
        let mut conn = Conn::open(kind, &server).await?;
        // In MySQL a schema is a database. In PostgreSQL it is made and dropped much sooner than one.
        conn.run(&format!("CREATE SCHEMA {name}")).await?;
        let url = match kind {
            Kind::Postgres => {
                conn.run(&format!("SET search_path = {name}")).await?;
                format!("{base}?options=-csearch_path%3D{name}")
            }
            Kind::Mysql => {
                conn.run(&format!("USE {name}")).await?;
                format!("{}/{name}", base.rsplit_once('/').ok_or("a URL names a database")?.0)
            }
        };
        conn.run(ddl).await?;
        Ok(Self { kind, url, name, whole: false, conn: conn.into() })
    }

    /// An empty database of its own, made with this behind its name.
    pub(crate) async fn with_encoding(kind: Kind, encoding: Option<&str>) -> Result<Self, Failure> {
        let Some(encoding) = encoding else { return Self::new(kind, "SELECT 1").await };
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let server = server(kind)?;
        let name = format!("encoded_{}_{}", process::id(), NUMBERS.fetch_add(1, Relaxed));
        let mut admin = Conn::open(kind, &server).await?;
        admin.run(&format!("CREATE DATABASE {name} {encoding}")).await?;
        let (base, _) = server.split_once('?').unwrap_or((&server, ""));
        let url = format!("{}/{name}", base.rsplit_once('/').ok_or("a URL names a database")?.0);
        let conn = Conn::open(kind, &url).await?;
        Ok(Self { kind, url, name, whole: true, conn: conn.into() })
    }

    /// A user who may connect and nothing else.
    pub(crate) async fn add_user(&self, role: &str) -> Result<User, Failure> {
        let name = format!("{role}_{}", self.name);
        let (scheme, rest) = self.url.split_once("://").ok_or("a URL has a scheme")?;
        let (_, place) = rest.split_once('@').ok_or("a URL names a host")?;
        let create = match self.kind {
            Kind::Postgres => format!(
                "CREATE ROLE {name} LOGIN PASSWORD 'sesame'; GRANT USAGE ON SCHEMA {} TO {name}",
                self.name
            ),
            Kind::Mysql => format!(
                "CREATE USER '{name}'@'%' IDENTIFIED BY 'sesame', '{name}'@'localhost' IDENTIFIED BY 'sesame'"
            ),
        };
        self.run(&create).await?;
        Ok(User { url: format!("{scheme}://{name}:sesame@{place}"), name })
    }

    pub(crate) async fn drop_user(&self, user: &User) -> Checked {
        let name = &user.name;
        self.run(&match self.kind {
            Kind::Postgres => format!("DROP OWNED BY {name}; DROP ROLE {name}"),
            Kind::Mysql => format!("DROP USER '{name}'@'%', '{name}'@'localhost'"),
        })
        .await
    }

    /// What follows a user's name where rights are granted: MySQL has an account for each host.
    pub(crate) fn hosts(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Postgres => &[""],
            Kind::Mysql => &["@%", "@localhost"],
        }
    }

    pub(crate) async fn run(&self, sql: &str) -> Checked {
        self.conn.lock().await.run(sql).await
    }

    /// Rows of text.
    pub(crate) async fn rows(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Failure> {
        macro_rules! rows {
            ($conn:expr) => {
                sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
                    .fetch_all($conn)
                    .await?
                    .iter()
                    .map(|row| {
                        (0..row.len()).map(|n| Ok(row.try_get_unchecked::<Option<String>, _>(n)?)).collect()
                    })
                    .collect::<Result<Vec<Vec<_>>, Failure>>()
            };
        }
        match &mut *self.conn.lock().await {
            Conn::Postgres(conn) => rows!(conn),
            Conn::Mysql(conn) => rows!(conn),
        }
    }

    /// Rows as `a|b|c`, null as nothing.
    pub(crate) async fn lines(&self, sql: &str) -> Result<Vec<String>, Failure> {
        let rows = self.rows(sql).await?;
        let line = |row: Vec<Option<String>>| {
            row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join("|")
        };
        Ok(rows.into_iter().map(line).collect())
    }

    /// Waits until a statement returns these lines.
    pub(crate) async fn until(&self, sql: &str, expected: &[&str]) -> Checked {
        let started = Instant::now();
        loop {
            let lines = self.lines(sql).await?;
            if lines == expected {
                return Ok(());
            }
            if started.elapsed() > TIMEOUT {
                return Err(format!("{:?}: {sql} gives {lines:?} and not {expected:?}", self.kind).into());
            }
        }
    }

    pub(crate) async fn drop(self) -> Checked {
        if self.whole && self.kind == Kind::Postgres {
            let mut admin = Conn::open(self.kind, &server(self.kind)?).await?;
            return admin.run(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
        }
        self.conn.into_inner().run(&Self::dropping(self.kind, &self.name)).await
    }

    /// Takes it away from a thread of its own: the test's runtime is about to end.
    pub(crate) fn drop_later(self) {
        let (kind, name) = (self.kind, self.name);
        let _ = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                Conn::open(kind, &server(kind)?).await?.run(&Self::dropping(kind, &name)).await
            })
        })
        .join();
    }

    fn dropping(kind: Kind, name: &str) -> String {
        format!("DROP SCHEMA {name}{}", if kind == Kind::Postgres { " CASCADE" } else { "" })
    }
}

/// What came, by key, in order; each event once.
pub(crate) type Came = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// Delivers; events whose payload says `poison` fail, others come.
pub(crate) async fn deliver(
    url: &str,
    profile: Profile,
    attempts: u32,
    came: &Came,
) -> Result<(ProfileStore, Outbox), Failure> {
    let store = ProfileStore::connect(url, profile).await?;
    let came = Arc::clone(came);
    let outbox = Outbox::builder()
        .store(store.clone())
        .lease(Duration::from_secs(4))
        .poll(Duration::from_millis(10), Duration::from_millis(100))
        .retry_with(|_, _| Duration::from_millis(20))
        .max_attempts(attempts)
        .on_dead(OnDead::Skip)
        .otherwise(move |delivery: Delivery| {
            let came = Arc::clone(&came);
            async move {
                if delivery.payload().as_text().unwrap_or_default().contains("poison") {
                    return Outcome::retry("cannot be delivered");
                }
                let mut came = came.lock().unwrap_or_else(PoisonError::into_inner);
                let of_key = came.entry(delivery.key().unwrap_or_default().to_owned()).or_default();
                let id = delivery.id().to_string();
                if !of_key.contains(&id) {
                    of_key.push(id);
                }
                Outcome::Delivered
            }
        })
        .start()
        .await?;
    Ok((store, outbox))
}

/// Takes what is there and never comes back with an outcome.
pub(crate) async fn hang(url: &str, profile: Profile) -> Result<Outbox, Failure> {
    let outbox = Outbox::builder()
        .store(ProfileStore::connect(url, profile).await?)
        .lease(Duration::from_secs(4))
        .poll(Duration::from_millis(10), Duration::from_millis(100))
        .otherwise(|_: Delivery| std::future::pending::<()>())
        .start()
        .await?;
    Ok(outbox)
}
