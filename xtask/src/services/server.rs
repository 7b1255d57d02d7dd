//! The trait of a server, and the room that each one gets.

use super::account::Account;
use super::clients::Client;
use super::home::{Home, make_folder, remove_folder, write_private};
use super::process;
use super::state::{Entry, State};
use crate::apt::Package;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

/// The user name of all clients.
pub(crate) const USER: &str = "postrider";

const PREPARE_TIME_MAX: Duration = Duration::from_secs(120);

/// A kind of server. It works in a [`Room`].
pub(crate) trait Server: Sync {
    fn name(&self) -> &'static str;

    /// The variable with its URL that tests read.
    fn variable(&self) -> &'static str;

    /// The server that this one stands in front of.
    fn needs(&self) -> Option<&'static str> {
        None
    }

    /// Debian packages that are missing.
    fn missing(&self, home: &Home) -> Vec<Package>;

    /// Its account when the caller is root, if it does not run as root.
    fn account(&self) -> Option<&'static str> {
        None
    }

    /// The signal that shuts it down soon.
    fn stop_signal(&self) -> &'static str {
        "TERM"
    }

    /// The signal that ends it as a crash does.
    fn crash_signal(&self) -> &'static str {
        "KILL"
    }

    /// Prepares its data in the empty folder of the room.
    fn prepare(&self, _room: &Room<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Launches it with the data in its folder. Returns its version.
    fn launch(&self, room: &Room<'_>) -> Result<String, String>;

    /// Whether it serves a client now. Called until it does.
    fn ready(&self, room: &Room<'_>) -> Result<(), String>;

    /// Its client programs; installs them if they are missing.
    fn clients(&self, _home: &Home) -> Result<Vec<Client>, String> {
        Ok(Vec::new())
    }

    /// The URL for a user who may do everything.
    fn url(&self, entry: &Entry) -> String;
}

/// The environment of one server.
pub(crate) struct Room<'a> {
    pub(crate) name: &'a str,
    pub(crate) home: &'a Home,
    pub(crate) state: &'a State,
    pub(crate) entry: &'a Entry,
    pub(crate) account: Option<Account>,
}

impl Room<'_> {
    /// Its own folder: throw-away data, configuration, sockets.
    pub(crate) fn folder(&self) -> PathBuf {
        self.state.data.join(self.name)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.home.log(self.name)
    }

    fn record(&self) -> PathBuf {
        self.home.processes().join(self.name)
    }

    pub(crate) fn is_alive(&self) -> bool {
        process::alive(&self.record()).is_some()
    }

    /// An empty folder and an empty log.
    pub(crate) fn clear(&self) -> Result<(), String> {
        remove_folder(&self.folder())?;
        let _ = fs::remove_file(self.log());
        self.make_folder("")
    }

    /// A folder inside that belongs to the server's account.
    pub(crate) fn make_folder(&self, name: &str) -> Result<(), String> {
        let folder = self.folder().join(name);
        make_folder(&folder, 0o700)?;
        self.give(&folder)
    }

    /// Writes a file that only the server can read. Returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.folder().join(name);
        write_private(&path, text)?;
        self.give(&path)?;
        Ok(path)
    }

    fn give(&self, path: &Path) -> Result<(), String> {
        let Some(account) = self.account else { return Ok(()) };
        chown(path, Some(account.uid), Some(account.gid))
            .map_err(|error| format!("Cannot give {} away: {error}", path.display()))
    }

    /// A program of the server: on record, in its folder, under its account, and without the caller's environment, which may hold
    /// settings for other servers.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = process::recorded(program);
        self.clean(&mut command);
        command.current_dir(self.folder());
        if let Some(account) = self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    fn clean(&self, command: &mut Command) {
        let folder = self.folder();
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", &folder)
            .env("TMPDIR", &folder)
            .env("LC_ALL", "C.UTF-8");
    }

    /// Runs a program that prepares something, to its end. It has a record of its own: after a crash of this process it must not be
    /// mistaken for the server.
    pub(crate) fn prepare(&self, command: Command) -> Result<(), String> {
        let what = format!("{command:?}");
        let status = process::wait(self.launch_companion("prepare", command)?, PREPARE_TIME_MAX)
            .map_err(|why| format!("This {why}: {what}"))?;
        if status.success() { Ok(()) } else { Err(format!("This ended with {status}: {what}")) }
    }

    /// Starts a program that stays.
    pub(crate) fn launch(&self, command: Command) -> Result<Child, String> {
        process::launch(command, &self.record(), &self.log())
    }

    /// Starts a program that stays and that the server needs.
    pub(crate) fn launch_companion(&self, what: &str, command: Command) -> Result<Child, String> {
        process::launch(command, &self.home.processes().join(format!("{}.{what}", self.name)), &self.log())
    }

    /// Runs a client's command as the caller. Returns its output.
    pub(crate) fn ask(
        &self,
        client: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<String, String> {
        let mut command = Command::new(client);
        self.clean(&mut command);
        command.args(arguments).envs(variables.iter().copied());
        let output =
            command.output().map_err(|error| format!("{} could not start: {error}", client.display()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// The version that a program prints.
    pub(crate) fn version(&self, program: &Path) -> Result<String, String> {
        let printed = self.ask(program, &["--version"], &[])?;
        version_in(&printed).ok_or_else(|| format!("{} names no version: {printed}", program.display()))
    }
}

/// The first numbers with dots between them.
fn version_in(text: &str) -> Option<String> {
    text.split(|letter: char| !(letter.is_ascii_digit() || letter == '.'))
        .map(|word| word.trim_matches('.'))
        .find(|word| word.contains('.'))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_words_its_version_in_its_own_way() {
        for (printed, version) in [
            ("postgres (PostgreSQL) 18.6", "18.6"),
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18"),
            ("PgBouncer 1.18.0\nlibevent 2.1.12-stable", "1.18.0"),
            ("mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu", "10.11.19"),
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1", "7.0.15"),
            ("nats-server: v2.15.1", "2.15.1"),
        ] {
            assert_eq!(version_in(printed).as_deref(), Some(version), "{printed}");
        }
        assert_eq!(version_in("no numbers. None"), None);
    }
}
