//! A relay in a process of its own: `postrider run` with a configuration that sets only what must be set.
//!
//! Its `/metrics` say what it has delivered; Linux says what it uses.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use postrider_relay::{Failure, TemporaryFolder};
use serde_json::Value;
use tokio::process::{Child, Command};

use super::{
    super::{cpu, memory::Resident},
    program, sink,
};

/// After this the benchmark gives up waiting for the relay.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// How often the benchmark reads the metrics while it waits.
const BEAT: Duration = Duration::from_millis(5);

/// A relay that runs. Dropping it kills it.
pub(crate) struct Relay {
    process: Child,
    client: reqwest::Client,
    metrics: String,
    _folder: TemporaryFolder,
}

impl Relay {
    /// Starts it.
    pub(crate) async fn start(url: &str, section: &Value) -> Result<Self, Failure> {
        let cannot =
            |what: &str, error: &std::io::Error| Failure::unreachable(format!("cannot {what}"), error);
        let folder = TemporaryFolder::create("bench")?;
        let (path, port): (PathBuf, u16) = (folder.path().join("postrider.yaml"), free_port()?);
        std::fs::write(&path, sink::text(url, section, Some(port)))
            .map_err(|error| cannot("write a configuration", &error))?;
        let process = Command::new(program::path()?)
            .arg("run")
            .arg("--config")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| cannot("start a relay", &error))?;
        let client = sink::http::client()?;
        Ok(Self { process, client, metrics: format!("http://127.0.0.1:{port}/metrics"), _folder: folder })
    }

    /// Waits until a counter is above zero.
    pub(crate) async fn until(&self, counter: &str) -> Result<(), Failure> {
        let deadline = Instant::now() + ANSWERS_WITHIN;
        while Instant::now() < deadline {
            let text = match self.client.get(&self.metrics).send().await {
                Ok(answer) => answer.text().await.unwrap_or_default(),
                Err(_) => String::new(),
            };
            if counted(&text, counter) {
                return Ok(());
            }
            tokio::time::sleep(BEAT).await;
        }
        Err(Failure::bad(format!("the relay counted no {counter} within {ANSWERS_WITHIN:?}")))
    }

    fn read(&self, file: &str) -> Result<String, Failure> {
        let id = self.process.id().ok_or_else(|| Failure::bad("the relay ended by itself"))?;
        let path = format!("/proc/{id}/{file}");
        std::fs::read_to_string(&path)
            .map_err(|error| Failure::unreachable(format!("cannot read {path}"), &error))
    }

    pub(crate) fn resident(&self) -> Result<Resident, Failure> {
        Resident::of(&self.read("status")?)
    }

    /// Seconds of processor time used so far.
    pub(crate) fn cpu(&self) -> Result<f64, Failure> {
        let id = self.process.id().ok_or_else(|| Failure::bad("the relay ended by itself"))?;
        cpu::of_process(id)
    }

    /// Ends the relay as an operator would, so that the next one finds the lanes free.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        let id = self.process.id().ok_or_else(|| Failure::bad("the relay ended by itself"))?;
        let cannot = |error: &std::io::Error| Failure::unreachable("cannot end the relay", error);
        Command::new("kill").arg(id.to_string()).status().await.map_err(|error| cannot(&error))?;
        match tokio::time::timeout(ANSWERS_WITHIN, self.process.wait()).await {
            Ok(ended) => ended.map(|_| ()).map_err(|error| cannot(&error)),
            Err(_) => Err(Failure::bad(format!("the relay did not end within {ANSWERS_WITHIN:?}"))),
        }
    }
}

/// Whether a counter of this name is above zero, whatever its labels.
fn counted(metrics: &str, counter: &str) -> bool {
    let samples = metrics.lines().filter(|line| line.starts_with(counter));
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).any(|value| value > 0.0)
}

pub(super) fn free_port() -> Result<u16, Failure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure::unreachable("no port is free", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_has_counted_once_it_is_above_zero() {
        let metrics = "# TYPE a_total counter\na_total{source=\"x\"} 0\nb_total{source=\"x\"} 3\n";
        assert!(!counted(metrics, "a_total"));
        assert!(counted(metrics, "b_total"));
        assert!(!counted(metrics, "c_total"));
    }
}
