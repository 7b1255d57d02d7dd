//! A folder of its own, and the program.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// A folder that is gone when the test is over.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(fresh_name("postrider-e2e-"));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A name that nobody else has.
pub(crate) fn fresh_name(prefix: &str) -> String {
    static NUMBERS: AtomicUsize = AtomicUsize::new(0);
    format!("{prefix}{}_{}", std::process::id(), NUMBERS.fetch_add(1, Relaxed))
}

/// The program, without what the environment could change.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.env_remove("POSTRIDER_LOG").env_remove("POSTRIDER_URL").env("NO_COLOR", "1");
    command.stdin(Stdio::null());
    command
}

/// What a program said, all of it.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
