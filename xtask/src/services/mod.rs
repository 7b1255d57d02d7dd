//! `cargo xtask services`: real servers on private ports with throw-away data, for tests, benchmarks and demos.
//!
//! # Layout
//!
//! - `server`: what a server must say of itself, and the room that it is given; then one file a server
//! - `up`, `down`, `report`, `for_tests`, `lend`: what can be done with them
//! - `clients`: programs that speak to them, for tests that do what a person would type
//! - `home`, `state`, `ports`: where things lie, and what was chosen
//! - `process`, `account`, `packages`, `ready`, `wire`: how a server is started, as whom, from what, and since when it
//!   serves

mod account;
mod clients;
mod down;
mod for_tests;
mod home;
mod kafka;
mod lend;
mod mariadb;
mod nats;
mod packages;
mod pgbouncer;
mod ports;
mod postgres;
mod process;
mod rabbitmq;
mod ready;
mod redis;
mod report;
mod server;
mod state;
mod up;
mod wire;

use crate::place::Place;
pub(crate) use for_tests::ForTests;
use home::Home;
use server::Server;
use std::collections::BTreeSet;
use std::env;

/// All servers. A server stands after the one that it needs.
const ALL: &[&dyn Server] = &[
    &postgres::Postgres18,
    &postgres::Postgres15,
    &pgbouncer::PgBouncer,
    &mariadb::MariaDb,
    &kafka::Kafka,
    &rabbitmq::RabbitMq,
    &nats::Nats,
    &redis::Redis,
];

/// What `cargo xtask test` starts.
const FOR_TESTS: &[&str] =
    &["postgres", "postgres15", "pgbouncer", "mariadb", "kafka", "rabbitmq", "nats", "redis"];

/// One of the commands of `cargo xtask services`.
pub(crate) enum Command<'a> {
    /// Start the servers of these names, or all.
    Up(&'a [&'a str]),
    Down,
    Status,
    Env,
    /// A server for the process that started this command; not for people.
    Lend(&'a str),
    /// The process that [`ForTests`] starts; not for people.
    Watch,
}

impl<'a> Command<'a> {
    pub(crate) fn parse(arguments: &'a [&'a str]) -> Option<Self> {
        match arguments {
            ["up", names @ ..] => Some(Self::Up(names)),
            ["down"] => Some(Self::Down),
            ["status"] => Some(Self::Status),
            ["env"] => Some(Self::Env),
            ["lend", name] => Some(Self::Lend(name)),
            ["watch"] => Some(Self::Watch),
            _ => None,
        }
    }

    pub(crate) fn run(&self, place: &Place) -> Result<(), String> {
        let home = Home::open(place)?;
        match self {
            Self::Up(names) => {
                let servers = up::wanted(ALL, names, given)?;
                let _lock = home.lock()?;
                up::up(&home, &servers, true)?;
                print_status(&home)
            }
            Self::Down => {
                let _lock = home.lock()?;
                let ended = down::down(&home, |_| true)?;
                match ended.as_slice() {
                    [] => println!("Nothing ran."),
                    ended => println!("Ended: {}", ended.join(", ")),
                }
                Ok(())
            }
            Self::Status => print_status(&home),
            Self::Env => {
                let variables = variables(&home)?;
                print!("{}", report::exports(&variables));
                if variables.is_empty() {
                    eprintln!("Nothing runs: `cargo xtask services up` starts servers.");
                }
                Ok(())
            }
            Self::Lend(name) => lend::lend(&home, name),
            Self::Watch => for_tests::watch(&home),
        }
    }
}

/// The variable that forbids to lend servers, and its value: a run without servers sets it for its tests.
pub(crate) const LENDING: (&str, &str) = ("POSTRIDER_TEST_SERVERS", "none");

/// The variables that name servers to tests.
pub(crate) fn variables_of_servers() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|server| server.variable())
}

/// The names of the servers that these variables stand for.
pub(crate) fn servers_of(variables: &BTreeSet<&str>) -> Vec<&'static str> {
    ALL.iter().filter(|server| variables.contains(server.variable())).map(|server| server.name()).collect()
}

/// The variables for tests: the URLs of servers and the folder of clients.
fn variables(home: &Home) -> Result<Vec<(&'static str, String)>, String> {
    let state = home.read_state()?;
    let mut variables = report::variables(ALL, state.as_ref(), |name| is_alive(home, name), given);
    let ours =
        || Some(home.clients()).filter(|folder| folder.is_dir()).map(|folder| folder.display().to_string());
    if let Some(folder) = given(clients::VARIABLE).or_else(ours) {
        variables.push((clients::VARIABLE, folder));
    }
    Ok(variables)
}

fn print_status(home: &Home) -> Result<(), String> {
    let pid = |name: &str| process::alive(&home.processes().join(name));
    print!("{}", report::table(ALL, home.read_state()?.as_ref(), pid, given));
    Ok(())
}

/// The server of that name. The name may be that of a [lent](lend) one.
fn find(name: &str) -> Option<&'static dyn Server> {
    let kind = name.split(lend::MARK).next();
    ALL.iter().copied().find(|server| Some(server.name()) == kind)
}

fn is_alive(home: &Home, name: &str) -> bool {
    process::alive(&home.processes().join(name)).is_some()
}

/// The URL in the caller's environment. An empty one counts as none.
fn given(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|url| !url.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_needs_stands_before_it() {
        for (index, server) in ALL.iter().enumerate() {
            if let Some(needed) = server.needs() {
                assert!(ALL[..index].iter().any(|before| before.name() == needed), "{}", server.name());
            }
        }
    }

    #[test]
    fn names_and_variables_are_all_different_and_tests_start_what_exists() {
        let names: std::collections::BTreeSet<_> =
            ALL.iter().flat_map(|server| [server.name(), server.variable()]).collect();
        assert_eq!(names.len(), 2 * ALL.len());
        assert!(FOR_TESTS.iter().all(|name| find(name).is_some()));
    }

    #[test]
    fn no_variable_is_a_part_of_another_so_that_a_text_names_one_of_them_alone() {
        for variable in variables_of_servers() {
            let holding = variables_of_servers().filter(|other| other.contains(variable));
            assert_eq!(holding.count(), 1, "{variable}");
            assert_eq!(servers_of(&BTreeSet::from([variable])).len(), 1);
        }
    }

    #[test]
    fn a_server_that_is_lent_is_of_the_kind_that_its_name_begins_with() {
        let kind = |name: &str| find(name).map(|server| server.name());
        assert_eq!(kind("postgres15@77"), Some("postgres15"));
        assert_eq!(kind("postgres@77"), Some("postgres"));
        assert_eq!(kind("postgres"), Some("postgres"));
        assert_eq!(kind("@77"), None);
    }

    #[test]
    fn up_takes_names_and_lend_takes_one() {
        assert!(matches!(Command::parse(&["up"]), Some(Command::Up([]))));
        assert!(matches!(Command::parse(&["up", "postgres"]), Some(Command::Up(["postgres"]))));
        assert!(Command::parse(&["down", "postgres"]).is_none());
        assert!(Command::parse(&["lend"]).is_none());
        assert!(Command::parse(&[]).is_none());
    }
}
