//! Reads processor time from Linux: of a relay, and of the server's processes or threads that work for it if the server runs here.

use std::{collections::BTreeMap, fs};

use postrider_relay::Failure;
use sqlx::{Connection, MySqlConnection, PgConnection};

use super::server::process::Relay;

/// Seconds of processor time of all threads of a process.
pub(super) fn of_process(id: u32) -> Result<f64, Failure> {
    let tasks = fs::read_dir(format!("/proc/{id}/task"))
        .map_err(|error| Failure::unreachable("cannot list the threads of a process", &error))?;
    Ok(tasks.flatten().filter_map(|task| of_file(&task.path().join("schedstat").to_string_lossy())).sum())
}

/// Seconds of processor time of one thread; `None` if there is no such thread.
fn of_thread(id: i64) -> Option<f64> {
    of_file(&format!("/proc/{id}/task/{id}/schedstat"))
}

/// Reads a `schedstat` file, whose first number is nanoseconds on a processor.
fn of_file(path: &str) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}

/// A connection that asks which threads serve the database, and is not counted itself.
enum Asking {
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

/// A relay and the server threads that work for it.
pub(super) struct Both {
    asking: Option<Asking>,
    /// Threads of the server that are not counted.
    others: Vec<i64>,
    /// The last known time of each thread; one that has ended keeps it.
    seen: BTreeMap<i64, f64>,
    /// The first known time of each thread.
    first: BTreeMap<i64, f64>,
}

impl Both {
    /// Watches a relay, and the server at this URL if it runs here.
    pub(super) async fn of(relay: &Relay, url: Option<&str>) -> Result<Self, Failure> {
        let asking = match url.and_then(|url| Some((url, url.split_once("://")?.0))) {
            Some((url, "postgres" | "postgresql")) => {
                Some(Asking::Postgres(PgConnection::connect(url).await?))
            }
            Some((url, "mysql" | "mariadb")) => Some(Asking::Mysql(MySqlConnection::connect(url).await?)),
            _ => None,
        };
        let mut both = Self { asking, others: Vec::new(), seen: BTreeMap::new(), first: BTreeMap::new() };
        both.taken(relay).await?;
        Ok(both)
    }

    /// Does not count the thread of a connection that is not the relay's.
    pub(super) fn without(mut self, thread: Option<i64>) -> Self {
        self.others.extend(thread);
        self
    }

    /// Whether the server is counted too.
    pub(super) fn counts_server(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Seconds of processor time of both, from some moment on.
    pub(super) async fn taken(&mut self, relay: &Relay) -> Result<f64, Failure> {
        for thread in self.threads().await? {
            if let Some(taken) = of_thread(thread) {
                self.first.entry(thread).or_insert(taken);
                self.seen.insert(thread, taken);
            }
        }
        let of = |(thread, taken): (&i64, &f64)| {
            let counted = !self.others.contains(thread);
            if counted { taken - self.first.get(thread).copied().unwrap_or_default() } else { 0.0 }
        };
        Ok(relay.cpu()? + self.seen.iter().map(of).sum::<f64>())
    }

    /// The threads that serve this database, if they are threads of this machine.
    async fn threads(&mut self) -> Result<Vec<i64>, Failure> {
        let (threads, program): (Vec<i64>, &[&str]) = match &mut self.asking {
            None => return Ok(Vec::new()),
            Some(Asking::Postgres(conn)) => {
                let sql = "SELECT pid::bigint FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
                (sqlx::query_scalar(sql).fetch_all(conn).await?, &["postgres"])
            }
            Some(Asking::Mysql(conn)) => {
                // MySQL has no such column; then only the relay is counted.
                let sql = "SELECT CAST(tid AS SIGNED) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()";
                (sqlx::query_scalar(sql).fetch_all(conn).await.unwrap_or_default(), &["maria", "mysqld"])
            }
        };
        let is_here = |thread: &i64| {
            let command = fs::read_to_string(format!("/proc/{thread}/cmdline")).unwrap_or_default();
            program.iter().any(|program| command.contains(program))
        };
        Ok(threads.into_iter().filter(is_here).collect())
    }
}
