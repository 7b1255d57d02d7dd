//! Three seats, and a relay on each: the real program, with a configuration and a log of its own.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU16, Ordering::SeqCst},
    },
    time::Duration,
};

use postrider_testkit::proxy::Proxy;
use tokio::sync::{Mutex, MutexGuard};

use crate::{
    Failure,
    database::Database,
    feed,
    incidents::Scope,
    ledger::RelayId,
    receivers::{HEALTH, RELAY_HEADER},
    stage::Shared,
    time::until,
    world::{ANSWER, ATTEMPTS, LEASE},
};

pub(crate) const SEATS: usize = 3;

/// How long a relay may take to start, and to end. The machine may be busy.
const START: Duration = Duration::from_secs(90);
const END: Duration = Duration::from_secs(60);

/// How long a command of the operator may take.
const COMMAND: Duration = Duration::from_secs(60);

/// Where the relays' sinks are.
#[derive(Debug)]
pub(crate) struct Sinks {
    pub(crate) hooks: String,
    pub(crate) batch: String,
    pub(crate) redis: String,
}

#[derive(Debug)]
struct Seat {
    /// Between its relay and the database.
    proxy: Proxy,
    relay: AtomicU16,
    process: Mutex<Option<Process>>,
}

/// A relay that runs. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    relay: RelayId,
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[derive(Debug)]
pub(crate) struct Relays {
    program: PathBuf,
    sinks: Sinks,
    seats: [Seat; SEATS],
    database_url: String,
    through: [String; SEATS],
    shared: Arc<Shared>,
}

impl Relays {
    pub(crate) async fn new(
        program: PathBuf,
        sinks: Sinks,
        database: &Database,
        shared: Arc<Shared>,
    ) -> Result<Self, Failure> {
        let seat = async || -> Result<Seat, Failure> {
            let proxy = Proxy::start(database.address()).await?;
            Ok(Seat { proxy, relay: AtomicU16::new(RelayId::MAX), process: Mutex::default() })
        };
        let seats = [seat().await?, seat().await?, seat().await?];
        let mut number = 0;
        let through = seats.each_ref().map(|seat| {
            number += 1;
            database.url_through(&seat.proxy.address().to_string(), &application(number - 1))
        });
        Ok(Self { program, sinks, seats, database_url: database.url().to_owned(), through, shared })
    }

    fn seat(&self, seat: usize) -> Result<&Seat, Failure> {
        self.seats.get(seat).ok_or_else(|| "there is no such seat".into())
    }

    /// What stands between a relay and the database.
    pub(crate) fn proxy(&self, seat: usize) -> Result<&Proxy, Failure> {
        Ok(&self.seat(seat)?.proxy)
    }

