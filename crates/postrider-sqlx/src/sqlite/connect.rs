//! From the name of a database to a pool of connections.

use std::{path::Path, str::FromStr, sync::Arc, time::Duration};

use postrider_core::{ConfigError, Result};
use sqlx::{
    ConnectOptions, Connection, Sqlite, SqlitePool,
    pool::PoolConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{
    error::{is_busy, of_sqlx},
    open_file::{OpenFile, Writers},
};
use crate::connections::retry::retried;

/// How long SQLite itself waits for a lock. A verb gives up before, if its lease is short.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long opening a file is tried: SQLite does not wait for a lock when it changes to WAL mode, so it is asked again.
const OPEN_MAX: Duration = Duration::from_secs(10);

/// SQLite has one writer; more connections than this only wait for each other.
pub(super) const CONNECTIONS_MAX: u32 = 4;

/// How far SQLite may read ahead of us. Fewer rows mean more changes of thread; a claim bounds its bytes itself.
const ROWS_AHEAD_MAX: usize = 512;

/// What a name stands for.
struct Named {
    options: SqliteConnectOptions,
    in_memory: bool,
    read_only: bool,
}

/// A pool for `sqlite::memory:`, `sqlite://path`, `sqlite:path` or a plain path, and the file that it leads to. A missing file is created, a
/// missing folder is not.
pub(super) async fn connect(url: &str) -> Result<(SqlitePool, Arc<OpenFile>)> {
    if let Some(scheme) = foreign_scheme(url) {
        return Err(ConfigError::Database { given: scheme.to_owned(), known: KNOWN }.into());
    }
    if url.trim().is_empty() || url == "sqlite://" || url == "sqlite:" {
        // SQLite would take it for a database of its own that is gone with the connection.
        return Err(ConfigError::Database { given: url.to_owned(), known: KNOWN }.into());
    }
    let cannot = |error| {
        let folder = Path::new(url.trim_start_matches("sqlite:").trim_start_matches("//")).parent();
        let missing = folder.filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir());
        let hint = missing
            .map_or(String::new(), |folder| format!(" (the folder {} does not exist)", folder.display()));
        of_sqlx(error, format!("cannot open {url}{hint}"))
    };
    let Named { options, in_memory, read_only } = parse(url).map_err(cannot)?;
    let mut options =
        options.busy_timeout(BUSY_TIMEOUT).row_buffer_size(ROWS_AHEAD_MAX).disable_statement_logging();
    if !read_only {
        options = options
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal);
    }
    let pool = if in_memory {
        // The database lives in its connection and ends with it, so there is one and it is never replaced.
        SqlitePoolOptions::new().min_connections(1).max_connections(1).idle_timeout(None).max_lifetime(None)
    } else {
        SqlitePoolOptions::new().max_connections(CONNECTIONS_MAX)
    };
    let path = (!in_memory).then(|| options.get_filename().to_owned());
    let file = Arc::new(OpenFile::new(path, Writers::OfTheStore));
    let pool = leading_to(&file, pool, in_memory);
    // Of many that open a new file at once, some are refused at first.
    let opened = retried(OPEN_MAX, is_busy, |_until| pool.clone().connect_with(options.clone()));
    let pool = opened.await.map_err(cannot)?;
    // A file that is removed later is missed, and not made anew without its tables.
    pool.set_connect_options(options.create_if_missing(false));
    file.look();
    Ok((pool, file))
}

/// The same pool, whose connections lead to the file at the path. They do not go stale otherwise, so that asking each before its use would only
/// cost time.
fn leading_to(file: &Arc<OpenFile>, pool: SqlitePoolOptions, in_memory: bool) -> SqlitePoolOptions {
    let file = Arc::clone(file);
    pool.test_before_acquire(false).before_acquire(move |conn, meta| {
        let is_good = in_memory || !conn.is_in_transaction() && file.is_current(meta.age);
        Box::pin(std::future::ready(Ok(is_good)))
    })
}

/// What a database can be named by.
const KNOWN: &str = "a path, sqlite://path, or sqlite::memory:";

/// The scheme of a URL that is not SQLite's.
fn foreign_scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once("://")?;
    let is_scheme = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'.' | b'-'));
    (is_scheme && scheme != "sqlite").then_some(scheme)
}

