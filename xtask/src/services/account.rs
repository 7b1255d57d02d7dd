//! The accounts that servers run as. Some servers refuse to run as root; if the caller is not root, all run as the caller.

use crate::tools::is_root;
use std::process::Command;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Account {
    /// The account of that name; creates it if it is missing. None if the caller is not root.
    pub(crate) fn of(name: &str) -> Result<Option<Self>, String> {
        if !is_root() {
            return Ok(None);
        }
        if let Some(account) = find(name) {
            return Ok(Some(account));
        }
        let arguments =
            ["--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", name];
        let made = Command::new("useradd").args(arguments).output();
        find(name).map(Some).ok_or_else(|| match made {
            Ok(output) => format!(
                "The user {name} is missing, and `useradd {}` printed: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(error) => format!("The user {name} is missing, and useradd could not start: {error}"),
        })
    }
}

fn find(name: &str) -> Option<Account> {
    let number = |option: &str| {
        let output = Command::new("id").args([option, name]).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    Some(Account { uid: number("-u")?, gid: number("-g")? })
}
