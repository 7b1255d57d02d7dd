//! Retired words stay retired: `xtask/words.txt` lists them with what to use instead.
//!
//! Areas (a crate, the examples, the docs) that still have some are listed in `xtask/words-exempt.txt` with a number that may only fall.

use crate::place::Place;
use crate::source::{code_only, files, is_word, name_of};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;

const LIST: &str = "xtask/words.txt";
const EXEMPT: &str = "xtask/words-exempt.txt";
const FOLDERS: [&str; 5] = ["crates", "examples", "xtask", "docs", "deploy"];
const EXTENSIONS: [&str; 12] =
    ["rs", "md", "toml", "sql", "yaml", "yml", "txt", "sh", "py", "go", "java", "js"];
/// Made from the crates, which are read themselves.
const MADE: &str = "docs/api/";
/// Words before the name of what is defined.
const KEYWORDS: [&str; 10] =
    ["mod", "fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"];

pub(crate) fn check(place: &Place) -> Result<String, String> {
    let read = |name: &str| {
        fs::read_to_string(place.root.join(name)).map_err(|error| format!("Cannot read {name}: {error}"))
    };
    let list = List::parse(&read(LIST)?)?;
    let exempt = read(EXEMPT)?;
    let exempt = parse_exempt(&exempt)?;
    let mut hits: BTreeMap<String, Vec<Hit>> = BTreeMap::new();
    let mut count = 0;
    for path in files(&place.root, &FOLDERS, &EXTENSIONS).into_iter().chain(root_files(place)?) {
        let name = name_of(&place.root, &path);
        if [LIST, EXEMPT].contains(&name.as_str()) || name.starts_with(MADE) {
            continue;
        }
        count += 1;
        let text = fs::read_to_string(&path).map_err(|error| format!("Cannot read {name}: {error}"))?;
        hits.entry(area(&name).to_owned()).or_default().extend(list.hits(&name, &text));
    }
    let (report, wrong) = compare(&hits, &exempt, place.arguments.only.is_some());
    print!("{report}");
    let total: usize = hits.values().map(Vec::len).sum();
    if wrong.is_empty() {
        return Ok(format!("{count} files, {total} in exempt areas"));
    }
    Err(format!(
        "{}\n{LIST} says what to use instead of each word. `cargo xtask lint --only words` shows those of exempt areas too.",
        wrong.join("\n")
    ))
}

/// Files of the root itself. Hidden ones and the lock file are the work of tools.
fn root_files(place: &Place) -> Result<Vec<std::path::PathBuf>, String> {
    let entries = fs::read_dir(&place.root).map_err(|error| format!("Cannot list the checkout: {error}"))?;
    let mut found: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md" || extension == "toml"))
        .collect();
    found.sort();
    Ok(found)
}

/// The crate or folder that a file counts for.
fn area(name: &str) -> &str {
    let mut parts = name.split('/');
    match (parts.next(), parts.next()) {
        (Some("crates"), Some(krate)) => krate,
        (Some(folder @ ("examples" | "xtask")), Some(_)) => folder,
        _ => "docs",
    }
}

/// A retired word in a file.
#[derive(Debug, PartialEq, Eq)]
struct Hit {
    file: String,
    line: usize,
    word: String,
    instead: String,
}

impl std::fmt::Display for Hit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}: {} (use: {})", self.file, self.line, self.word, self.instead)
    }
}

/// The retired words, by their first part.
#[derive(Default)]
struct List {
    texts: HashMap<String, Vec<(Vec<String>, String)>>,
    names: HashMap<String, String>,
}

