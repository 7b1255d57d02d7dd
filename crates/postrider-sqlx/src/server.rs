//! Which product a database is, and which version of it.

use std::fmt;

use postrider_core::ConfigError;

/// A database product that an outbox can be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Product {
    /// SQLite, which is part of the program.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL.
    Mysql,
    /// MariaDB.
    Mariadb,
}

impl Product {
    /// Its name, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL",
            Self::Mariadb => "MariaDB",
        }
    }

    /// The oldest version that an outbox can be in.
    pub const fn oldest(self) -> Version {
        match self {
            // `RETURNING`, which the bundled one has had for years.
            Self::Sqlite => Version(3, 35, 0),
            Self::Postgres => Version(15, 0, 0),
            Self::Mysql => Version(8, 0, 17),
            Self::Mariadb => Version(10, 6, 0),
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A version by its first three numbers. PostgreSQL has two; its third is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// The numbers that a text begins with; what is missing is zero.
    fn leading(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let mut numbers = text.get(..end)?.split('.').map(|number| number.parse().ok());
        let first = numbers.next()??;
        let mut next = || numbers.next().flatten().unwrap_or_default();
        Some(Self(first, next(), next()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(first, second, third) = self;
        match third {
            0 => write!(f, "{first}.{second}"),
            _ => write!(f, "{first}.{second}.{third}"),
        }
    }
}

/// What answers: its product and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    /// The product.
    pub product: Product,
    /// Its version.
    pub version: Version,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.product, self.version)
    }
}

impl Server {
    /// From what `version()` says on PostgreSQL: `PostgreSQL 18.1 on x86_64…`. Some that speak its protocol say otherwise.
    #[cfg(feature = "postgres")]
    pub(crate) fn of_postgres(told: &str) -> Result<Self, ConfigError> {
        let version = told.strip_prefix("PostgreSQL ").filter(|version| !version.contains("-YB-"));
        Self::of(Product::Postgres, version.and_then(Version::leading), "PostgreSQL", told)
    }

    /// From what `VERSION()` says on MySQL and MariaDB: `8.0.36`, `10.11.6-MariaDB-0+deb12u1`, and `8.0.11-TiDB-v7.5.0` where it is
    /// neither.
    #[cfg(feature = "mysql")]
    pub(crate) fn of_mysql(told: &str) -> Result<Self, ConfigError> {
        let product = if told.contains("MariaDB") { Product::Mariadb } else { Product::Mysql };
        let version = Version::leading(told).filter(|_| !told.contains("TiDB"));
        Self::of(product, version, "MySQL or MariaDB", told)
    }

    /// From what `sqlite_version()` says.
    #[cfg(feature = "sqlite")]
    pub(crate) fn of_sqlite(told: &str) -> Result<Self, ConfigError> {
        Self::of(Product::Sqlite, Version::leading(told), "SQLite", told)
    }

    #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
    fn of(
        product: Product,
        version: Option<Version>,
        expected: &'static str,
        told: &str,
    ) -> Result<Self, ConfigError> {
        match version {
            Some(version) => Ok(Self { product, version }),
            None => Err(ConfigError::Product { expected, found: told.to_owned() }),
        }
    }

    /// An error unless an outbox can be in it.
    pub fn require_known(&self) -> Result<(), ConfigError> {
        let oldest = self.product.oldest();
        if self.version >= oldest {
            return Ok(());
        }
        Err(ConfigError::Version {
            product: self.product.name(),
            found: self.version.to_string(),
            oldest: oldest.to_string(),
        })
    }
}

#[cfg(all(test, feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod tests {
    use super::*;

    #[test]
    fn products_and_versions_are_read_from_what_they_say_of_themselves() {
        let known = [
            (Server::of_postgres("PostgreSQL 18.1 on x86_64-pc-linux-gnu"), "PostgreSQL 18.1"),
            (Server::of_postgres("PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x"), "PostgreSQL 15.14"),
            (Server::of_postgres("PostgreSQL 19beta1 on x"), "PostgreSQL 19.0"),
            (Server::of_mysql("8.0.36-28"), "MySQL 8.0.36"),
            (Server::of_mysql("10.11.6-MariaDB-0+deb12u1"), "MariaDB 10.11.6"),
            (Server::of_sqlite("3.50.2"), "SQLite 3.50.2"),
        ];
        for (server, name) in known {
            let server = server.unwrap();
            assert_eq!(server.to_string(), name);
            server.require_known().unwrap();
        }
    }

    #[test]
    fn what_only_speaks_the_protocol_is_refused_by_its_own_name() {
        let unknown = [
            Server::of_postgres("CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu)"),
            Server::of_postgres("PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64"),
            Server::of_mysql("8.0.11-TiDB-v7.5.0"),
            Server::of_mysql("unknown"),
        ];
        for server in unknown {
            let message = server.unwrap_err().to_string();
            assert!(message.contains("is not "), "{message}");
        }
    }

    #[test]
    fn a_version_that_is_too_old_is_refused_with_the_oldest_that_is_not() {
        let old = [
            (Server::of_postgres("PostgreSQL 14.19 on x"), "PostgreSQL 14.19", "15.0"),
            (Server::of_mysql("8.0.16"), "MySQL 8.0.16", "8.0.17"),
            (Server::of_mysql("5.7.44-log"), "MySQL 5.7.44", "8.0.17"),
            (Server::of_mysql("10.5.23-MariaDB"), "MariaDB 10.5.23", "10.6"),
        ];
        for (server, name, oldest) in old {
            let message = server.unwrap().require_known().unwrap_err().to_string();
            assert!(message.contains(name) && message.contains(&format!("{oldest} or later")), "{message}");
        }
    }
}
