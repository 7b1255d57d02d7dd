//! Describes the machine that the figures are from.

use std::{fs, thread};

/// What a reader must know to compare figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) cores: usize,
    pub(super) cpu: String,
    pub(super) kernel: String,
}

impl Machine {
    /// This machine, as far as the system describes it.
    pub(super) fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            cores: thread::available_parallelism().map_or(0, usize::from),
            cpu: cpu_model(&read("/proc/cpuinfo")).unwrap_or("unknown").to_owned(),
            kernel: kernel(&read("/proc/version")).unwrap_or("unknown").to_owned(),
        }
    }

    /// A line for people.
    pub(super) fn line(&self) -> String {
        let Self { cores, cpu, kernel } = self;
        let build = if cfg!(debug_assertions) { "; a debug build, whose figures mean nothing" } else { "" };
        format!("{cores} cores of {cpu}, kernel {kernel}{build}")
    }
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    // x86 has "model name"; others have "Model", "cpu model" or only a part number.
    ["model name", "Model", "cpu model", "CPU part"].iter().find_map(|name| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines
            .find(|(of, _)| of.trim() == *name)
            .map(|(_, model)| model.trim())
            .filter(|model| !model.is_empty())
    })
}

/// The release in "Linux version 6.18.44 (builder@host) ...".
fn kernel(version: &str) -> Option<&str> {
    version.split_whitespace().nth(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_and_kernel_are_read_as_linux_writes_them() {
        let cpuinfo = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\n";
        assert_eq!(cpu_model(cpuinfo), Some("AMD EPYC"));
        assert_eq!(cpu_model("CPU part\t: 0xd0c\n"), Some("0xd0c"));
        assert_eq!(cpu_model(""), None);
        assert_eq!(kernel("Linux version 6.18.44-x (a@b) (gcc) #1 SMP"), Some("6.18.44-x"));
        assert_eq!(kernel(""), None);
    }
}
