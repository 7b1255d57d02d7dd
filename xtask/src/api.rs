//! The public API of each library crate, kept as text below `docs/api`: a change of it is seen in review, and never by accident.
//!
//! rustdoc describes each crate as JSON, and cargo-public-api turns that into one line an item. Both the JSON and the option that
//! asks for it are unstable, so this works with one release of Rust only: [`RUST`]. With another release the step compares nothing
//! and says so. To move on, take the cargo-public-api that reads the JSON of the new release, and renew the texts.

use crate::place::Place;
use crate::tools;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const FOLDER: &str = "docs/api";
/// The release whose JSON cargo-public-api ([`tools::cargo_public_api`]) reads.
const RUST: &str = "1.95";
const RENEW: &str = "cargo xtask api";
/// The variable that makes this program stand in for rustdoc. Its value is the real one.
const RUSTDOC: &str = "POSTRIDER_RUSTDOC";
/// Lines of a difference that are shown for each crate.
const LINES_SHOWN: usize = 10;

/// Compares the API of each crate with its text.
pub(crate) fn check(place: &Place) -> Result<String, String> {
    let release = release(place)?;
    if !is_readable(&release) {
        return Ok(format!("not compared: this is Rust {release}, and the texts need {RUST}"));
    }
    let texts = texts(place)?;
    let mut wrong = Vec::new();
    let mut known = BTreeSet::new();
    for (name, text) in &texts {
        let file = format!("{name}.txt");
        let kept = fs::read_to_string(place.root.join(FOLDER).join(&file)).unwrap_or_default();
        if kept != *text {
            wrong.push(difference(name, &kept, text));
        }
        known.insert(file);
    }
    wrong.extend(others(place, &known).iter().map(|file| format!("{FOLDER}/{file} belongs to no crate.")));
    if wrong.is_empty() {
        return Ok(format!("{} crates", texts.len()));
    }
    Err(format!("{}\nIf the API should be so, renew the texts: {RENEW}", wrong.join("\n")))
}

/// Writes the text of each crate.
pub(crate) fn renew(place: &Place) -> Result<(), String> {
    let release = release(place)?;
    if !is_readable(&release) {
        return Err(format!("This is Rust {release}; the texts can only be made with {RUST}."));
    }
    let folder = place.root.join(FOLDER);
    let texts = texts(place)?;
    let cannot = |error: std::io::Error| format!("Cannot write below {}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(cannot)?;
    let known: BTreeSet<String> = texts.iter().map(|(name, _)| format!("{name}.txt")).collect();
    for file in others(place, &known) {
        fs::remove_file(folder.join(file)).map_err(cannot)?;
    }
    for (name, text) in &texts {
        fs::write(folder.join(format!("{name}.txt")), text).map_err(cannot)?;
    }
    println!("{} crates are described in {FOLDER}.", texts.len());
    Ok(())
}

/// Files in the folder beside the known ones.
fn others(place: &Place, known: &BTreeSet<String>) -> Vec<String> {
    let files = fs::read_dir(place.root.join(FOLDER)).into_iter().flatten().flatten();
    let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut others: Vec<_> = names.filter(|name| name.ends_with(".txt") && !known.contains(name)).collect();
    others.sort();
    others
}

/// The name and the API of each library crate.
fn texts(place: &Place) -> Result<Vec<(String, String)>, String> {
    let program = tools::cargo_public_api(place)?;
    let this = env::current_exe().map_err(|error| format!("This program is not to be found: {error}"))?;
    place.run(
        place
            .command(place.cargo_program())
            .args(["doc", "--quiet", "--workspace", "--no-deps", "--lib", "--all-features"])
            .env(RUSTDOC, env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into()))
            .env("RUSTDOC", this)
            .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json"),
    )?;
    let mut texts = Vec::new();
    for name in libraries(&place.root)? {
        let json = place.target.join("doc").join(format!("{}.json", name.replace('-', "_")));
        let output = place
            .command(&program)
            // Neither blanket nor automatic implementations: they follow from the rest.
            .args(["-ss", "--color=never", "--rustdoc-json"])
            .arg(&json)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo-public-api could not start: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo-public-api cannot read {}.", json.display()));
        }
        texts.push((name, String::from_utf8_lossy(&output.stdout).into_owned()));
    }
    Ok(texts)
}

/// The crates below `crates` that are libraries.
fn libraries(root: &Path) -> Result<Vec<String>, String> {
    let entries =
        fs::read_dir(root.join("crates")).map_err(|error| format!("Cannot list the crates: {error}"))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().join("src/lib.rs").is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

/// The release of the compiler, such as `1.95.0`.
fn release(place: &Place) -> Result<String, String> {
    let output = place.command("rustc").arg("-vV").output();
    let output = output.map_err(|error| format!("rustc could not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let release = text.lines().find_map(|line| line.strip_prefix("release: "));
    release.map(str::to_owned).ok_or_else(|| "rustc does not say its release.".to_owned())
}

fn is_readable(release: &str) -> bool {
    release.strip_prefix(RUST).is_some_and(|rest| rest.starts_with('.'))
}

/// Some of the lines that only one of the two texts has.
fn difference(name: &str, kept: &str, now: &str) -> String {
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (kept.lines().collect(), now.lines().collect());
    let gone = old.difference(&new).map(|line| format!("  - {line}"));
    let added = new.difference(&old).map(|line| format!("  + {line}"));
    let lines: Vec<_> = gone.chain(added).collect();
    let more = lines.len().saturating_sub(LINES_SHOWN);
    let mut shown: Vec<_> = lines.into_iter().take(LINES_SHOWN).collect();
    if more > 0 {
        shown.push(format!("  … and {more} more lines"));
    }
    format!("The public API of {name} differs from {FOLDER}/{name}.txt:\n{}", shown.join("\n"))
}

/// Does what rustdoc does, with its unstable options allowed. None if nobody asked for it.
///
/// Only rustdoc gets the variable that allows them: in the environment of cargo it would make build scripts run again.
pub(crate) fn as_rustdoc() -> Option<ExitCode> {
    let rustdoc = env::var_os(RUSTDOC)?;
    let status = Command::new(rustdoc).args(env::args_os().skip(1)).env("RUSTC_BOOTSTRAP", "1").status();
    Some(match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rustdoc could not start: {error}");
            ExitCode::FAILURE
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_what_went_and_what_came() {
        let text = difference("a", "pub fn a::b()\npub fn a::c()\n", "pub fn a::c()\npub fn a::d()\n");
        assert!(text.contains("docs/api/a.txt:\n  - pub fn a::b()\n  + pub fn a::d()"), "{text}");
        let many: String = (0..20).map(|n| format!("pub fn a::f{n}()\n")).collect();
        assert!(difference("a", "", &many).ends_with("and 10 more lines"));
    }

    #[test]
    fn only_one_release_is_read() {
        assert!(is_readable("1.95.0") && is_readable("1.95.1"));
        assert!(!is_readable("1.950.0") && !is_readable("1.96.0") && !is_readable("1.95"));
    }
}
