//! A profile on a table that was looked at: which columns there are, of which types, and what SQL is made of them.

use std::collections::BTreeMap;

use postrider_core::{GLOBAL_AGGREGATE, SchemaError, event::limits::PAYLOAD_BYTES_MAX};

use super::{
    Field, NullKey, Profile, Value,
    db::{Cells, Tx},
    spec::Mark,
    sql::{Kind, Sql},
};

/// A profile on its table.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    pub(super) profile: Profile,
    pub(super) mark: Mark,
    types: BTreeMap<Field, String>,
    /// How many characters a column takes, where it has a limit.
    lengths: BTreeMap<Field, usize>,
}

impl Shape {
    /// Looks at the table. The outer error is the database's, the inner one says what is missing.
    pub(super) async fn look(
        kind: Kind,
        profile: Profile,
        tx: &mut Tx,
    ) -> sqlx::Result<Result<Self, SchemaError>> {
        let table = &profile.table;
        let mut sql;
        if kind.is_mysql() {
            sql = Sql::new(
                kind,
                "SELECT CAST(column_name AS CHAR), CAST(data_type AS CHAR), CAST(character_maximum_length AS CHAR) \
                 FROM information_schema.columns WHERE table_schema = ",
            );
            match &table.schema {
                Some(schema) => sql.bind(schema.as_str(), "text"),
                None => sql.push("DATABASE()"),
            };
            sql.push(" AND table_name = ").bind(table.name.as_str(), "text");
        } else {
            sql = Sql::new(
                kind,
                "SELECT attname::text, format_type(atttypid, NULL), \
                 CASE WHEN atttypid IN ('varchar'::regtype, 'bpchar'::regtype) AND atttypmod > 4 THEN (atttypmod - 4)::text END \
                 FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped \
                 AND attrelid = to_regclass(",
            );
            sql.bind(kind.table(table), "text").push(")");
        }
        let rows = tx.fetch(sql).await?;
        if rows.is_empty() {
            return Ok(Err(SchemaError::ForeignTable { table: table.to_string() }));
        }
        let length = |row: &Cells| row.number(2).and_then(|length| usize::try_from(length).ok());
        let found: Vec<(String, String, Option<usize>)> =
            rows.iter().filter_map(|row| Some((row.text(0)?, row.text(1)?, length(row)))).collect();
        let (mut types, mut lengths) = (BTreeMap::new(), BTreeMap::new());
        for (field, name) in &profile.columns {
            let same = |column: &str| match kind.is_mysql() {
                true => column.eq_ignore_ascii_case(name.as_str()),
                false => column == name.as_str(),
            };
            let Some((_, of_type, length)) = found.iter().find(|(column, ..)| same(column)) else {
                let (table, column) = (table.to_string(), name.to_string());
                return Ok(Err(SchemaError::ForeignColumn { table, column }));
            };
            types.insert(*field, of_type.clone());
            length.iter().for_each(|length| _ = lengths.insert(*field, *length));
        }
        let mark = profile.mark();
        Ok(Ok(Self { kind, profile, mark, types, lengths }))
    }

    pub(super) fn table(&self) -> String {
        self.kind.table(&self.profile.table)
    }

    /// A table of ours.
    pub(super) fn ours(&self, name: &'static str) -> String {
        self.kind.table(&self.profile.beside.with_suffix(name))
    }

    /// A column, or NULL.
    pub(super) fn column(&self, field: Field) -> String {
        self.profile.columns.get(&field).map_or("NULL".to_owned(), |name| self.kind.quoted(name))
    }

    pub(super) fn of_type(&self, field: Field) -> &str {
        self.types.get(&field).map_or("text", String::as_str)
    }

    /// How many characters a column takes.
    pub(super) fn length(&self, field: Field) -> usize {
        self.lengths.get(&field).copied().unwrap_or(usize::MAX)
    }

    pub(super) fn text(&self, field: Field) -> String {
        self.kind.text(&self.column(field))
    }

    /// The id of a row of theirs, where a table of ours is read too: that may have a column of the same name.
    pub(super) fn their_id(&self) -> String {
        self.kind.text(&format!("{}.{}", self.table(), self.column(Field::Id)))
    }

    pub(super) fn sql(&self, text: impl Into<String>) -> Sql {
        Sql::new(self.kind, text)
    }

