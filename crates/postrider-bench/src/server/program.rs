//! Finds the `postrider` program that belongs to this one: the same profile of the same target folder.

use std::path::{Path, PathBuf};

use postrider_relay::Failure;
use tokio::process::Command;

/// Variables that `cargo run` sets: the path of cargo, and the folder of this package.
const CARGO: &str = "CARGO";
const PACKAGE: &str = "CARGO_MANIFEST_DIR";

/// Ensures that the program at [`path`] exists. Under `cargo run`, cargo builds it from the same sources; otherwise it must exist already.
pub(crate) async fn prepare() -> Result<(), Failure> {
    let path = path()?;
    if let (Some(cargo), Some(package)) = (std::env::var_os(CARGO), std::env::var_os(PACKAGE)) {
        return build(Path::new(&cargo), Path::new(&package), &path).await;
    }
    if path.is_file() {
        return Ok(());
    }
    Err(Failure::usage(format!("the benchmark needs the relay, and there is no {}", path.display())).hint(
        "build it with `cargo build --release -p postrider-relay`, or start this benchmark with `cargo run`",
    ))
}

/// The program `postrider` in this program's folder.
pub(super) fn path() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map(|this| this.with_file_name("postrider"))
        .map_err(|error| Failure::unreachable("cannot find this program's folder", &error))
}

/// Builds the relay with the profile and into the target folder of its future path.
async fn build(cargo: &Path, package: &Path, path: &Path) -> Result<(), Failure> {
    let (profile, target) = place(path)
        .ok_or_else(|| Failure::usage(format!("{} is not in cargo's target folder", path.display())))?;
    // With this package on the command line too, cargo finds every dependency built already.
    let built = Command::new(cargo)
        .args(["build", "--quiet", "-p", "postrider-bench", "-p", "postrider-relay", "--bin", "postrider"])
        .args(["--profile", profile])
        .arg("--target-dir")
        .arg(target)
        .current_dir(package)
        .status()
        .await
        .map_err(|error| Failure::unreachable("cannot start cargo to build the relay", &error))?;
    if built.success() { Ok(()) } else { Err(Failure::bad(format!("cargo cannot build the relay: {built}"))) }
}

/// The profile and the target folder of a program that cargo built.
fn place(path: &Path) -> Option<(&str, &Path)> {
    let folder = path.parent()?;
    let profile = match folder.file_name()?.to_str()? {
        "debug" => "dev",
        name => name,
    };
    Some((profile, folder.parent()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_program_names_its_profile_and_target_folder() {
        let of = |path| place(Path::new(path)).map(|(profile, target)| (profile, target.to_str().unwrap()));
        assert_eq!(of("/x/target/debug/postrider"), Some(("dev", "/x/target")));
        assert_eq!(of("/x/target/profiling/postrider"), Some(("profiling", "/x/target")));
        assert_eq!(of("postrider"), None);
    }
}
