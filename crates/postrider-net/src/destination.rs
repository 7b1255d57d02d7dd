//! Whether the events of a sink go to several places, of which one may be down while the others work.

use std::collections::BTreeSet;

use postrider_core::format::Destination;

/// Whether events may go to different places by this template.
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
