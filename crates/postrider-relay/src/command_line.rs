//! The command line of `postrider`: its subcommands, and which of them runs.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::{Conclusion, commands, demo, failure::Failure, program, relay};

/// A transactional outbox: events are written inside your own database transaction and delivered in order.
#[derive(Parser)]
#[command(
    name = "postrider",
    version,
    after_help = "See it work:       postrider demo\n\
                  Start delivering:  postrider init, check --connect, run; each reads postrider.yaml, or --config FILE\n\
                  Operate it:        postrider status, events --follow, why, dead, pause, resume; with --json, stdout\n                   \
                  holds JSON only and stderr holds errors only\n\n\
                  Exit status: 0 success; 1 the command ran and found something wrong; 2 usage or configuration; 3 a \
                  database or a sink could not be reached or used.\nLogs go to stderr. POSTRIDER_LOG sets the level (error, warn, info, debug, or \
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
    Completions(commands::completions::Args),
}

/// Runs the command line of this process and returns its exit status.
pub fn main() -> ExitCode {
    let CommandLine { command } = CommandLine::parse();
    let log = match &command {
        Command::Demo(_) => Some(demo::LOG_DEFAULT),
        // Its configuration sets the log.
        Command::Run(_) => None,
        _ => Some("error"),
    };
    program::run(log, run(command))
}

async fn run(command: Command) -> Result<Conclusion, Failure> {
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::Run(args) => relay::run(args).await,
        Command::Init(args) => commands::init::run(args).await,
        Command::Check(args) => commands::check::run(args).await,
        Command::Status(args) => commands::status::run(args).await,
        Command::Events(args) => commands::events::run(args).await,
        Command::Why(args) => commands::why::run(args).await,
        Command::Dead(args) => commands::dead::run(args).await,
        Command::Pause(args) => commands::pause::pause(args).await,
        Command::Resume(args) => commands::pause::resume(args).await,
        Command::Completions(args) => Ok(commands::completions::run(&args, &mut CommandLine::command())),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_has_no_contradictions() {
        super::CommandLine::command().debug_assert();
    }
}
