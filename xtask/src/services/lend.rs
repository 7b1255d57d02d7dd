//! A server for one process alone, such as a test that restarts it. It has its own data, port and password. It ends with the
//! process that asked for it: when the standard input of this command closes.
//!
//! The borrower writes lines, and reads a line `ready URL` at first and after each:
//!
//! - `restart`: the server ends in order, and starts again
//! - `crash`: it ends without any order, and starts again
//! - `stop`: it ends in order; the answer is a line `stopped`
//! - `start`: it starts again

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

/// Stands between the kind of a server that is lent and the process that lends it.
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
    // As a test run does: nobody who tidies up takes it for one that was left behind.
    let in_use = home.in_use()?;
    in_use.lock_shared().map_err(|error| format!("The services cannot be locked: {error}"))?;
    let name = format!("{kind}{MARK}{}", process::id());
    let state = enter(home, *server, &name)?;
    let served = serve(home, *server, &name, &state);
    served.and(leave(home, &name))
}

/// Puts it on the list, so that `down` finds it whatever happens.
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
        let line = line.map_err(|error| format!("The borrower cannot be heard: {error}"))?;
        match line.as_str() {
            "restart" => _ = down::stop(home, name)?,
            "stop" => {
                down::stop(home, name)?;
                println!("stopped");
                continue;
            }
            "start" => {}
            "crash" => _ = down::stop_by(home, name, server.crash_signal())?,
            other => return Err(format!("A borrower does not say {other}.")),
        }
        server.launch(&room)?;
        ready::wait(server, &room)?;
        println!("ready {}", server.url(entry));
    }
    Ok(())
}

/// Ends it, and removes what there was of it.
fn leave(home: &Home, name: &str) -> Result<(), String> {
    let _lock = home.lock()?;
    let _ = fs::remove_file(home.log(name));
    down::down_one(home, name)
}
