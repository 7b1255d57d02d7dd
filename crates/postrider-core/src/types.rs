//! Event types and aggregate types: plain strings, or enums of your own.

use std::borrow::Cow;

/// The aggregate type of an event that was given none.
pub const GLOBAL_AGGREGATE: &str = "__GLOBAL__";

/// The type of an event: a string, or an enum with `#[derive(EventType)]`.
///
/// ```
/// use postrider_core::{Event, EventType};
///
/// enum Order { Placed, Shipped }
///
/// impl EventType for Order {
///     fn name(&self) -> &str {
///         match self { Order::Placed => "OrderPlaced", Order::Shipped => "OrderShipped" }
///     }
/// }
///
/// let event = Event::json_text(Order::Shipped, "{}").build()?;
/// assert_eq!(event.event_type(), "OrderShipped");
/// # Ok::<(), postrider_core::EventError>(())
/// ```
pub trait EventType {
    /// The name that is stored, routed on and sent.
    fn name(&self) -> &str;
}

/// The type of the aggregate that an event is about: a string, or an enum with `#[derive(AggregateType)]`.
pub trait AggregateType {
    /// The name that is stored, routed on and sent.
    fn name(&self) -> &str;
}

macro_rules! strings_are_types {
    ($($string:ty),*) => {$(
        impl EventType for $string {
            fn name(&self) -> &str { self.as_ref() }
        }
        impl AggregateType for $string {
            fn name(&self) -> &str { self.as_ref() }
        }
    )*};
}
strings_are_types!(str, String, Cow<'_, str>, Box<str>, std::sync::Arc<str>);

impl<T: EventType + ?Sized> EventType for &T {
    fn name(&self) -> &str {
        (**self).name()
    }
}

impl<T: AggregateType + ?Sized> AggregateType for &T {
    fn name(&self) -> &str {
        (**self).name()
    }
}
