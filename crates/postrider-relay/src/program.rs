//! Runs a program of this workspace from its command line to its exit status: log, runtime, error message.

use std::{process::ExitCode, time::Duration};

use crate::{failure::Failure, operations, terminal};

/// How long the program waits at its end for threads that are stuck in a read or a write.
const THREADS_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the program waits at its end until its log is written.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a command that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// All is well. Exit status 0.
    Good,
    /// The command ran and found something wrong. Exit status 1.
    Bad,
    /// A database or a sink that the command had to ask did not answer as it should. Exit status 3.
    Unreachable,
}

/// Runs `work` to its end and prints its error, if any. `log` is the default log filter; `None` if `work` starts the log itself.
pub fn run(log: Option<&str>, work: impl Future<Output = Result<Conclusion, Failure>>) -> ExitCode {
    if operations::log::open().is_err() {
        // The system gives this process no thread, so nothing else would work either.
        return ExitCode::from(3);
    }
    let code = match run_to_end(log, work) {
        Ok(Conclusion::Good) => ExitCode::SUCCESS,
        Ok(Conclusion::Bad) => ExitCode::from(1),
        Ok(Conclusion::Unreachable) => ExitCode::from(3),
        Err(failure) => {
            terminal::print_error(&failure);
            failure.exit_code()
        }
    };
    operations::log::flush(LOG_TIMEOUT);
    code
}

fn run_to_end(
    log: Option<&str>,
    work: impl Future<Output = Result<Conclusion, Failure>>,
) -> Result<Conclusion, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::unreachable("cannot start the async runtime", &error))?;
    if let Some(default) = log {
        operations::log::start_at(default)?;
    }
    let result = runtime.block_on(work);
    // A thread may be stuck in a write that nobody reads.
    runtime.shutdown_timeout(THREADS_TIMEOUT);
    result
}
