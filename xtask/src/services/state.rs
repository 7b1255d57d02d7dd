//! The state file: ports and passwords, chosen when a server is first started.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What `down` and a second `up` must know. A server is entered before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// The folder with the data of all servers; `down` removes it.
    pub(crate) data: PathBuf,
    pub(crate) servers: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) port: u16,
    /// For connections between the server's own processes: Kafka's controller, Erlang's port mapper.
    pub(crate) inner_port: u16,
    pub(crate) password: String,
    /// Known after the first start.
    pub(crate) version: Option<String>,
    /// Started by `up`: a test run that ends does not end it.
    pub(crate) kept: bool,
}

impl State {
    /// A line for the data folder, then a line for each server.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("data {}\n", self.data.display());
        for (name, entry) in &self.servers {
            let version = entry.version.as_deref().unwrap_or("-");
            let kept = if entry.kept { "kept" } else { "passing" };
            let Entry { port, inner_port, password, .. } = entry;
            text.push_str(&format!("server {name} {port} {inner_port} {password} {version} {kept}\n"));
        }
        text
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let data = PathBuf::from(lines.next()?.strip_prefix("data ")?);
        let servers = lines.map(entry).collect::<Option<_>>()?;
        Some(Self { data, servers })
    }
}

fn entry(line: &str) -> Option<(String, Entry)> {
    let mut words = line.strip_prefix("server ")?.split(' ');
    let name = words.next()?.to_owned();
    let entry = Entry {
        port: words.next()?.parse().ok()?,
        inner_port: words.next()?.parse().ok()?,
        password: words.next()?.to_owned(),
        version: Some(words.next()?.to_owned()).filter(|version| version != "-"),
        kept: match words.next()? {
            "kept" => true,
            "passing" => false,
            _ => return None,
        },
    };
    words.next().is_none().then_some((name, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let entry = |port, version: Option<&str>, kept| Entry {
            port,
            inner_port: port + 1,
            password: "0a1b".to_owned(),
            version: version.map(str::to_owned),
            kept,
        };
        State {
            data: "/a folder/data".into(),
            servers: BTreeMap::from([
                ("postgres".to_owned(), entry(40_000, Some("18.6"), true)),
                ("redis".to_owned(), entry(50_000, None, false)),
            ]),
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        assert_eq!(State::parse(&state().text()), Some(state()));
        let empty = State { servers: BTreeMap::new(), ..state() };
        assert_eq!(State::parse(&empty.text()), Some(empty));
    }

    #[test]
    fn a_file_that_was_cut_short_or_changed_is_not_understood() {
        let text = state().text();
        assert_eq!(State::parse(""), None);
        assert_eq!(State::parse(text.trim_end().trim_end_matches("passing")), None);
        assert_eq!(State::parse(&text.replace("kept", "kept too")), None);
        assert_eq!(State::parse(&text.replace("40000", "400000")), None);
    }
}
