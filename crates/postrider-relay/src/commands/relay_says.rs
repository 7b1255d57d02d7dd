//! What a relay that runs here says of its sinks. Whether it takes one for down is known to it alone, and it tells on its operations port.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use postrider_net::TlsFiles;
use reqwest::redirect::Policy;
use serde::Deserialize;

use crate::config::Config;

/// It is on this machine, or not there.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// What a relay says.
pub(super) struct Says {
    address: SocketAddr,
    sinks_down: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Readiness {
    sinks_down: BTreeMap<String, Vec<String>>,
}

impl Says {
    /// Asks the relay of a configuration. None if none answers where it says that one listens.
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

    /// The sinks of a source that it takes for down.
    pub(super) fn down(&self, source: &str) -> &[String] {
        self.sinks_down.get(source).map(Vec::as_slice).unwrap_or_default()
    }

    /// That it takes a sink for down, in a sentence.
    pub(super) fn sentence(&self, sink: &str) -> String {
        format!(
            "the relay at {} takes the sink `{sink}` for down, and sends it one event now and then",
            self.address
        )
    }
}
