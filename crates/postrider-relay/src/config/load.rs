//! Reads a configuration file and checks it.

use std::path::Path;

use serde_saphyr::{Error, Options, options::PropertySyntax};

use super::{
    Config, Problem, Problems, check, files,
    located::line_and_column,
    problem::{listed, nearest},
    variables,
};

/// The largest configuration file.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Reads and checks a file. `${VAR}`, `${VAR:-default}` and `${VAR:?message}` are replaced from the environment, `$$` by a dollar sign.
pub(crate) fn load(file: &Path) -> Result<Config, Problems> {
    let text = postrider_net::files::read_text(file, BYTES_MAX).map_err(|error| {
        let what = format!("cannot read the configuration: {error}");
        Problems::new(file, vec![Problem::new(what).hint("name the file with --config")])
    })?;
    parse(&text, std::env::vars().collect()).map_err(|list| Problems::new(file, list))
}

/// Reads and checks a text with these variables.
pub(crate) fn parse(
    text: &str,
    variables: std::collections::HashMap<String, String>,
) -> Result<Config, Vec<Problem>> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        let hint = "name databases under `sources` and receivers under `sinks`; `postrider check --reference` describes all settings";
        return Err(vec![Problem::new("the configuration is empty").hint(hint)]);
    }
    let problems = variables::check(text, &variables);
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut options = Options::default().with_properties(variables);
    options.property_syntax = PropertySyntax::DockerCompose;
    // Text near a mistake may be a secret.
    options.with_snippet = false;
    let read = serde_saphyr::from_str_with_options(text, options);
    let mut config: Config = read.map_err(|error| vec![without_variable_values(text, problem(&error))])?;
    config.contents = files::contents(&config.sinks);
    let problems = check::check(&config);
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// Describes a problem with the file's own text where it exists without variables too: the value of a variable may be a secret and must not
/// be shown.
fn without_variable_values(text: &str, with_values: Problem) -> Problem {
    let mut options = Options::default();
    options.with_snippet = false;
    let read: Result<Config, Error> = serde_saphyr::from_str_with_options(text, options);
    read.err().map(|error| problem(&error)).filter(|plain| plain.at == with_values.at).unwrap_or(with_values)
}

fn problem(error: &Error) -> Problem {
    let error = error.without_snippet();
    let problem = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            let hint = match nearest(field, expected.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("valid settings here: {}", listed(expected.iter().copied())),
            };
            Problem::new(format!("there is no setting `{field}`")).hint(hint)
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            let hint = format!("valid values here: {}", listed(expected.iter().copied()));
            Problem::new(format!("`{variant}` is not a valid value")).hint(hint)
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
            Problem::new(format!("{key} occurs twice")).hint("remove one of them, or rename it")
        }
        Error::InvalidScalar { ty, .. } => Problem::new(match *ty {
            "boolean" => "expected `true` or `false`",
            "floating point" => "expected a number",
            _ => "expected a whole number",
        }),
        Error::Unexpected { expected: "mapping start", .. } => Problem::new("expected settings with names")
            .hint("such as `name: value`, with a space after the colon"),
        Error::Unexpected { expected: "sequence start", .. } => {
            Problem::new("expected a list").hint("such as `[a, b]`, or a line with `- ` before each item")
        }
        Error::MultipleDocuments { .. } => {
            Problem::new("a second YAML document begins here").hint("remove the line `---`, or use two files")
        }
        other => {
            let message = first_line(&other.to_string());
            let hints = [
                ("tabs", "indent with spaces"),
                ("anchor or alias", "quote a value that begins with * or &: \"*\""),
                ("socket address", "write address and port, such as 127.0.0.1:9465"),
            ];
            let hint =
                hints.iter().find(|(word, _)| message.contains(word)).map(|(_, hint)| (*hint).to_owned());
            Problem { hint, ..Problem::new(message) }
        }
    };
    Problem { at: error.location().and_then(line_and_column), ..problem }
}

/// The message without its position, which is printed separately.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.split(" at line ").next().unwrap_or(line).to_owned()
}
