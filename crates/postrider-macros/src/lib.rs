//! Postrider's macros: derives for event and aggregate types, and `#[publish]`.
//!
//! Use them through the facade, `postrider`, with its feature `macros`: the code they write names
//! `::postrider::EventType`, `::postrider::Event` and the like.
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
//! - `publish`: the attribute: `arguments` are what it is given, the rest is what it makes of a function.
//! - `name`: from a variant's identifier to a name, and what a name may be.
//! - `mistakes`: compile errors, gathered.

mod derive;
mod mistakes;
mod name;
mod publish;

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

/// Writes the `Ok` value of an `async fn` as an event, in the transaction that the function was given. An `Err` writes nothing.
///
/// The function keeps its name, its parameters and its result; the value is serialised as JSON and returned unchanged. If
/// the event cannot be written, the function fails with that error: its error type must be `From<postrider::Error>`.
///
/// ```text
/// #[publish(event_type = "OrderPlaced", aggregate = ("Order", |order| order.id))]
/// async fn place_order(tx: &mut Tx<SqliteTx>, total: i64) -> Result<Order, ShopError> { … }
/// ```
///
/// | argument | meaning |
/// | --- | --- |
/// | `event_type = "…"` | required: a string literal, or the path of an `EventType` such as `Happened::OrderPlaced` |
/// | `aggregate = ("Order", \|order\| order.id)` | what the event is about: type and id; gives it its key |
/// | `key = \|order\| …` | the ordering key, where it is not the aggregate |
/// | `tenant = \|order\| …` | the tenant |
/// | `each` | the value is a list (anything with `iter()`): one event for each element, all in one round trip; none for an empty list. Closures see an element |
/// | `tx = name` | the parameter that is the transaction, if it is not called `tx` |
/// | `outbox = outbox` | the transaction is the caller's own: see below |
///
/// An id, a key and a tenant are closures of the value, or plain expressions; anything with `to_string()` will do.
///
/// # Which transaction
///
/// As a rule the parameter is a `&mut Tx<…>`, from `Outbox::transaction` or `Outbox::begin`. It knows its outbox, and its
/// commit hands the event over at once.
///
/// With `outbox = …` (a parameter, or a place such as `self.outbox`) the parameter is a transaction of the driver's, as
/// `Outbox::write` takes it: `&mut sqlx::Transaction<'_, Sqlite>`. Nobody tells Postrider of its commit then, so the event is
/// delivered at the next poll, or after `Outbox::wake`.
///
/// # In traits
///
/// A native `async fn` in an `impl` of a trait may carry it. `#[async_trait]` makes ordinary functions of async ones before
/// this attribute sees them, so the two do not go together.
#[proc_macro_attribute]
pub fn publish(arguments: TokenStream, function: TokenStream) -> TokenStream {
    publish::expand(arguments.into(), function.into()).into()
}
