//! The relay as a process of its own: what it takes in memory with a million pending events and nobody to send them to, how soon it delivers
//! the first of them when there is somebody, and what it takes when there is nothing to do.
//!
//! It is this program, started with `run` and a configuration that sets nothing but what must be set. What it has delivered is read from its
//! `/metrics`, what it takes from Linux.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::process::{Child, Command};

use super::{
    super::{Scale, figure::Figure, memory::Resident, rounds::bar},
    database::Database,
    sink::{self, Receiver},
};
use crate::{failure::Failure, folder::TemporaryFolder};

const BACKLOG_RSS_MIB_MAX: f64 = 256.0;
const IDLE_RSS_MIB_MAX: f64 = 40.0;
const IDLE_CPU_MAX: f64 = 0.01;
const FIRST_DELIVERY_S_MAX: f64 = 2.0;

/// How long a relay is watched that cannot send, and one that has nothing to send.
const DOWN_FOR: Duration = Duration::from_secs(20);
const IDLE_FOR: Duration = Duration::from_secs(30);

/// Before it is watched, it comes to rest.
const COME_TO_REST: Duration = Duration::from_secs(5);

/// A relay that has not done what it should by then never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often its metrics are read while it is waited for.
const BEAT: Duration = Duration::from_millis(5);

pub(super) async fn measure(
    database: &Database,
    receiver: &dyn Receiver,
    scale: Scale,
) -> Result<Vec<Figure>, Failure> {
    let pending = scale.pick(1_000_000, 5000);
    let (down_for, idle_for) = match scale {
        Scale::Full => (DOWN_FOR, IDLE_FOR),
        Scale::Quick => (Duration::from_secs(2), Duration::from_secs(2)),
    };
    let bar = bar("relay", "steps", 4);
    database.refill(pending).await?;
    bar.inc(1);

    // Nobody listens on a port that was just given back.
    let nobody = format!("http://127.0.0.1:{}/", free_port()?);
    let relay = Relay::start(database, &serde_json::json!({ "http": { "url": nobody } })).await?;
    relay.until("outbox_cold_enqueued_total").await?;
    tokio::time::sleep(down_for).await;
    let backlog = relay.resident()?;
    relay.stop().await?;
    bar.inc(1);

    let started = Instant::now();
    let relay = Relay::start(database, &receiver.section()).await?;
    relay.until("outbox_dispatch_success_total").await?;
    let first_delivery = started.elapsed();
    relay.stop().await?;
    bar.inc(1);

    database.refill(0).await?;
    let relay = Relay::start(database, &receiver.section()).await?;
    tokio::time::sleep(COME_TO_REST.min(idle_for)).await;
    let (before, began) = (relay.cpu()?, Instant::now());
    tokio::time::sleep(idle_for).await;
    let (idle_cpu, idle) = ((relay.cpu()? - before) / began.elapsed().as_secs_f64(), relay.resident()?);
    relay.stop().await?;
    bar.finish_and_clear();
    Ok(vec![
        Figure::new("backlog_rss_mib", backlog.now_mib).below(BACKLOG_RSS_MIB_MAX),
        Figure::new("backlog_rss_peak_mib", backlog.peak_mib),
        Figure::new("first_delivery_s", first_delivery.as_secs_f64()).below(FIRST_DELIVERY_S_MAX),
        Figure::new("idle_rss_mib", idle.now_mib).below(IDLE_RSS_MIB_MAX),
        Figure::new("idle_cpu", idle_cpu).below(IDLE_CPU_MAX),
    ])
}

/// A relay that runs. Dropping it kills it.
struct Relay {
    process: Child,
    client: reqwest::Client,
    metrics: String,
    _folder: TemporaryFolder,
}

impl Relay {
    /// Starts it, and waits until it can be asked.
    async fn start(database: &Database, section: &Value) -> Result<Self, Failure> {
        let cannot =
            |what: &str, error: &std::io::Error| Failure::unreachable(format!("cannot {what}"), error);
        let folder = TemporaryFolder::create("bench")?;
        let (path, port): (PathBuf, u16) = (folder.path().join("postrider.yaml"), free_port()?);
        std::fs::write(&path, sink::text(database, section, Some(port)))
            .map_err(|error| cannot("write a configuration", &error))?;
        let program = std::env::current_exe().map_err(|error| cannot("find this program", &error))?;
        let process = Command::new(program)
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

    /// Waits until a counter has counted something.
    async fn until(&self, counter: &str) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
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
        Err(Failure::bad(format!("the relay has not counted any {counter} for {PATIENCE:?}")))
    }

    fn read(&self, file: &str) -> Result<String, Failure> {
        let id = self.process.id().ok_or_else(|| Failure::bad("the relay has ended by itself"))?;
        let path = format!("/proc/{id}/{file}");
        std::fs::read_to_string(&path)
            .map_err(|error| Failure::unreachable(format!("cannot read {path}"), &error))
    }

    fn resident(&self) -> Result<Resident, Failure> {
        Resident::of(&self.read("status")?)
    }

    /// Seconds of processor time that it has taken.
    fn cpu(&self) -> Result<f64, Failure> {
        // The first number is nanoseconds on a processor, of one thread.
        let id = self.process.id().ok_or_else(|| Failure::bad("the relay has ended by itself"))?;
        let tasks = std::fs::read_dir(format!("/proc/{id}/task"))
            .map_err(|error| Failure::unreachable("cannot list the threads of the relay", &error))?;
        let mut nanoseconds = 0.0;
        for task in tasks.flatten() {
            let said = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            nanoseconds +=
                said.split(' ').next().and_then(|first| first.parse::<f64>().ok()).unwrap_or_default();
        }
        Ok(nanoseconds / 1e9)
    }

    /// Ends it as an operator would, so that the next one finds the lanes free.
    async fn stop(mut self) -> Result<(), Failure> {
        let id = self.process.id().ok_or_else(|| Failure::bad("the relay has ended by itself"))?;
        let cannot = |error: &std::io::Error| Failure::unreachable("cannot end the relay", error);
        Command::new("kill").arg(id.to_string()).status().await.map_err(|error| cannot(&error))?;
        match tokio::time::timeout(PATIENCE, self.process.wait()).await {
            Ok(ended) => ended.map(|_| ()).map_err(|error| cannot(&error)),
            Err(_) => Err(Failure::bad(format!("the relay has not ended for {PATIENCE:?}"))),
        }
    }
}

/// Whether a counter of this name, of whatever labels, is above zero.
fn counted(metrics: &str, counter: &str) -> bool {
    let samples = metrics.lines().filter(|line| line.starts_with(counter));
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).any(|value| value > 0.0)
}

fn free_port() -> Result<u16, Failure> {
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
