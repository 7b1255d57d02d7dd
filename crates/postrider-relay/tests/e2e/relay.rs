//! A relay that runs, and what it logs.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
};

use serde_json::Value;

use crate::{
    place::{Folder, fresh_name, program},
    time::{eventually, until},
};

/// `postrider run`. It is ended, without ceremony, when it is dropped.
pub(crate) struct Relay {
    child: Child,
    log: PathBuf,
}

impl Relay {
    /// Starts it. Its configuration should make it log JSON.
    pub(crate) fn start(folder: &Folder, config: &Path) -> Self {
        let log = folder.path().join(fresh_name("log-"));
        let stderr = File::create(&log).unwrap();
        let mut command = program();
        command.arg("run").arg("--config").arg(config).current_dir(folder.path());
        let child = command.stdout(stderr.try_clone().unwrap()).stderr(stderr).spawn().unwrap();
        Self { child, log }
    }

    /// All that it has printed so far.
    pub(crate) fn printed(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// Waits for a line with this message, and gives its fields.
    pub(crate) async fn until_logged(&self, message: &str) -> Value {
        let found = async || {
            let printed = self.printed();
            let lines = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines
                .map(|line| line["fields"].clone())
                .find(|fields| fields["message"].as_str().is_some_and(|text| text.contains(message)))
        };
        eventually(&format!("{message:?} is logged"), found).await
    }

    /// The address of health and metrics.
    pub(crate) async fn operations(&self) -> String {
        let fields = self.until_logged("health and metrics").await;
        fields["address"].as_str().unwrap().to_owned()
    }

    /// The most memory that it has had resident, in MiB.
    #[cfg(target_os = "linux")]
    pub(crate) fn resident_mib_max(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// `kill -9`, and its end.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        until("the relay ends", async || self.child.try_wait().unwrap().is_some()).await;
        self.child.wait().unwrap()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let ended = self.child.try_wait().is_ok_and(|status| status.is_some());
        _ = self.child.kill();
        _ = self.child.wait();
        if std::thread::panicking() && !ended {
            let printed = self.printed();
            let lines: Vec<_> =
                printed.lines().rev().take(12).map(|line| line.get(..400).unwrap_or(line)).collect();
            eprintln!("the relay's last lines, the newest first:\n{}", lines.join("\n"));
        }
    }
}
