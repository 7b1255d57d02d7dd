//! Postrider's own chores: `cargo xtask test`, `cargo xtask lint`.
//!
//! No dependencies, so that a fresh clone has it in seconds.
//!
//! # Layout
//!
//! - `steps`: what CI decides on, in order; read this first
//! - `run`: one step after the other, with headlines, times and a summary
//! - `place`: the folders, and cargo called inside them
//! - `tools`: programs that steps need: cargo-deny, the sqlite3 shell
//! - `core_tree`, `rules`, `demo`: the steps that are more than a cargo command
//! - `source`: Rust text without its comments and strings, for `rules`
#![allow(clippy::print_stdout, clippy::print_stderr)] // A command line tool: printing is its work.

mod core_tree;
mod demo;
mod place;
mod requirements;
mod rules;
mod run;
mod source;
mod steps;
mod tools;

use place::Place;
use std::process::ExitCode;
use steps::Step;

const USAGE: &str = "\
Usage: cargo xtask <COMMAND>

Commands:
  test [--only STEP]  everything that CI decides on
  lint [--only STEP]  the part of it that runs no tests
  help                this text
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
        [] => return bad_usage("a command is missing"),
        _ => return bad_usage(&format!("not understood: {}", arguments.join(" "))),
    };
    let steps: Vec<&Step> = steps.iter().filter(|step| only.is_none_or(|name| name == step.name)).collect();
    if steps.is_empty() {
        return bad_usage(&format!("no step is called {}", only.unwrap_or_default()));
    }

    let run = || {
        let place = Place::find()?;
        place.claim_target()?;
        run::all(&place, &steps)
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("\n{why}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let steps: String =
        steps::TEST.iter().map(|step| format!("  {:<18}  {}\n", step.name, step.what)).collect();
    format!("{USAGE}\nSteps, in order:\n{steps}")
}

fn bad_usage(why: &str) -> ExitCode {
    eprint!("{why}\n\n{}", usage());
    ExitCode::from(2)
}
