//! What the suite asks of a sink's tests.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use postrider_core::{Event, Sink};

use super::Failure;

/// One event as it arrived, as far as the sink carries it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Received {
    /// The event's id.
    pub id: Option<String>,
    /// Its type.
    pub event_type: Option<String>,
    /// Its key, where it has one.
    pub key: Option<String>,
    /// Its headers. What the protocol or the sink adds to them does not matter.
    pub headers: BTreeMap<String, String>,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Which payloads a sink takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Payloads {
    /// JSON, and nothing else.
    Json,
    /// Any text.
    Text,
    /// Any bytes.
    Bytes,
}

/// What a sink carries, and what its receiver can be made to do, as data.
///
/// ```
/// use postrider_testkit::conformance::sink::SinkFeatures;
/// const FEATURES: SinkFeatures = SinkFeatures { headers: false, stall: false, ..SinkFeatures::ALL };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkFeatures {
    /// The receiver sees the event's id.
    pub id: bool,
    /// The receiver sees its type.
    pub event_type: bool,
    /// The receiver sees its key.
    pub key: bool,
    /// The receiver sees its headers.
    pub headers: bool,
    /// The payloads that go through.
    pub payloads: Payloads,
    /// [`Receiver::Down`] is possible.
    pub down: bool,
    /// [`Receiver::Refuses`] is possible.
    pub refuse: bool,
    /// [`Receiver::Stalls`] is possible.
    pub stall: bool,
    /// [`Receiver::Ignores`] is possible.
    pub ignore: bool,
}

impl SinkFeatures {
    /// Everything.
    pub const ALL: Self = Self {
        id: true,
        event_type: true,
        key: true,
        headers: true,
        payloads: Payloads::Bytes,
        down: true,
        refuse: true,
        stall: true,
        ignore: true,
    };
}

/// What the receiver is made to do.
#[derive(Debug, Clone)]
pub enum Receiver {
    /// It takes everything, as it does in the beginning.
    Well,
    /// It cannot be reached, or says that it is down.
    Down,
    /// It takes everything but this event, by which it may be told: its payload is like no other's.
    Refuses(Event),
    /// It takes what is sent, keeps nothing, and does not answer.
    Stalls,
    /// It takes everything, and does not answer to this event.
    Ignores(Event),
}

/// A sink under test, and the receiver that it sends to.
pub trait SinkHarness: Sized + Send + Sync + 'static {
    /// What the sink carries, and what the receiver can be made to do.
    const FEATURES: SinkFeatures;

    /// A receiver that nothing has arrived at and no other test sends to, and a sink for it.
    fn fresh() -> impl Future<Output = Result<Self, Failure>> + Send;

    /// The sink.
    fn sink(&self) -> Arc<dyn Sink>;

    /// A sink for the same receiver whose `send_timeout` is a few seconds. Without one, no check waits for the end of a send.
    fn hasty(&self) -> Option<Arc<dyn Sink>> {
        None
    }

    /// Everything that has arrived, in the order of arrival. What the sink has acknowledged is there.
    fn received(&self) -> impl Future<Output = Result<Vec<Received>, Failure>> + Send;

    /// Makes the receiver do this from now on. Only asked for what [`FEATURES`](SinkHarness::FEATURES) name.
    fn set_receiver(&self, receiver: Receiver) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Comes back once a receiver that [stalls](Receiver::Stalls) has something that it does not answer.
    fn stalled(&self) -> impl Future<Output = Result<(), Failure>> + Send {
        std::future::pending()
    }
}
