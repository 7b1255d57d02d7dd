//! What operators ask and do, a file each.

pub(crate) mod check;
pub(crate) mod dead;
pub(crate) mod status;
mod target;
pub(crate) mod why;
