//! Names that go into SQL. Nothing else of what a profile says does.

use std::fmt;

use postrider_core::ConfigError;

/// Longest name, in bytes: PostgreSQL cuts what is longer.
const BYTES_MAX: usize = 63;

/// The name of a table, a schema or a column that somebody else chose: a plain identifier, or any name in quotes.
///
/// ```
/// use postrider_sqlx::profile::Name;
/// assert!(Name::new("outbox_events").is_ok());
/// assert!(Name::new("\"Outbox Events\"").is_ok());
/// assert!(Name::new("events; DROP TABLE x").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

impl Name {
    /// Checks that it is a letter or underscore, then letters, digits and underscores; or takes what stands in double quotes, where two of
    /// them stand for one.
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        match split(name).as_deref() {
            Some([only]) => Ok(Self(only.clone())),
            _ => Err(ConfigError::ForeignName { value: name.to_owned() }),
        }
    }

    /// A name that this crate wrote itself.
    pub(super) fn known(name: &'static str) -> Self {
        Self(name.to_owned())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// As it was given: in quotes where it has to be.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match is_plain(&self.0) {
            true => f.write_str(&self.0),
            false => write!(f, "\"{}\"", self.0.replace('"', "\"\"")),
        }
    }
}

fn is_plain(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The names between the dots of a text, without their quotes; none if one of them is no name.
fn split(text: &str) -> Option<Vec<String>> {
    let (mut names, mut rest) = (Vec::new(), text);
    loop {
        let (name, behind) = match rest.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                let (name, behind) = rest.split_at_checked(end)?;
                (Some(name.to_owned()).filter(|name| is_plain(name))?, behind)
            }
        };
        // No database has a name with a NUL, or an empty one.
        if name.is_empty() || name.contains('\0') || name.len() > BYTES_MAX {
            return None;
        }
        names.push(name);
        match behind.strip_prefix('.') {
            Some(next) => rest = next,
            None => return behind.is_empty().then_some(names),
        }
    }
}

/// What stands before the closing quote, and what behind it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut name, mut rest) = (String::new(), text);
    loop {
        let (before, behind) = rest.split_once('"')?;
        name.push_str(before);
        match behind.strip_prefix('"') {
            Some(next) => {
                name.push('"');
                rest = next;
            }
            None => return Some((name, behind)),
        }
    }
}

/// A table, with its schema (in MySQL: its database) where that is not the connection's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    pub(super) schema: Option<Name>,
    pub(super) name: Name,
}

impl TableName {
    /// Reads `table` or `schema.table`, each of them in quotes where it is no plain identifier: `"Odd Schema".outbox_events`.
    pub fn new(table: &str) -> Result<Self, ConfigError> {
        match split(table).as_deref() {
            Some([schema, name]) => Ok(Self { schema: Some(Name(schema.clone())), name: Name(name.clone()) }),
            Some([name]) => Ok(Self { schema: None, name: Name(name.clone()) }),
            _ => Err(ConfigError::ForeignName { value: table.to_owned() }),
        }
    }

    pub(super) fn known(name: &'static str) -> Self {
        Self { schema: None, name: Name::known(name) }
    }

    /// Another table in the same schema, named after this one.
    pub(super) fn with_suffix(&self, suffix: &'static str) -> Self {
        Self { schema: self.schema.clone(), name: Name(format!("{}{suffix}", self.name.0)) }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plain_name_is_refused_and_named() {
        for bad in ["", "events; DROP TABLE x", "1st", "a-b", "a\"b", "a`b", "a.b.c", "ü", &"x".repeat(64)] {
            let error = TableName::new(bad).unwrap_err().to_string();
            assert!(error.contains("is not a name for a table or column"), "{error}");
        }
        assert_eq!(TableName::new("shop.Outbox_Events").unwrap().to_string(), "shop.Outbox_Events");
        for bad in
            ["\"", "\"a", "\"a\"b", "\"\"", "\"a\".", ".\"a\"", "\"a\0\"", &format!("\"{}\"", "x".repeat(64))]
        {
            assert!(TableName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_in_quotes_is_taken_as_it_is_and_shown_in_quotes_where_it_has_to_be() {
        let table = TableName::new("\"Odd Schema\".\"a\"\"b.c\"").unwrap();
        assert_eq!(table.schema.as_ref().map(Name::as_str), Some("Odd Schema"));
        assert_eq!(table.name.as_str(), "a\"b.c");
        assert_eq!(table.to_string(), "\"Odd Schema\".\"a\"\"b.c\"");
        assert_eq!(TableName::new("\"MyApp\".outbox").unwrap().to_string(), "MyApp.outbox");
        assert_eq!(table.with_suffix("lane").name.as_str(), "a\"b.clane");
    }
}
