//! Programs that steps need: found, or installed once.

use crate::place::Place;
use std::env;
use std::path::PathBuf;
use std::process::Command;

const CARGO_DENY_VERSION: &str = "^0.20";

/// cargo-deny from PATH or from our own tools folder.
pub(crate) fn cargo_deny(place: &Place) -> Result<PathBuf, String> {
    let tools = place.cache.join("tools");
    let ours = tools.join("bin").join(file_name("cargo-deny"));
    if let Some(found) = on_path("cargo-deny").or_else(|| ours.is_file().then(|| ours.clone())) {
        return Ok(found);
    }
    println!("cargo-deny is not here; it is installed now, which takes some minutes, once.");
    place
        .run(
            place
                .command(place.cargo_program())
                .args(["install", "cargo-deny", "--locked", "--version", CARGO_DENY_VERSION])
                .arg("--root")
                .arg(&tools)
                .arg("--target-dir")
                .arg(place.cache.join("tools-target")),
        )
        .map(|_| ours)
}

/// The sqlite3 shell, which tests use to look at a database from outside.
pub(crate) fn sqlite3(place: &Place) -> Result<(), String> {
    if on_path("sqlite3").is_some() {
        return Ok(());
    }
    let by_hand = "The tests need the `sqlite3` shell on PATH; please install it with your package manager.";
    if on_path("apt-get").is_none() {
        return Err(by_hand.to_owned());
    }
    let sudo = match (is_root(), on_path("sudo")) {
        (true, _) => None,
        (false, Some(sudo)) => Some(sudo),
        (false, None) => {
            return Err(format!("{by_hand} (apt-get is here, but needs root, and sudo is not.)"));
        }
    };
    println!("The sqlite3 shell is not here; it is installed now with apt-get.");
    for arguments in [&["update"][..], &["install", "-y", "sqlite3"]] {
        let mut command = match &sudo {
            Some(sudo) => {
                let mut command = place.command(sudo);
                command.arg("apt-get");
                command
            }
            None => place.command("apt-get"),
        };
        place.run(command.args(arguments)).map_err(|why| format!("{by_hand}\n{why}"))?;
    }
    on_path("sqlite3").map(|_| ()).ok_or_else(|| by_hand.to_owned())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn on_path(program: &str) -> Option<PathBuf> {
    let file_name = file_name(program);
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(&file_name)).find(|file| file.is_file())
}

fn file_name(program: &str) -> String {
    format!("{program}{}", env::consts::EXE_SUFFIX)
}