impl List {
    fn parse(text: &str) -> Result<Self, String> {
        let mut list = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let parsed = line.split_once('|').and_then(|(words, instead)| {
                Some((words.trim().split_once(char::is_whitespace)?, instead.trim()))
            });
            let Some(((kind, forms), instead)) = parsed else {
                return Err(format!("{LIST}: not understood: {line}"));
            };
            for form in forms.split(',').map(str::trim) {
                match kind {
                    "text" => {
                        let parts: Vec<String> = form.split_whitespace().map(str::to_owned).collect();
                        let first = parts.first().cloned().unwrap_or_default();
                        list.texts.entry(first).or_default().push((parts, instead.to_owned()));
                    }
                    "name" => _ = list.names.insert(form.to_owned(), instead.to_owned()),
                    _ => return Err(format!("{LIST}: `{kind}` is neither `text` nor `name`: {line}")),
                }
            }
        }
        Ok(list)
    }

    fn hits(&self, file: &str, text: &str) -> Vec<Hit> {
        let mut found = BTreeSet::new();
        let parts = parts(text);
        for (index, part) in parts.iter().enumerate() {
            for (phrase, instead) in self.texts.get(&part.word).into_iter().flatten() {
                let rest = parts.get(index..index + phrase.len()).unwrap_or_default();
                let same = rest.len() == phrase.len()
                    && rest
                        .iter()
                        .zip(phrase)
                        .enumerate()
                        .all(|(nth, (part, word))| part.word == *word && (nth == 0 || part.follows));
                if same {
                    found.insert((part.line, phrase.join(" "), instead));
                }
            }
        }
        if file.ends_with(".rs") {
            let code = code_only(text);
            for (line, name) in defined(&code) {
                if let Some(instead) = self.names.get(&snake(name)) {
                    found.insert((line, format!("the name `{name}`"), instead));
                }
            }
        }
        found
            .into_iter()
            .map(|(line, word, instead)| Hit { file: file.to_owned(), line, word, instead: instead.clone() })
            .collect()
    }
}

/// A lower-case word, or a part of a name in snake or camel case.
struct Part {
    word: String,
    line: usize,
    /// Only what may stand inside a phrase or a name is between it and the part before.
    follows: bool,
}

fn parts(text: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut word = String::new();
    let (mut line, mut follows, mut was_lower) = (1, false, false);
    let mut end = |word: &mut String, line: usize, follows: &mut bool| {
        if !word.is_empty() {
            parts.push(Part { word: std::mem::take(word), line, follows: *follows });
            *follows = true;
        }
    };
    for letter in text.chars() {
        if letter.is_alphanumeric() {
            if letter.is_uppercase() && was_lower {
                end(&mut word, line, &mut follows);
            }
            was_lower = !letter.is_uppercase();
            word.extend(letter.to_lowercase());
            continue;
        }
        end(&mut word, line, &mut follows);
        was_lower = false;
        if letter == '\n' {
            line += 1;
        }
        // A phrase may be broken over two lines of a comment or a list.
        if !(letter.is_whitespace() || matches!(letter, '_' | '-' | '/' | '!' | '*' | '`')) {
            follows = false;
        }
    }
    end(&mut word, line, &mut follows);
    parts
}

/// Names that this code gives to modules, functions, types, fields and variants, with their lines.
fn defined(code: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        let words: Vec<&str> =
            text.split(|letter| !is_word(letter)).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            if let [keyword, name] = pair
                && KEYWORDS.contains(keyword)
            {
                names.push((line, *name));
            }
        }
        names.extend(member(text.trim()).map(|name| (line, name)));
    }
    names
}

/// The field (`name: Type`) or variant (`Name,`, `Name(…`, `Name {`) that a line begins with.
fn member(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) => rest
            .trim_start()
            .strip_prefix('(')
            .map_or(rest, |rest| rest.split_once(')').map_or("", |(_, rest)| rest)),
        None => line,
    };
    let line = line.trim_start();
    let end = line.find(|letter| !is_word(letter))?;
    let (name, after) = line.split_at(end);
    let is_type = name.starts_with(|letter: char| letter.is_uppercase());
    let field = after.starts_with(':') && !after.starts_with("::");
    let variant = is_type && (after.starts_with([',', '(']) || after.starts_with(" {"));
    (field || variant).then_some(name)
}

/// `FirstName` and `first_name` are one name.
fn snake(name: &str) -> String {
    parts(name).into_iter().map(|part| part.word).collect::<Vec<_>>().join("_")
}

/// How many words each exempt area may have.
fn parse_exempt(text: &str) -> Result<BTreeMap<&str, usize>, String> {
    let mut exempt = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (area, most) = (words.next(), words.next().and_then(|most| most.parse().ok()));
        let (Some(area), Some(most), Some(_)) = (area, most, words.next()) else {
            return Err(format!("{EXEMPT}: a line needs an area, a number and a reason: {line}"));
        };
        exempt.insert(area, most);
    }
    Ok(exempt)
}

