//! Names how a delivery can end.

use postrider_core::{Event, Outcome};

/// How a delivery ended.
pub(crate) enum DeliveryEnd {
    Outcome(Outcome),
    /// An interceptor failed the attempt, and the receiver was not called.
    Intercepted(Outcome),
    Unroutable,
    Undecodable,
    /// It may no longer be sent, and was not.
    NotSent,
}

/// Returns the error of an event that no route wants.
pub(crate) fn unroutable(event: &Event) -> String {
    format!(
        "unroutable: no handler for the event type {:?} of the aggregate type {:?}",
        event.event_type(),
        event.aggregate_type()
    )
}
