//! Runs one test binary. Cargo starts this program for each of them (`target.….runner`), in the environment that the tests want.

use super::left::{self, Left};
use super::libtest;
use super::record::Record;
use crate::services;
use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The word that makes this program the runner: `xtask test-binary MODE FOLDER BINARY ARGUMENT…`.
pub(crate) const COMMAND: &str = "test-binary";
pub(crate) const RECORDS: &str = "records";
pub(crate) const PLAN: &str = "plan";

/// Stands for all tests of a binary that tells no names.
const WHOLE: &str = "*";

/// How long the output of a binary that has ended is waited for.
const LAST_OUTPUT_MAX: Duration = Duration::from_secs(20);

/// How the tests are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All of them, with their output as it comes.
    All,
    /// Without servers. What needs one is left out, and so is what the plan ([`left::LIST`]) names.
    WithoutServers,
    /// Those that need a server, as the plan, the records of another run, has them.
    NeedingServers,
}

impl Mode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::WithoutServers => "without-servers",
            Self::NeedingServers => "needing-servers",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::All, Self::WithoutServers, Self::NeedingServers].into_iter().find(|mode| mode.word() == word)
    }
}

/// Runs the binary. The exit code is for cargo: a test that was left out is no failure.
pub(crate) fn main(arguments: &[&str]) -> ExitCode {
    let [mode, folder, binary, arguments @ ..] = arguments else {
        eprintln!("This is a part of `cargo xtask test` and `cargo xtask quick`.");
        return ExitCode::from(2);
    };
    let Some(mode) = Mode::parse(mode) else { return ExitCode::from(2) };
    let run = || {
        let plan = fs::read_to_string(Path::new(folder).join(PLAN)).unwrap_or_default();
        let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
        let test =
            Binary { path: binary, arguments: without_quiet(arguments), target: target(binary), package };
        let (record, is_good) = test.run(mode, &plan)?;
        let records = File::options().create(true).append(true).open(Path::new(folder).join(RECORDS));
        records.and_then(|mut file| file.write_all(record.line().as_bytes()))?;
        Ok::<bool, io::Error>(is_good)
    };
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(101),
        Err(error) => {
            eprintln!("{binary} could not be run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A silent cargo passes its silence on, and then the harness names no tests.
fn without_quiet<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    arguments.iter().copied().filter(|argument| *argument != "--quiet").collect()
}

/// The name of the target: that of the file without the hash that cargo adds.
fn target(binary: &str) -> String {
    let stem = Path::new(binary).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match stem.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            name.to_owned()
        }
        _ => stem,
    }
}

struct Binary<'a> {
    path: &'a str,
    arguments: Vec<&'a str>,
    package: String,
    target: String,
}

