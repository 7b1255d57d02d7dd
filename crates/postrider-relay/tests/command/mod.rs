//! Runs the command, and reads what it says.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "what is not as it should be fails the test")]

use std::{
    fmt::Debug,
    process::{Command, Output, Stdio},
};

use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

/// The command, without what the environment could change.
pub(crate) fn postrider() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.env_remove("POSTRIDER_LOG").stdin(Stdio::null());
    command
}

/// Runs `postrider demo` to its end.
pub(crate) fn demo<const N: usize>(args: [&str; N]) -> Output {
    postrider().arg("demo").args(args).output().unwrap()
}

/// What a run printed, on stdout and on stderr.
pub(crate) fn texts(run: &Output) -> (String, String) {
    (String::from_utf8_lossy(&run.stdout).into_owned(), String::from_utf8_lossy(&run.stderr).into_owned())
}

/// The path of a file that is not there yet, in a folder of the tests' own.
pub(crate) fn fresh(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("postrider-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder.join("shop.db").to_str().unwrap().to_owned()
}

/// Runs statements on a file.
pub(crate) fn sql(db: &str, statements: &str) {
    block_on(async {
        let mut conn = SqliteConnection::connect(&format!("sqlite:{db}")).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
    });
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// The last line of a run: one flat JSON object.
#[derive(Debug)]
pub(crate) struct Counted(Map<String, Value>);

impl Counted {
    pub(crate) fn of(run: &Output) -> Self {
        let (stdout, stderr) = texts(run);
        let last = stdout.lines().last().unwrap_or_else(|| panic!("nothing on stdout: {stderr}"));
        Self(serde_json::from_str(last).unwrap())
    }

    pub(crate) fn get(&self, name: &str) -> i64 {
        self.0.get(name).and_then(Value::as_i64).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    pub(crate) fn number(&self, name: &str) -> f64 {
        self.0.get(name).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// Every committed event is in one place.
    pub(crate) fn assert_sum(&self) {
        let places: i64 =
            ["delivered", "dead", "pending", "held", "lost"].map(|name| self.get(name)).iter().sum();
        assert_eq!(self.get("committed"), places, "{self:?}");
    }

    /// Nothing was lost, came out of order, or came although it was rolled back.
    pub(crate) fn assert_well(&self) {
        for name in ["lost", "out_of_order", "phantom"] {
            assert_eq!(self.get(name), 0, "{name}: {self:?}");
        }
        self.assert_sum();
    }
}
