//! Reads the memory of a process from Linux.

use postrider_relay::Failure;

const STATUS: &str = "/proc/self/status";

/// Resident memory in MiB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Resident {
    pub(super) now_mib: f64,
    /// The peak.
    pub(super) peak_mib: f64,
}

impl Resident {
    pub(super) fn read() -> Result<Self, Failure> {
        let status = std::fs::read_to_string(STATUS).map_err(|error| {
            Failure::unreachable(format!("cannot read {STATUS}"), &error)
                .hint("memory is measured as Linux tells it; run this benchmark there")
        })?;
        Self::of(&status)
    }

    /// Reads the contents of a process's `status` file.
    pub(super) fn of(status: &str) -> Result<Self, Failure> {
        Self::parse(status)
            .ok_or_else(|| Failure::unusable(format!("{STATUS} does not say VmRSS and VmHWM in kB")))
    }

    fn parse(status: &str) -> Option<Self> {
        let mib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? / 1024.0)
        };
        Some(Self { now_mib: mib("VmRSS")?, peak_mib: mib("VmHWM")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_and_its_peak_are_read_in_mib() {
        let status = "Name:\tpostrider\nVmHWM:\t  262144 kB\nVmRSS:\t  131072 kB\n";
        assert_eq!(Resident::parse(status), Some(Resident { now_mib: 128.0, peak_mib: 256.0 }));
        assert_eq!(Resident::parse("VmRSS:\t many"), None);
    }
}
