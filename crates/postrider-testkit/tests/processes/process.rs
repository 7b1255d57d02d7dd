//! A process of this test's own, and what can be done to it.

use std::{
    env,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use postrider_testkit::conformance::Failure;

use crate::time::{TIMEOUT, until};

/// A library that makes a process believe in another time of day.
#[derive(Debug, Clone)]
pub(crate) struct WrongClock(PathBuf);

impl WrongClock {
    /// With the compiler that links every Rust program.
    pub(crate) fn build(folder: &Path) -> Result<Self, Failure> {
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        std::fs::write(&source, include_str!("clock.c"))?;
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(&source)
            .arg("-ldl")
            .status();
        match built {
            Ok(status) if status.success() => Ok(Self(library)),
            other => Err(format!("cc could not build the wrong clock: {other:?}").into()),
        }
    }
}

/// An instance. It is killed when it is dropped, also when it is stopped; and if even that cannot happen, its standard input
/// ends with this process, and so does it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    child: Child,
}

impl Process {
    pub(crate) fn start(
        name: String,
        url: &str,
        folder: &Path,
        clock: &WrongClock,
        shift_s: i64,
    ) -> Result<Self, Failure> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("instance").arg(&name).arg(url).arg(folder);
        if shift_s != 0 {
            command.env("LD_PRELOAD", &clock.0).env("POSTRIDER_CLOCK_SHIFT_S", shift_s.to_string());
        }
        let log = File::create(folder.join(format!("{name}.log")))?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn()?;
        Ok(Self { name, child })
    }

    pub(crate) fn kill(mut self) -> Result<(), Failure> {
        if let Some(status) = self.child.try_wait()? {
            return Err(format!("{} ended before it was killed: {status}", self.name).into());
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub(crate) fn signal(&self, signal: &str) -> Result<(), Failure> {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err(format!("{signal} did not reach {}", self.name).into()) }
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn end(mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        let status =
            until(&format!("{} ends", self.name), TIMEOUT, async || Ok(self.child.try_wait()?)).await?;
        if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", self.name).into()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
