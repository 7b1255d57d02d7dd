//! Reports the effective configuration: every setting of every source and route, defaults included.

use postrider::{KeyOrder, Settings, Sink as _};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    config::{Config, Effective, EffectiveBackoff, Longest, Route, Size, Source, Span},
    failure::Failure,
    relay::{self, Plan},
    terminal::table,
};

/// The effective settings of all sources and routes, disabled ones included.
pub(super) struct EffectiveReport<'a> {
    sources: Vec<EffectiveSource>,
    routes: Vec<EffectiveRoute<'a>>,
}

/// The effective settings of a source.
#[derive(Serialize)]
struct EffectiveSource {
    source: String,
    /// The system whose table it is.
    table: String,
    claim_batch: usize,
    poll_min: Span,
    poll_max: Span,
    peek: Span,
    lease: Span,
    retention: Span,
    queue_events: usize,
    queue_bytes: Size,
    drain_timeout: Span,
    order: &'static str,
    /// For an external table: which rows are left alone, and when stuck rows are given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<EffectiveTimes>,
}

#[derive(Serialize)]
struct EffectiveTimes {
    skip_recent: Span,
    recovery_after: Span,
    recovery_every: Span,
}

struct EffectiveRoute<'a> {
    source: &'a str,
    route: &'a Route,
    effective: Effective,
}

impl<'a> EffectiveReport<'a> {
    /// Builds the report. A disabled source has no plan; its routes are in the report all the same.
    pub(super) fn of(config: &'a Config, plans: &[Plan]) -> Result<Self, Failure> {
        let mut routes = Vec::new();
        for (name, source) in &config.sources {
            let built_in = relay::built_in(source).map_err(|error| {
                Failure::from(postrider::Error::from(error)).of(&format!("the source `{name}`"))
            })?;
            let plan = plans.iter().find(|plan| plan.name == *name);
            for route in &source.routes {
                let mut effective = Effective::of(config, source, route, &built_in);
                // A route never sends more at once than its sink takes.
                let most = plan.map(|plan| plan.sinks.of_route(route).traits().batch_max);
                effective.batch = effective.batch.into_iter().chain(most).min();
                routes.push(EffectiveRoute { source: name, route, effective });
            }
        }
        let sources =
            plans.iter().map(|plan| EffectiveSource::of(&plan.name, &plan.source, &relay::settings(plan)));
        Ok(Self { sources: sources.collect::<Result<_, _>>()?, routes })
    }

    pub(super) fn sources(&self) -> comfy_table::Table {
        let header = ["source", "table", "claim", "poll", "lease", "retention", "queue", "drain", "order"];
        let mut rows = table(header, &[2]);
        for source in &self.sources {
            rows.add_row([
                source.source.clone(),
                source.table.clone(),
                source.claim_batch.to_string(),
                format!("{} to {}", source.poll_min, source.poll_max),
                source.lease.to_string(),
                source.retention.to_string(),
                format!("{}, {}", source.queue_events, source.queue_bytes),
                source.drain_timeout.to_string(),
                source.order.to_owned(),
            ]);
        }
        rows
    }

    pub(super) fn routes(&self) -> comfy_table::Table {
        let header = ["source", "event type", "sink", "attempts", "backoff", "batch", "pace", "on dead"];
        let mut rows = table(header, &[3, 5]);
        for EffectiveRoute { source, route, effective } in &self.routes {
            rows.add_row([
                (*source).to_owned(),
                route.event_type.value.clone(),
                route.sink.value.clone(),
                effective.attempts.to_string(),
                shown(&effective.backoff),
                effective.batch.map_or_else(|| "the sink's".to_owned(), |batch| batch.to_string()),
                effective.pace.map_or_else(|| "-".to_owned(), |pace| pace.to_string()),
                format!("{:?}", effective.on_dead).to_lowercase(),
            ]);
        }
        rows
    }

    /// The report as JSON.
    pub(super) fn add_to(&self, answer: &mut Map<String, Value>) {
        let routes = self.routes.iter().map(|EffectiveRoute { source, route, effective }| {
            json!({
                "source": source,
                "event_type": route.event_type,
                "aggregate_type": route.aggregate_type,
                "sink": route.sink,
                "effective": effective,
            })
        });
        answer.insert("sources".to_owned(), json!(self.sources));
        answer.insert("routes".to_owned(), Value::Array(routes.collect()));
    }
}

impl EffectiveSource {
    fn of(name: &str, source: &Source, settings: &Settings) -> Result<Self, Failure> {
        let times = relay::times(source).map_err(|error| Failure::from(postrider::Error::from(error)))?;
        Ok(Self {
            source: name.to_owned(),
            table: source
                .profile
                .as_ref()
                .map_or_else(|| "postrider".to_owned(), |profile| profile.system.name()),
            claim_batch: settings.claim_batch,
            poll_min: Span(settings.poll_min),
            poll_max: Span(settings.poll_max),
            peek: Span(settings.peek),
            lease: Span(settings.lease),
            retention: Span(settings.retention),
            queue_events: settings.cold_queue,
            queue_bytes: Size(settings.queue_bytes),
            drain_timeout: Span(settings.drain_timeout),
            order: match settings.key_order {
                KeyOrder::Kept => "kept",
                KeyOrder::Ignored => "ignored",
            },
            profile: times.map(|times| EffectiveTimes {
                skip_recent: Span(times.skip_recent),
                recovery_after: Span(times.recover_after),
                recovery_every: Span(times.recover_every),
            }),
        })
    }
}

/// Describes a backoff in a few words.
fn shown(backoff: &EffectiveBackoff) -> String {
    if !backoff.enabled {
        return backoff.delay.to_string();
    }
    let max = match backoff.max {
        Longest::None => String::new(),
        Longest::Wait(max) => format!(", at most {max}"),
    };
    let jitter = if backoff.jitter { ", spread" } else { "" };
    format!("{} × {}{max}{jitter}", backoff.delay, backoff.multiplier)
}
