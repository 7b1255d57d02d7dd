//! Servers: those that all tests share, and those that one test has alone.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Command, Stdio},
};

/// The URL of a server for tests. None is a failure and not a reason to skip a test.
pub(crate) fn url(variable: &str) -> String {
    env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `cargo xtask services up` and `eval \"$(cargo xtask services env)\"`"
        )
    })
}

/// A server that a test has alone, so that it may stop it: `cargo xtask services lend`, which ends with this process.
pub(crate) struct Lent {
    pub(crate) url: String,
    lender: Child,
    answers: BufReader<ChildStdout>,
}

impl Lent {
    /// One of the names that `cargo xtask services` knows.
    pub(crate) async fn borrow(name: &'static str) -> Self {
        tokio::task::spawn_blocking(move || Self::start(name)).await.unwrap()
    }

    fn start(name: &str) -> Self {
        let mut lender = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["xtask", "services", "lend", name])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for this process: when it ends the lender tidies up.
            .process_group(0)
            .spawn()
            .unwrap();
        let answers = BufReader::new(lender.stdout.take().unwrap());
        let mut server = Self { url: String::new(), lender, answers };
        server.url = server.answer("ready ");
        server
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> &str {
        let (_, rest) = self.url.split_once("://").unwrap();
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        host.split('/').next().unwrap()
    }

    /// Ends it in order.
    pub(crate) fn stop(&mut self) {
        self.say("stop");
        tokio::task::block_in_place(|| self.answer("stopped"));
    }

    /// Starts it again, and waits until it serves.
    pub(crate) fn start_again(&mut self) {
        self.say("start");
        tokio::task::block_in_place(|| self.answer("ready "));
    }

    fn say(&mut self, word: &str) {
        writeln!(self.lender.stdin.as_mut().unwrap(), "{word}").unwrap();
    }

    /// What follows these words, once they are said. The lender gives up by itself after a while.
    fn answer(&mut self, words: &str) -> String {
        let mut line = String::new();
        while self.answers.read_line(&mut line).unwrap() > 0 {
            if let Some(rest) = line.trim_end().strip_prefix(words) {
                return rest.to_owned();
            }
            line.clear();
        }
        panic!("the server did not start: see what `cargo xtask services lend` printed")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        drop(self.lender.stdin.take());
        _ = self.lender.wait();
    }
}
