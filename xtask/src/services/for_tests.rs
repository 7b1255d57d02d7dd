//! Servers for a test run: started before it and ended after it, even if it is killed.
//!
//! A second process, the watcher, holds the read end of a pipe. When the test run ends, also by Ctrl-C or SIGKILL, the pipe
//! closes, and the watcher ends the servers that nobody keeps and no other test run uses.

use super::home::Home;
use super::{ALL, FOR_TESTS, down, given, up};
use crate::place::Place;
use std::cell::RefCell;
use std::env;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

const WATCHING: &str = "watching";

/// The servers of this run. None until a step asks for some.
#[derive(Default)]
pub(crate) struct ForTests(RefCell<Option<Child>>);

impl ForTests {
    /// Starts the servers that do not run. Returns the variables for the tests.
    pub(crate) fn start(&self, place: &Place) -> Result<Vec<(&'static str, String)>, String> {
        self.start_only(place, FOR_TESTS)
    }

    /// Starts these servers, unless they run.
    pub(crate) fn start_only(
        &self,
        place: &Place,
        names: &[&str],
    ) -> Result<Vec<(&'static str, String)>, String> {
        let home = Home::open(place)?;
        let mut watcher = self.0.borrow_mut();
        if watcher.is_none() {
            *watcher = Some(watch_us()?);
        }
        let _lock = home.lock()?;
        up::up(&home, &up::wanted(ALL, names, given)?, false)?;
        super::variables(&home)
    }

    /// Waits until the watcher has ended the servers.
    pub(crate) fn end(&self) -> Result<(), String> {
        let Some(mut watcher) = self.0.borrow_mut().take() else { return Ok(()) };
        drop(watcher.stdin.take());
        match watcher.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                Err(format!("The servers could not be ended ({status}): try `cargo xtask services down`."))
            }
            Err(error) => Err(format!("The watcher cannot be waited for: {error}")),
        }
    }
}

/// Starts this program again as the watcher. It has its own process group, so that Ctrl-C does not reach it.
fn watch_us() -> Result<Child, String> {
    let cannot = |error: io::Error| format!("The watcher could not start: {error}");
    let mut watcher = Command::new(env::current_exe().map_err(cannot)?)
        .args(["services", "watch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(cannot)?;
    let mut line = String::new();
    let stdout = watcher.stdout.take().ok_or("The watcher's output was not kept.")?;
    BufReader::new(stdout).read_line(&mut line).map_err(cannot)?;
    if line.trim() == WATCHING { Ok(watcher) } else { Err("The watcher ended at once.".to_owned()) }
}

/// The watcher: waits for the end of the test run, then ends the servers.
pub(crate) fn watch(home: &Home) -> Result<(), String> {
    let cannot = |error: io::Error| format!("The services cannot be watched: {error}");
    let ours = home.in_use()?;
    ours.lock_shared().map_err(cannot)?;
    println!("{WATCHING}");
    io::stdin().read_to_end(&mut Vec::new()).map_err(cannot)?;

    let _lock = home.lock()?;
    drop(ours);
    let everybodys = home.in_use()?;
    // Another test run uses them; its watcher ends them.
    if everybodys.try_lock().is_err() {
        return Ok(());
    }
    down::down(home, |entry| !entry.kept).map(|_| ())
}
