//! The parts of a receiver that events go to: what they are called, and which one is whose.

use postrider_core::EventId;

use super::scenario::ReceiverScenario;

/// The number of a destination.
pub(super) type Destination = u64;

impl ReceiverScenario {
    /// Where an event goes: told by its key, or by its id if it has none. Always the first where there is only one.
    pub(super) fn destination(&self, key: Option<&str>, id: &EventId) -> Destination {
        let text = key.unwrap_or(id.as_str());
        let hash = text.bytes().fold(5381_u64, |hash, byte| hash.wrapping_mul(33) ^ u64::from(byte));
        hash % self.destinations.max(1)
    }

    /// Whether a send goes to one destination only.
    pub(super) fn has_one_destination(&self) -> bool {
        self.one_destination || self.batch_max <= 1
    }

    /// What it is called; none where there is only one.
    pub(super) fn name_of(&self, destination: Destination) -> Option<String> {
        (self.destinations > 1).then(|| format!("destination-{destination}"))
    }
}
