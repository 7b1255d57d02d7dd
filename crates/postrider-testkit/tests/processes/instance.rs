//! One instance: a process that delivers, and writes down what it does.

use std::{
    env,
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use postrider::{Delivery, Outbox, Outcome};
use postrider_testkit::conformance::Failure;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    database::connect,
    history::{Pen, What},
    recording::{Counted, Recording, note},
    time::pass,
};

pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// An event that is to die does so after so many attempts.
pub(crate) const ATTEMPTS_MAX: u32 = 4;

/// How long a slow receiver takes.
const SLOW: Duration = Duration::from_millis(300);

/// How long an event waits that is to be in RETRY while its lane changes hands: longer than that takes.
const LONG: Duration = Duration::from_secs(8);

/// What an event holds, and how it is to be received.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Payload {
    pub(crate) key: String,
    pub(crate) number: u32,
    pub(crate) plan: Plan,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Plan {
    Well,
    /// Fails so often.
    Fails(u32),
    /// Fails once, and is tried again late.
    Long,
    /// Fails until the receiver is mended.
    Dies,
    /// Arrives at the end of a while.
    Slow,
    /// Arrives at once, and the answer takes a while.
    SlowAnswer,
}

/// That a receiver is mended is known by a file.
pub(crate) fn mended(folder: &Path) -> PathBuf {
    folder.join("mended")
}

pub(crate) fn history(folder: &Path) -> PathBuf {
    folder.join("history")
}

/// Runs until its standard input ends, as it does when the process that started it ends, in whatever way.
pub(crate) fn main(name: String, url: String, folder: PathBuf) -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(run(name, url, folder))
}

async fn run(name: String, url: String, folder: PathBuf) -> Result<(), Failure> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let pen = Arc::new(Pen::open(&history(&folder), &name)?);
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    pen.note(&What::Started { unix_s })?;
    let store = connect(&url).await?.shared();
    let outbox = Outbox::builder()
        .store(Recording { store, pen: Arc::clone(&pen), calls: AtomicU64::new(0) })
        .migrate(false)
        .instance(name)
        .lease(LEASE)
        .poll(Duration::from_millis(5), Duration::from_millis(200))
        .workers(8)
        // What may be under way when a lane is lost goes one at a time afterwards: with small steps that is less.
        .cold_queue(200)
        .claim_batch(100)
        .max_attempts(ATTEMPTS_MAX)
        .retry_with(|_, _| Duration::from_millis(50))
        .metrics(Arc::new(Counted(Arc::clone(&pen))))
        .on("Counted", move |delivery: Delivery| receive(delivery, Arc::clone(&pen), mended(&folder)))
        .start()
        .await?;
    let (end, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = end.send(());
    });
    let _ = ended.await;
    // Where too much was under way the lanes are left to run out, and others take them over.
    outbox.shutdown().await;
    Ok(())
}

async fn receive(delivery: Delivery, pen: Arc<Pen>, mended: PathBuf) -> Outcome {
    let id = delivery.id().to_string();
    let Ok(Payload { key, number, plan }) = delivery.read_json::<Payload>() else {
        return Outcome::rejected("it cannot be read");
    };
    let attempt = delivery.attempt;
    let delivered = || {
        let (id, lane, at_ms) = (id.clone(), delivery.lane, pen.elapsed_ms());
        note(&pen, &What::Delivered { id, key: key.clone(), number, lane, attempt, at_ms });
    };
    let failed = || note(&pen, &What::Failed { id: id.clone(), attempt });
    match plan {
        Plan::Fails(times) if attempt <= times => {
            failed();
            return Outcome::retry("not yet");
        }
        Plan::Long if attempt == 1 => {
            failed();
            return Outcome::retry_after("not for long", LONG);
        }
        Plan::Dies if !mended.exists() => {
            failed();
            return Outcome::retry("not until it is mended");
        }
        Plan::Slow => {
            note(&pen, &What::Begun { id: id.clone() });
            pass(SLOW).await;
            delivered();
        }
        Plan::SlowAnswer => {
            delivered();
            note(&pen, &What::Begun { id: id.clone() });
            pass(SLOW).await;
        }
        _ => delivered(),
    }
    Outcome::Delivered
}

/// The words that this program is started with to be an instance.
pub(crate) fn from_arguments() -> Option<(String, String, PathBuf)> {
    let mut words = env::args().skip(1);
    if words.next().as_deref() != Some("instance") {
        return None;
    }
    Some((words.next()?, words.next()?, words.next()?.into()))
}
