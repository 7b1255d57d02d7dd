//! From the name of a database to its store.

use std::{fmt, sync::Arc};

use postrider_core::{ConfigError, Result, Store, tx::Prefix};

/// What a database can be named by. All of them, whichever this program was built with.
const KNOWN: &str = "a path, sqlite://path, sqlite::memory:, postgres://user:password@host:port/database (or postgresql://), or \
     mysql://user:password@host:port/database (or mariadb://)";

/// How many lanes a new outbox has on a server, if nothing is said.
#[cfg(any(feature = "mysql", feature = "postgres"))]
const LANES: u32 = 64;

/// The kinds of stores, by the feature that each needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sqlite,
    Postgres,
    Mysql,
}

impl Kind {
    /// The most lanes that there can be.
    const fn lanes_max(self) -> u32 {
        match self {
            Self::Sqlite => 1,
            Self::Postgres => 4096,
            Self::Mysql => 1024,
        }
    }

    /// What this program was built without.
    #[cfg(not(all(feature = "mysql", feature = "postgres", feature = "sqlite")))]
    const fn missing(self) -> ConfigError {
        let name = match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        };
        ConfigError::Feature { scheme: name, feature: name }
    }
}

/// A database that was found, and what it is.
///
/// Its `Debug` form names neither the user nor the password.
pub struct Connected {
    /// The store, for [`OutboxBuilder::shared_store`](crate::OutboxBuilder::shared_store).
    pub store: Arc<dyn Store>,
    /// `SQLite`, `PostgreSQL`, `MySQL` or `MariaDB`.
    pub product: &'static str,
    /// The version of the product.
    pub version: String,
}

impl Connected {
    /// How many lanes the outbox has. Until [`migrate`](Store::migrate) has run it is the number that a new one gets.
    pub fn lanes(&self) -> u32 {
        self.store.features().lanes
    }
}

impl fmt::Display for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.product, self.version)
    }
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected")
            .field("product", &self.product)
            .field("version", &self.version)
            .field("lanes", &self.lanes())
            .finish_non_exhaustive()
    }
}

/// The store of the database that is named: by a path or `sqlite:` for SQLite, `postgres://` or `postgresql://` for PostgreSQL 15 or
/// later, `mysql://` or `mariadb://` for MySQL 8.0.17 or later and MariaDB 10.6 or later. What answers is asked what it is, and refused
/// if it is something else or too old.
///
/// By TLS if the name asks for it, with `sslmode=verify-full` for PostgreSQL and `ssl-mode=VERIFY_IDENTITY` for MySQL and MariaDB; that needs
/// the feature `tls-rustls`, or `tls-rustls-native-roots`.
///
/// For programs that learn at run time where their outbox is. A program that knows says `SqliteStore::connect`, and has the pool too.
///
#[cfg_attr(feature = "sqlite", doc = "```")]
#[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> postrider::Result<()> {
/// let found = postrider::connect("sqlite::memory:").await?;
/// assert_eq!((found.product, found.lanes()), ("SQLite", 1));
/// let outbox = postrider::Outbox::builder().shared_store(found.store).write_only().await?;
/// # assert_eq!(outbox.stats().await?.pending, 0);
/// # Ok(()) }
/// ```
pub async fn connect(url: &str) -> Result<Connected> {
    ConnectOptions::default().connect(url).await
}

/// How the outbox of a database that is named at run time is found, where the usual way is not the right one.
///
#[cfg_attr(feature = "sqlite", doc = "```")]
#[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> postrider::Result<()> {
/// use postrider::{ConnectOptions, Prefix};
///
/// let options = ConnectOptions::default().prefix(Prefix::new("shop_")?);
/// let found = options.connect("sqlite::memory:").await?;
/// found.store.migrate().await?;
/// assert_eq!(found.store.target().prefix.to_string(), "shop_");
/// assert!(options.schema_sql("shop.db")?.contains("CREATE TABLE shop_event"));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ConnectOptions {
    prefix: Prefix,
    lanes: Option<u32>,
    pooled: Option<bool>,
}

impl ConnectOptions {
    /// What the names of the tables begin with; `postrider_` if nothing is said.
    pub fn prefix(mut self, prefix: Prefix) -> Self {
        self.prefix = prefix;
        self
    }

