//! Three relays deliver from one PostgreSQL database to three sinks for minutes or hours, while everything goes wrong at once.
//! Afterwards all that was written and all that arrived is held against the promises.
//!
//! `cargo xtask soak --minutes 10` runs it. It is not a part of `cargo test`. `POSTRIDER_SOAK_RELAY` names another relay program than
//! the one that was built with it.
//!
//! # Layout
//!
//! - `world`: types of events, destinations and settings
//! - `stage`: what is shared; `database`, `relays`, `receivers`, `board`, `feed`: what stands on it
//! - `writers`, `operator`: those who use the outbox
//! - `faults`: what goes wrong, and `incidents`: what went wrong when
//! - `ledger`, `roster`, `owners`, `logs`: what is known at the end; `judge`: what it comes to; `report`: how that is said
//! - `history`: everything that happened, in a file

mod board;
mod database;
mod faults;
mod feed;
mod history;
mod incidents;
mod judge;
mod ledger;
mod logs;
mod operator;
mod owners;
mod receivers;
mod relays;
mod report;
mod rng;
mod roster;
mod stage;
mod time;
mod world;
mod writers;

use std::{
    env,
    error::Error,
    fs,
    path::PathBuf,
    process::{self, ExitCode},
    sync::Arc,
    time::Duration,
};

use clap::Parser;
use postrider_testkit::proxy::Proxy;
use tokio_util::sync::CancellationToken;

use self::{
    database::Database,
    history::History,
    judge::Case,
    relays::{Relays, SEATS, Sinks},
    report::{Report, Voice},
    stage::{Shared, Stage},
    time::{Clock, pass},
};

type Failure = Box<dyn Error + Send + Sync>;

const PROGRESS: Duration = Duration::from_secs(10);

/// How long the last events may take once everything is well.
const DRAIN: Duration = Duration::from_secs(180);

const DATABASE: &str = "POSTRIDER_TEST_POSTGRES_URL";
const REDIS: &str = "POSTRIDER_TEST_REDIS_URL";
const RELAY: &str = "POSTRIDER_SOAK_RELAY";

