//! `cargo xtask soak`: builds the soak program and the relay, optimised, and runs them beside the servers that they need.

use crate::place::Place;
use std::process::Stdio;

/// The servers that the program talks to.
const SERVERS: &[&str] = &["postgres", "redis"];

/// The options of `soak`. The soak program reads their values.
pub(crate) struct Arguments<'a>(&'a [&'a str]);

impl<'a> Arguments<'a> {
    pub(crate) fn parse(words: &'a [&'a str]) -> Option<Self> {
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            match *word {
                "--json" => {}
                "--minutes" | "--seed" => _ = rest.next()?,
                _ => return None,
            }
        }
        Some(Self(words))
    }

    /// Runs it. Standard output is the program's; cargo writes to standard error.
    pub(crate) fn run(&self, place: &Place) -> Result<(), String> {
        place.claim_target()?;
        let variables = place.services.start_only(place, SERVERS)?;
        let mut cargo = place.command(place.cargo_program());
        cargo
            .args(["test", "--quiet", "--release", "-p", "postrider-relay", "--test", "soak", "--"])
            .args(self.0)
            .envs(variables)
            .stdin(Stdio::null());
        let status = cargo.status().map_err(|error| format!("The soak program could not start: {error}"));
        let ended = place.services.end();
        match status? {
            status if status.success() => ended,
            _ => Err("The soak run failed.".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_with_values_and_nothing_else_are_taken() {
        let good: [&[&str]; 3] = [&[], &["--minutes", "3", "--json"], &["--seed", "7"]];
        assert!(good.iter().all(|words| Arguments::parse(words).is_some()));
        let bad: [&[&str]; 3] = [&["--minutes"], &["7"], &["--hours", "1"]];
        assert!(bad.iter().all(|words| Arguments::parse(words).is_none()));
    }
}