impl Binary<'_> {
    fn record(&self) -> Record {
        Record { package: self.package.clone(), target: self.target.clone(), ..Record::default() }
    }

    /// What became of it, and whether cargo may go on.
    fn run(&self, mode: Mode, plan: &str) -> io::Result<(Record, bool)> {
        match mode {
            Mode::All => self.run_all(),
            Mode::WithoutServers => {
                let list = left::parse(plan).map_err(io::Error::other)?;
                self.run_without_servers(left::find(&list, &self.package, &self.target))
            }
            Mode::NeedingServers => {
                let records = plan.lines().filter_map(Record::parse);
                let needing = records
                    .filter(|record| record.package == self.package && record.target == self.target)
                    .find(|record| !record.needing.is_empty());
                match needing {
                    Some(needing) => self.run_needing(&needing),
                    None => Ok((self.record(), true)),
                }
            }
        }
    }

    fn run_all(&self) -> io::Result<(Record, bool)> {
        let (output, status, time) = self.output(&[], true)?;
        let counts = libtest::counts(&output).unwrap_or_default();
        let record = Record { time, passed: counts.passed, failed: counts.failed, ..self.record() };
        Ok((record, status.success()))
    }

    fn run_needing(&self, needing: &Record) -> io::Result<(Record, bool)> {
        let names = needing.needing.iter().map(String::as_str).filter(|name| *name != WHOLE);
        let mut arguments: Vec<&str> = names.collect();
        if !arguments.is_empty() {
            arguments.insert(0, "--exact");
        }
        let mut record = self.record();
        let (output, status, time) = self.without_names().output(&arguments, false)?;
        record.time = time;
        let is_good = status.success() || only_servers_are_missing(&output, &mut record, is_missing);
        if let Some(counts) = libtest::counts(&output) {
            record.passed = counts.passed;
            record.failed = counts.failed.saturating_sub(record.left);
        }
        say(&record);
        Ok((record, is_good))
    }

    fn run_without_servers(&self, left: Option<&Left<'_>>) -> io::Result<(Record, bool)> {
        let mut record = self.record();
        let skipped = left.and_then(|left| left.tests);
        if let Some(left) = left {
            record.why = left.why.to_owned();
            if left.tests.is_none() {
                record.left = self.list()?;
                say(&record);
                return Ok((record, true));
            }
        }
        let skip: Vec<&str> = skipped.map(|tests| ["--skip", tests]).into_iter().flatten().collect();
        let (output, status, time) = self.output(&skip, false)?;
        record.time = time;
        let is_good = status.success() || only_servers_are_missing(&output, &mut record, is_missing);
        if let Some(counts) = libtest::counts(&output) {
            record.passed = counts.passed;
            record.failed = counts.failed.saturating_sub(record.left);
            record.left += if skipped.is_some() { counts.filtered_out } else { 0 };
        }
        say(&record);
        Ok((record, is_good))
    }

    /// The same binary without the arguments that select tests.
    fn without_names(&self) -> Self {
        Self {
            path: self.path,
            arguments: Vec::new(),
            package: self.package.clone(),
            target: self.target.clone(),
        }
    }

    /// How many tests it has, if it has the harness.
    fn list(&self) -> io::Result<usize> {
        let (output, ..) = self.without_names().output(&["--list"], false)?;
        Ok(output.lines().filter(|line| line.ends_with(": test")).count())
    }

    /// What it prints, standard error included, as it comes.
    fn output(&self, more: &[&str], shown: bool) -> io::Result<(String, ExitStatus, Duration)> {
        let started = Instant::now();
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(self.path);
        command
            .args(&self.arguments)
            .args(more)
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let mut child = command.spawn()?;
        // It holds the pipe open for writing.
        drop(command);
        let output = Arc::<Mutex<Vec<u8>>>::default();
        let (done, ended) = mpsc::sync_channel(1);
        let kept = Arc::clone(&output);
        thread::spawn(move || _ = done.send(read(reader, shown, &kept)));
        let status = child.wait()?;
        // A process that a test left running holds the pipe too.
        if let Ok(read) = ended.recv_timeout(LAST_OUTPUT_MAX) {
            read?;
        }
        let output = output.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((String::from_utf8_lossy(&output).into_owned(), status, started.elapsed()))
    }
}

/// Reads lines until the last process that can write has ended.
fn read(reader: PipeReader, shown: bool, output: &Mutex<Vec<u8>>) -> io::Result<()> {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        if shown {
            let mut stdout = io::stdout().lock();
            stdout.write_all(&line)?;
            stdout.flush()?;
        }
        output.lock().unwrap_or_else(PoisonError::into_inner).append(&mut line);
    }
    Ok(())
}

/// Whether this variable names no server here. A set [`services::LENDING`] means that none is lent.
fn is_missing(variable: &str) -> bool {
    let value = env::var(variable).unwrap_or_default();
    if variable == services::LENDING.0 { value == services::LENDING.1 } else { value.is_empty() }
}

