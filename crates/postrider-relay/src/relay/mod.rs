//! `postrider run`: delivers from the sources of a configuration to its sinks until it is asked to end.
//!
//! # Layout
//!
//! * [`build`]: builds an outbox for each source from the configuration
//! * `store`, `sinks`, `routes`: the parts of an outbox
//! * [`source`]: one source from its first connection to its shutdown
//! * [`state`]: the state of all sources
//! * `once`: a run that ends when everything due is delivered
//! * `reload`: what SIGHUP changes
//! * [`in_process`]: one source inside another program, for `postrider-bench`
//! * [`crate::operations`]: health and metrics

mod build;
mod in_process;
mod once;
mod reload;
mod routes;
mod sinks;
mod source;
mod state;
mod store;

use std::path::PathBuf;

use clap::Args as ClapArgs;
use tracing::info;

pub use self::in_process::InProcess;
use self::source::Running;
pub(crate) use self::{
    build::{Instruments, Plan, outbox_of, plan, plans, settings},
    reload::Seen,
    routes::winner,
    state::States,
    store::{Found, built_in, find, grants_sql, schema_sql, times},
};
use crate::{
    Conclusion,
    config::{self, Span},
    failure::Failure,
    operations,
    signal::Signals,
    traces::Exporter,
};

/// Deliver events from the sources of a configuration to its sinks
///
/// Runs until SIGTERM or Ctrl-C. SIGHUP reads the configuration again.
///
/// Example: postrider run --config shop.yaml
#[derive(ClapArgs)]
pub(crate) struct Args {
    /// The configuration file
    #[arg(short, long, default_value = "postrider.yaml", value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Deliver what is due now, then exit. Receivers that are down are not waited for; the exit status is 1 if something due is left or
    /// became a dead letter
    #[arg(long)]
    once: bool,
    /// With --once: exit after this time, whatever is left, such as 5m
    #[arg(long, requires = "once", value_name = "TIME")]
    timeout: Option<Span>,
}

/// Runs until it is asked to end.
pub(crate) async fn run(args: Args) -> Result<Conclusion, Failure> {
    let config = config::load(&args.config).map_err(Failure::configuration)?;
    operations::log::start(&config.log)?;
    if args.once {
        return once::run(config, args.timeout.map(|timeout| timeout.0)).await;
    }
    let mut signals = Signals::listen()?;
    signals.limit().set(build::end_limit([&config]));
    let meters = operations::Meters::new()?;
    let exporter = Exporter::start(config.operations.traces.as_ref(), &meters)?;
    let instruments = Instruments { meters, tracer: exporter.tracer().clone() };
    let mut relay = reload::Relay::new(args.config, &config.operations, instruments, signals.limit().clone());
    let server = operations::Server::start(&config.operations, relay.seen.clone()).await?;
    relay.apply(config).await?;
    loop {
        match signals.next().await {
            crate::signal::Asked::ToEnd => break,
            crate::signal::Asked::ToReload => relay.reload().await,
        }
    }
    info!("shutting down: draining");
    relay.stop().await;
    drop(relay);
    exporter.end().await;
    server.stop().await;
    Ok(Conclusion::Good)
}
