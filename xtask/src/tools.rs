//! Programs that steps need. They are found on PATH or installed once.

use crate::apt::{self, Package};
use crate::place::Place;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const CARGO_DENY_VERSION: &str = "^0.20";
/// The one that reads the JSON of the Rust release that `api` names.
const CARGO_PUBLIC_API_VERSION: &str = "=0.52.0";

/// cargo-deny from PATH or from our own tools folder.
pub(crate) fn cargo_deny(place: &Place) -> Result<PathBuf, String> {
    on_path("cargo-deny").map_or_else(|| installed(place, "cargo-deny", CARGO_DENY_VERSION), Ok)
}

/// cargo-public-api from our own tools folder: another version prints another text.
pub(crate) fn cargo_public_api(place: &Place) -> Result<PathBuf, String> {
    installed(place, "cargo-public-api", CARGO_PUBLIC_API_VERSION)
}

/// A tool in our own folder, installed there if it is not yet.
fn installed(place: &Place, name: &str, version: &str) -> Result<PathBuf, String> {
    let tools = place.cache.join("tools");
    let ours = tools.join("bin").join(file_name(name));
    // Says which version it is, so that another one is installed when this changes.
    let mark = tools.join(format!("{name}.version"));
    let is_same = std::fs::read_to_string(&mark).map_or(!version.starts_with('='), |found| found == version);
    if ours.is_file() && is_same {
        return Ok(ours);
    }
    println!("{name} is missing; installing it takes some minutes, once.");
    place.run(
        place
            .command(place.cargo_program())
            .args(["install", name, "--locked", "--force", "--version", version])
            .arg("--root")
            .arg(&tools)
            .arg("--target-dir")
            .arg(place.cache.join("tools-target")),
    )?;
    std::fs::write(&mark, version).map_err(|error| format!("Cannot write {}: {error}", mark.display()))?;
    Ok(ours)
}

/// The toolchains of the examples in other languages: program and Debian package.
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

/// The sqlite3 shell, with which tests read a database from outside.
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

/// A program from PATH or from the folders where Debian keeps servers, which not every PATH has.
pub(crate) fn server_program(program: &str) -> Option<PathBuf> {
    let elsewhere = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(|folder| Path::new(folder).join(program));
    on_path(program).or_else(|| elsewhere.into_iter().find(|file| file.is_file()))
}

fn file_name(program: &str) -> String {
    format!("{program}{}", env::consts::EXE_SUFFIX)
}
