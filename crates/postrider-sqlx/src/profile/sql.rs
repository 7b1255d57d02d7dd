//! Statements that two databases understand. Names go in through [`Name`], in quotes, everything else is bound.

use postrider_core::ConfigError;

use super::{Name, TableName};

/// Most values of one list in MySQL, where a statement has at most 65,535 of them.
const NONE_OF_MAX: usize = 30_000;

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    Mysql,
}

impl Kind {
    /// The kind of database that a URL names.
    pub(super) fn of(url: &str) -> Result<Self, ConfigError> {
        match url.split_once("://").map(|(scheme, _)| scheme) {
            #[cfg(feature = "mysql")]
            Some("mysql" | "mariadb") => Ok(Self::Mysql),
            #[cfg(feature = "postgres")]
            Some("postgres" | "postgresql") => Ok(Self::Postgres),
            scheme => Err(ConfigError::Database {
                given: scheme.unwrap_or("a name without a scheme").to_owned(),
                known: "postgres://user:password@host:port/database or mysql://user:password@host:port/database",
            }),
        }
    }

    /// Somebody who is granted something.
    pub(super) fn role(self, name: &str) -> String {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres => crate::postgres::role(name),
            #[cfg(feature = "mysql")]
            Self::Mysql => crate::mysql::account(name),
        }
    }

    /// One of two texts.
    pub(super) fn pick<T>(self, _postgres: T, _mysql: T) -> T {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres => _postgres,
            #[cfg(feature = "mysql")]
            Self::Mysql => _mysql,
        }
    }

    pub(super) fn is_mysql(self) -> bool {
        self.pick(false, true)
    }

    pub(super) fn quoted(self, name: &Name) -> String {
        let (quote, twice) = self.pick(("\"", "\"\""), ("`", "``"));
        format!("{quote}{}{quote}", name.as_str().replace(quote, twice))
    }

    pub(super) fn table(self, table: &TableName) -> String {
        let name = self.quoted(&table.name);
        table.schema.as_ref().map_or(name.clone(), |schema| format!("{}.{name}", self.quoted(schema)))
    }

    /// The database's clock.
    pub(super) fn now(self) -> &'static str {
        self.pick("clock_timestamp()", "UTC_TIMESTAMP(6)")
    }

    /// The database's clock when the statement began: the same for all rows, and something that an index can be searched by.
    pub(super) fn began(self) -> &'static str {
        self.pick("statement_timestamp()", "UTC_TIMESTAMP(6)")
    }

    /// An expression as text.
    pub(super) fn text(self, expression: &str) -> String {
        self.pick(format!("({expression})::text"), format!("CAST({expression} AS CHAR)"))
    }

    /// A time as microseconds since 1970, as text.
    pub(super) fn micros(self, expression: &str) -> String {
        self.text(&self.pick(
            format!("(extract(epoch FROM {expression}) * 1000000)::bigint"),
            format!("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {expression})"),
        ))
    }
}

/// A value that is bound.
#[derive(Debug, Clone)]
pub(super) enum Arg {
    Text(String),
    Number(i64),
    /// An array; only PostgreSQL has them.
    List(Vec<String>),
}

/// A statement with its values.
#[derive(Debug, Clone)]
pub(super) struct Sql {
    kind: Kind,
    pub(super) text: String,
    pub(super) args: Vec<Arg>,
}

impl Sql {
    pub(super) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), args: Vec::new() }
    }

    /// Goes on with a piece of SQL.
    pub(super) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// A bound text; PostgreSQL turns it into the given type.
    pub(super) fn bind(&mut self, value: impl Into<String>, of_type: &str) -> &mut Self {
        self.args.push(Arg::Text(value.into()));
        let place = self.args.len();
        let text = self.kind.pick(format!("${place}::text::{of_type}"), "?".to_owned());
        self.push(&text)
    }

    /// A bound number; PostgreSQL turns it into the given type.
    pub(super) fn bind_number(&mut self, value: i64, of_type: &str) -> &mut Self {
        self.args.push(Arg::Number(value));
        let place = self.args.len();
        let text = self.kind.pick(format!("${place}::bigint::{of_type}"), "?".to_owned());
        self.push(&text)
    }

    /// Places for these values, of which the last is repeated until there are as many as a power of two: statements of all lengths would fill the
    /// cache of a connection.
    fn places(&mut self, mut values: Vec<String>) -> String {
        let last = values.last().cloned().unwrap_or_default();
        values.resize(values.len().next_power_of_two(), last);
        let places = vec!["?"; values.len()].join(", ");
        self.args.extend(values.into_iter().map(Arg::Text));
        places
    }

    /// `expression` is one of these, or none of them.
    pub(super) fn among(
        &mut self,
        expression: &str,
        of_type: &str,
        values: impl Iterator<Item = String>,
    ) -> &mut Self {
        let values: Vec<String> = values.collect();
        if values.is_empty() {
            return self.push("1 = 0");
        }
        if self.kind.is_mysql() {
            let places = self.places(values);
            return self.push(&format!("{expression} IN ({places})"));
        }
        self.args.push(Arg::List(values));
        let place = self.args.len();
        self.push(&format!("{expression} = ANY(${place}::text[]::{of_type}[])"))
    }

    /// Goes on an expression: it is none of these. One look at each row however many they are; a filter that saves work, so that where
    /// there can only be so many values the rest is left out.
    pub(super) fn none_of(&mut self, of_type: &str, mut values: Vec<String>) -> &mut Self {
        if self.kind.is_mysql() {
            values.truncate(NONE_OF_MAX);
            let places = self.places(values);
            return self.push(&format!(" NOT IN ({places})"));
        }
        self.args.push(Arg::List(values));
        let place = self.args.len();
        self.push(&format!(" NOT IN (SELECT unnest(${place}::text[]::{of_type}[]))"))
    }

    /// So many microseconds before the statement began.
    pub(super) fn before_now(&mut self, micros: i64) -> &mut Self {
        self.args.push(Arg::Number(micros));
        let place = self.args.len();
        let text = self.kind.pick(
            format!("statement_timestamp() - ${place}::bigint * interval '1 microsecond'"),
            "UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND".to_owned(),
        );
        self.push(&text)
    }

    /// So many microseconds from now.
    pub(super) fn after_now(&mut self, micros: i64) -> &mut Self {
        self.args.push(Arg::Number(micros));
        let place = self.args.len();
        let text = self.kind.pick(
            format!("clock_timestamp() + ${place}::bigint * interval '1 microsecond'"),
            "UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND".to_owned(),
        );
        self.push(&text)
    }
}
