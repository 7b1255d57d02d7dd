//! The `postrider` command: a demo, benchmarks, and the relay.
//!
//! # Layout
//!
//! * `config/`: the configuration of a relay
//! * `relay/`: what delivers as it says
//! * `operations/`: logs, health and metrics
//! * `traces/`: spans of deliveries
//! * `commands/`: what operators ask and do, a file each
//! * `demo/`: a small shop with an outbox, and the verdict on it
//! * `bench/`: what is measured, one file each
//! * `terminal`, `failure`, `signal`, `folder`: what every subcommand needs of its surroundings

mod bench;
mod commands;
mod config;
mod demo;
mod failure;
mod folder;
mod operations;
mod relay;
mod signal;
mod terminal;
mod traces;

use std::{process::ExitCode, time::Duration};

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::Failure;

/// What decides what is logged, in the syntax of `RUST_LOG`.
const LOG_VARIABLE: &str = "POSTRIDER_LOG";

/// How long an end waits for threads that write or read files.
const THREADS_TIMEOUT: Duration = Duration::from_millis(500);

/// How long an end waits until its log is written.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);

/// A transactional outbox: events are written inside your own database transaction and delivered in order.
#[derive(Parser)]
#[command(
    name = "postrider",
    version,
    after_help = "See it work:       postrider demo\n\
                  Begin to deliver:  postrider init, check --connect, run; each reads postrider.yaml, or --config FILE\n\
                  Look after it:     postrider status, events --follow, why, dead; each has --json for programs:\n                   \
                  that alone on stdout, errors alone on stderr\n\n\
                  Exit status: 0 well; 1 it ran and the verdict is bad; 2 usage or configuration; 3 a \
                  database or a sink could not be reached or used.\nLogs go to stderr; POSTRIDER_LOG says which (error, warn, info, debug, or \
                  postrider_engine=debug)."
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Run(relay::Args),
    Init(commands::init::Args),
    Check(commands::check::Args),
    Status(commands::status::Args),
    Events(commands::events::Args),
    Why(commands::why::Args),
    Dead(commands::dead::Args),
    Pause(commands::pause::PauseArgs),
    Resume(commands::pause::ResumeArgs),
    Bench(bench::Args),
    Completions(commands::completions::Args),
}

/// What a subcommand that ran has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Bad,
    /// Something that it had to ask does not answer as it should.
    Unreachable,
}

fn main() -> ExitCode {
    let CommandLine { command } = CommandLine::parse();
    if operations::log::open().is_err() {
        // There is no thread to be had, and nothing would work.
        return ExitCode::from(3);
    }
    let code = match run(command) {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(1),
        Ok(Verdict::Unreachable) => ExitCode::from(3),
        Err(failure) => {
            terminal::complain(&failure);
            failure.exit_code()
        }
    };
    operations::log::flush(LOG_TIMEOUT);
    code
}

fn run(command: Command) -> Result<Verdict, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::unreachable("cannot start the runtime", &error))?;
    match &command {
        Command::Demo(_) => operations::log::start_at(demo::LOG_DEFAULT)?,
        // Its configuration says what is logged.
        Command::Run(_) => {}
        _ => operations::log::start_at("error")?,
    }
    let ran = match command {
        Command::Demo(args) => runtime.block_on(demo::run(args)),
        Command::Run(args) => runtime.block_on(relay::run(args)),
        Command::Init(args) => runtime.block_on(commands::init::run(args)),
        Command::Check(args) => runtime.block_on(commands::check::run(args)),
        Command::Status(args) => runtime.block_on(commands::status::run(args)),
        Command::Events(args) => runtime.block_on(commands::events::run(args)),
        Command::Why(args) => runtime.block_on(commands::why::run(args)),
        Command::Dead(args) => runtime.block_on(commands::dead::run(args)),
        Command::Pause(args) => runtime.block_on(commands::pause::pause(args)),
        Command::Resume(args) => runtime.block_on(commands::pause::resume(args)),
        Command::Bench(args) => runtime.block_on(bench::run(args)),
        Command::Completions(args) => Ok(commands::completions::run(&args, &mut CommandLine::command())),
    };
    // A thread may be stuck in a write that nobody reads.
    runtime.shutdown_timeout(THREADS_TIMEOUT);
    ran
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_put_together_without_contradictions() {
        super::CommandLine::command().debug_assert();
    }
}
