//! What operators see of a running relay: logs, health and metrics.

pub(crate) mod log;
mod meters;
mod server;

pub(crate) use self::{meters::Meters, server::Server};
