//! Processes that outlive this one. They are recognised by id and start time, never by name.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const RECORD_TIME_MAX: Duration = Duration::from_secs(10);
const STOP_TIME_MAX: Duration = Duration::from_secs(30);
const KILL_TIME_MAX: Duration = Duration::from_secs(10);

/// A shell that records its own line of `/proc` and then becomes the program. So a process is on record before it does
/// anything, even if its parent dies.
const RECORDED: &str = r#"read -r line </proc/$$/stat && printf '%s\n' "$line" && exec "$@" >&2"#;

/// A command whose program [`launch`] records. The caller adds arguments and environment.
pub(crate) fn recorded(program: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", RECORDED, "sh"]).arg(program);
    command
}

/// Starts a [`recorded`] command. Its output goes to the log.
pub(crate) fn launch(mut command: Command, record: &Path, log: &Path) -> Result<Child, String> {
    let cannot = |what: &Path, error| format!("Cannot write {}: {error}", what.display());
    let boot = fs::read_to_string(BOOT_ID).map_err(|error| format!("{BOOT_ID} cannot be read: {error}"))?;
    let mut record_file = File::create(record).map_err(|error| cannot(record, error))?;
    record_file.write_all(boot.as_bytes()).map_err(|error| cannot(record, error))?;
    let log_file = File::options().create(true).append(true).open(log).map_err(|error| cannot(log, error))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(record_file)
        .stderr(log_file)
        // Its own group: the terminal's Ctrl-C does not reach it, and what it starts ends with it.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("{:?} could not start: {error}", command.get_program()))?;
    let start = Instant::now();
    while on_record(record).is_none() {
        if matches!(child.try_wait(), Ok(Some(_))) || start.elapsed() > RECORD_TIME_MAX {
            return Err(format!("A process did not start; see {}", log.display()));
        }
        thread::sleep(LOOK_AGAIN);
    }
    Ok(child)
}

/// Waits until a child ends, and kills it if it takes too long.
pub(crate) fn wait(mut child: Child, time_max: Duration) -> Result<ExitStatus, String> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if start.elapsed() > time_max => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("did not end within {} s", time_max.as_secs()));
            }
            Ok(None) => thread::sleep(LOOK_AGAIN),
            Err(error) => return Err(format!("could not be waited for: {error}")),
        }
    }
}

/// The id of the process on record, if it lives.
pub(crate) fn alive(record: &Path) -> Option<u32> {
    let (pid, started) = on_record(record)?;
    let now = Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    (now.started == started && !now.ended).then_some(pid)
}

/// Ends the process on record, if it lives: first by its stop signal, then by SIGKILL. Removes the record.
pub(crate) fn stop(record: &Path, signal: &str) -> Result<(), String> {
    if let Some(pid) = alive(record) {
        send(signal, &pid.to_string())?;
        within(STOP_TIME_MAX, || alive(record).is_none());
        // It led a group. Members may outlive it: the program of a script, the workers of a killed server.
        if !group(pid).is_empty() {
            send("KILL", &format!("-{pid}"))?;
        }
        if !within(KILL_TIME_MAX, || group(pid).is_empty()) {
            return Err(format!("The process {pid} or one of its group does not end, not even by SIGKILL."));
        }
    }
    let _ = fs::remove_file(record);
    Ok(())
}

/// Polls until the condition holds or the time is up.
fn within(time_max: Duration, is_so: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > time_max {
            return false;
        }
        thread::sleep(LOOK_AGAIN);
    }
    true
}

/// The living processes of a group.
fn group(leader: u32) -> Vec<u32> {
    let Ok(folders) = fs::read_dir("/proc") else { return Vec::new() };
    folders
        .filter_map(|folder| Stat::parse(&fs::read_to_string(folder.ok()?.path().join("stat")).ok()?))
        .filter(|stat| stat.group == leader && !stat.ended)
        .map(|stat| stat.pid)
        .collect()
}

