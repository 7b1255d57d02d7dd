//! Tables of ours that are missing beside the others.

use postrider_core::{SchemaError, tx::Prefix};

/// Refuses tables that are not all there. `tables` are our names without their prefix, and `found` is what is there.
pub(crate) fn refuse(tables: &[&str], prefix: &Prefix, found: &[String]) -> Result<(), SchemaError> {
    let names = tables.iter().map(|table| format!("{prefix}{table}"));
    let is_missing = |name: &String| !found.iter().any(|found| found.eq_ignore_ascii_case(name));
    names.into_iter().find(is_missing).map_or(Ok(()), |table| Err(SchemaError::Dropped { table }))
}
