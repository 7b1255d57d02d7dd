//! MariaDB from Debian.

use super::home::Home;
use super::server::{Room, Server, USER};
use super::state::Entry;
use crate::apt::Package;
use crate::tools::server_program;
use std::path::{Path, PathBuf};

pub(crate) struct MariaDb;

impl Server for MariaDb {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn variable(&self) -> &'static str {
        "POSTRIDER_TEST_MYSQL_URL"
    }

    fn missing(&self, _: &Home) -> Vec<Package> {
        let package = |name, units, program| (Package { name, units }, program);
        [
            package("mariadb-server", &["mariadb.service"], "mariadbd"),
            package("mariadb-client", &[], "mariadb"),
        ]
        .into_iter()
        .filter(|(_, program)| server_program(program).is_none())
        .map(|(package, _)| package)
        .collect()
    }

    fn account(&self) -> Option<&'static str> {
        Some("mysql")
    }

    fn prepare(&self, room: &Room<'_>) -> Result<(), String> {
        let mut install = room.command(&program("mariadb-install-db")?);
        install.args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=socket"]);
        install.arg(format!("--datadir={}", room.folder().join("data").display()));
        room.prepare(install)
    }

    fn launch(&self, room: &Room<'_>) -> Result<String, String> {
        let data = room.folder().join("data");
        let users = room.write("users.sql", &users(room.entry))?;
        let daemon = program("mariadbd")?;
        let mut server = room.command(&daemon);
        server.args([
            "--no-defaults".to_owned(),
            format!("--datadir={}", data.display()),
            format!("--socket={}", room.folder().join("socket").display()),
            format!("--pid-file={}", room.folder().join("pid").display()),
            format!("--init-file={}", users.display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--port={}", room.entry.port),
            "--skip-name-resolve".to_owned(),
            "--max-connections=300".to_owned(),
            "--innodb-buffer-pool-size=32M".to_owned(),
            "--character-set-server=utf8mb4".to_owned(),
        ]);
        server.args(tls(&data));
        room.launch(server)?;
        room.version(&daemon)
    }

    /// Runs a query: `mariadb-admin ping` also succeeds when authentication fails.
    fn ready(&self, room: &Room<'_>) -> Result<(), String> {
        let port = format!("--port={}", room.entry.port);
        let arguments = [
            "--no-defaults",
            "--protocol=tcp",
            "--host=127.0.0.1",
            &port,
            "--user",
            USER,
            "--connect-timeout=5",
            "--execute=SELECT 1",
        ];
        room.ask(&program("mariadb")?, &arguments, &[("MYSQL_PWD", &room.entry.password)]).map(|_| ())
    }

    fn url(&self, entry: &Entry) -> String {
        format!("mysql://{USER}:{}@127.0.0.1:{}/mysql", entry.password, entry.port)
    }
}

fn program(name: &str) -> Result<PathBuf, String> {
    server_program(name).ok_or_else(|| format!("{name} is not here."))
}

/// TLS, with what a borrower has put into the data folder: MySQL takes it from there by itself, under these names.
fn tls(data: &Path) -> Vec<String> {
    let files = [("ca", "ca.pem"), ("cert", "server-cert.pem"), ("key", "server-key.pem")];
    let there = files.into_iter().filter(|(_, file)| data.join(file).exists());
    there.map(|(option, file)| format!("--ssl-{option}={}", data.join(file).display())).collect()
}

/// One statement a line, as `--init-file` requires.
fn users(entry: &Entry) -> String {
    format!(
        "CREATE OR REPLACE USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{}';\n\
         GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;\n",
        entry.password
    )
}