    /// How many lanes [`migrate`](Store::migrate) makes; 64 if nothing is said and there are no tables yet. SQLite has one, and takes no
    /// other number. A number that differs from what is there is an error, unless the outbox is empty.
    pub fn lanes(mut self, lanes: u32) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// Whether a pooler such as PgBouncer, in transaction mode, stands before PostgreSQL. It is found out if nothing is said. Other
    /// databases know no such thing.
    pub fn pooled(mut self, pooled: bool) -> Self {
        self.pooled = Some(pooled);
        self
    }

    /// As [`connect`], with these options.
    pub async fn connect(&self, url: &str) -> Result<Connected> {
        match self.kind(url)? {
            #[cfg(feature = "sqlite")]
            Kind::Sqlite => {
                let store =
                    postrider_sqlx::SqliteStore::connect_with_prefix(url, self.prefix.clone()).await?;
                connected(store.server().await?, store)
            }
            #[cfg(feature = "postgres")]
            Kind::Postgres => {
                let mut builder = postrider_sqlx::PgStore::builder().prefix(self.prefix.clone());
                if let Some(lanes) = self.lanes {
                    builder = builder.lanes(lanes);
                }
                if let Some(pooled) = self.pooled {
                    builder = builder.pooled(pooled);
                }
                let store = builder.connect(url).await?;
                connected(store.server().await?, store)
            }
            #[cfg(feature = "mysql")]
            Kind::Mysql => {
                let store = postrider_sqlx::MysqlStore::connect(url).await?.with_prefix(self.prefix.clone());
                let store = match self.lanes {
                    Some(lanes) => store.with_lanes(lanes)?,
                    None => store,
                };
                connected(store.server().await?, store)
            }
            #[cfg(not(all(feature = "mysql", feature = "postgres", feature = "sqlite")))]
            kind => Err(kind.missing().into()),
        }
    }

    /// The SQL that [`migrate`](Store::migrate) would run on an empty database of the kind that is named. Nobody is asked for anything.
    pub fn schema_sql(&self, url: &str) -> Result<String> {
        match self.kind(url)? {
            #[cfg(feature = "sqlite")]
            Kind::Sqlite => Ok(postrider_sqlx::SqliteStore::schema_sql(&self.prefix)),
            #[cfg(feature = "postgres")]
            Kind::Postgres => {
                Ok(postrider_sqlx::PgStore::schema_sql(&self.prefix, self.lanes.unwrap_or(LANES)))
            }
            #[cfg(feature = "mysql")]
            Kind::Mysql => {
                Ok(postrider_sqlx::MysqlStore::schema_sql(&self.prefix, self.lanes.unwrap_or(LANES)))
            }
            #[cfg(not(all(feature = "mysql", feature = "postgres", feature = "sqlite")))]
            kind => Err(kind.missing().into()),
        }
    }

    /// The `GRANT`s that one who writes events, one who delivers them and one who operates the outbox need, and no more; none for
    /// SQLite, which knows no users. Nobody is asked for anything.
    pub fn grants_sql(&self, url: &str, writer: &str, relay: &str, operator: &str) -> Result<Option<String>> {
        let _ = (writer, relay, operator);
        match self.kind(url)? {
            #[cfg(feature = "sqlite")]
            Kind::Sqlite => Ok(None),
            #[cfg(feature = "postgres")]
            Kind::Postgres => {
                Ok(Some(postrider_sqlx::PgStore::grants_sql(&self.prefix, writer, relay, operator)))
            }
            #[cfg(feature = "mysql")]
            Kind::Mysql => {
                Ok(Some(postrider_sqlx::MysqlStore::grants_sql(&self.prefix, writer, relay, operator)))
            }
            #[cfg(not(all(feature = "mysql", feature = "postgres", feature = "sqlite")))]
            kind => Err(kind.missing().into()),
        }
    }

