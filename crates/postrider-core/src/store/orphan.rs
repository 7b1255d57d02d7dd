//! Orphaned keys: keys that wait for an event which is no longer in the table, because somebody deleted it there.

use super::Lane;

/// A key that waits, and its place among all of them: by lane, then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldKey {
    /// Its lane.
    pub lane: Lane,
    /// The key.
    pub key: String,
}

/// What one [search](super::Store::free_orphans) for orphaned keys came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orphans {
    /// The keys that were freed.
    pub freed: Vec<HeldKey>,
    /// Where the next search goes on; none if this one came to the end.
    pub next: Option<HeldKey>,
}