/// Three relays, three sinks, and every fault at once.
#[derive(Debug, Parser)]
#[command(name = "soak")]
struct Arguments {
    /// Write and break things for so many minutes
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Choose the same faults as the run that printed this seed
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object at the end; progress goes to standard error
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Failure> {
    let arguments = Arguments::parse();
    judge::sees_every_kind_of_wrong()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let is_good = runtime.block_on(run(&arguments))?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn url(variable: &str) -> Result<String, Failure> {
    env::var(variable).map_err(|_| format!("{variable} is not set: run this as `cargo xtask soak`").into())
}

async fn run(arguments: &Arguments) -> Result<bool, Failure> {
    let voice = Voice { json: arguments.json };
    let seed = arguments.seed.unwrap_or_else(rng::random_seed);
    let run = format!("soak_{}_{seed}", process::id());
    let folder = env::temp_dir().join(format!("postrider-{run}"));
    fs::create_dir_all(&folder)?;
    voice.say(format!("seed {seed}, {} minutes, folder {}", arguments.minutes, folder.display()));

    let (clock, history) = (Clock::start(), History::create(&folder.join("history"))?);
    let shared = Arc::new(Shared::new(run.clone(), folder.clone(), clock, history));
    let redis = url(REDIS)?;
    let database = Database::create(&url(DATABASE)?, &run).await?;
    let stage = set(&shared, database, &redis).await;
    let stage =
        stage.map_err(|error| format!("the stage could not be set, see {}: {error}", folder.display()))?;

    let all_read = CancellationToken::new();
    let consumer = tokio::spawn(feed::consume(Arc::clone(&shared), redis, all_read.clone()));
    let operated = CancellationToken::new();
    let watcher = tokio::spawn(owners::watch(Arc::clone(&stage), operated.clone()));
    let operator = tokio::spawn(operator::look_after(Arc::clone(&stage), operated.clone()));
    let written = CancellationToken::new();
    let writers = writers::start(&stage, seed, &written);
    let hands = faults::start(&stage, seed);

    let minutes = Duration::try_from_secs_f64(arguments.minutes * 60.0)?;
    watch(&stage, voice, minutes).await?;
    voice.say("no more faults: what is left is delivered");
    stage.calm.cancel();
    hands.join_all().await;
    written.cancel();
    writers.join_all().await;
    drain(&stage, voice).await?;
    operated.cancel();
    operator.await?;
    watcher.await?;
    end(&stage).await?;
    all_read.cancel();
    consumer.await??;
    shared.history.flush();

    let is_good = judged(&shared, arguments.minutes, seed, voice)?;
    stage.database.drop_it().await?;
    Ok(is_good)
}

/// Holds what is known against the promises and prints it. Keeps the folder if something is wrong.
fn judged(shared: &Shared, minutes: f64, seed: u64, voice: Voice) -> Result<bool, Failure> {
    let folder = &shared.folder;
    let roster = shared.roster.all();
    let mut problems = shared.problems();
    problems.extend(logs::panics(folder, &roster)?);
    let (incidents, troubles) = (shared.incidents.all(), logs::troubles(folder, &roster, shared.clock)?);
    let book = shared.ledger.lock();
    let orphaned = owners::orphaned(&incidents, &shared.owners.all());
    let case =
        Case { book: &book, incidents: &incidents, orphaned: &orphaned, troubles: &troubles, seats: SEATS };
    let conclusion = judge::judge(&case);
    let report =
        Report { seed, minutes, folder, shared, book: &book, conclusion: &conclusion, problems: &problems };
    report.print(voice);
    let is_good = report.is_good();
    if is_good {
        fs::remove_dir_all(folder)?;
    } else {
        let list: Vec<String> = conclusion
            .wrong
            .iter()
            .map(|wrong| format!("{}: {}\n", wrong.promise.name(), wrong.what))
            .collect();
        fs::write(folder.join("wrong"), list.concat())?;
    }
    Ok(is_good)
}

/// Everything in its place, and three relays that deliver.
async fn set(shared: &Arc<Shared>, database: Database, redis: &str) -> Result<Arc<Stage>, Failure> {
    let program = env::var_os(RELAY).map_or_else(|| env!("CARGO_BIN_EXE_postrider").into(), PathBuf::from);
    let hooks = receivers::hooks(Arc::clone(shared)).await?;
    let batches = receivers::batches(Arc::clone(shared)).await?;
    let batch_proxy = Proxy::start(batches.address.to_string()).await?;
    let redis_address = redis.split('@').next_back().unwrap_or(redis).trim_end_matches('/');
    let redis_address = redis_address.trim_start_matches("redis://");
    let feed_proxy = Proxy::start(redis_address).await?;
    let sinks = Sinks {
        hooks: format!("http://{}", hooks.address),
        batch: format!("http://{}", batch_proxy.address()),
        redis: redis.replace(redis_address, &feed_proxy.address().to_string()),
    };
    let relays = Relays::new(program, sinks, &database, Arc::clone(shared)).await?;
    let stage = Stage {
        shared: Arc::clone(shared),
        database,
        relays,
        batch_proxy,
        feed_proxy,
        calm: CancellationToken::new(),
        _receivers: [hooks, batches],
    };
    for seat in 0..SEATS {
        let mut taken = stage.relays.take(seat).await?;
        taken.start()?;
        taken.delivers().await?;
    }
    Ok(Arc::new(stage))
}

/// Tells how it goes, and looks after relays that end by themselves.
async fn watch(stage: &Stage, voice: Voice, time: Duration) -> Result<(), Failure> {
    let (began, end) = (stage.shared.clock.now(), time::micros(time));
    loop {
        let left = end.saturating_sub(stage.shared.clock.now() - began);
        if left == 0 {
            return Ok(());
        }
        pass(PROGRESS.min(Duration::from_micros(left))).await;
        voice.progress(&stage.shared);
        stage.relays.look_after().await?;
    }
}

/// Waits until the table is empty and all has arrived, or until the time is up.
async fn drain(stage: &Stage, voice: Voice) -> Result<(), Failure> {
    let began = stage.shared.clock.now();
    loop {
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM postrider_event")
            .fetch_one(&stage.database.pool)
            .await?;
        let (waiting, _) = stage.shared.ledger.lock().waiting();
        if left == 0 && waiting == 0 {
            return Ok(());
        }
        if stage.shared.clock.now() - began > time::micros(DRAIN) {
            stage.shared.problem(format!(
                "{left} events are in the table and {waiting} have not arrived {DRAIN:?} after the last fault"
            ));
            return keep(stage).await;
        }
        pass(PROGRESS / 10).await;
        if (stage.shared.clock.now() - began) % time::micros(PROGRESS) < time::micros(PROGRESS / 10) {
            voice.progress(&stage.shared);
        }
        stage.relays.look_after().await?;
    }
}

/// Writes down what is left in the tables, for anyone who has to find out why.
async fn keep(stage: &Stage) -> Result<(), Failure> {
    const TABLES: [&str; 4] = [
        "SELECT row_to_json(e)::text FROM (SELECT * FROM postrider_event ORDER BY seq LIMIT 2000) e",
        "SELECT row_to_json(h)::text FROM postrider_hold h LIMIT 2000",
        "SELECT row_to_json(p)::text FROM postrider_pause p",
        "SELECT row_to_json(l)::text FROM postrider_lane l ORDER BY lane",
    ];
    let mut lines = Vec::new();
    for table in TABLES {
        lines.push(format!("-- {table}"));
        lines.extend(stage.database.lines(table).await?);
    }
    Ok(fs::write(stage.shared.folder.join("tables"), lines.join("\n"))?)
}

/// All relays end in order.
async fn end(stage: &Stage) -> Result<(), Failure> {
    for seat in 0..SEATS {
        let ended = stage.relays.take(seat).await?.end().await?;
        if let Some(status) = ended.filter(|status| !status.success()) {
            stage.shared.problem(format!("the last relay on seat {seat} ended with {status}"));
        }
    }
    Ok(())
}
