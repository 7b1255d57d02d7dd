//! Builds the outbox of each source from the configuration.

use std::{sync::Arc, time::Duration};

use postrider::{KeyOrder, Metrics, Outbox, OutboxBuilder, Settings, Store};

use super::{
    routes,
    sinks::{Around, Sinks},
    store,
};
use crate::{
    config::{BuiltIn, Config, Effective, OnDead, Order, Source},
    failure::Failure,
    operations::{ByType, Meters},
    traces::Tracer,
};

/// Claims that fit into memory: one is being read, one sent, one settled, and one waits. With room for two claims, as 1000 events are, a
/// sink had half as many events under way as it could take. Not for external tables that do not record which rows were under way: all rows in
/// memory are suspects there after a crash.
const CLAIMS_IN_MEMORY: usize = 4;

/// How long a shutdown may take beyond the longest drain: for the last outcomes, lanes, spans and responses. The process exits within 5 s.
const END_AFTER_DRAIN: Duration = Duration::from_millis(4500);

/// Everything needed to deliver from one source.
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) config: Arc<Config>,
    pub(crate) sinks: Sinks,
    pub(crate) built_in: BuiltIn,
    pub(crate) metrics: Arc<dyn Metrics>,
    pub(crate) types: Arc<ByType>,
}

/// The metrics and traces of a relay. Cloning copies pointers.
#[derive(Clone)]
pub(crate) struct Instruments {
    pub(crate) meters: Meters,
    pub(crate) tracer: Tracer,
}

impl Instruments {
    /// For commands that deliver nothing: metrics that nobody reads, and no spans.
    pub(crate) fn idle() -> Result<Self, Failure> {
        Ok(Self { meters: Meters::new()?, tracer: Tracer::default() })
    }
}

/// The plans of all enabled sources.
pub(crate) fn plans(config: Config, instruments: &Instruments) -> Result<Vec<Plan>, Failure> {
    let config = Arc::new(config);
    let enabled = config.sources.iter().filter(|(_, source)| source.enabled);
    enabled.map(|(name, source)| plan(&config, name, source, instruments)).collect()
}

/// The plan of one source. Finds every mistake that can be found without connecting.
pub(crate) fn plan(
    config: &Arc<Config>,
    name: &str,
    source: &Source,
    instruments: &Instruments,
) -> Result<Plan, Failure> {
    let wrong = |error: postrider::Error| Failure::from(error).of(&format!("the source `{name}`"));
    let Instruments { meters, tracer } = instruments;
    let types = meters.types(name);
    let around = Around { source: name, types: &types, tracer };
    let sinks = Sinks::of(config, source, &around).map_err(|error| wrong(error.into()))?;
    let plan = Plan {
        name: name.to_owned(),
        source: source.clone(),
        config: config.clone(),
        built_in: store::built_in(source).map_err(|error| wrong(error.into()))?,
        metrics: meters.of_source(name, types.clone(), sinks.iter().map(|(name, _)| name)),
        types,
        sinks,
    };
    settings(&plan).check().map_err(|error| wrong(error.into()))?;
    store::check(source).map_err(wrong)?;
    if source.profile.is_some() {
        let blocking = source
            .routes
            .iter()
            .find(|route| Effective::of(config, source, route, &plan.built_in).on_dead == OnDead::Block);
        if let Some(route) = blocking {
            let what = format!(
                "the source `{name}`: `on_dead` is `block` for the event type `{}`, but in an external table \
                 no key can wait behind a dead event",
                route.event_type.value
            );
            return Err(Failure::usage(what).hint("set `on_dead: skip` for the source or the route"));
        }
    }
    Ok(plan)
}

/// How long a relay with these configurations may take to shut down.
pub(crate) fn end_limit<'a>(configs: impl IntoIterator<Item = &'a Config>) -> Duration {
    let sources = configs.into_iter().flat_map(|config| config.sources.values());
    let drains = sources.filter(|source| source.enabled).map(drain_timeout);
    drains.max().unwrap_or_default().saturating_add(END_AFTER_DRAIN)
}

fn drain_timeout(source: &Source) -> Duration {
    source.drain_timeout.map_or(Settings::default().drain_timeout, |span| span.0)
}

/// An outbox that delivers from `store` by the plan.
pub(crate) fn outbox_of(plan: &Plan, store: Arc<dyn Store>) -> OutboxBuilder {
    let builder = Outbox::builder().shared_store(store).routes(routes::of(plan)).migrate(plan.source.migrate);
    builder.metrics(plan.metrics.clone()).settings(settings(plan))
}

/// The engine's settings for a source.
pub(crate) fn settings(plan: &Plan) -> Settings {
    let Plan { source, config, built_in, .. } = plan;
    let usual = &built_in.defaults;
    let mut settings = Settings {
        claim_batch: usual.claim_batch,
        poll_max: usual.poll_max,
        max_attempts: usual.max_attempts,
        on_dead: built_in.on_dead.into(),
        ..Settings::default()
    };
    let span = |to: &mut Duration, from: Option<crate::config::Span>| *to = from.map_or(*to, |span| span.0);
    span(&mut settings.poll_max, source.poll.max);
    settings.poll_min = settings.poll_min.min(settings.poll_max);
    span(&mut settings.poll_min, source.poll.min);
    span(&mut settings.peek, source.poll.peek);
    span(&mut settings.lease, source.lease);
    span(&mut settings.retention, source.retention);
    settings.drain_timeout = drain_timeout(source);
    let count = |to: &mut usize, from: Option<usize>| *to = from.unwrap_or(*to);
    count(&mut settings.claim_batch, source.claim_batch);
    if source.profile.is_none() {
        settings.cold_queue = settings.cold_queue.max(settings.claim_batch.saturating_mul(CLAIMS_IN_MEMORY));
    }
    count(&mut settings.cold_queue, source.queue.events);
    count(&mut settings.key_queue, source.queue.of_key);
    count(&mut settings.queue_bytes, source.queue.bytes.map(|size| size.0));
    if source.order == Some(Order::Ignored) {
        settings.key_order = KeyOrder::Ignored;
    }
    if let Some(instance) = &config.instance {
        settings.instance.clone_from(instance);
    }
    settings
}