    pub(crate) fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        self.seats.iter().map(|seat| &seat.proxy)
    }

    /// The relay that has a seat now.
    pub(crate) fn scope(&self, seat: usize) -> Scope {
        let relay = self.seats.get(seat).map_or(RelayId::MAX, |seat| seat.relay.load(SeqCst));
        Scope::Relay { seat: u8::try_from(seat).unwrap_or(u8::MAX), relay }
    }

    /// Nobody else does anything to the relay on this seat meanwhile.
    pub(crate) async fn take(&self, seat: usize) -> Result<AcquiredLane<'_>, Failure> {
        let process = self.seat(seat)?.process.lock().await;
        Ok(AcquiredLane { relays: self, seat, process })
    }

    /// Starts relays anew that have ended by themselves, which they should not.
    pub(crate) async fn look_after(&self) -> Result<(), Failure> {
        for seat in 0..SEATS {
            let Ok(process) = self.seat(seat)?.process.try_lock() else { continue };
            let mut taken = AcquiredLane { relays: self, seat, process };
            let Some(process) = taken.process.as_mut() else { continue };
            if let Some(status) = process.child.try_wait()? {
                let relay = process.relay;
                self.shared.problem(format!("relay {relay} ended by itself: {status}"));
                taken.ended(relay);
                *taken.process = None;
                taken.start()?;
            }
        }
        Ok(())
    }

    /// Runs a command of the operator.
    pub(crate) async fn operate(&self, arguments: &[&str]) -> Result<Output, Failure> {
        let mut command = tokio::process::Command::from(self.command());
        command.args(arguments).env("POSTRIDER_URL", &self.database_url).kill_on_drop(true);
        let output = tokio::time::timeout(COMMAND, command.output()).await??;
        if output.status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("postrider {}: {} {said}", arguments.join(" "), output.status).into())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_remove("POSTRIDER_LOG").env_remove("POSTRIDER_URL").env("NO_COLOR", "1");
        command.stdin(Stdio::null()).current_dir(&self.shared.folder);
        command
    }

    fn configuration(&self, seat: usize, relay: RelayId, name: &str) -> String {
        let Sinks { hooks, batch, redis } = &self.sinks;
        let url = self.through.get(seat).map_or("", String::as_str);
        let (lease, answer) = (LEASE.as_secs(), ANSWER.as_secs());
        let stream = feed::stream(&self.shared.run, relay);
        let http =
            format!("connect_timeout: 2s, health_path: {HEALTH}, headers: {{ {RELAY_HEADER}: \"{relay}\" }}");
        format!(
            "instance: {name}
log: {{ format: json }}
operations: {{ enabled: false }}
defaults:
  attempts: {ATTEMPTS}
  backoff: {{ delay: 200ms, multiplier: 2, max: 10s }}
sources:
  shop:
    url: \"{url}\"
    lease: {lease}s
    retention: 5m
    migrate: false
    routes:
      - {{ event_type: \"Hook*\", sink: hooks }}
      - {{ event_type: \"Batch*\", sink: batch, on_dead: skip }}
      - {{ event_type: \"Feed*\", sink: feed }}
sinks:
  hooks:
    timeout: {answer}s
    webhook: {{ url: \"{hooks}\", path: \"/t/{{tenant_id}}\", unsigned: true, {http} }}
  batch:
    timeout: {answer}s
    batch: 50
    http: {{ url: \"{batch}\", path: /batch, {http} }}
  feed:
    timeout: {answer}s
    redis: {{ url: \"{redis}\", stream: \"{stream}\" }}
"
        )
    }
}

/// The name of a seat's sessions.
pub(crate) fn application(seat: usize) -> String {
    format!("soak-relay-{seat}")
}

/// A seat that somebody has for himself.
pub(crate) struct AcquiredLane<'a> {
    relays: &'a Relays,
    seat: usize,
    process: MutexGuard<'a, Option<Process>>,
}

impl AcquiredLane<'_> {
    fn log(&self, name: &str) -> PathBuf {
        self.relays.shared.folder.join(format!("relay-{name}.log"))
    }

    fn ended(&self, relay: RelayId) {
        let shared = &self.relays.shared;
        shared.roster.ended(relay, shared.clock.now());
    }

    /// Starts the next relay on this seat.
    pub(crate) fn start(&mut self) -> Result<RelayId, Failure> {
        let shared = &self.relays.shared;
        let seat = u8::try_from(self.seat)?;
        let (relay, name) = shared.roster.enter(seat);
        let file = shared.folder.join(format!("relay-{name}.yaml"));
        fs::write(&file, self.relays.configuration(self.seat, relay, &name))?;
        let log = File::create(self.log(&name))?;
        let mut command = self.relays.command();
        command.arg("run").arg("--config").arg(&file).stdout(log.try_clone()?).stderr(log);
        *self.process = Some(Process { relay, child: command.spawn()? });
        self.relays.seat(self.seat)?.relay.store(relay, SeqCst);
        shared.history.note(shared.clock.now(), format_args!("relay {relay} is {name}"));
        Ok(relay)
    }

    /// Waits until its relay says that it delivers. One that has ended says no more.
    pub(crate) async fn delivers(&mut self) -> Result<(), Failure> {
        let relay = self.process.as_ref().ok_or("nobody has the seat")?.relay;
        let entries = self.relays.shared.roster.all();
        let name = entries.get(usize::from(relay)).map(|entry| entry.name.clone()).unwrap_or_default();
        let log = self.log(&name);
        until(&format!("{name} delivers"), START, || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let ended = self.process.as_mut().and_then(|process| process.child.try_wait().ok().flatten());
            std::future::ready(match ended {
                Some(status) => Err(format!("{name} ended at once: {status}: {said}").into()),
                None => Ok(said.contains("\"delivering\"").then_some(())),
            })
        })
        .await
    }

    pub(crate) fn signal(&self, signal: &str) -> Result<(), Failure> {
        let pid = self.process.as_ref().ok_or("nobody has the seat")?.child.id();
        let sent = Command::new("kill").args([signal, &pid.to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err(format!("{signal} did not reach {pid}").into()) }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        let mut process = self.process.take().ok_or("nobody has the seat")?;
        process.child.kill()?;
        process.child.wait()?;
        self.ended(process.relay);
        Ok(())
    }

    /// SIGTERM, and its end. One that does not end is killed, and told of.
    pub(crate) async fn end(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.signal("-TERM")?;
        let process = self.process.take().ok_or("nobody has the seat")?;
        let child = std::sync::Mutex::new(process);
        let ended = until("a relay ends", END, || async {
            let mut process = child.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(process.child.try_wait()?)
        });
        let ended = ended.await.ok();
        let process = child.into_inner().unwrap_or_else(PoisonError::into_inner);
        if ended.is_none() {
            self.relays.shared.problem(format!("relay {} did not end within {END:?}", process.relay));
        }
        self.ended(process.relay);
        Ok(ended)
    }
}
