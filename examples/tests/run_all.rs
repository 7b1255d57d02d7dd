//! Every example runs, and says what it should.

use std::{
    collections::BTreeSet,
    fs, io,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long an example may take, on a busy machine.
const RUN_MAX: Duration = Duration::from_secs(60);

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

fn check(name: &str, program: &str) -> io::Result<()> {
    let mut child = Command::new(program).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let deadline = Instant::now() + RUN_MAX;
    // No example prints more than a pipe holds.
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output()?;
    let expected = fs::read_to_string(Path::new(FOLDER).join(format!("expected/{name}.txt")))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{name}: {}\n{stderr}", output.status);
    assert!(output.status.success(), "{name}: {}\n{stderr}", output.status);
    Ok(())
}

/// The names of the files in a folder, without their extension.
fn names_in(folder: &str) -> io::Result<BTreeSet<String>> {
    fs::read_dir(Path::new(FOLDER).join(folder))?
        .map(|entry| Ok(entry?.path().file_stem().unwrap_or_default().to_string_lossy().into_owned()))
        .collect()
}

macro_rules! run {
    ($($name:ident),* $(,)?) => {
        const RUN: &[&str] = &[$(stringify!($name)),*];

        mod prints_what_is_expected {
            $(#[test]
            fn $name() -> std::io::Result<()> {
                super::check(stringify!($name), env!(concat!("CARGO_BIN_EXE_", stringify!($name))))
            })*
        }
    };
}

run! {
    minimal,
    manual_transaction,
    rusqlite_writer,
    enum_types,
    handlers,
    interceptors,
    delayed,
    two_databases,
    retry_policy,
}

#[test]
fn every_example_is_run_here_and_has_its_output_and_its_line_in_the_readme() {
    let programs = names_in("src/bin").unwrap();
    assert_eq!(programs, RUN.iter().map(|&name| name.to_owned()).collect());
    assert_eq!(programs, names_in("expected").unwrap());
    let readme = fs::read_to_string(Path::new(FOLDER).join("README.md")).unwrap();
    for name in programs {
        assert!(readme.contains(&format!("| [`{name}`](src/bin/{name}.rs) |")), "{name} is not in README.md");
    }
}
