//! How long verbs may take. Whatever holds up a lane, or the news of it, ends well before the lane's lease does.

use std::time::Duration;

/// The lease that is taken for granted before anybody has asked for one.
const LEASE_DEFAULT: Duration = Duration::from_secs(15);

/// The shortest time that a database on a busy host is given; leases that are not three times as long are for tests.
const SHARE_MIN: Duration = Duration::from_secs(2);

/// The longest wait for a lock.
const LOCK_MAX: Duration = Duration::from_secs(2);

/// How long each step of opening a database may take. A server that has not answered by then counts as unreachable, and anyone who opens tries again.
pub(crate) const OPENING: Duration = Duration::from_secs(5);

/// How long a verb of operators may take, and one that deletes: they read or write as much as there is, and hold no lane. Locks are waited for as
/// briefly as elsewhere.
pub(crate) const OPERATOR: Duration = Duration::from_secs(60);

/// How long creating or upgrading our tables may take; most of it may be waiting for another who does it.
pub(crate) const MIGRATION: Duration = Duration::from_secs(600);

/// What verbs may take under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// A third of the lease.
    share: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self::of_lease(LEASE_DEFAULT)
    }
}

impl Limits {
    pub(crate) fn of_lease(lease: Duration) -> Self {
        Self { share: (lease / 3).max(SHARE_MIN) }
    }

    /// A verb with all its tries, as its caller waits for it. The engine waits a little longer, so that it hears why.
    pub(crate) fn verb(self) -> Duration {
        self.share * 9 / 10
    }

    /// One statement, a transaction in which nothing happens, and a wait for a connection. The server ends what takes longer, before the caller
    /// gives up.
    pub(crate) fn statement(self) -> Duration {
        self.share * 8 / 10
    }

    /// A wait for a lock: however long the lease is, what is locked for longer is gone around.
    pub(crate) fn lock(self) -> Duration {
        (self.share * 4 / 10).min(LOCK_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_lies_within_a_third_of_the_lease_and_the_server_speaks_first() {
        let limits = Limits::of_lease(Duration::from_secs(15));
        assert!(limits.verb() < Duration::from_secs(5));
        assert!(limits.lock() < limits.statement() && limits.statement() < limits.verb());
        assert_eq!(limits, Limits::default());
        assert_eq!(Limits::of_lease(Duration::from_secs(3600)).lock(), LOCK_MAX);
        assert_eq!(Limits::of_lease(Duration::from_millis(100)).verb(), Duration::from_millis(1800));
    }
}
