//! The demo's file, and what is wrong with it if it cannot be used.

use std::path::{Path, PathBuf};

use postrider::{Error, Store, sqlite::SqliteStore};
use sqlx::{Connection, SqlitePool, sqlite::SqlitePoolOptions};

use crate::{failure::Failure, folder::TemporaryFolder};

/// Connections of the shop. SQLite has one writer and does not queue fairly; the pool does.
const SHOP_CONNECTIONS: u32 = 2;

/// The file of the demo.
pub(crate) struct Place {
    path: PathBuf,
    /// The folder of a temporary file, removed at the end.
    temporary: Option<TemporaryFolder>,
}

impl Place {
    /// The given file, or a temporary one.
    pub(crate) fn choose(asked_for: Option<&Path>) -> Result<Self, Failure> {
        match asked_for {
            Some(path) if path.as_os_str().is_empty() || path == Path::new(":memory:") => {
                Err(Failure::usage(
                    "--db must name a file, and not memory: a database in memory outlives no kill",
                ))
            }
            Some(path) => Ok(Self { path: path.to_owned(), temporary: None }),
            None => {
                let folder = TemporaryFolder::create("demo")?;
                Ok(Self { path: folder.path().join("shop.db"), temporary: Some(folder) })
            }
        }
    }

    /// Opens the store in the file and creates its tables.
    pub(crate) async fn connect(&self) -> Result<SqliteStore, Failure> {
        let path = self.path.to_str().ok_or_else(|| {
            Failure::usage(format!("--db {} is not UTF-8", self.path.display())).hint("give another path")
        })?;
        let opened = async {
            let store = SqliteStore::connect(path).await?;
            store.migrate().await?;
            Ok(store)
        };
        opened.await.map_err(|error: Error| self.explain(error.into()))
    }

    /// A pool for the shop itself, with the settings of the store's.
    ///
    /// SQLite rolls some transactions back by itself after an error. sqlx does not notice and would refuse to begin another one on the same
    /// connection, so the pool drops such a connection.
    pub(crate) async fn shop_pool(&self, store: &SqliteStore) -> Result<SqlitePool, Failure> {
        let options = (*store.pool().connect_options()).clone();
        SqlitePoolOptions::new()
            .max_connections(SHOP_CONNECTIONS)
            .before_acquire(|conn, _| Box::pin(async move { Ok(!conn.is_in_transaction()) }))
            .connect_with(options)
            .await
            .map_err(|error| self.explain(error.into()))
    }

    /// The failure, with what the path shows.
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        // A text that begins with sqlite: is a URL and not a path.
        let is_url = self.path.to_str().is_some_and(|path| path.starts_with("sqlite:"));
        let folder = self.path.parent().filter(|folder| !is_url && !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return failure.hint(format!(
                "the folder {} does not exist: create it, or give another --db",
                folder.display()
            ));
        }
        if self.path.is_dir() {
            return failure
                .hint(format!("{} is a folder: give the path of a file with --db", self.path.display()));
        }
        failure.hint_if_none(format!(
            "--db must name a SQLite file that may be written, or one that can be created; this was {}",
            self.path.display()
        ))
    }

    /// Describes what is about to happen and where.
    pub(crate) fn introduction(&self, seed: u64) -> String {
        let path = self.path.display();
        let kept = match self.temporary {
            Some(_) => "removed at the end; --db PATH keeps one",
            None => "kept: the next start with this --db goes on with it",
        };
        format!(
            "A shop changes orders and writes events, both in one SQLite transaction.\n\
             The outbox delivers the events.\n  \
             file  {path}\n        {kept}\n  \
             look  sqlite3 -box {path} 'SELECT * FROM postrider_hold'\n  \
             kill  kill -9 {}\n        and start it again with the same --db: nothing is lost\n  \
             seed  {seed}\n        --seed {seed} repeats the same stories\n",
            std::process::id()
        )
    }
}
