//! The folders, and cargo called inside them.

use crate::arguments::Arguments;
use crate::report::Report;
use crate::services::ForTests;
use crate::source;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{env, fs};

/// The folders and options of this run.
pub(crate) struct Place {
    /// The checkout.
    pub(crate) root: PathBuf,
    /// The cache folder: tools, and by default the target folder. It outlives a checkout.
    pub(crate) cache: PathBuf,
    /// Where every inner cargo builds.
    pub(crate) target: PathBuf,
    /// What was asked for.
    pub(crate) arguments: Arguments,
    /// What steps tell beside their note.
    pub(crate) report: Report,
    /// Real servers for the tests of this run.
    pub(crate) services: ForTests,
}

impl Place {
    /// Reads the environment at run time: with a shared target folder, another checkout may have built this.
    pub(crate) fn find() -> Result<Self, String> {
        let manifest = env::var_os("CARGO_MANIFEST_DIR").ok_or("Run this as `cargo xtask …`.")?;
        let root = Path::new(&manifest).parent().ok_or("The folder of xtask has no parent.")?.to_owned();
        let cache = cache_folder(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))
            .ok_or("Neither XDG_CACHE_HOME nor HOME is set: nowhere to keep builds and tools.")?;
        let target = target_folder(env::var_os("CARGO_TARGET_DIR"), &cache, &root);
        Ok(Self {
            root,
            cache,
            target,
            arguments: Arguments::default(),
            report: Report::default(),
            services: ForTests::default(),
        })
    }

    /// Touches all source files if another checkout built in this target folder last.
    ///
    /// Cargo compares times of files and does not tell checkouts apart: it would take a newer build of another checkout for ours.
    pub(crate) fn claim_target(&self) -> Result<(), String> {
        let claim = self.target.join("postrider-checkout");
        let ours = self.root.as_os_str().as_encoded_bytes();
        if fs::read(&claim).is_ok_and(|last| last == ours) {
            return Ok(());
        }
        let now = SystemTime::now();
        for file in source::rust_files(&self.root, &["crates", "examples", "xtask"]) {
            fs::File::options()
                .append(true)
                .open(&file)
                .and_then(|opened| opened.set_modified(now))
                .map_err(|error| format!("Cannot touch {}: {error}", file.display()))?;
        }
        fs::create_dir_all(&self.target)
            .and_then(|()| fs::write(&claim, ours))
            .map_err(|error| format!("Cannot write {}: {error}", claim.display()))
    }

    /// The cargo that runs this.
    pub(crate) fn cargo_program(&self) -> OsString {
        env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
    }

    /// A command in the checkout that builds in the target folder.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        // `cargo run` sets these for xtask itself. Build scripts would see a change and run again.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Runs cargo and shows its output.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Result<String, String> {
        self.run(self.command(self.cargo_program()).args(arguments))
    }

    /// Runs a command and shows its output.
    pub(crate) fn run(&self, command: &mut Command) -> Result<String, String> {
        let line = line_of(command);
        println!("$ {line}");
        match command.status() {
            Ok(status) if status.success() => Ok(String::new()),
            Ok(status) => Err(format!("This command ended with {status}: {line}")),
            Err(error) => Err(format!("This command could not start ({error}): {line}")),
        }
    }

    /// Runs cargo and returns its output.
    pub(crate) fn cargo_output(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.command(self.cargo_program());
        command.args(arguments).stderr(std::process::Stdio::inherit());
        let line = line_of(&command);
        println!("$ {line}");
        let output =
            command.output().map_err(|error| format!("This command could not start ({error}): {line}"))?;
        if !output.status.success() {
            return Err(format!("This command ended with {}: {line}", output.status));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The command as a person would type it, without folders.
fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// An empty variable counts as none.
fn set(variable: Option<OsString>) -> Option<PathBuf> {
    variable.filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn cache_folder(xdg_cache_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let caches = set(xdg_cache_home).or_else(|| Some(set(home)?.join(".cache")))?;
    Some(caches.join("postrider"))
}

/// A relative folder counts from the checkout.
fn target_folder(cargo_target_dir: Option<OsString>, cache: &Path, root: &Path) -> PathBuf {
    set(cargo_target_dir).map_or_else(|| cache.join("target"), |folder| root.join(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_xdg_says_and_else_in_the_home_folder() {
        let folder = |xdg: &str, home: &str| cache_folder(Some(xdg.into()), Some(home.into()));
        assert_eq!(folder("/x", "/h"), Some("/x/postrider".into()));
        assert_eq!(folder("", "/h"), Some("/h/.cache/postrider".into()));
        assert_eq!(cache_folder(None, None), None);
    }

    #[test]
    fn cargo_target_dir_decides_where_builds_go_and_else_the_cache() {
        let folder = |given: Option<&str>| {
            target_folder(given.map(OsString::from), Path::new("/cache"), Path::new("/checkout"))
        };
        assert_eq!(folder(Some("/t")), Path::new("/t"));
        assert_eq!(folder(Some("t")), Path::new("/checkout/t"));
        assert_eq!(folder(None), Path::new("/cache/target"));
    }

    #[test]
    fn a_checkout_becomes_new_when_another_one_built_last() {
        let folder = env::temp_dir().join(format!("postrider-claim-{}", std::process::id()));
        let checkout = |name: &str| Place {
            root: folder.join(name),
            cache: folder.clone(),
            target: folder.join("target"),
            arguments: Arguments::default(),
            report: Report::default(),
            services: ForTests::default(),
        };
        let (ours, other) = (checkout("ours"), checkout("other"));
        let file = ours.root.join("crates/a/src/lib.rs");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        let make_old = || {
            fs::File::options()
                .append(true)
                .open(&file)
                .unwrap()
                .set_modified(SystemTime::UNIX_EPOCH)
                .unwrap()
        };
        let is_old = || fs::metadata(&file).unwrap().modified().unwrap() == SystemTime::UNIX_EPOCH;

        make_old();
        ours.claim_target().unwrap();
        assert!(!is_old(), "nobody knows who built here before");
        make_old();
        ours.claim_target().unwrap();
        assert!(is_old(), "we built here last");
        other.claim_target().unwrap();
        ours.claim_target().unwrap();
        assert!(!is_old(), "the other built here last");
        fs::remove_dir_all(&folder).unwrap();
    }
}
