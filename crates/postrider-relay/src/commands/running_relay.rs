//! Asks the relay that runs on this machine which sinks it believes to be down. Only the relay knows; its operations port says so.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use postrider_net::TlsFiles;
use reqwest::redirect::Policy;
use serde::Deserialize;

use crate::config::Config;

/// The relay is on this machine, so it answers quickly or not at all.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The readiness of a relay that answered.
pub(super) struct RunningRelay {
    address: SocketAddr,
    sinks_down: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Readiness {
    sinks_down: BTreeMap<String, Vec<String>>,
}

impl RunningRelay {
    /// Asks the relay of a configuration; `None` if no relay answers at its operations address.
    pub(super) async fn of(config: &Config) -> Option<Self> {
        let operations = &config.operations;
        let mut address = operations.listen;
        if !operations.enabled || address.port() == 0 {
            return None;
        }
        if address.ip().is_unspecified() {
            address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(TlsFiles::default().client_config().ok()?)
            .redirect(Policy::none())
            .no_proxy()
            .timeout(ANSWER_TIMEOUT)
            .build()
            .ok()?;
        let answer = client.get(format!("http://{address}/health/ready")).send().await.ok()?;
        let Readiness { sinks_down } = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
        Some(Self { address, sinks_down })
    }

    /// The sinks of a source that the relay believes to be down.
    pub(super) fn down(&self, source: &str) -> &[String] {
        self.sinks_down.get(source).map(Vec::as_slice).unwrap_or_default()
    }

    /// The sentence that a sink is down.
    pub(super) fn sentence(&self, sink: &str) -> String {
        format!(
            "the relay at {} believes the sink `{sink}` to be down and sends it one probe now and then",
            self.address
        )
    }
}
