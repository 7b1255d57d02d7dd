//! The handler that events are delivered to.

use postrider::{Delivery, Outcome};

use super::{ledger::Ledger, story::Treatment};

/// Records an event in the ledger before accepting it; or fails or rejects it, as the event demands.
pub(crate) async fn receive(ledger: Ledger, delivery: Delivery) -> Result<Outcome, sqlx::Error> {
    match Treatment::of(&delivery) {
        // The attempt number comes from the table, so a restart in between does not reset it.
        Treatment::FailsTwice if delivery.attempt <= 2 => Ok(Outcome::retry("the warehouse did not answer")),
        Treatment::Poison => Ok(Outcome::rejected("no such address")),
        Treatment::AcquiredLane | Treatment::FailsTwice => {
            ledger.delivered(&delivery).await?;
            Ok(Outcome::Delivered)
        }
    }
}
