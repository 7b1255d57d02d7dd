//! A server that a test has alone, so that it may restart it or change its settings: `cargo xtask services lend`, which ends with
//! this process.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Command, Stdio},
};

use postrider_testkit::conformance::Failure;

/// How the server ends before it starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    InOrder,
    /// At once, as by a power cut: what it knows of commits it reads from its log.
    Crash,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    lender: Child,
    answers: BufReader<ChildStdout>,
}

impl Server {
    /// One of the names that `cargo xtask services` knows.
    pub(crate) fn borrow(name: &str) -> Result<Self, Failure> {
        let mut lender = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["xtask", "services", "lend", name])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for this process: when it ends the lender tidies up.
            .process_group(0)
            .spawn()?;
        let answers = BufReader::new(lender.stdout.take().ok_or("the lender has no output")?);
        let mut server = Self { url: String::new(), lender, answers };
        server.url = server.ready()?;
        Ok(server)
    }

    /// Ends it and starts it again, and waits until it serves.
    pub(crate) fn restart(&mut self, end: End) -> Result<(), Failure> {
        let word = match end {
            End::InOrder => "restart",
            End::Crash => "crash",
        };
        let input = self.lender.stdin.as_mut().ok_or("the lender does not listen")?;
        writeln!(input, "{word}")?;
        // Others go on meanwhile: it is their server that is away.
        tokio::task::block_in_place(|| self.ready()).map(|_| ())
    }

    /// Its URL, once it serves. The lender gives up by itself after a while.
    fn ready(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        while self.answers.read_line(&mut line)? > 0 {
            if let Some(url) = line.trim_end().strip_prefix("ready ") {
                return Ok(url.to_owned());
            }
            line.clear();
        }
        Err("the server did not start: see what `cargo xtask services lend` printed".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.lender.stdin.take());
        let _ = self.lender.wait();
    }
}
