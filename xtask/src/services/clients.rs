//! Client programs of the servers under their usual names, for tests that type what a person would type.

use super::home::{Home, make_folder};
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The variable that names their folder. Tests put it before PATH.
pub(crate) const VARIABLE: &str = "POSTRIDER_TEST_CLIENTS";

/// A client program: its name, and the words that start it here.
pub(crate) struct Client {
    pub(crate) name: &'static str,
    pub(crate) words: Vec<String>,
}

/// Writes a script for each client, so that it can be called by its name.
pub(crate) fn write(home: &Home, clients: &[Client]) -> Result<(), String> {
    let folder = home.clients();
    make_folder(&folder, 0o755)?;
    clients.iter().try_for_each(|client| {
        let path = folder.join(client.name);
        // Renamed when it is complete: a test may be starting it.
        let part = folder.join(format!("{}.part", client.name));
        fs::write(&part, client.script())
            .and_then(|()| fs::set_permissions(&part, Permissions::from_mode(0o755)))
            .and_then(|()| fs::rename(&part, &path))
            .map_err(|error| format!("Cannot write {}: {error}", path.display()))
    })
}

impl Client {
    pub(crate) fn new(name: &'static str, program: &Path, arguments: &[&str]) -> Self {
        let words = std::iter::once(program.display().to_string());
        Self { name, words: words.chain(arguments.iter().map(|word| (*word).to_owned())).collect() }
    }

    fn script(&self) -> String {
        let mut script = "#!/bin/sh\nexec".to_owned();
        for word in &self.words {
            let _ = write!(script, " '{}'", word.replace('\'', r"'\''"));
        }
        script + " \"$@\"\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_started_with_its_words_and_what_it_is_given() {
        let client = Client::new("psql", Path::new("/a b/psql"), &["-X", "it's"]);
        assert_eq!(client.script(), "#!/bin/sh\nexec '/a b/psql' '-X' 'it'\\''s' \"$@\"\n");
    }
}
