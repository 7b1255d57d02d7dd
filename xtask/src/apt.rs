//! Debian packages, installed by name without starting what they bring.

use crate::tools::{is_root, on_path};
use std::process::Command;

/// A package, and the services that the distribution would start for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// Units to disable after the installation: at the next boot they would take the standard ports.
    pub(crate) units: &'static [&'static str],
}

/// Runs as root. Its arguments are the units to disable, `--`, and the packages.
///
/// Every package asks `policy-rc.d` before it starts a service. If the present one does not forbid it, ours replaces it until the
/// end.
const SCRIPT: &str = r#"
policy=/usr/sbin/policy-rc.d
forbids() { [ -x "$policy" ] && { "$policy" postrider start >/dev/null 2>&1; [ $? -eq 101 ]; }; }
restore() { rm -f "$policy"; if [ -e "$policy.before-postrider" ]; then mv "$policy.before-postrider" "$policy"; fi; }
if ! forbids; then
    trap restore EXIT
    trap 'exit 130' INT TERM HUP
    if [ -e "$policy" ]; then mv "$policy" "$policy.before-postrider" || exit 1; fi
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" || exit 1
fi
units=
while [ "$1" != -- ]; do units="$units $1"; shift; done
shift
export DEBIAN_FRONTEND=noninteractive
apt-get -q -o DPkg::Lock::Timeout=120 update &&
    apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@" || exit 1
if command -v systemctl >/dev/null; then
    for unit in $units; do systemctl disable "$unit" >/dev/null 2>&1; done
fi
exit 0
"#;

/// Installs the packages in one call, since dpkg holds a lock. The error has the output of apt-get.
pub(crate) fn install(packages: &[Package]) -> Result<(), String> {
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.iter().map(|package| package.name).collect::<Vec<_>>().join(" ");
    let by_hand = format!("These packages are needed and missing: {names}.");
    if on_path("apt-get").is_none() {
        return Err(format!("{by_hand}\nThere is no apt-get here; please install them by hand."));
    }
    let mut command = match (is_root(), on_path("sudo")) {
        (true, _) => Command::new("sh"),
        (false, Some(sudo)) => {
            let mut command = Command::new(sudo);
            command.arg("sh");
            command
        }
        (false, None) => {
            return Err(format!("{by_hand}\napt-get is here, but needs root, and sudo is not here."));
        }
    };
    println!("Installing with apt-get: {names}");
    command.args(["-c", SCRIPT, "sh"]);
    command.args(packages.iter().flat_map(|package| package.units)).arg("--");
    let output = command
        .args(packages.iter().map(|package| package.name))
        .output()
        .map_err(|error| format!("{by_hand}\napt-get could not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{by_hand}\n`apt-get install {names}` ended with {} and printed:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}
