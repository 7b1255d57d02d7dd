//! The shop's stories: one or more transactions, each with its events.

use std::time::Duration;

use postrider::{Event, EventBuilder, EventError, EventType};

/// What happened in the shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EventType)]
pub(crate) enum Happening {
    OrderPlaced,
    OrderPaid,
    OrderShipped,
    PointsEarned,
    PageViewed,
    GiftAdded,
    ReminderDue,
}

/// What the receiver does with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// Accepts it.
    AcquiredLane,
    /// Fails twice, then accepts it.
    FailsTwice,
    /// Rejects it for good.
    Poison,
}

impl Treatment {
    /// The header that tells the receiver.
    pub(crate) const HEADER: &str = "demo-outcome";

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::AcquiredLane => "taken",
            Self::FailsTwice => "fails twice",
            Self::Poison => "poison",
        }
    }

    /// Reads the header of a delivered event.
    pub(crate) fn of(event: &Event) -> Self {
        let word = event.headers().get(Self::HEADER).map_or("", String::as_str);
        [Self::FailsTwice, Self::Poison]
            .into_iter()
            .find(|outcome| outcome.as_str() == word)
            .unwrap_or(Self::AcquiredLane)
    }
}

/// The ordering key of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// The order, which is its aggregate.
    Order,
    /// The customer, as an explicit key that all writers share.
    Customer,
    /// No key, so the event may take the hot path.
    None,
}

/// An event to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) happening: Happening,
    pub(crate) key: Key,
    pub(crate) outcome: Treatment,
    pub(crate) delay: Option<Duration>,
}

impl Draft {
    pub(crate) fn new(happening: Happening, key: Key) -> Self {
        Self { happening, key, outcome: Treatment::AcquiredLane, delay: None }
    }

    pub(crate) fn outcome(self, outcome: Treatment) -> Self {
        Self { outcome, ..self }
    }

    /// Builds the event with a new ID.
    pub(crate) fn event(&self, story: &Story) -> Result<Event, EventError> {
        let payload =
            serde_json::json!({ "order": story.order, "customer": story.customer, "cents": story.cents });
        let event: EventBuilder = Event::json_text(self.happening, payload.to_string());
        let event = match self.key {
            Key::Order => event.aggregate("Order", &story.order),
            Key::Customer => event.key(format!("customer-{}", story.customer)),
            Key::None => event,
        };
        let event = match self.delay {
            Some(delay) => event.deliver_after(delay),
            None => event,
        };
        event.header(Treatment::HEADER, self.outcome.as_str()).build()
    }
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It commits.
    Commit,
    /// The shop returns an error.
    Declined,
    /// A statement fails and SQLite rolls back; the shop ignores it and commits.
    Swallowed,
    /// It commits without this event, which was written behind a savepoint that is rolled back.
    Without(Draft),
}

/// Who owns the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// `outbox.transaction`.
    Outbox,
    /// The shop: a sqlx transaction, `outbox.write` and a receipt.
    Shop,
}

/// One transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// The new state of the order.
    pub(crate) state: &'static str,
    pub(crate) drafts: Vec<Draft>,
    pub(crate) end: End,
    pub(crate) owner: Owner,
}

impl Step {
    /// Number of events that it commits.
    pub(crate) fn commits(&self) -> u64 {
        match self.end {
            End::Commit | End::Without(_) => self.drafts.len() as u64,
            End::Declined | End::Swallowed => 0,
        }
    }
}

/// The transactions of one order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) order: String,
    pub(crate) customer: u64,
    pub(crate) cents: u64,
    pub(crate) steps: Vec<Step>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_arrives_with_its_fate_and_its_key() {
        let story = Story { order: "1-7".into(), customer: 3, cents: 1, steps: Vec::new() };
        for outcome in [Treatment::AcquiredLane, Treatment::FailsTwice, Treatment::Poison] {
            let event = Draft::new(Happening::OrderPaid, Key::Order).outcome(outcome).event(&story).unwrap();
            assert_eq!((Treatment::of(&event), event.key()), (outcome, Some("Order:1-7")));
        }
        let points = Draft::new(Happening::PointsEarned, Key::Customer).event(&story).unwrap();
        assert_eq!(points.key(), Some("customer-3"));
        assert_eq!(Draft::new(Happening::PageViewed, Key::None).event(&story).unwrap().key(), None);
    }
}
