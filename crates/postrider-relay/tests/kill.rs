//! The demo, killed with SIGKILL at moments that a seed decides, and started again on the same file.
#![allow(clippy::unwrap_used, reason = "what is not as it should be fails the test")]

mod command;

use std::{
    io::Read,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use command::{Counted, demo, fresh, postrider};
use postrider::rng::Rng;
use sqlx::{ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};

/// Longest that a start may take to make the progress that it is killed for.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A start that ends only when it is told to.
struct Victim(Child);

impl Victim {
    fn start(db: &str, seed: u64) -> Self {
        let mut command = postrider();
        command.args(["demo", "--events", "400", "--json", "--db", db, "--seed", &seed.to_string()]);
        Self(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn kill(mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "it ended before it was killed");
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Sends a signal that can be caught, and waits for the end.
    fn ask(mut self, signal: &str) -> Output {
        self.signal(signal);
        let mut stdout = Vec::new();
        self.0.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        Output { status: self.0.wait().unwrap(), stdout, stderr: Vec::new() }
    }
}

/// A test that fails leaves nobody behind who would write to the file of the next one.
impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many rows a table of the ledger has; none while there is no such table.
async fn rows(db: &str, table: Table) -> i64 {
    let count = async {
        let options = SqliteConnectOptions::new().filename(db).read_only(true);
        let mut conn: SqliteConnection = options.busy_timeout(Duration::from_secs(1)).connect().await?;
        match table {
            Table::Written => {
                sqlx::query_scalar("SELECT count(*) FROM shop_written").fetch_one(&mut conn).await
            }
            Table::Delivered => {
                sqlx::query_scalar("SELECT count(*) FROM shop_delivered").fetch_one(&mut conn).await
            }
        }
    };
    count.await.unwrap_or(0)
}

#[derive(Debug, Clone, Copy)]
enum Table {
    Written,
    Delivered,
}

/// Waits until a table has grown by so many rows.
async fn until_grown(db: &str, table: Table, by: i64) {
    assert!(grows(db, table, by, TIMEOUT).await, "{table:?} did not grow by {by} within {TIMEOUT:?}");
}

/// Whether a table grows by so many rows within so long.
async fn grows(db: &str, table: Table, by: i64, within: Duration) -> bool {
    let (started, goal) = (Instant::now(), rows(db, table).await + by);
    while rows(db, table).await < goal {
        if started.elapsed() > within {
            return false;
        }
        tokio::task::yield_now().await;
    }
    true
}

#[test]
fn killed_ten_times_at_any_moment_it_loses_nothing_and_keeps_the_order() {
    let db = fresh("kill");
    let mut rng = Rng::seeded(0x0BAD_5EED);
    for round in 0..10 {
        let victim = Victim::start(&db, rng.next_u64());
        // A new start writes at once, and delivers when the lease of the one before has run out.
        let table = if round % 2 == 0 { Table::Delivered } else { Table::Written };
        let by = 1 + rng.below(300) as i64;
        command::block_on(until_grown(&db, table, by));
        victim.kill();
    }
    let run = demo(["--events", "100", "--exit", "--json", "--db", &db]);
    let counted = Counted::of(&run);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    counted.assert_well();
    assert_eq!(counted.get("pending"), 0);
    assert!(counted.get("committed") > 100 && counted.get("rolled_back") > 0, "{counted:?}");
}

#[test]
fn after_a_kill_the_next_start_goes_on_within_three_seconds() {
    let db = fresh("goes-on");
    let victim = Victim::start(&db, 1);
    command::block_on(until_grown(&db, Table::Delivered, 10));
    victim.kill();
    let next = Victim::start(&db, 2);
    let started = Instant::now();
    command::block_on(until_grown(&db, Table::Delivered, 1));
    let took = started.elapsed();
    next.kill();
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn asked_to_end_it_ends_with_the_conclusion() {
    for signal in ["-INT", "-TERM"] {
        let db = fresh(&format!("asked{signal}"));
        let victim = Victim::start(&db, 3);
        command::block_on(until_grown(&db, Table::Delivered, 10));
        let run = victim.ask(signal);
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        Counted::of(&run).assert_well();
    }
}

#[test]
fn one_of_two_processes_stopped_past_its_lease_and_continued_settles_nothing_wrong_and_the_other_goes_on() {
    let db = fresh("stopped");
    let first = Victim::start(&db, 4);
    command::block_on(until_grown(&db, Table::Delivered, 100));
    let second = Victim::start(&db, 5);
    // It may be stopped inside a transaction, and then nobody can write to a SQLite file: continued, and stopped again.
    let taken_over = (0..10).any(|_| {
        first.signal("-STOP");
        let grown = command::block_on(grows(&db, Table::Delivered, 5, Duration::from_secs(4)));
        if !grown {
            first.signal("-CONT");
            command::block_on(until_grown(&db, Table::Written, 5));
        }
        grown
    });
    assert!(taken_over, "the second did not take over");
    first.signal("-CONT");
    command::block_on(until_grown(&db, Table::Delivered, 20));

    // The active one is killed, and the one that was stopped takes over in its turn.
    second.kill();
    command::block_on(until_grown(&db, Table::Delivered, 20));
    first.kill();
    let run = demo(["--events", "50", "--exit", "--json", "--db", &db]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let counted = Counted::of(&run);
    counted.assert_well();
    assert_eq!(counted.get("pending"), 0);
}
