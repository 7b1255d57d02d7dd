//! The operators' commands, a file each; what several of them need is in files of its own.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod dead;
mod effective_report;
pub(crate) mod events;
mod explain;
mod filter_args;
mod health;
pub(crate) mod init;
mod instances;
mod paging;
pub(crate) mod pause;
mod running_relay;
pub(crate) mod status;
mod target;
pub(crate) mod why;
