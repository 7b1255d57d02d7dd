//! What operators ask and do, a file each.

pub(crate) mod check;
