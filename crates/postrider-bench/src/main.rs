//! Measures what Postrider promises in numbers.
//!
//! Each benchmark is a file that says what it compares. `rounds` takes turns and medians, `figure` knows the limits, `report` prints.
//! Benchmarks of a server are in `server/`; `files`, `settled`, `memory`, `cpu` and `machine` are what several of them need.

mod backlog;
mod claim;
mod cpu;
mod drain;
mod engine;
mod figure;
mod files;
mod hot;
mod machine;
mod memory;
mod plain;
mod report;
mod rounds;
mod server;
mod settled;
mod write;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use postrider_relay::{Conclusion, Ending, Failure, program, terminal::Terminal};

use self::{figure::Figure, rounds::Rounds};

/// Measure on this machine what Postrider promises in numbers.
///
/// Postrider and a bare bound take turns, after a first round that does not count; a figure is the median of the rounds. Files are in a
/// temporary folder (TMPDIR). The exit status is 1 if a figure misses its limit.
///
/// Example: postrider-bench --only engine,drain --rounds 3
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Run only these benchmarks, separated by commas [default: all of them]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Bench>,

    /// Measure this server instead, in a database that is created there and dropped at the end:
    /// postgres://user:password@host:port/database or mysql://…
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// Measure the relay from the server of --store to this sink: kafka://host:port, amqp://…, nats://…, redis://…, http://…, or http
    /// alone for a server that answers at once
    #[arg(long, value_name = "URL", requires = "store")]
    sink: Option<String>,

    /// Take the median of N rounds and print each of them [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,

    /// Use small sizes and one round, to see that everything runs; limits are not checked
    #[arg(long)]
    quick: bool,

    /// Number of keys in the backlog, each with one event [default: 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,

    /// Print the figures as one JSON object, the only line on stdout
    #[arg(long)]
    json: bool,
}

/// Every benchmark there is, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Bench {
    // First, because memory that the others leave behind would be counted.
    /// Memory when each of many keys waits for its retry
    Backlog,
    /// Claim, deliver to a handler that does nothing and settle, on the store in memory; against sending the same events,
    /// cloned 200 at a time, one by one through a bounded tokio channel of 1000
    Engine,
    /// Draining a SQLite file of 1 KiB events without retention; against reading and deleting its rows, 200 at a time, with
    /// bare sqlx on the same pool
    Drain,
    /// 100 writes in a transaction of the caller's; against 100 bare INSERTs of the same values into the same table,
    /// without the commit
    Write,
    /// From the return of a commit to the handler, in memory, at 50 events a second
    Hot,
    /// A claim of 200 beside 1,000,000 delivered events, 100,000 parked ones, or 1,000,000 skipped ones; against one on a table with nothing
    /// else
    Claim,
    /// With --store: plain INSERTs into the outbox, each committed alone, inside the server; against the same into the smallest outbox that
    /// there can be, a table of an id and a payload
    Insert,
    /// With --store: the log that delivery writes; against the log of the inserts
    Wal,
    /// With --store: draining with an old snapshot open, with 3,000,000 delivered events, with 200,000 parked ones; against draining
    /// without
    Beside,
    /// With --store: producers at half of their pace with an engine beside them; against without
    Paced,
    /// With --store: from the return of a commit to the handler, by a wake-up in the process and by NOTIFY
    Wake,
    /// A relay with default settings and 50 plain INSERTs a second from another connection: the time from the return of the INSERT to the
    /// sink, and the processor time of relay and server, busy and idle; on a SQLite file, or with --store on a server
    Plain,
    /// With --store and --sink: from the server to the sink; against draining the server and then sending with the bare client
    Sink,
    /// With --store and --sink: a relay's memory with a million pending events and no receiver, its first delivery, and what it takes
    /// when it has nothing to do
    Relay,
}

/// What a benchmark measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// This process and its files.
    Here,
    /// A server.
    Server,
    /// The relay, from a server to a sink.
    Relay,
}

impl Subject {
    /// The options that select it.
    fn options(self) -> &'static str {
        match self {
            Self::Here => "without --store",
            Self::Server => "with --store and without --sink",
            Self::Relay => "with --store and --sink",
        }
    }
}

impl Bench {
    fn runs_on(self, subject: Subject) -> bool {
        match self {
            Self::Drain | Self::Plain => subject != Subject::Relay,
            Self::Insert | Self::Wal | Self::Beside | Self::Paced | Self::Wake => subject == Subject::Server,
            Self::Sink | Self::Relay => subject == Subject::Relay,
            Self::Backlog | Self::Engine | Self::Write | Self::Hot | Self::Claim => subject == Subject::Here,
        }
    }

    /// Whether it measures `postrider run` in a process of its own.
    fn starts_a_relay(self) -> bool {
        matches!(self, Self::Plain | Self::Relay)
    }
}

/// The sizes of a run: full ones that limits apply to, or quick ones to see that everything runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    Full,
    Quick,
}

impl Scale {
    fn pick(self, full: u64, quick: u64) -> u64 {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

fn main() -> ExitCode {
    program::run(Some("error"), run(Args::parse()))
}

async fn run(args: Args) -> Result<Conclusion, Failure> {
    let terminal = Terminal::new(args.json);
    let ending = Ending::listen()?;
    tokio::select! {
        biased;
        () = ending.asked() => Err(Failure::bad("interrupted before everything was measured")),
        figures = measure(&args, terminal) => Ok(report::print(terminal, &figures?, !args.quick)),
    }
}

async fn measure(args: &Args, terminal: Terminal) -> Result<Vec<Figure>, Failure> {
    let scale = if args.quick { Scale::Quick } else { Scale::Full };
    let rounds = args.rounds.map_or(scale.pick(5, 1), u64::from);
    let rounds = Rounds::new(rounds as usize, args.rounds.is_some(), terminal);
    let subject = match (&args.store, &args.sink) {
        (None, _) => Subject::Here,
        (Some(_), None) => Subject::Server,
        (Some(_), Some(_)) => Subject::Relay,
    };
    if let Some(other) = args.only.iter().find(|bench| !bench.runs_on(subject)) {
        let subjects = [Subject::Here, Subject::Server, Subject::Relay];
        let ways = subjects.into_iter().filter(|subject| other.runs_on(*subject)).map(Subject::options);
        let name = other.to_possible_value();
        let name = name.as_ref().map_or("it", |value| value.get_name());
        let ways = ways.collect::<Vec<_>>().join(", or ");
        return Err(Failure::usage(format!("{name} can only be measured {ways}")));
    }
    let wanted =
        |bench: &&Bench| bench.runs_on(subject) && (args.only.is_empty() || args.only.contains(bench));
    let wanted: Vec<Bench> = Bench::value_variants().iter().filter(wanted).copied().collect();
    if wanted.iter().any(|bench| bench.starts_a_relay()) {
        server::program::prepare().await?;
    }
    if let Some(url) = &args.store {
        return server::measure(url, args.sink.as_deref(), &wanted, scale, rounds).await;
    }
    let mut figures = Vec::new();
    for bench in wanted {
        figures.extend(match bench {
            Bench::Backlog => backlog::measure(args.keys.unwrap_or(scale.pick(1_000_000, 1000))).await?,
            Bench::Engine => engine::measure(scale, rounds).await?,
            Bench::Drain => drain::measure(scale, rounds).await?,
            Bench::Write => write::measure(scale, rounds).await?,
            Bench::Hot => hot::measure(scale, rounds).await?,
            Bench::Claim => claim::measure(scale, rounds).await?,
            Bench::Plain => plain::on_file(scale).await?,
            _ => Vec::new(),
        });
    }
    Ok(figures)
}
