//! Destinations that differ from event to event: one of them may be down while the others work.

use std::{borrow::Cow, collections::BTreeSet};

use postrider_core::{Event, format::Destination};

/// Whether events may go to different destinations by this template.
///
/// ```
/// use postrider_core::format::Destination;
/// use postrider_net::destination::varies;
///
/// assert!(!varies(&Destination::new("orders")?));
/// assert!(varies(&Destination::new("orders-{tenant_id}")?));
/// assert!(varies(&Destination::new("orders")?.for_type("InvoicePaid", "invoices")?));
/// assert!(!varies(&Destination::new("orders")?.for_type("OrderPaid", "orders")?));
/// # Ok::<(), postrider_core::ConfigError>(())
/// ```
pub fn varies(destination: &Destination) -> bool {
    let fixed: Vec<_> = destination.fixed().collect();
    let distinct: BTreeSet<_> = fixed.iter().collect();
    distinct.len() > 1 || fixed.len() < destination.templates().count()
}

/// The destination of an event, if destinations differ; `None` also for an event without a valid one.
pub fn of_event(destination: &Destination, event: &Event) -> Option<String> {
    varies(destination).then(|| destination.resolve(event).ok())?.map(Cow::into_owned)
}
