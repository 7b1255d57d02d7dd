//! The receiver: the handler that events are delivered to.

use postrider::{Delivery, Outcome};

use super::{ledger::Ledger, story::Fate};

/// Takes an event and writes that into the ledger before it says so; or fails, or rejects it, as the event wants.
pub(crate) async fn receive(ledger: Ledger, delivery: Delivery) -> Result<Outcome, sqlx::Error> {
    match Fate::of(&delivery) {
        // The number of the attempt is in the table, so a restart in between does not begin anew.
        Fate::FailsTwice if delivery.attempt <= 2 => Ok(Outcome::retry("the warehouse did not answer")),
        Fate::Poison => Ok(Outcome::rejected("no such address")),
        Fate::Taken | Fate::FailsTwice => {
            ledger.delivered(&delivery).await?;
            Ok(Outcome::Delivered)
        }
    }
}
