//! Packages that are not Debian's: from PyPI, kept in the cache folder.

use super::home::{make_folder, remove_folder};
use crate::apt::Package;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with a package of PyPI, installed when it is missing.
pub(crate) fn pip(packages: &Path, name: &str, version: &str) -> Result<PathBuf, String> {
    let requirement = format!("{name}=={version}");
    once(packages, &format!("{name}-{version}"), |folder| {
        let mut command = Command::new("python3");
        command
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
            .arg(folder)
            .arg(&requirement);
        run(&mut command, &requirement)
    })
}

/// What pip itself needs from Debian.
pub(crate) fn pip_needs() -> Vec<Package> {
    let works = Command::new("python3").args(["-m", "pip", "--version"]).output();
    let works = works.is_ok_and(|output| output.status.success());
    if works { Vec::new() } else { vec![Package { name: "python3-pip", units: &[] }] }
}

/// A folder that is there whole or not at all.
fn once(
    packages: &Path,
    name: &str,
    install: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let (folder, part) = (packages.join(name), packages.join(format!("{name}.part")));
    if folder.is_dir() {
        return Ok(folder);
    }
    println!("Missing and installed now: {name}");
    remove_folder(&part)?;
    make_folder(&part, 0o755)?;
    install(&part)?;
    fs::rename(&part, &folder).map_err(|error| format!("Cannot make {}: {error}", folder.display()))?;
    Ok(folder)
}

fn run(command: &mut Command, package: &str) -> Result<(), String> {
    let line = format!("{command:?}");
    let output = command.output().map_err(|error| {
        format!("The package {package} is missing, and this could not start ({error}): {line}")
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "The package {package} is missing, and this ended with {}: {line}\nIt printed:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}