/// Whether all that failed needs a server that is missing; that is left out then. Prints everything else that failed.
fn only_servers_are_missing(output: &str, record: &mut Record, is_missing: fn(&str) -> bool) -> bool {
    if libtest::counts(output).is_none() {
        if !libtest::has_harness(output) && needs_server(output, &mut record.variables, is_missing) {
            record.left = 1;
            record.needing.push(WHOLE.to_owned());
            return true;
        }
        print!("{output}");
        return false;
    }
    let failures = libtest::failures(output);
    let mut is_good = !failures.is_empty();
    for failure in failures {
        if needs_server(failure.output, &mut record.variables, is_missing) {
            record.left += 1;
            record.needing.push(failure.name.to_owned());
        } else {
            println!("---- {} ----\n{}\n", failure.name, failure.output);
            is_good = false;
        }
    }
    is_good
}

/// Whether a failed test names the variable of a missing server, or the command that lends one.
fn needs_server(output: &str, variables: &mut BTreeSet<String>, is_missing: fn(&str) -> bool) -> bool {
    let named = services::variables_of_servers().filter(|variable| output.contains(variable));
    let missing: Vec<&str> = named.filter(|variable| is_missing(variable)).collect();
    variables.extend(missing.iter().map(|variable| (*variable).to_owned()));
    !missing.is_empty() || (output.contains("services lend") && is_missing(services::LENDING.0))
}

/// One line for people. Nothing for a binary without tests.
fn say(record: &Record) {
    let mut parts = Vec::new();
    if record.passed > 0 {
        parts.push(format!("{} passed", record.passed));
    }
    if record.failed > 0 {
        parts.push(format!("{} FAILED", record.failed));
    }
    if record.left > 0 {
        parts.push(format!("{} left", record.left));
    }
    if !parts.is_empty() {
        println!("{}: {} in {:.1} s", record.name(), parts.join(", "), record.time.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_a_binary_prints_is_kept_in_its_order_with_its_exit_status() {
        let shell = Binary {
            path: "sh",
            arguments: vec!["-c", "echo one; echo two >&2; echo three; exit 3"],
            package: String::new(),
            target: String::new(),
        };
        let (output, status, _) = shell.output(&[], false).unwrap();
        assert_eq!((output.as_str(), status.code()), ("one\ntwo\nthree\n", Some(3)));
    }

    #[test]
    fn a_target_is_known_by_its_file() {
        assert_eq!(target("/t/debug/deps/sink_conformance-35097b6fa7fc50b0"), "sink_conformance");
        assert_eq!(target("/t/debug/deps/a-b"), "a-b");
    }

    #[test]
    fn a_test_that_names_the_variable_of_a_server_is_left_out_and_another_one_fails() {
        let failing = |printed: &str| {
            format!(
                "running 1 test\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\n{printed}\n\nfailures:\n    a\n\n\
                     test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n"
            )
        };
        let mut record = Record::default();
        let none = |_: &str| true;
        assert!(only_servers_are_missing(&failing("POSTRIDER_TEST_MYSQL_URL is not set"), &mut record, none));
        assert_eq!((record.left, record.needing.as_slice()), (1, &["a".to_owned()][..]));
        assert_eq!(record.variables, BTreeSet::from(["POSTRIDER_TEST_MYSQL_URL".to_owned()]));
        let mut record = Record::default();
        let lent = failing("see what `cargo xtask services lend` printed");
        assert!(only_servers_are_missing(&lent, &mut record, none));
        assert!(!only_servers_are_missing(&lent, &mut record, |_| false), "the servers are there");
        assert!(!only_servers_are_missing(&failing("1 is not 2"), &mut Record::default(), none));
    }

    #[test]
    fn a_harness_that_did_not_come_to_its_end_has_failed_whatever_it_printed() {
        let aborted = "running 1 test\nPOSTRIDER_TEST_MYSQL_URL is not set\n";
        assert!(!only_servers_are_missing(aborted, &mut Record::default(), |_| true));
        assert!(only_servers_are_missing(
            "Error: POSTRIDER_TEST_MYSQL_URL is not set\n",
            &mut Record::default(),
            |_| true
        ));
    }
}
