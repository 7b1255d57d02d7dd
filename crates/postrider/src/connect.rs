//! From the name of a database to its store.

use std::{fmt, sync::Arc};

use postrider_core::{ConfigError, Result, Store};

/// What a database can be named by. All of them, whichever this program was built with.
const KNOWN: &str = "a path, sqlite://path, sqlite::memory:, postgres://user:password@host:port/database (or postgresql://), or \
     mysql://user:password@host:port/database (or mariadb://)";

/// The kinds of stores, by the feature that each needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sqlite,
    Postgres,
    Mysql,
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
    match kind(url)? {
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => {
            let store = postrider_sqlx::SqliteStore::connect(url).await?;
            connected(store.server().await?, store)
        }
        #[cfg(not(feature = "sqlite"))]
        Kind::Sqlite => Err(ConfigError::Feature { scheme: "sqlite", feature: "sqlite" }.into()),
        #[cfg(feature = "postgres")]
        Kind::Postgres => {
            let store = postrider_sqlx::PgStore::connect(url).await?;
            connected(store.server().await?, store)
        }
        #[cfg(not(feature = "postgres"))]
        Kind::Postgres => Err(ConfigError::Feature { scheme: "postgres", feature: "postgres" }.into()),
        #[cfg(feature = "mysql")]
        Kind::Mysql => {
            let store = postrider_sqlx::MysqlStore::connect(url).await?;
            connected(store.server().await?, store)
        }
        #[cfg(not(feature = "mysql"))]
        Kind::Mysql => Err(ConfigError::Feature { scheme: "mysql", feature: "mysql" }.into()),
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

    #[cfg(not(feature = "mysql"))]
    #[tokio::test]
    async fn a_scheme_without_its_feature_is_refused_with_the_feature_to_add() {
        let said = format!("{:?}", connect("mariadb://u:secret@h/d").await.unwrap_err());
        assert!(said.contains("cargo add postrider --features mysql") && !said.contains("secret"), "{said}");
    }
}
