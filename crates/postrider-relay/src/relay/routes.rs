//! Turns the routes of a source into those of its engine.

use std::sync::Arc;

use postrider::{Backoff, OnDead, Pattern, RetryPolicy, Route, RouteSettings, Routes};

use super::build::Plan;
use crate::config::{self, Effective, Longest};

pub(super) fn of(plan: &Plan) -> Routes {
    let Plan { config, source, sinks, built_in, .. } = plan;
    let mut routes = Routes::new();
    for route in &source.routes {
        let effective = Effective::of(config, source, route, built_in);
        // A disabled route goes to a closed sink: its events wait in the table. Without any route they would become dead letters.
        let sink = sinks.of_route(route);
        let aggregate_type = route.aggregate_type.as_ref().map_or("*", |pattern| pattern.value.as_str());
        routes = routes.route(
            Route::new(&*route.event_type.value, sink)
                .aggregate_type(aggregate_type)
                .settings(settings(&effective)),
        );
    }
    routes
}

/// The route of an event: exact event type with exact aggregate type, then exact event type, then the first matching patterns.
pub(crate) fn winner<'a>(
    routes: &'a [config::Route],
    event_type: &str,
    aggregate_type: &str,
) -> Option<&'a config::Route> {
    let rank = |route: &config::Route| {
        let of_type = Pattern::new(route.event_type.value.as_str());
        let of_aggregate = route.aggregate_type.as_ref().map_or(Pattern::ANY, |placed| &placed.value);
        let of_aggregate = Pattern::new(of_aggregate);
        if !of_type.matches(event_type) || !of_aggregate.matches(aggregate_type) {
            return None;
        }
        Some(match (of_type.exact(), of_aggregate.exact(), of_aggregate.is_any()) {
            (Some(_), Some(_), _) => 0,
            (Some(_), None, true) => 1,
            _ => 2,
        })
    };
    // `min_by_key` returns the first of several minima.
    routes
        .iter()
        .filter_map(|route| Some((rank(route)?, route)))
        .min_by_key(|(rank, _)| *rank)
        .map(|(_, route)| route)
}

fn settings(effective: &Effective) -> RouteSettings {
    let retry: Arc<dyn RetryPolicy> = Arc::new(backoff(&effective.backoff));
    RouteSettings {
        retry: Some(retry),
        max_attempts: Some(effective.attempts),
        on_dead: Some(effective.on_dead.into()),
        batch_max: effective.batch,
        pace: effective.pace.map(|span| span.0),
        unavailable_for: Some(effective.unavailable_for.0),
        ..RouteSettings::default()
    }
}

impl From<config::OnDead> for OnDead {
    fn from(setting: config::OnDead) -> Self {
        match setting {
            config::OnDead::Block => Self::Block,
            config::OnDead::Skip => Self::Skip,
        }
    }
}

fn backoff(effective: &config::EffectiveBackoff) -> Backoff {
    let backoff = match effective.enabled {
        true => Backoff::new(effective.delay.0).multiplier(effective.multiplier),
        false => return Backoff::fixed(effective.delay.0),
    };
    let backoff = match effective.max {
        Longest::None => backoff.without_cap(),
        Longest::Wait(span) => backoff.max(span.0),
    };
    if effective.jitter { backoff } else { backoff.without_jitter() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider::rng::Rng;

    use super::*;
    use crate::config::{EffectiveBackoff, Span};

    fn delays(effective: &EffectiveBackoff) -> Vec<u64> {
        (1..=4).map(|attempt| backoff(effective).delay(attempt, "", &mut Rng::seeded(1)).as_secs()).collect()
    }

    #[test]
    fn the_exact_pair_wins_then_the_exact_type_then_the_first_pattern() {
        let routes = |list: &[&str]| -> Vec<config::Route> {
            let list = list.iter().map(|route| format!("{{ {route} }}")).collect::<Vec<_>>().join(", ");
            let text = format!(
                "sources: {{ s: {{ url: s.db, routes: [{list}] }} }}\nsinks: {{ a: {{ stdout: {{}} }}, b: {{ stdout: {{}} }}, c: {{ stdout: {{}} }} }}"
            );
            let config = crate::config::parse(&text, std::collections::HashMap::new()).unwrap();
            config.sources["s"].routes.clone()
        };
        let all = routes(&[
            r#"event_type: "Order*", sink: a"#,
            "event_type: OrderPlaced, sink: b",
            "event_type: OrderPlaced, aggregate_type: Order, sink: c",
        ]);
        let sink = |event_type, aggregate_type| {
            winner(&all, event_type, aggregate_type).map(|route| route.sink.value.as_str())
        };
        assert_eq!(sink("OrderPlaced", "Order"), Some("c"));
        assert_eq!(sink("OrderPlaced", "Shop"), Some("b"));
        assert_eq!(sink("OrderPaid", "Order"), Some("a"));
        assert_eq!(sink("Invoice", "Order"), None);
        let patterns = routes(&[r#"event_type: "O*", sink: b"#, r#"event_type: "Order*", sink: a"#]);
        assert_eq!(winner(&patterns, "OrderPaid", "").map(|route| route.sink.value.as_str()), Some("b"));
    }

    #[test]
    fn waits_are_exactly_those_of_the_configuration() {
        // S4-12, S4-42
        let span = |secs| Span(Duration::from_secs(secs));
        let spring = EffectiveBackoff {
            enabled: true,
            delay: span(10),
            multiplier: 3.0,
            max: Longest::None,
            jitter: false,
        };
        assert_eq!(delays(&spring), [10, 30, 90, 270]);
        assert_eq!(
            delays(&EffectiveBackoff { max: Longest::Wait(span(60)), ..spring.clone() }),
            [10, 30, 60, 60]
        );
        assert_eq!(delays(&EffectiveBackoff { enabled: false, ..spring }), [10, 10, 10, 10]);
    }
}
