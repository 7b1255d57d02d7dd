//! Programs that steps need: found, or installed once.

use crate::apt::{self, Package};
use crate::place::Place;
use std::env;
use std::path::{Path, PathBuf};
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

/// What the examples in other languages are built and run with.
const LANGUAGES: [(&str, &str); 6] = [
    ("python3", "python3-pip"),
    ("javac", "default-jdk-headless"),
    ("mvn", "maven"),
    ("go", "golang-go"),
    ("node", "nodejs"),
    ("npm", "npm"),
];

/// The toolchains of the examples in other languages.
pub(crate) fn languages() -> Result<(), String> {
    let missing = LANGUAGES.iter().filter(|(program, _)| on_path(program).is_none());
    let missing: Vec<_> = missing.map(|(_, name)| Package { name, units: &[] }).collect();
    apt::install(&missing)?;
    match LANGUAGES.iter().find(|(program, _)| on_path(program).is_none()) {
        Some((program, package)) => {
            Err(format!("apt-get installed {package}, but {program} is not on PATH."))
        }
        None => Ok(()),
    }
}

/// The sqlite3 shell, which tests use to look at a database from outside.
pub(crate) fn sqlite3() -> Result<(), String> {
    if on_path("sqlite3").is_some() {
        return Ok(());
    }
    apt::install(&[Package { name: "sqlite3", units: &[] }])?;
    on_path("sqlite3")
        .map(|_| ())
        .ok_or_else(|| "apt-get installed sqlite3, but it is not on PATH.".to_owned())
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let file_name = file_name(program);
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(&file_name)).find(|file| file.is_file())
}

/// A program from PATH, or from where Debian keeps servers, which is not on everybody's PATH.
pub(crate) fn server_program(program: &str) -> Option<PathBuf> {
    let elsewhere = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(|folder| Path::new(folder).join(program));
    on_path(program).or_else(|| elsewhere.into_iter().find(|file| file.is_file()))
}

fn file_name(program: &str) -> String {
    format!("{program}{}", env::consts::EXE_SUFFIX)
}
