//! A server for one process alone, such as a test that restarts it. It has its own data, port and password. It ends with the
//! process that asked for it: when the standard input of this command closes.
//!
//! The borrower reads a line `ready URL` first. It writes lines and reads `ready URL` after each:
//!
//! - `restart`: the server shuts down and starts again
//! - `crash`: the server is killed and starts again
//! - `stop`: the server shuts down; the answer is a line `stopped`
//! - `start`: the server starts again

use super::account::Account;
use super::home::{Home, random_hex};
use super::server::{Room, Server};
use super::state::{Entry, State};
use super::{LENDING, down, given, ports, ready, up};
use crate::apt;
use std::{
    fs,
    io::{self, BufRead},
    process,
};

/// Separates the kind of a lent server from the id of the process that lends it.
pub(crate) const MARK: char = '@';

pub(crate) fn lend(home: &Home, kind: &str) -> Result<(), String> {
    if given(LENDING.0).is_some_and(|value| value == LENDING.1) {
        return Err(format!("No server is lent: {} is {}.", LENDING.0, LENDING.1));
    }
    let server = up::wanted(super::ALL, &[kind], |_| None)?;
    let [server] = server.as_slice() else {
        return Err(format!("{kind} needs another server: it cannot be lent."));
    };
    if !cfg!(target_os = "linux") {
        return Err(up::only_linux(&[*server]));
    }
    // As a test run does, so that a watcher does not end it.
    let in_use = home.in_use()?;
    in_use.lock_shared().map_err(|error| format!("The services cannot be locked: {error}"))?;
    let name = format!("{kind}{MARK}{}", process::id());
    let state = enter(home, *server, &name)?;
    let served = serve(home, *server, &name, &state);
    served.and(leave(home, &name))
}

/// Enters it into the state before it starts, so that `down` always finds it.
fn enter(home: &Home, server: &dyn Server, name: &str) -> Result<State, String> {
    let _lock = home.lock()?;
    let mut state = up::state(home)?;
    let [port, inner_port] = ports::free(2)?.try_into().map_err(|_| "There are too few ports.")?;
    let password = random_hex(up::PASSWORD_BYTES)?;
    state.servers.insert(name.to_owned(), Entry { port, inner_port, password, version: None, kept: false });
    up::begin(home, &state)?;
    apt::install(&server.missing(home))?;
    Ok(state)
}

fn serve(home: &Home, server: &dyn Server, name: &str, state: &State) -> Result<(), String> {
    let entry = state.servers.get(name).ok_or("A server is not in the state.")?;
    let account = server.account().map_or(Ok(None), Account::of)?;
    let room = Room { name, home, state, entry, account };
    up::start(server, &room)?;
    println!("ready {}", server.url(entry));
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("Cannot read from the borrower: {error}"))?;
        match line.as_str() {
            "restart" => _ = down::stop(home, name)?,
            "stop" => {
                down::stop(home, name)?;
                println!("stopped");
                continue;
            }
            "start" => {}
            "crash" => _ = down::stop_by(home, name, server.crash_signal())?,
            other => return Err(format!("The borrower wrote an unknown word: {other}")),
        }
        server.launch(&room)?;
        ready::wait(server, &room)?;
        println!("ready {}", server.url(entry));
    }
    Ok(())
}

/// Ends it and removes its data and log.
fn leave(home: &Home, name: &str) -> Result<(), String> {
    let _lock = home.lock()?;
    let _ = fs::remove_file(home.log(name));
    down::down_one(home, name)
}
