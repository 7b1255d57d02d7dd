//! What operators see of a running relay: logs, health and metrics.

mod breakers;
mod failures;
mod gauges;
pub(crate) mod log;
mod meters;
mod port;
mod server;
mod types;

pub(crate) use self::{
    gauges::Gauges,
    meters::Meters,
    server::Server,
    types::{ByType, UnderWay},
};