    /// A value of a column.
    pub(super) fn value(&self, sql: &mut Sql, field: Field, value: &Value) {
        match value {
            Value::Text(text) => sql.bind(text.as_str(), self.of_type(field)),
            Value::Number(number) => sql.bind_number(*number, self.of_type(field)),
        };
    }

    /// The row is one of these.
    pub(super) fn ids<'a>(&self, sql: &mut Sql, ids: impl Iterator<Item = &'a str>) {
        sql.among(&self.column(Field::Id), self.of_type(Field::Id), ids.map(str::to_owned));
    }

    /// The row is neither delivered nor dead, and nobody of this system has claimed it by a status.
    pub(super) fn pending(&self, sql: &mut Sql) {
        match &self.profile.statuses {
            Some(statuses) => {
                let column = self.column(Field::Status);
                sql.push(&format!("{column} IN ("));
                self.value(sql, Field::Status, &statuses.fresh);
                if statuses.retry != statuses.fresh {
                    sql.push(", ");
                    self.value(sql, Field::Status, &statuses.retry);
                }
                sql.push(")");
            }
            None => {
                let dead = self.ours("dead");
                let id = self.their_id();
                sql.push(&format!(
                    "NOT EXISTS (SELECT 1 FROM {dead} d WHERE d.event_id = {id} AND d.source = "
                ))
                .bind(self.source(), "text")
                .push(")");
            }
        }
    }

    /// What our own tables know this table by.
    pub(super) fn source(&self) -> String {
        self.profile.table.to_string()
    }

    /// The same as it goes into SQL.
    pub(super) fn source_literal(&self) -> String {
        let source = self.source().replace('\'', "''");
        // Only MySQL takes a backslash for more than itself.
        let source = if self.kind.is_mysql() { source.replace('\\', "\\\\") } else { source };
        format!("'{source}'")
    }

    /// The key that orders a row, as text.
    pub(super) fn key(&self, sql: &mut Sql) {
        let kind = self.kind;
        if self.profile.has(Field::Key) {
            match &self.profile.null_key {
                NullKey::Ordered(key) => {
                    sql.push(&format!("COALESCE({}, ", self.text(Field::Key))).bind(key, "text").push(")")
                }
                NullKey::Unordered => sql.push(&self.text(Field::Key)),
            };
        } else if self.profile.has(Field::AggregateId) {
            let (of, id) = (self.text(Field::AggregateType), self.text(Field::AggregateId));
            let of = format!("COALESCE({of}, '{GLOBAL_AGGREGATE}')");
            sql.push(&kind.pick(format!("({of} || ':' || {id})"), format!("CONCAT({of}, ':', {id})")));
        } else {
            sql.push("NULL");
        }
    }

    pub(super) fn is_ordered(&self) -> bool {
        self.profile.has(Field::Key) || self.profile.has(Field::AggregateId)
    }

    /// The order of rows. Columns are named with their table: PostgreSQL would take a bare name for the text that is selected.
    pub(super) fn order(&self) -> String {
        let table = self.kind.quoted(&self.profile.table.name);
        let fields = [Field::CreatedAt, Field::Id].into_iter().filter(|field| self.profile.has(*field));
        fields.map(|field| format!("{table}.{}", self.column(field))).collect::<Vec<_>>().join(", ")
    }

    /// Whether the payload is bytes and not text.
    pub(super) fn is_bytes(&self, field: Field) -> bool {
        let of_type = self.of_type(field);
        of_type == "bytea" || of_type.ends_with("blob") || of_type.ends_with("binary")
    }

    /// A column of any length, as bytes; nothing of what is longer than anything may be.
    pub(super) fn cargo(&self, field: Field) -> String {
        let size = self.size(field);
        let column = match (self.kind.is_mysql(), self.is_bytes(field)) {
            (true, _) => format!("CAST({} AS BINARY)", self.column(field)),
            (false, true) => self.column(field),
            (false, false) => self.text(field),
        };
        format!("CASE WHEN {size} <= {PAYLOAD_BYTES_MAX} THEN {column} END")
    }

    /// How many bytes a column has.
    pub(super) fn size(&self, field: Field) -> String {
        match self.is_bytes(field) || self.kind.is_mysql() {
            true => format!("OCTET_LENGTH({})", self.column(field)),
            false => format!("octet_length({})", self.text(field)),
        }
    }
}
