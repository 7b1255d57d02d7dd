//! PgBouncer in transaction mode, in front of PostgreSQL 18.

use super::home::Home;
use super::postgres::{self, Postgres18};
use super::server::{Room, Server, USER};
use super::state::Entry;
use crate::apt::Package;
use crate::tools::server_program;

pub(crate) struct PgBouncer;

impl Server for PgBouncer {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn variable(&self) -> &'static str {
        "POSTRIDER_TEST_PGBOUNCER_URL"
    }

    fn needs(&self) -> Option<&'static str> {
        Some(Postgres18.name())
    }

    fn missing(&self, _: &Home) -> Vec<Package> {
        let package = Package { name: "pgbouncer", units: &["pgbouncer.service"] };
        if server_program("pgbouncer").is_some() { Vec::new() } else { vec![package] }
    }

    fn account(&self) -> Option<&'static str> {
        Some("postgres")
    }

    /// It passes the client's password on to the server, so both have the same.
    fn launch(&self, room: &Room<'_>) -> Result<String, String> {
        let behind = upstream(room)?;
        let users = room.write("users", &format!("\"{USER}\" \"{}\"\n", behind.password))?;
        let configuration =
            room.write("pgbouncer.ini", &configuration(room.entry, behind, &users.display().to_string()))?;
        let program = server_program("pgbouncer").ok_or("pgbouncer is not here.")?;
        let mut server = room.command(&program);
        server.arg(configuration);
        room.launch(server)?;
        room.version(&program)
    }

    /// Asks PgBouncer only when PostgreSQL serves: after a failed login it waits before it tries again.
    fn ready(&self, room: &Room<'_>) -> Result<(), String> {
        postgres::answers(room, &Postgres18::programs(room, Postgres18.name()), upstream(room)?)?;
        postgres::answers(room, &Postgres18::programs(room, Postgres18.name()), room.entry)
    }

    fn url(&self, entry: &Entry) -> String {
        postgres::url(entry)
    }
}

fn upstream<'a>(room: &Room<'a>) -> Result<&'a Entry, String> {
    let entry = room.state.servers.get(Postgres18.name());
    entry.ok_or_else(|| "PgBouncer has no PostgreSQL behind it.".to_owned())
}

fn configuration(entry: &Entry, upstream: &Entry, users: &str) -> String {
    // sqlx and others set `extra_float_digits` when they connect; PgBouncer refuses parameters that it does not know.
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={upstream}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = scram-sha-256\n\
         auth_file = {users}\n\
         admin_users = {USER}\n\
         pool_mode = transaction\n\
         max_client_conn = 300\n\
         server_login_retry = 1\n\
         ignore_startup_parameters = extra_float_digits\n",
        upstream = upstream.port,
        port = entry.port,
    )
}
