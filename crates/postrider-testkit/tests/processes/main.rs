//! Three processes deliver from one database, others write, and everything goes wrong: SIGKILL, SIGSTOP past the lease, pauses
//! inside a settle, lost commits, cut connections, restarts of the server, wrong clocks. Afterwards the history of all processes is held against the promises.
//!
//! `POSTRIDER_TEST_PROCESSES_EVENTS` says how many events are written; 20,000 if it says nothing. This program is also the instance
//! that it starts, so it has no test harness; names of tests can be given to it as to one.
#![allow(clippy::print_stdout, reason = "what a test found")]

mod crash;
mod database;
mod history;
mod instance;
mod judge;
mod process;
mod recording;
mod script;
mod server;
mod stage;
mod standby;
mod time;
mod writers;

use std::{
    env, fs, process as std_process,
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use database::Kind;
use postrider_testkit::conformance::Failure;
use script::FAULTS;
use stage::Stage;
use writers::Quota;

const EVENTS: &str = "POSTRIDER_TEST_PROCESSES_EVENTS";
const EVENTS_DEFAULT: usize = 20_000;

/// About how long a fault takes; what is written meanwhile is spread over it.
const A_FAULT_S: usize = 3;

/// How long the last events may take once everything is well again.
const DRAIN: Duration = Duration::from_secs(300);

type Test = (&'static str, fn() -> Result<(), Failure>);

const TESTS: [Test; 5] = [
    ("the_judge_sees_every_kind_of_wrong", || Ok(judge::sees_every_kind_of_wrong()?)),
    ("events_of_transactions_whose_ids_a_crash_gives_again_come_in_order", crash::prove),
    ("a_promoted_standby_loses_no_event_that_it_has", standby::prove),
    ("on_postgresql_nothing_is_lost_reordered_or_invented_whatever_goes_wrong", || prove(Kind::Postgres)),
    ("on_mysql_nothing_is_lost_reordered_or_invented_whatever_goes_wrong", || prove(Kind::Mysql)),
];

fn main() -> Result<(), Failure> {
    if let Some((name, url, folder)) = instance::from_arguments() {
        return instance::main(name, url, folder);
    }
    let words: Vec<String> = env::args().skip(1).collect();
    let filters: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let chosen =
        |(name, _): &&Test| filters.is_empty() || filters.iter().any(|filter| name.contains(*filter));
    for (name, test) in TESTS.iter().filter(chosen) {
        if words.iter().any(|word| word == "--list") {
            println!("{name}: test");
            continue;
        }
        let started = Instant::now();
        test().map_err(|error| format!("{name}: {error}"))?;
        println!("test {name} ... ok ({:.1} s)", started.elapsed().as_secs_f64());
    }
    Ok(())
}

fn prove(kind: Kind) -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(kind))
}

async fn run(kind: Kind) -> Result<(), Failure> {
    let total: usize = env::var(EVENTS).ok().map_or(Ok(EVENTS_DEFAULT), |events| events.parse())?;
    // It stays if the test fails: the history and what the instances said.
    let folder = env::temp_dir().join(format!("postrider-processes-{}", std_process::id()));
    let mut stage = Stage::set(kind, &folder).await?;
    let of_a_fault = total / FAULTS.len();
    let quota = Arc::new(Quota {
        allowed: AtomicUsize::new(of_a_fault),
        per_second: (of_a_fault / A_FAULT_S).max(100),
    });
    for seat in 0..stage.seats.len() {
        stage.start(seat).await?;
    }
    let url = stage.database.url(&stage.writers.address().to_string())?;
    let mut writers = writers::start(&url, total, &quota);
    stage.recovered().await?;
    for (number, fault) in FAULTS.into_iter().enumerate() {
        let started = Instant::now();
        let allowed = of_a_fault * (number + 1);
        quota.allowed.store(allowed, Relaxed);
        script::play(&mut stage, fault).await.map_err(|error| format!("{fault:?}: {error}"))?;
        stage.recovered().await.map_err(|error| format!("after {fault:?}: {error}"))?;
        println!("  {fault:?}: {:.1} s", started.elapsed().as_secs_f64());
        // So that the faults are spread over all events, and no fault meets only the leavings of the one before. Some wait behind
        // dead events that hold their keys until the end.
        stage.delivered(allowed / 10 * 9, DRAIN).await?;
    }
    let started = Instant::now();
    quota.allowed.store(usize::MAX, Relaxed);
    let mut written = Vec::new();
    while let Some(writer) = writers.join_next().await {
        written.extend(writer??);
    }
    println!("  the rest is written: {:.1} s", started.elapsed().as_secs_f64());
    stage.drain(DRAIN).await?;
    println!("  all is delivered: {:.1} s", started.elapsed().as_secs_f64());
    let done = stage.database.done().await?;
    for seat in &mut stage.seats {
        seat.take_process()?.end().await?;
    }
    let conclusion = judge::judge(stage.reader.read_on()?, &written, &done);
    println!("  {kind:?}: {conclusion}");
    let wrong = [&conclusion.lost, &conclusion.out_of_order, &conclusion.phantoms, &conclusion.unexplained];
    if wrong.iter().any(|wrong| !wrong.is_empty()) {
        let some: Vec<_> = wrong.iter().map(|wrong| wrong.iter().take(5).collect::<Vec<_>>()).collect();
        return Err(format!("promises are broken, see {}: {some:?}", folder.display()).into());
    }
    // What waited behind dead events that hold their keys comes all at once, at the end.
    if conclusion.calm_max > conclusion.deliveries / 4 {
        return Err("the faults were not spread over the events".into());
    }
    if conclusion.fenced == 0
        || conclusion.refused == 0
        || conclusion.duplicates == 0
        || conclusion.discarded == 0
    {
        return Err("nothing was fenced, refused, discarded or came again: the faults did not bite".into());
    }
    fs::remove_dir_all(folder)?;
    Ok(())
}