    /// The kind that a name stands for, if what is wanted can be had there.
    fn kind(&self, url: &str) -> Result<Kind, ConfigError> {
        let kind = kind(url)?;
        let wrong = |setting, value: String, allowed: String| {
            Err(ConfigError::OutOfRange { setting, value, allowed })
        };
        match (kind, self.lanes) {
            (Kind::Sqlite, Some(lanes)) if lanes != 1 => {
                return wrong("lanes", lanes.to_string(), "1: SQLite has one lane".to_owned());
            }
            (Kind::Postgres | Kind::Mysql, Some(lanes)) if !(1..=kind.lanes_max()).contains(&lanes) => {
                return wrong("lanes", lanes.to_string(), format!("1 to {}", kind.lanes_max()));
            }
            _ => {}
        }
        match self.pooled {
            Some(pooled) if kind != Kind::Postgres => {
                wrong("pooled", pooled.to_string(), "left out: it is for PostgreSQL alone".to_owned())
            }
            _ => Ok(kind),
        }
    }
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn connected(server: postrider_sqlx::Server, store: impl Store) -> Result<Connected> {
    server.require_known()?;
    Ok(Connected {
        store: Arc::new(store),
        product: server.product.name(),
        version: server.version.to_string(),
    })
}

/// Which kind of store a name stands for. What is refused is named by its scheme alone: the rest may hold a password.
fn kind(url: &str) -> Result<Kind, ConfigError> {
    let refuse = |given: &str| Err(ConfigError::Database { given: given.to_owned(), known: KNOWN });
    match scheme(url) {
        Some("sqlite") => Ok(Kind::Sqlite),
        Some("postgres" | "postgresql") => Ok(Kind::Postgres),
        Some("mysql" | "mariadb") => Ok(Kind::Mysql),
        Some(other) => refuse(other),
        // A file can be called so, but what it was meant for is a server.
        None if url.contains('@') => refuse("a name with an @ and no scheme"),
        None if url.trim().is_empty() => refuse(""),
        None => Ok(Kind::Sqlite),
    }
}

/// What stands before the first colon, if it can be a scheme. One letter is the drive of a path; `:memory:` has none.
fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let plain = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'.' | b'-'));
    (plain && scheme.len() > 1).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_by_its_scheme_which_store_it_means() {
        for url in ["shop.db", "/tmp/shop.db", "C:\\shop.db", "sqlite:shop.db", "sqlite::memory:", ":memory:"]
        {
            assert_eq!(kind(url), Ok(Kind::Sqlite), "{url}");
        }
        for url in ["postgres://u:secret@h/d", "postgresql://h/d"] {
            assert_eq!(kind(url), Ok(Kind::Postgres), "{url}");
        }
        for url in ["mysql://u:secret@h/d", "mariadb://h/d"] {
            assert_eq!(kind(url), Ok(Kind::Mysql), "{url}");
        }
    }

    #[test]
    fn an_unknown_scheme_is_refused_with_the_known_ones_and_without_the_password() {
        for url in
            ["mongodb://u:secret@h/d", "oracle:u/secret@h", "u:secret@h/d", "u@h/secret", "/u:secret@h", ""]
        {
            let error = kind(url).unwrap_err();
            let said = format!("{error} {error:?}");
            for known in ["sqlite:", "postgres:", "postgresql:", "mysql:", "mariadb:"] {
                assert!(said.contains(known), "{said}");
            }
            assert!(!said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn lanes_and_poolers_are_refused_where_there_are_none() {
        let many = ConnectOptions::default().lanes(8);
        assert!(many.kind("shop.db").unwrap_err().to_string().contains("lanes is 8; it must be 1"));
        assert!(many.kind("postgres://h/d").is_ok() && many.kind("mysql://h/d").is_ok());
        for url in ["postgres://h/d", "mysql://h/d"] {
            assert!(ConnectOptions::default().lanes(0).kind(url).is_err());
            assert!(ConnectOptions::default().lanes(5000).kind(url).is_err());
        }
        let pooled = ConnectOptions::default().pooled(true);
        assert!(pooled.kind("postgres://h/d").is_ok());
        assert!(pooled.kind("mysql://h/d").unwrap_err().to_string().contains("pooled is true"));
    }

    #[cfg(not(feature = "mysql"))]
    #[tokio::test]
    async fn a_scheme_without_its_feature_is_refused_with_the_feature_to_add() {
        let said = format!("{:?}", connect("mariadb://u:secret@h/d").await.unwrap_err());
        assert!(said.contains("cargo add postrider --features mysql") && !said.contains("secret"), "{said}");
    }
}
