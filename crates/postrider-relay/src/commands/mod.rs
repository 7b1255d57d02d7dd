//! What operators ask and do, a file each.

pub(crate) mod check;
mod comes_to;
pub(crate) mod completions;
pub(crate) mod dead;
pub(crate) mod events;
mod health;
pub(crate) mod init;
mod instances;
pub(crate) mod pause;
mod relay_says;
mod shelves;
pub(crate) mod status;
mod story;
mod target;
mod which;
pub(crate) mod why;