/// A table of all areas, with every hit if `all`; and what is wrong.
fn compare(
    hits: &BTreeMap<String, Vec<Hit>>,
    exempt: &BTreeMap<&str, usize>,
    all: bool,
) -> (String, Vec<String>) {
    let mut report = String::new();
    let mut wrong = Vec::new();
    let gone = exempt.keys().filter(|area| !hits.contains_key(**area));
    wrong.extend(gone.map(|area| format!("{EXEMPT} names {area}, which is not there any more.")));
    for (area, hits) in hits {
        let most = exempt.get(area.as_str()).copied();
        if all && most.is_some() {
            hits.iter().for_each(|hit| _ = writeln!(report, "{hit}"));
        }
        let found = hits.len();
        match most {
            None => wrong.extend(hits.iter().map(Hit::to_string)),
            Some(_) if found == 0 => {
                wrong.push(format!("{area} has no retired word any more: delete its line in {EXEMPT}."));
            }
            Some(most) if found > most => {
                wrong.push(format!("{area} has {found} retired words; {EXEMPT} allows {most}."));
            }
            Some(most) => {
                let lower = if found < most { format!(", {EXEMPT} can say {found}") } else { String::new() };
                let _ = writeln!(report, "{area}: {found} of at most {most}{lower}");
            }
        }
    }
    (report, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "text gong, gongs | notifier\ntext old song, old songs | tune\nname in_pocket | assignment\n\
                         name heard | describe\nname brow | a watermark\n";

    fn found(file: &str, text: &str) -> Vec<(usize, String)> {
        let hits = List::parse(WORDS).unwrap().hits(file, text);
        hits.into_iter().map(|hit| (hit.line, hit.word)).collect()
    }

    #[test]
    fn a_retired_text_is_found_in_prose_and_in_names_and_over_lines() {
        for text in
            ["the Gong rings", "let x = gong_rope;", "struct DoorGong;", "GONGS", "old-song", "`old_songs`"]
        {
            assert_eq!(found("a.rs", text).len(), 1, "{text}");
        }
        assert_eq!(found("a.md", "one\n// an old\n// song"), [(2, "old song".to_owned())]);
        for text in ["a doorgong", "gongy", "old. Song", "oldsong"] {
            assert_eq!(found("a.rs", text), [], "{text}");
        }
    }

    #[test]
    fn a_retired_name_is_found_where_it_is_given_and_nowhere_else() {
        for text in [
            "mod heard;",
            "pub(crate) struct InPocket<'a> {",
            "    pub(super) async fn heard(&self) {",
            "    heard: bool,",
            "    pub(crate) brow: Seq,",
            "    Brow(Seq),",
        ] {
            assert_eq!(found("a.rs", text).len(), 1, "{text}");
        }
        for text in ["// heard: in pocket", "queue.brow()", "let heard = 1;", "\"fn heard\"", "heard::me()"] {
            assert_eq!(found("a.rs", text), [], "{text}");
        }
        assert_eq!(found("a.md", "fn heard()"), []);
    }

    #[test]
    fn an_exempt_area_may_only_get_better() {
        let hit = || Hit { file: "a.rs".into(), line: 3, word: "gong".into(), instead: "notifier".into() };
        let hits = |area: &str, count: usize| {
            BTreeMap::from([(area.to_owned(), (0..count).map(|_| hit()).collect())])
        };
        let exempt = parse_exempt("# why\nengine  2  being renamed").unwrap();
        let wrong = |count| compare(&hits("engine", count), &exempt, false).1.join(" ");
        assert_eq!(wrong(2), "");
        assert!(wrong(3).contains("has 3") && wrong(0).contains("delete its line"));
        assert!(compare(&hits("engine", 1), &exempt, true).0.contains("a.rs:3: gong (use: notifier)"));
        let (_, others) = compare(&hits("core", 1), &BTreeMap::new(), false);
        assert_eq!(others, ["a.rs:3: gong (use: notifier)"]);
        assert!(parse_exempt("engine 2").is_err(), "a reason is missing");
    }

    #[test]
    fn a_file_counts_for_its_crate() {
        assert_eq!(area("crates/postrider-core/src/lib.rs"), "postrider-core");
        assert_eq!(area("examples/README.md"), "examples");
        assert_eq!((area("README.md"), area("docs/words.md"), area("clippy.toml")), ("docs", "docs", "docs"));
    }
}
