//! Rules for the source that neither the compiler nor clippy checks.

use crate::place::Place;
use crate::source::{around, code_only, line_number, name_of, rust_files, words};
use std::fs;

/// S3-14.2: every queue in the engine is bounded, so that overload costs time and not memory.
pub(crate) fn bounded_channels(place: &Place) -> Result<String, String> {
    let files = read(place, &["crates/postrider-engine/src"])?;
    let hits = files.iter().flat_map(|file| file.hits(&file.code, 0, unbounded));
    summary(files.len(), hits.collect(), "Give the channel a bound: a named limit with its unit.")
}

/// A test that is ignored proves nothing; a test that sleeps is slow on a fast machine and fails on a slow
/// one. Two exceptions: the simulator, whose sleeps are the time that passes in its world, and the file `time.rs` of a
/// suite, which holds its poll with a deadline.
pub(crate) fn honest_tests(place: &Place) -> Result<String, String> {
    let files = read(place, &["crates", "examples", "xtask"])?;
    let mut tests = 0;
    let mut hits = Vec::new();
    for file in &files {
        let Some(start) = tests_start(&file.name, &file.code) else { continue };
        tests += 1;
        let code = file.code.get(start..).unwrap_or_default();
        hits.extend(file.hits(code, start, ignored));
        hits.extend(file.hits(code, start, sleeps));
    }
    summary(
        tests,
        hits,
        "Run the test or delete it; wait for a signal, advance paused time, or poll with a deadline.",
    )
}

struct SourceFile {
    /// From the root of the checkout, with `/`.
    name: String,
    text: String,
    code: String,
}

impl SourceFile {
    /// What `rule` finds in `code`, a part of this file from `start` on, as lines for people.
    fn hits(&self, code: &str, start: usize, rule: fn(&str) -> Vec<usize>) -> Vec<String> {
        rule(code)
            .into_iter()
            .map(|offset| {
                let line = line_number(&self.code, start + offset);
                let text = self.text.lines().nth(line - 1).unwrap_or_default();
                format!("{}:{line}: {}", self.name, text.trim())
            })
            .collect()
    }
}

fn read(place: &Place, folders: &[&str]) -> Result<Vec<SourceFile>, String> {
    let files = rust_files(&place.root, folders);
    if files.is_empty() {
        return Err(format!("No Rust file below {}: did a folder move?", folders.join(", ")));
    }
    files
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path)
                .map_err(|error| format!("Cannot read {}: {error}", path.display()))?;
            let name = name_of(&place.root, path);
            Ok(SourceFile { name, code: code_only(&text), text })
        })
        .collect()
}

fn summary(files: usize, hits: Vec<String>, hint: &str) -> Result<String, String> {
    if hits.is_empty() {
        return Ok(format!("{files} files"));
    }
    Err(format!("{}\n{hint}", hits.join("\n")))
}

/// The offset at which the tests of a file begin: 0 in folders and files of tests and in the testkit, elsewhere that of
/// `#[cfg(test)] mod`, which stands last.
fn tests_start(name: &str, code: &str) -> Option<usize> {
    if name.starts_with("crates/postrider-testkit/src/sim/")
        // A proxy that delays connections has to wait.
        || name == "crates/postrider-testkit/src/proxy/pump.rs"
        || name.ends_with("/time.rs")
    {
        return None;
    }
    let mut parts = name.split('/').rev();
    let file = parts.next().unwrap_or_default();
    if file.starts_with("tests") || parts.any(|part| part == "tests" || part == "postrider-testkit") {
        return Some(0);
    }
    let marker = "#[cfg(test)]";
    code.match_indices(marker)
        .map(|(offset, _)| offset)
        .find(|&offset| around(code, offset, marker).1.trim_start().starts_with("mod "))
}

/// Channels without a bound: those called unbounded, and std's, which takes no argument.
fn unbounded(code: &str) -> Vec<usize> {
    let mut offsets = Vec::new();
    for word in ["unbounded_channel", "UnboundedSender", "UnboundedReceiver"] {
        offsets.extend(words(code, word));
    }
    for word in ["channel", "unbounded"] {
        offsets.extend(words(code, word).filter(|&offset| {
            let (before, after) = around(code, offset, word);
            calls_a_path(before) && without_arguments(after)
        }));
    }
    sorted(offsets)
}

/// `#[ignore]`, `#[ignore = "…"]`, `#[cfg_attr(…, ignore)]`.
fn ignored(code: &str) -> Vec<usize> {
    let is_attribute = |&offset: &usize| {
        let (before, after) = around(code, offset, "ignore");
        let attribute = before.rfind("#[").and_then(|start| before.get(start + 2..)).unwrap_or("]");
        (attribute.trim().is_empty() || attribute.trim_start().starts_with("cfg_attr"))
            && !attribute.contains(']')
            && after.trim_start().starts_with([']', '=', ')', ','])
    };
    words(code, "ignore").filter(is_attribute).collect()
}

