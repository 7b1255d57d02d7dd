//! Postrider's own chores: `cargo xtask test`, `cargo xtask lint`, `cargo xtask soak`, `cargo xtask services`.
//!
//! No dependencies, so that a fresh clone has it in seconds.
//!
//! # Layout
//!
//! - `steps`: what CI decides on, in order; read this first
//! - `run`: one step after the other, with headlines, times and a summary
//! - `place`: the folders, and cargo called inside them
//! - `tools`, `apt`: programs that steps need, and how they are installed
//! - `services`: real servers for tests
//! - `core_tree`, `rules`, `demo`: the steps that are more than a cargo command
//! - `soak`: the long run, which is no step
//! - `source`: Rust text without its comments and strings, for `rules`
#![allow(clippy::print_stdout, clippy::print_stderr)] // A command line tool: printing is its work.

mod apt;
mod core_tree;
mod demo;
mod functions;
mod place;
mod requirements;
mod rules;
mod run;
mod services;
mod soak;
mod source;
mod steps;
mod tools;
mod words;

use place::Place;
use std::process::ExitCode;
use steps::Step;

const USAGE: &str = "\
Usage: cargo xtask <COMMAND>

Commands:
  test [--only STEP]      everything that CI decides on
  lint [--only STEP]      the part of it that runs no tests
  soak [--minutes N] [--seed N] [--json]
                          three relays, three sinks and every fault at once, for 10 minutes or N
  services up [SERVER]…   start servers for tests, all or those, on private ports
  services down           end them and remove their data
  services status         what runs: server, version, port, process id
  services env            their URLs: eval \"$(cargo xtask services env)\"
  help                    this text

A server whose variable (POSTRIDER_TEST_POSTGRES_URL, …) is set already is not started: that URL is used.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (steps, only) = match arguments.as_slice() {
        ["help" | "--help" | "-h"] => {
            print!("{}", usage());
            return ExitCode::SUCCESS;
        }
        ["test"] => (steps::TEST, None),
        ["lint"] => (steps::lint(), None),
        ["test", "--only", step] => (steps::TEST, Some(*step)),
        ["lint", "--only", step] => (steps::lint(), Some(*step)),
        ["services", rest @ ..] => {
            return match services::Command::parse(rest) {
                Some(command) => exit_code(Place::find().and_then(|place| command.run(&place))),
                None => bad_usage(&format!("not understood: {}", arguments.join(" "))),
            };
        }
        ["soak", rest @ ..] => {
            return match soak::Arguments::parse(rest) {
                Some(arguments) => exit_code(Place::find().and_then(|place| arguments.run(&place))),
                None => bad_usage(&format!("not understood: {}", arguments.join(" "))),
            };
        }
        [] => return bad_usage("a command is missing"),
        _ => return bad_usage(&format!("not understood: {}", arguments.join(" "))),
    };
    let steps: Vec<&Step> = steps.iter().filter(|step| only.is_none_or(|name| name == step.name)).collect();
    if steps.is_empty() {
        return bad_usage(&format!("no step is called {}", only.unwrap_or_default()));
    }

    let run = || {
        let place = Place { alone: only.is_some(), ..Place::find()? };
        place.claim_target()?;
        let run = run::all(&place, &steps);
        // Whatever the steps said.
        run.and(place.services.end())
    };
    exit_code(run())
}

fn exit_code(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("\n{why}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let steps: String =
        steps::TEST.iter().map(|step| format!("  {:<22}  {}\n", step.name, step.what)).collect();
    format!("{USAGE}\nSteps, in order:\n{steps}")
}

fn bad_usage(why: &str) -> ExitCode {
    eprint!("{why}\n\n{}", usage());
    ExitCode::from(2)
}
