//! Derives for Postrider's event and aggregate types.
//!
//! Use them through the facade, `postrider`, with its feature `macros`: the code they write names
//! `::postrider::EventType` and `::postrider::AggregateType`.
//!
//! ```text
//! use postrider::EventType;
//!
//! #[derive(EventType)]
//! #[event_type(rename_all = "dot.case")]
//! enum Order {
//!     OrderPlaced { total_cents: u64 },     // "order.placed"
//!     OrderShipped,                         // "order.shipped"
//!     #[event_type(name = "order.lost")]
//!     Vanished(String),                     // "order.lost"
//! }
//!
//! Order::OrderShipped.name();               // "order.shipped"
//! Order::EVENT_TYPES;                       // ["order.placed", "order.shipped", "order.lost"]
//! ```
//!
//! # Layout
//!
//! - `derive`: what both derives share: attributes, checks, and the code that comes out.
//! - `name`: from a variant's identifier to a name, and what a name may be.

mod derive;
mod name;

use derive::{AGGREGATE_TYPE, EVENT_TYPE};
use proc_macro::TokenStream;

/// Makes an enum an event type: the name of a variant is its identifier.
///
/// - On the enum, `#[event_type(rename_all = "…")]` renames all variants; `…` is `snake_case`,
///   `kebab-case`, `SCREAMING_SNAKE_CASE`, `camelCase` or `dot.case`.
/// - On a variant, `#[event_type(name = "…")]` gives the name as it stands, whatever `rename_all` says.
///
/// The enum also gets `pub const EVENT_TYPES: &'static [&'static str]`, all its names in the order of
/// the variants. A name that is blank, longer than 128 characters, holds NUL, or is used twice does not
/// compile.
///
/// ```text
/// #[derive(postrider::EventType)]
/// #[event_type(rename_all = "snake_case")]
/// enum Order { OrderPlaced, #[event_type(name = "gone")] OrderShipped }
///
/// assert_eq!(Order::EVENT_TYPES, ["order_placed", "gone"]);
/// ```
#[proc_macro_derive(EventType, attributes(event_type))]
pub fn derive_event_type(input: TokenStream) -> TokenStream {
    derive::expand(&EVENT_TYPE, input.into()).into()
}

/// Makes an enum an aggregate type: the name of a variant is its identifier.
///
/// - On the enum, `#[aggregate_type(rename_all = "…")]` renames all variants; `…` is `snake_case`,
///   `kebab-case`, `SCREAMING_SNAKE_CASE`, `camelCase` or `dot.case`.
/// - On a variant, `#[aggregate_type(name = "…")]` gives the name as it stands, whatever `rename_all`
///   says.
///
/// The enum also gets `pub const AGGREGATE_TYPES: &'static [&'static str]`, all its names in the order
/// of the variants. A name that is blank, longer than 64 characters, holds NUL, or is used twice does
/// not compile.
///
/// ```text
/// #[derive(postrider::AggregateType)]
/// enum Aggregate { Order, #[aggregate_type(name = "client")] Customer }
///
/// assert_eq!(Aggregate::AGGREGATE_TYPES, ["Order", "client"]);
/// ```
#[proc_macro_derive(AggregateType, attributes(aggregate_type))]
pub fn derive_aggregate_type(input: TokenStream) -> TokenStream {
    derive::expand(&AGGREGATE_TYPE, input.into()).into()
}
