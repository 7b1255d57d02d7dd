//! Postrider's own chores: `cargo xtask quick`, `cargo xtask test`, `cargo xtask lint`, `cargo xtask soak`, `cargo xtask services`.
//!
//! No dependencies, so that a fresh clone has it in seconds.
//!
//! # Layout
//!
//! - `steps`: what CI decides on, in order; read this first
//! - `arguments`, `run`, `report`: the options, one step after the other, the tables at the end
//! - `place`: the folders, and cargo called inside them
//! - `suite`: the tests, with servers and without
//! - `services`: real servers for tests
//! - `core_tree`, `rules`, `words`, `requirements`, `api`, `demo`: the steps that are more than a cargo command
//! - `tools`, `apt`: programs that steps need, and how they are installed
//! - `soak`: the long run, which is no step
//! - `source`, `functions`: Rust text without comments and strings, and its functions
#![allow(clippy::print_stdout, clippy::print_stderr)] // A command line tool: printing is its work.

mod api;
mod apt;
mod arguments;
mod core_tree;
mod demo;
mod functions;
mod place;
mod report;
mod requirements;
mod rules;
mod run;
mod services;
mod soak;
mod source;
mod steps;
mod suite;
mod tools;
mod words;

use arguments::Arguments;
use place::Place;
use std::process::ExitCode;
use steps::Step;

const USAGE: &str = "\
Usage: cargo xtask <COMMAND>

Commands:
  quick                   format, lints and what needs no server: run it before each commit
  test                    everything that CI decides on
  test [-p PACKAGE]… [--test TARGET]… [NAME]…
                          only these tests, with the servers that they ask for and no others
  lint                    the steps that run no tests
  api                     write the public API of each crate to docs/api; `lint` compares it
  soak [--minutes N] [--seed N] [--json]
                          three relays, three sinks and every fault at once, for 10 minutes or N
  services up [SERVER]…   start servers for tests, all or those, on private ports
  services down           end them and remove their data
  services status         what runs: server, version, port, process id
  services env            their URLs: eval \"$(cargo xtask services env)\"
  help                    this text

Options of quick, test and lint:
  --only STEP             run one step
  --json                  print the tables of the end as JSON too: it is the last line

Set the variable of a server (POSTRIDER_TEST_POSTGRES_URL, …) to use yours: then none is started for it.
";

fn main() -> ExitCode {
    if let Some(code) = api::as_rustdoc() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let not_understood = || bad_usage(&format!("not understood: {}", arguments.join(" ")));
    match arguments.as_slice() {
        ["help" | "--help" | "-h"] => {
            print!("{}", usage());
            ExitCode::SUCCESS
        }
        [suite::binary::COMMAND, rest @ ..] => suite::binary::main(rest),
        [command @ ("quick" | "test" | "lint"), rest @ ..] => match Arguments::parse(command, rest) {
            Some(arguments) => run_steps(arguments),
            None => not_understood(),
        },
        ["api"] => exit_code(Place::find().and_then(|place| {
            place.claim_target()?;
            api::renew(&place)
        })),
        ["services", rest @ ..] => match services::Command::parse(rest) {
            Some(command) => exit_code(Place::find().and_then(|place| command.run(&place))),
            None => not_understood(),
        },
        ["soak", rest @ ..] => match soak::Arguments::parse(rest) {
            Some(arguments) => exit_code(Place::find().and_then(|place| arguments.run(&place))),
            None => not_understood(),
        },
        [] => bad_usage("a command is missing"),
        _ => not_understood(),
    }
}

fn run_steps(arguments: Arguments) -> ExitCode {
    let only = arguments.only.as_deref();
    let steps: Vec<&Step> = match arguments.command.as_str() {
        "quick" => steps::QUICK,
        "lint" => steps::lint(),
        _ if !arguments.selection.is_all() => steps::SELECTED,
        _ => steps::TEST,
    }
    .iter()
    .filter(|step| only.is_none_or(|name| name == step.name))
    .collect();
    if steps.is_empty() {
        return bad_usage(&format!("no step is called {}", only.unwrap_or_default()));
    }
    let run = || {
        let place = Place { arguments, ..Place::find()? };
        place.claim_target()?;
        let run = run::all(&place, &steps);
        // The servers end, whatever the steps said.
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
    let list = |steps: &[Step]| -> String {
        steps.iter().map(|step| format!("  {:<22}  {}\n", step.name, step.what)).collect()
    };
    format!(
        "{USAGE}\nSteps of quick:\n{}\nSteps of test; lint has those before `build`:\n{}",
        list(steps::QUICK),
        list(steps::TEST)
    )
}

fn bad_usage(why: &str) -> ExitCode {
    eprint!("{why}\n\n{}", usage());
    ExitCode::from(2)
}
