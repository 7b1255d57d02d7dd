//! The topic, subject, stream, routing key or path of each event: that of its route, or else the sink's own.

use std::collections::BTreeMap;

use postrider::{ConfigError, Pattern, format::Destination};

use crate::config::Route;

/// Combines the `topic` of routes with the sink's own template and its templates for single types. `routes` are all routes of the sink, because
/// an event of a route without `topic` must not match another route's.
pub(super) fn destination(
    template: &str,
    by_type: &BTreeMap<String, String>,
    routes: &[&Route],
) -> Result<Destination, ConfigError> {
    let mut destination = Destination::new(template)?;
    for (event_type, template) in by_type {
        destination = destination.for_type(event_type, template)?;
    }
    for route in routes {
        let aggregate_type = route.aggregate_type.as_ref().map_or(Pattern::ANY, |pattern| &pattern.value);
        destination =
            destination.for_route(&*route.event_type.value, aggregate_type, route.topic.as_deref())?;
    }
    Ok(destination)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use postrider::Event;

    use super::*;
    use crate::config::parse;

    /// Where an OrderPlaced of an Order goes with these routes and templates of types.
    fn order_placed(routes: &[&str], by_type: &[(&str, &str)]) -> String {
        let routes =
            routes.iter().map(|route| format!("{{ sink: k, {route} }}")).collect::<Vec<_>>().join(", ");
        let text = format!(
            "sources: {{ s: {{ url: s.db, routes: [{routes}] }} }}\nsinks: {{ k: {{ kafka: {{ brokers: b, topic: own }} }} }}"
        );
        let config = parse(&text, HashMap::new()).unwrap();
        let routes: Vec<_> = config.sources["s"].routes.iter().collect();
        let by_type = by_type.iter().map(|(name, topic)| ((*name).to_owned(), (*topic).to_owned())).collect();
        let event = Event::json_text("OrderPlaced", "{}").aggregate("Order", 1).build().unwrap();
        destination("own", &by_type, &routes).unwrap().resolve(&event).unwrap().into_owned()
    }

    const ANY: &str = r#"event_type: "Order*", topic: any"#;

    #[test]
    fn what_a_route_without_a_topic_wins_goes_to_the_sinks_own() {
        assert_eq!(order_placed(&["event_type: OrderPlaced", ANY], &[]), "own");
        assert_eq!(order_placed(&[ANY, "event_type: OrderPlaced"], &[]), "own");
        assert_eq!(order_placed(&["event_type: OrderPlaced", ANY], &[("OrderPlaced", "typed")]), "typed");
        assert_eq!(order_placed(&["event_type: Other", ANY], &[]), "any");
    }

    #[test]
    fn the_exact_pair_wins_then_the_exact_type_then_the_first_pattern() {
        let placed = "event_type: OrderPlaced, topic: placed";
        let pair = "event_type: OrderPlaced, aggregate_type: Order, topic: pair";
        let half = r#"event_type: OrderPlaced, aggregate_type: "Or*", topic: half"#;
        assert_eq!(order_placed(&[ANY, half, placed, pair], &[]), "pair");
        assert_eq!(order_placed(&[ANY, half, placed], &[]), "placed");
        assert_eq!(order_placed(&[ANY, half], &[]), "any");
        assert_eq!(order_placed(&[half, ANY], &[]), "half");
    }

    #[test]
    fn the_topic_of_a_route_stands_in_the_place_of_the_sinks_own_of_a_type() {
        let typed = [("OrderPlaced", "typed")];
        assert_eq!(order_placed(&[ANY], &typed), "any");
        assert_eq!(order_placed(&[r#"event_type: "*""#], &typed), "typed");
    }
}
