//! `postrider completions`: prints the script that lets a shell complete commands and options.

use std::io::Write as _;

use clap::Args as ClapArgs;
use clap_complete::Shell;

use crate::Conclusion;

/// Print the script that lets a shell complete commands and options
///
/// Example: postrider completions bash > ~/.local/share/bash-completion/completions/postrider
#[derive(ClapArgs)]
pub(crate) struct Args {
    /// The shell to print it for
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args, command: &mut clap::Command) -> Conclusion {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "postrider", &mut script);
    // A reader that went away is not an error.
    _ = std::io::stdout().write_all(&script);
    Conclusion::Good
}
