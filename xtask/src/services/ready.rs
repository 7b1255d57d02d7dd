//! Waiting until a server serves.

use super::server::{Room, Server};
use super::wire::Wire;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const READY_TIME_MAX: Duration = Duration::from_secs(120);
const ASK_AGAIN: Duration = Duration::from_millis(50);
const LOG_LINES: usize = 20;

/// Waits until a client of the server is served, its process has ended, or the time is up.
pub(crate) fn wait(server: &dyn Server, room: &Room<'_>) -> Result<(), String> {
    wait_for(|| {
        // Checked first: once ours has ended, another process may answer on its port.
        if !room.is_alive() {
            return Answer::Never("Its process has ended.".to_owned());
        }
        server.ready(room).map_or_else(Answer::NotYet, |()| Answer::Ready)
    })
}

/// Waits until something listens on a port.
pub(crate) fn wait_for_port(port: u16) -> Result<(), String> {
    wait_for(|| Wire::connect(port).map_or_else(Answer::NotYet, |_| Answer::Ready))
}

enum Answer {
    Ready,
    NotYet(String),
    Never(String),
}

fn wait_for(ask: impl Fn() -> Answer) -> Result<(), String> {
    let start = Instant::now();
    loop {
        match ask() {
            Answer::Ready => return Ok(()),
            Answer::Never(why) => return Err(why),
            Answer::NotYet(why) if start.elapsed() > READY_TIME_MAX => {
                return Err(format!("It is not ready after {} s: {why}", READY_TIME_MAX.as_secs()));
            }
            Answer::NotYet(_) => thread::sleep(ASK_AGAIN),
        }
    }
}

/// The end of a log, for an error message.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    last_lines(&String::from_utf8_lossy(&text), LOG_LINES)
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(count)).map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "    b\n    c\n");
        assert_eq!(last_lines("a", 2), "    a\n");
        assert_eq!(last_lines("", 2), "");
    }
}