/// A connection of the pool that can begin a transaction.
///
/// SQLite may have ended a transaction by itself (`OR ROLLBACK` and a full disk do that). sqlx does not see it, and would
/// refuse to begin another one on the connection for ever, so it is closed. In memory the database would end with it, which
/// is for the caller to decide.
pub(super) async fn acquire(pool: &SqlitePool) -> sqlx::Result<PoolConnection<Sqlite>> {
    loop {
        let conn = pool.acquire().await?;
        if !conn.is_in_transaction() {
            return Ok(conn);
        }
        if is_in_memory(pool) {
            return Err(sqlx::Error::Protocol(
                "SQLite ended a transaction by itself, and the one connection of a database in memory is of no more use: \
                 do not swallow such an error, or use a file"
                    .to_owned(),
            ));
        }
        conn.close().await?;
    }
}

/// The file that a pool of the program's own leads to.
pub(super) fn file_of(pool: &SqlitePool) -> Arc<OpenFile> {
    let path = (!is_in_memory(pool)).then(|| pool.connect_options().get_filename().to_owned());
    let file = OpenFile::new(path, Writers::OfTheProgram);
    file.look();
    Arc::new(file)
}

/// A pool of so many connections to the same file, opened as the first pool's are; a database in memory has no other connection than its own.
pub(super) fn beside(pool: &SqlitePool, file: &Arc<OpenFile>, connections: u32) -> SqlitePool {
    if is_in_memory(pool) {
        return pool.clone();
    }
    let options = SqliteConnectOptions::clone(&pool.connect_options());
    let like = pool.options().clone().max_connections(connections).min_connections(0);
    leading_to(file, like, false).connect_lazy_with(options)
}

pub(super) fn is_in_memory(pool: &SqlitePool) -> bool {
    let options = pool.connect_options();
    let name = options.get_filename().to_string_lossy();
    name.contains(":memory:") || name.starts_with("file:sqlx-in-memory")
}

fn parse(url: &str) -> sqlx::Result<Named> {
    let is_memory = |path: &str| path.is_empty() || path == ":memory:";
    let Some(rest) = url.strip_prefix("sqlite:") else {
        if is_memory(url) {
            return parse("sqlite::memory:");
        }
        // A plain path may hold any character; none of them is special.
        let options = SqliteConnectOptions::new().filename(url);
        return Ok(Named { options, in_memory: false, read_only: false });
    };
    let (path, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let path = path.strip_prefix("//").unwrap_or(path);
    let has = |wanted: &str| parameters.split('&').any(|parameter| parameter == wanted);
    let in_memory = is_memory(path) || has("mode=memory");
    Ok(Named {
        options: if is_memory(path) {
            SqliteConnectOptions::from_str("sqlite::memory:")?
        } else {
            SqliteConnectOptions::from_str(url)?
        },
        in_memory,
        read_only: has("mode=ro") || has("immutable=1") || has("immutable=true"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_a_file_names_the_same_file() {
        for url in ["sqlite:///tmp/shop.db", "sqlite:/tmp/shop.db", "/tmp/shop.db"] {
            let named = parse(url).unwrap();
            assert_eq!(named.options.get_filename().to_str(), Some("/tmp/shop.db"), "{url}");
            assert!(!named.in_memory && !named.read_only);
        }
        assert_eq!(parse("50%?#.db").unwrap().options.get_filename().to_str(), Some("50%?#.db"));
        assert!(parse("sqlite:shop.db?mode=ro").unwrap().read_only);
    }

    #[tokio::test]
    async fn a_blank_name_or_another_scheme_is_refused_with_what_can_be_given() {
        for url in ["", " ", "sqlite://", "postgres://u:secret@h/d", "mysql://h/d"] {
            let error = connect(url).await.unwrap_err().to_string();
            assert!(error.contains("names no database that can be opened here: give a path"), "{error}");
            assert!(!error.contains("secret"));
        }
    }

    #[test]
    fn every_way_to_name_memory_names_memory() {
        for url in ["sqlite::memory:", "sqlite://:memory:", ":memory:", "sqlite:x?mode=memory"] {
            assert!(parse(url).unwrap().in_memory, "{url}");
        }
    }
}
