//! What operators see of a running relay: logs, health and metrics.

mod breakers;
mod failures;
mod gauges;
mod lags;
pub(crate) mod log;
mod log_queue;
mod meters;
mod port;
mod server;
mod text;
mod types;
mod walk;

pub(crate) use self::{
    gauges::Gauges,
    lags::Lags,
    meters::Meters,
    server::Server,
    types::{ByType, UnderWay},
};