/// Uses the shell's own `kill`, since not every system has the program. A process that has ended meanwhile is no error.
fn send(signal: &str, to: &str) -> Result<(), String> {
    Command::new("/bin/sh")
        .args(["-c", r#"kill -s "$1" -- "$2" 2>/dev/null"#, "sh", signal, to])
        .status()
        .map(|_| ())
        .map_err(|error| format!("SIG{signal} cannot be sent: {error}"))
}

/// Process id and start time, if the process was of this boot: both start over with the machine.
fn on_record(record: &Path) -> Option<(u32, u64)> {
    let text = fs::read_to_string(record).ok()?;
    let (boot, line) = text.split_once('\n')?;
    let same_boot = fs::read_to_string(BOOT_ID).ok()?.trim() == boot;
    let stat = Stat::parse(line)?;
    same_boot.then_some((stat.pid, stat.started))
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    pid: u32,
    group: u32,
    /// In ticks since the machine started.
    started: u64,
    /// A zombie: its parent has not collected it yet.
    ended: bool,
}

impl Stat {
    /// A line of `/proc/PID/stat`: the id, the name in brackets (which may hold anything), the state, the
    /// parent, the group, and as the 22nd field the start time.
    fn parse(line: &str) -> Option<Self> {
        let (pid, _) = line.split_once(' ')?;
        let (_, rest) = line.rsplit_once(") ")?;
        let mut fields = rest.split_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X" | "x");
        let group = fields.nth(1)?.parse().ok()?;
        Some(Self { pid: pid.parse().ok()?, group, started: fields.nth(16)?.parse().ok()?, ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("postrider-process-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn waiting(folder: &Path) -> Child {
        let mut command = recorded(Path::new("/bin/sh"));
        // It waits for a line that never comes.
        command.args(["-c", "mkfifo pipe; read line <pipe"]).current_dir(folder);
        launch(command, &folder.join("record"), &folder.join("log")).unwrap()
    }

    #[test]
    fn a_process_is_on_record_while_it_lives_and_ends_when_told() {
        let folder = folder("ends");
        let record = folder.join("record");
        let mut child = waiting(&folder);
        assert_eq!(alive(&record), Some(child.id()));
        stop(&record, "TERM").unwrap();
        assert_eq!(alive(&record), None);
        assert!(!child.wait().unwrap().success());
        stop(&record, "TERM").unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_process_started_ends_with_it() {
        let folder = folder("group");
        let record = folder.join("record");
        let mut command = recorded(Path::new("/bin/sh"));
        // The child of a child; the one in the middle does not wait for it when it is told to end.
        command.args(["-c", "mkfifo pipe; sh -c 'read line <pipe'; true"]).current_dir(&folder);
        let mut child = launch(command, &record, &folder.join("log")).unwrap();
        assert!(within(KILL_TIME_MAX, || group(child.id()).len() == 2));
        stop(&record, "TERM").unwrap();
        assert!(group(child.id()).is_empty());
        child.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn another_process_with_the_same_id_is_not_ours() {
        let folder = folder("other");
        let record = folder.join("record");
        let mut child = waiting(&folder);
        let text = fs::read_to_string(&record).unwrap();
        let (boot, line) = text.split_once('\n').unwrap();
        let started = Stat::parse(line).unwrap().started.to_string();
        fs::write(&record, format!("{boot}\n{}", line.replace(&started, "1"))).unwrap();
        assert_eq!(alive(&record), None);
        fs::write(&record, format!("another boot\n{line}")).unwrap();
        assert_eq!(alive(&record), None);
        stop(&record, "KILL").unwrap();
        assert!(child.try_wait().unwrap().is_none(), "not ours, so not ended");
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_line_of_proc_is_read_whatever_the_name_holds() {
        let line = "42 (a) R b) S 1 41 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2";
        assert_eq!(Stat::parse(line), Some(Stat { pid: 42, group: 41, started: 98_765, ended: false }));
        assert!(Stat::parse(&line.replace("S 1", "Z 1")).unwrap().ended);
        assert_eq!(Stat::parse("42 (sh) S 1"), None);
    }
}
