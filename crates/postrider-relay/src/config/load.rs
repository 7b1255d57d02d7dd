//! From a file to a checked configuration.

use std::path::Path;

use serde_saphyr::{Error, Options, options::PropertySyntax};

use super::{
    Config, Problem, Problems, check, files,
    placed::place,
    problem::{listed, nearest},
    variables,
};

/// Most bytes of a configuration.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Reads and checks a file. `${VAR}`, `${VAR:-default}` and `${VAR:?message}` stand for what is in the environment, `$$` for a dollar.
pub(crate) fn load(file: &Path) -> Result<Config, Problems> {
    let text = postrider_net::files::read_text(file, BYTES_MAX).map_err(|error| {
        let what = format!("cannot read the configuration: {error}");
        Problems::new(file, vec![Problem::new(what).hint("name the file with --config")])
    })?;
    parse(&text, std::env::vars().collect()).map_err(|list| Problems::new(file, list))
}

/// Reads and checks a text, with these variables.
pub(crate) fn parse(
    text: &str,
    variables: std::collections::HashMap<String, String>,
) -> Result<Config, Vec<Problem>> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        let hint = "name databases under `sources` and receivers under `sinks`; `postrider check --reference` tells of all settings";
        return Err(vec![Problem::new("there is nothing in the configuration").hint(hint)]);
    }
    let problems = variables::check(text, &variables);
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut options = Options::default().with_properties(variables);
    options.property_syntax = PropertySyntax::DockerCompose;
    // What stands around a mistake may be a secret.
    options.with_snippet = false;
    let read = serde_saphyr::from_str_with_options(text, options);
    let mut config: Config = read.map_err(|error| vec![as_it_stands(text, problem(&error))])?;
    config.contents = files::contents(&config.sinks);
    let problems = check::check(&config);
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// The same problem in the words of the file, where it is one without any variable too: of what variables were put into the reader shows
/// nothing, since it may be a secret.
fn as_it_stands(text: &str, told: Problem) -> Problem {
    let mut options = Options::default();
    options.with_snippet = false;
    let read: Result<Config, Error> = serde_saphyr::from_str_with_options(text, options);
    read.err().map(|error| problem(&error)).filter(|plain| plain.at == told.at).unwrap_or(told)
}

fn problem(error: &Error) -> Problem {
    let error = error.without_snippet();
    let problem = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            let hint = match nearest(field, expected.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("what can stand here: {}", listed(expected.iter().copied())),
            };
            Problem::new(format!("there is no setting `{field}`")).hint(hint)
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            let hint = format!("what can stand here: {}", listed(expected.iter().copied()));
            Problem::new(format!("`{variant}` is not known")).hint(hint)
        }
        Error::SerdeMissingField { field, .. } => Problem::new(format!("the setting `{field}` is missing")),
        Error::PropertyRequiredButUnset { name, message, .. } => {
            Problem::new(format!("the variable {name} is not set: {message}"))
        }
        Error::PropertyRequiredButEmpty { name, message, .. } => {
            Problem::new(format!("the variable {name} is empty: {message}"))
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().map_or("a name".to_owned(), |key| format!("`{key}`"));
            Problem::new(format!("{key} is there twice"))
                .hint("leave one of them out, or give it another name")
        }
        Error::InvalidScalar { ty, .. } => Problem::new(match *ty {
            "boolean" => "`true` or `false` should stand here",
            "floating point" => "a number should stand here",
            _ => "a whole number should stand here",
        }),
        Error::Unexpected { expected: "mapping start", .. } => {
            Problem::new("settings with names should stand here")
                .hint("such as `name: value`, with a space after the colon")
        }
        Error::Unexpected { expected: "sequence start", .. } => {
            Problem::new("a list should stand here").hint("such as `[a, b]`, or a line with `- ` before each")
        }
        Error::MultipleDocuments { .. } => Problem::new("a second configuration begins here")
            .hint("leave the line `---` out, or make two files of it"),
        other => {
            let told = first_line(&other.to_string());
            let hints = [
                ("tabs", "indent with spaces"),
                ("anchor or alias", "a star or an ampersand at the start wants quotes: \"*\""),
                ("socket address", "write address and port, such as 127.0.0.1:9465"),
            ];
            let hint = hints.iter().find(|(word, _)| told.contains(word)).map(|(_, hint)| (*hint).to_owned());
            Problem { hint, ..Problem::new(told) }
        }
    };
    Problem { at: error.location().and_then(place), ..problem }
}

/// The message without the place, which is told anyway.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.split(" at line ").next().unwrap_or(line).to_owned()
}
