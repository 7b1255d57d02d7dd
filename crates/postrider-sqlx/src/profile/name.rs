//! Names that go into SQL. Nothing else of what a profile says does.

use std::fmt;

use postrider_core::ConfigError;

/// Longest name, in characters: PostgreSQL cuts what is longer.
const CHARS_MAX: usize = 63;

/// The name of a table, a schema or a column that somebody else chose: a plain identifier.
///
/// ```
/// use postrider_sqlx::profile::Name;
/// assert!(Name::new("outbox_events").is_ok());
/// assert!(Name::new("events; DROP TABLE x").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

impl Name {
    /// Checks that it is a letter or underscore, then letters, digits and underscores.
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        let mut bytes = name.bytes();
        let plain = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && name.len() <= CHARS_MAX;
        plain
            .then(|| Self(name.to_owned()))
            .ok_or_else(|| ConfigError::ForeignName { value: name.to_owned() })
    }

    /// A name that this crate wrote itself.
    pub(super) fn known(name: &'static str) -> Self {
        Self(name.to_owned())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A table, with its schema (in MySQL: its database) where that is not the connection's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    pub(super) schema: Option<Name>,
    pub(super) name: Name,
}

impl TableName {
    /// Reads `table` or `schema.table`.
    pub fn new(table: &str) -> Result<Self, ConfigError> {
        match table.split_once('.') {
            Some((schema, name)) => Ok(Self { schema: Some(Name::new(schema)?), name: Name::new(name)? }),
            None => Ok(Self { schema: None, name: Name::new(table)? }),
        }
    }

    pub(super) fn known(name: &'static str) -> Self {
        Self { schema: None, name: Name::known(name) }
    }

    /// Another table in the same schema, named after this one.
    pub(super) fn with_suffix(&self, suffix: &'static str) -> Self {
        Self { schema: self.schema.clone(), name: Name(format!("{}{suffix}", self.name)) }
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
    }
}
