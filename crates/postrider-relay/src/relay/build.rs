//! From the configuration to an outbox for each source.

use std::{sync::Arc, time::Duration};

use postrider::{DeadHeads, KeyOrder, Metrics, Outbox, OutboxBuilder, Settings, Store};

use super::{routes, sinks::Sinks};
use crate::{
    config::{Config, Order, Source},
    failure::Failure,
    operations::Meters,
};

/// Most events that one claim of a relay reads, and its longest pause between polls, unless it is said otherwise.
const CLAIM_BATCH: usize = 500;
const POLL_MAX: Duration = Duration::from_secs(1);

/// What is to be done for one source.
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) config: Arc<Config>,
    pub(crate) sinks: Sinks,
    pub(crate) metrics: Arc<dyn Metrics>,
}

/// The plans of all sources that are not switched off.
pub(crate) fn plans(config: Config, meters: &Meters) -> Result<Vec<Plan>, Failure> {
    let config = Arc::new(config);
    let enabled = config.sources.iter().filter(|(_, source)| source.enabled);
    enabled.map(|(name, source)| plan(&config, name, source, meters)).collect()
}

/// The plan of one source. What can be wrong with it without asking anybody is found here.
pub(crate) fn plan(
    config: &Arc<Config>,
    name: &str,
    source: &Source,
    meters: &Meters,
) -> Result<Plan, Failure> {
    let wrong = |error: postrider::Error| Failure::from(error).of(&format!("the source `{name}`"));
    let plan = Plan {
        name: name.to_owned(),
        source: source.clone(),
        config: config.clone(),
        sinks: Sinks::of(config, source).map_err(|error| wrong(error.into()))?,
        metrics: meters.of_source(name),
    };
    settings(&plan).check().map_err(|error| wrong(error.into()))?;
    if let Some(profile) = &plan.source.profile {
        super::store::profile_of(profile).map_err(|error| wrong(error.into()))?;
    }
    Ok(plan)
}

/// An outbox that delivers from this store as the plan says.
pub(crate) fn outbox_of(plan: &Plan, store: Arc<dyn Store>) -> OutboxBuilder {
    let builder = Outbox::builder().shared_store(store).routes(routes::of(plan)).migrate(plan.source.migrate);
    builder.metrics(plan.metrics.clone()).settings(settings(plan))
}

fn settings(plan: &Plan) -> Settings {
    let Plan { source, config, .. } = plan;
    let mut settings = Settings { claim_batch: CLAIM_BATCH, poll_max: POLL_MAX, ..Settings::default() };
    let span = |to: &mut Duration, from: Option<crate::config::Span>| *to = from.map_or(*to, |span| span.0);
    span(&mut settings.poll_min, source.poll.min);
    span(&mut settings.poll_max, source.poll.max);
    span(&mut settings.lease, source.lease);
    span(&mut settings.retention, source.retention);
    span(&mut settings.drain_timeout, source.drain_timeout);
    let count = |to: &mut usize, from: Option<usize>| *to = from.unwrap_or(*to);
    count(&mut settings.claim_batch, source.claim_batch);
    count(&mut settings.cold_queue, source.queue.events);
    count(&mut settings.queue_bytes, source.queue.bytes.map(|size| size.0));
    if source.order == Some(Order::Ignored) {
        settings.key_order = KeyOrder::Ignored;
    }
    // In somebody else's table no key can wait behind a dead event.
    if source.profile.is_some() {
        settings.dead_heads = DeadHeads::Skip;
    }
    if let Some(instance) = &config.instance {
        settings.instance.clone_from(instance);
    }
    settings
}
