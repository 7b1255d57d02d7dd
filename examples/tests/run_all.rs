//! Every example runs, and says what it should.

use std::{
    collections::BTreeSet,
    env, fs, io,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use sqlx::Connection as _;

/// How long an example may take, on a busy machine.
const RUN_MAX: Duration = Duration::from_secs(60);

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// A database of its own for an example that needs a server. It goes away with the test.
struct Database {
    variable: &'static str,
    server: String,
    name: String,
}

impl Database {
    fn of(example: &str) -> io::Result<Option<Self>> {
        let variable = match example.split_once('_') {
            Some(("postgres", _)) => "POSTRIDER_TEST_POSTGRES_URL",
            Some(("mysql", _)) => "POSTRIDER_TEST_MYSQL_URL",
            _ => return Ok(None),
        };
        let server = env::var(variable).map_err(|_| {
            io::Error::other(format!(
                "{variable} is not set: start the servers with `cargo xtask services up` and name them to this shell with \
                 `eval $(cargo xtask services env)`"
            ))
        })?;
        let database = Self { variable, server, name: format!("example_{example}_{}", std::process::id()) };
        database.run(format!("CREATE DATABASE {}", database.name))?;
        Ok(Some(database))
    }

    fn url(&self) -> String {
        let (base, _) = self.server.rsplit_once('/').unwrap_or((&self.server, ""));
        format!("{base}/{}", self.name)
    }

    fn run(&self, sql: String) -> io::Result<()> {
        let sql = sqlx::AssertSqlSafe(sql);
        tokio::runtime::Runtime::new()?.block_on(async {
            if self.server.starts_with("mysql") {
                let mut conn =
                    sqlx::MySqlConnection::connect(&self.server).await.map_err(io::Error::other)?;
                sqlx::raw_sql(sql).execute(&mut conn).await.map_err(io::Error::other)?;
            } else {
                let mut conn = sqlx::PgConnection::connect(&self.server).await.map_err(io::Error::other)?;
                sqlx::raw_sql(sql).execute(&mut conn).await.map_err(io::Error::other)?;
            }
            Ok(())
        })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let force = if self.server.starts_with("mysql") { "" } else { " WITH (FORCE)" };
        let _ = self.run(format!("DROP DATABASE {}{force}", self.name));
    }
}

fn check(name: &str, program: &str) -> io::Result<()> {
    // Some write a file into the folder that they are run in.
    let folder = std::env::temp_dir().join(format!("postrider-example-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let database = Database::of(name)?;
    let child = Command::new(program)
        .envs(database.iter().map(|database| (database.variable, database.url())))
        .current_dir(&folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()?;
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let output =
        ended.recv_timeout(RUN_MAX).map_err(|_| io::Error::other(format!("{name} does not end")))??;
    fs::remove_dir_all(&folder)?;
    let expected = fs::read_to_string(Path::new(FOLDER).join(format!("expected/{name}.txt")))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{name}: {}\n{stderr}", output.status);
    assert!(output.status.success(), "{name}: {}\n{stderr}", output.status);
    Ok(())
}

/// The names of the files in a folder, without their extension.
fn names_in(folder: &str) -> io::Result<BTreeSet<String>> {
    fs::read_dir(Path::new(FOLDER).join(folder))?
        .map(|entry| Ok(entry?.path().file_stem().unwrap_or_default().to_string_lossy().into_owned()))
        .collect()
}

macro_rules! run {
    ($($name:ident),* $(,)?) => {
        const RUN: &[&str] = &[$(stringify!($name)),*];

        mod prints_what_is_expected {
            $(#[test]
            fn $name() -> std::io::Result<()> {
                super::check(stringify!($name), env!(concat!("CARGO_BIN_EXE_", stringify!($name))))
            })*
        }
    };
}

run! {
    hello,
    minimal,
    manual_transaction,
    rusqlite_writer,
    enum_types,
    handlers,
    interceptors,
    delayed,
    two_databases,
    retry_policy,
    publish,
    custom_sink,
    write_only,
    several_instances,
    postgres_sqlx,
    postgres_tokio,
    postgres_deadpool,
    postgres_diesel,
    postgres_sea_orm,
    postgres_profile,
    mysql_sqlx,
}

#[test]
fn every_example_is_run_here_and_has_its_output_and_its_line_in_the_readme() {
    let programs = names_in("src/bin").unwrap();
    assert_eq!(programs, RUN.iter().map(|&name| name.to_owned()).collect());
    assert_eq!(programs, names_in("expected").unwrap());
    let readme = fs::read_to_string(Path::new(FOLDER).join("README.md")).unwrap();
    for name in programs {
        assert!(readme.contains(&format!("| [`{name}`](src/bin/{name}.rs) |")), "{name} is not in README.md");
    }
}

#[test]
fn the_first_program_of_the_readme_is_the_one_that_runs_here() {
    let readme = fs::read_to_string(Path::new(FOLDER).join("../README.md")).unwrap();
    let hello = fs::read_to_string(Path::new(FOLDER).join("src/bin/hello.rs")).unwrap();
    let (_, program) = hello.split_once("\nuse postrider").unwrap();
    let block = format!("```rust,no_run\nuse postrider{program}```");
    assert!(readme.contains(&block), "README.md and src/bin/hello.rs differ");
}
