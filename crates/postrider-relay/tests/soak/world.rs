//! What there is: types of events, destinations, sinks, and the settings that the judge has to know.

use std::time::Duration;

use crate::time::Micros;

/// Tenants of the webhook receiver. Each is a destination; then come the batch receiver and the stream.
const TENANTS: u8 = 6;
pub(crate) const BATCH: Destination = Destination(TENANTS);
pub(crate) const FEED: Destination = Destination(TENANTS + 1);
pub(crate) const DESTINATIONS: usize = TENANTS as usize + 2;

/// Attempts before a poisoned event is dead.
pub(crate) const ATTEMPTS: i32 = 6;

pub(crate) const LEASE: Duration = Duration::from_secs(10);

/// How long a relay waits for an answer of a receiver.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// An end that took longer than this left something under way.
pub(crate) const CLEAN_END: Micros = 4_500_000;

/// A receiver that rejects everything costs each relay and destination so many events.
pub(crate) const REJECTED_MAX: usize = 10;

/// Where an event goes: what fails as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Destination(pub(crate) u8);

impl Destination {
    pub(crate) fn tenant(number: usize) -> Self {
        Self(u8::try_from(number % usize::from(TENANTS)).unwrap_or(0))
    }

    pub(crate) fn tenants() -> impl Iterator<Item = Self> {
        (0..TENANTS).map(Self)
    }

    pub(crate) fn name(self) -> String {
        match self {
            BATCH => "batch".to_owned(),
            FEED => "feed".to_owned(),
            Self(tenant) => format!("t{tenant}"),
        }
    }

    pub(crate) fn of_tenant(name: &str) -> Option<Self> {
        Self::tenants().find(|tenant| tenant.name() == name)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The type of an event, which decides its sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    HookOrder,
    HookNote,
    BatchAudit,
    BatchStat,
    FeedPrice,
    FeedTrade,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::HookOrder,
        Self::HookNote,
        Self::BatchAudit,
        Self::BatchStat,
        Self::FeedPrice,
        Self::FeedTrade,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HookOrder => "HookOrder",
            Self::HookNote => "HookNote",
            Self::BatchAudit => "BatchAudit",
            Self::BatchStat => "BatchStat",
            Self::FeedPrice => "FeedPrice",
            Self::FeedTrade => "FeedTrade",
        }
    }

    /// A dead event of this type does not stop its key.
    pub(crate) fn skips_dead(self) -> bool {
        matches!(self, Self::BatchAudit | Self::BatchStat)
    }

    /// Its receiver can refuse one event for ever.
    pub(crate) fn can_be_poisoned(self) -> bool {
        !matches!(self, Self::FeedPrice | Self::FeedTrade)
    }

    /// Where an event of this type and tenant goes.
    pub(crate) fn destination(self, tenant: Destination) -> Destination {
        match self {
            Self::HookOrder | Self::HookNote => tenant,
            Self::BatchAudit | Self::BatchStat => BATCH,
            Self::FeedPrice | Self::FeedTrade => FEED,
        }
    }
}
