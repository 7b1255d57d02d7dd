//! What the `postrider` program consists of: the relay, its operators' commands and a demo.
//!
//! This library is not an interface for other programs. It exists so that `postrider-bench` measures the code that the program runs.
//!
//! # Layout
//!
//! * `command_line`: the subcommands and which of them runs
//! * `config/`: the configuration of a relay
//! * `relay/`: delivers as the configuration says
//! * `operations/`: logs, health and metrics
//! * `traces/`: spans of deliveries
//! * `commands/`: the operators' commands
//! * `demo/`: a small shop with an outbox, and what came of it
//! * `program`, `terminal`, `failure`, `signal`, `folder`: what every subcommand needs from its surroundings

mod command_line;
mod commands;
mod config;
mod demo;
mod failure;
mod folder;
mod operations;
pub mod program;
mod relay;
mod signal;
pub mod terminal;
mod traces;

pub use crate::{
    command_line::main, failure::Failure, folder::TemporaryFolder, program::Conclusion, relay::InProcess,
    signal::Ending,
};

/// The variable with the log filter, in the syntax of `RUST_LOG`.
const LOG_VARIABLE: &str = "POSTRIDER_LOG";
