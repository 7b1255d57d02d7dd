//! Ids: what an event is told apart by, on the way and at the consumer.

mod tsid;
mod ulid;

use std::{borrow::Borrow, fmt, sync::Arc};

pub use tsid::TsidGenerator;
pub use ulid::UlidGenerator;

/// Crockford's base 32: no I, L, O or U, so that nobody misreads one.
const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Writes the low `5 * LENGTH` bits of `value` as Crockford base 32.
fn crockford<const LENGTH: usize>(mut value: u128) -> String {
    let mut text = [b'0'; LENGTH];
    for place in text.iter_mut().rev() {
        *place = CROCKFORD.get((value & 31) as usize).copied().unwrap_or(b'0');
        value >>= 5;
    }
    text.iter().copied().map(char::from).collect()
}

/// The id of one event. Unique in its outbox, at most 36 characters, cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Arc<str>);

impl EventId {
    /// A new ULID, greater than every one that this process made before.
    pub fn ulid() -> Self {
        Self(ulid::process_wide().into())
    }

    /// A new TSID: 13 characters, for tables that have no room for more.
    pub fn tsid() -> Self {
        Self(tsid::process_wide().into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for EventId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl From<String> for EventId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl From<&EventId> for EventId {
    fn from(id: &EventId) -> Self {
        id.clone()
    }
}

impl Borrow<str> for EventId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for EventId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for EventId {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for EventId {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
