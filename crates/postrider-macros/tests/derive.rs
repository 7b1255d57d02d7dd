//! The derives on enums of every shape, against the traits and the limits of the core.
#![deny(warnings)]

extern crate postrider_core as postrider;

use postrider::event::limits;
use postrider_macros::{AggregateType, EventType};

/// The name, whatever is passed: what a builder of events asks for.
fn event_type(of: impl postrider::EventType) -> String {
    of.name().to_owned()
}

fn aggregate_type(of: impl postrider::AggregateType) -> String {
    of.name().to_owned()
}

#[derive(EventType)]
enum Plain {
    OrderPlaced,
    OrderPaid(#[allow(dead_code)] u64, #[allow(dead_code)] &'static str),
    OrderShipped {
        #[allow(dead_code)]
        parcel: String,
    },
    #[allow(non_camel_case_types)]
    r#type,
}

#[test]
fn the_name_of_a_variant_is_its_identifier_whatever_its_fields() {
    // S3-7.1
    assert_eq!(event_type(Plain::OrderPlaced), "OrderPlaced");
    assert_eq!(event_type(Plain::OrderPaid(7, "EUR")), "OrderPaid");
    assert_eq!(event_type(&Plain::OrderShipped { parcel: "P1".to_owned() }), "OrderShipped");
    assert_eq!(event_type(Plain::r#type), "type");
    assert_eq!(Plain::EVENT_TYPES, ["OrderPlaced", "OrderPaid", "OrderShipped", "type"]);
}

#[derive(EventType)]
#[event_type(rename_all = "dot.case")]
enum Renamed {
    OrderPlaced,
    #[event_type(name = "Order Lost")]
    OrderVanished,
}

#[test]
fn a_given_name_stands_as_it_is_and_rename_all_takes_the_others() {
    assert_eq!(event_type(Renamed::OrderPlaced), "order.placed");
    assert_eq!(event_type(Renamed::OrderVanished), "Order Lost");
}

#[derive(EventType, AggregateType)]
#[event_type(rename_all = "SCREAMING_SNAKE_CASE")]
#[aggregate_type(rename_all = "kebab-case")]
enum Both {
    OrderPlaced,
    #[event_type(name = "refund")]
    #[aggregate_type(name = "money")]
    Refunded,
}

#[test]
fn one_enum_can_be_both_and_each_derive_reads_its_own_attribute() {
    assert_eq!(Both::EVENT_TYPES, ["ORDER_PLACED", "refund"]);
    assert_eq!(Both::AGGREGATE_TYPES, ["order-placed", "money"]);
    assert_eq!(event_type(Both::Refunded), "refund");
    assert_eq!(aggregate_type(Both::OrderPlaced), "order-placed");
    assert_eq!(aggregate_type(Both::Refunded), "money");
}

#[derive(EventType)]
#[event_type(rename_all = "camelCase")]
enum Generic<'a, T: Clone, const N: usize>
where
    T: PartialEq,
{
    FirstSeen(#[allow(dead_code)] &'a [T; N]),
    SeenAgain {
        #[allow(dead_code)]
        what: T,
    },
}

#[test]
fn generics_bounds_and_where_clauses_are_kept() {
    assert_eq!(event_type(Generic::FirstSeen(&[1, 2])), "firstSeen");
    let again: Generic<'_, char, 0> = Generic::SeenAgain { what: 'x' };
    assert_eq!(event_type(again), "seenAgain");
    assert_eq!(Generic::<'_, u8, 1>::EVENT_TYPES, ["firstSeen", "seenAgain"]);
}

#[derive(EventType, AggregateType)]
#[allow(dead_code)]
enum Never {}

#[test]
fn an_enum_without_variants_has_no_names() {
    assert!(Never::EVENT_TYPES.is_empty() && Never::AGGREGATE_TYPES.is_empty());
}

/// A private enum whose constant nobody reads must not make the caller's build warn.
mod quiet {
    #[derive(super::AggregateType)]
    pub(super) enum Longest {
        #[aggregate_type(name = "0123456789012345678901234567890123456789012345678901234567890123")]
        Order,
    }
}

#[test]
fn a_name_as_long_as_the_cores_limit_is_allowed() {
    assert_eq!(aggregate_type(quiet::Longest::Order).chars().count(), limits::AGGREGATE_TYPE_CHARS_MAX);
}

#[test]
fn the_derives_know_the_limits_of_the_core() {
    // The derives say 128 and 64 themselves (`src/derive.rs`, `tests/ui/too_long.rs`).
    assert_eq!((limits::EVENT_TYPE_CHARS_MAX, limits::AGGREGATE_TYPE_CHARS_MAX), (128, 64));
}