/// `thread::sleep`, `time::sleep`, and the same imported and called by its short name. A method (`clock.sleep(…)`) is allowed.
fn sleeps(code: &str) -> Vec<usize> {
    let mut offsets = Vec::new();
    for word in ["sleep", "sleep_until", "sleep_ms"] {
        offsets.extend(words(code, word).filter(|&offset| {
            let (before, after) = around(code, offset, word);
            let by_path = ["thread::", "time::"].iter().any(|path| before.trim_end().ends_with(path));
            by_path || (calls_a_path(before) && after.trim_start().starts_with('('))
        }));
    }
    sorted(offsets)
}

/// Not a method, and not the place where a function is defined.
fn calls_a_path(before: &str) -> bool {
    let before = before.trim_end();
    !before.ends_with('.') && !before.ends_with("fn")
}

/// `()` or `::<T>()`, with any spaces.
fn without_arguments(after: &str) -> bool {
    let squeezed: String = after.chars().filter(|letter| !letter.is_whitespace()).take(200).collect();
    let call = match squeezed.strip_prefix("::<") {
        Some(generics) => generics.split_once(">(").map_or("", |(_, inside)| inside),
        None => squeezed.strip_prefix('(').unwrap_or_default(),
    };
    call.starts_with(')')
}

fn sorted(mut offsets: Vec<usize>) -> Vec<usize> {
    offsets.sort_unstable();
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(rule: fn(&str) -> Vec<usize>, text: &str) -> bool {
        !rule(&code_only(text)).is_empty()
    }

    #[test]
    fn a_channel_without_a_bound_is_found_however_it_is_written() {
        for text in [
            "let (a, b) = tokio::sync::mpsc::unbounded_channel();",
            "use tokio::sync::mpsc::unbounded_channel as open;",
            "let (a, b) = mpsc::channel();",
            "let (a, b) = std::sync::mpsc::channel::<Vec<u8>>();",
            "let (a, b) = channel(\n    // no bound\n);",
            "fn f(to: UnboundedSender<u8>) {}",
            "flume::unbounded()",
        ] {
            assert!(finds(unbounded, text), "{text}");
        }
    }

    #[test]
    fn a_bounded_channel_and_talk_about_channels_are_left_alone() {
        for text in [
            "let (a, b) = mpsc::channel(LANES_MAX);",
            "let (a, b) = mpsc::channel::<Result<(), u8>>(1);",
            "let (a, b) = sync_channel(0);",
            "// never an unbounded_channel()",
            "self.channel()",
            "fn channel() {}",
            "let unbounded = true;",
        ] {
            assert!(!finds(unbounded, text), "{text}");
        }
    }

    #[test]
    fn an_ignored_test_is_found_in_each_of_its_forms() {
        for text in ["#[ignore]", "#[ignore = \"slow\"]", "#[cfg_attr(miri, ignore)]", "#[ ignore ]"] {
            assert!(finds(ignored, text), "{text}");
        }
        for text in ["/// ```ignore", "#[test] fn f() { ignore(x) }", "let ignore = 1;", "// #[ignore]"] {
            assert!(!finds(ignored, text), "{text}");
        }
    }

    #[test]
    fn a_sleep_is_found_by_its_path_and_by_its_short_name() {
        for text in [
            "std::thread::sleep(d);",
            "tokio::time::sleep(d).await;",
            "sleep(d).await",
            "sleep_until(i).await",
            "items.map(thread::sleep)",
        ] {
            assert!(finds(sleeps, text), "{text}");
        }
        for text in
            ["clock.sleep(d).await", "async fn sleep(d: Duration) {}", "let sleep = 1;", "// time::sleep"]
        {
            assert!(!finds(sleeps, text), "{text}");
        }
    }

    #[test]
    fn a_file_is_tests_by_its_place_or_from_its_test_module_on() {
        let code = "fn a() {}\n#[cfg(test)]\nuse b;\n#[cfg(test)]\nmod tests {}";
        assert_eq!(tests_start("crates/a/tests/b.rs", code), Some(0));
        assert_eq!(tests_start("crates/a/tests/c/mod.rs", code), Some(0));
        assert_eq!(tests_start("crates/a/src/b/tests_claim.rs", code), Some(0));
        assert_eq!(tests_start("crates/postrider-testkit/src/harness.rs", code), Some(0));
        assert_eq!(tests_start("crates/a/src/b.rs", code), code.rfind("#[cfg"));
        assert_eq!(tests_start("crates/a/src/b.rs", "fn a() {}"), None);
    }

    #[test]
    fn a_hit_names_the_file_the_line_and_what_stands_there() {
        let text = "fn a() {}\n    thread::sleep(d); // why\n";
        let file = SourceFile { name: "a.rs".into(), text: text.into(), code: code_only(text) };
        assert_eq!(file.hits(&file.code, 0, sleeps), ["a.rs:2: thread::sleep(d); // why"]);
    }
}
