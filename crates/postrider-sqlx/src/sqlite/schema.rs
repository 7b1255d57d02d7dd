//! Creating, upgrading and printing our tables.

use postrider_core::{SchemaError, tx::Prefix};
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

use super::{
    error::is_no_match,
    statement::{json, splice},
};
use crate::dropped;

/// All migrations in order; the first makes version 1. Each ends by writing its version into `meta`, so that tables
/// made by hand from the printed schema are the same. `{p}` stands for
/// the prefix.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_outbox.sql")];

/// The tables that we own, without their prefix. `meta` is the first: it is what tells ours from foreign ones.
const TABLES: [&str; 7] = ["meta", "event", "done", "lane", "member", "hold", "pause"];

fn newest() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// Everything that `migrate` would run on an empty database.
pub(super) fn schema_sql(prefix: &Prefix) -> String {
    let migrations: Vec<_> = MIGRATIONS.iter().map(|migration| splice(migration, prefix)).collect();
    format!("BEGIN IMMEDIATE;\n\n{}\nCOMMIT;\n", migrations.join("\n"))
}

/// Creates or upgrades the tables in one write transaction: of many that start at once, one does it and the others wait
/// and find it done. The inner error says why the tables are not ours to touch; then nothing was changed.
pub(super) async fn migrate(
    conn: &mut SqliteConnection,
    prefix: &Prefix,
) -> sqlx::Result<Result<(), SchemaError>> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    if let Err(refusal) = upgrade(&mut tx, prefix).await? {
        return Ok(Err(refusal));
    }
    tx.commit().await?;
    Ok(Ok(()))
}

/// Tries what delivery does, in a write transaction that is rolled back: SQLite knows no rights but those of the file.
pub(super) async fn rehearse(
    conn: &mut SqliteConnection,
    prefix: &Prefix,
    migrate: bool,
) -> sqlx::Result<Result<(), SchemaError>> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let ready = match migrate {
        true => upgrade(&mut tx, prefix).await?,
        false => match version(&mut tx, prefix).await? {
            Ok(0) => Err(SchemaError::Missing { table: format!("{prefix}meta") }),
            found => found.map(drop),
        },
    };
    if ready.is_ok() {
        for sql in [
            "UPDATE {p}lane SET epoch = epoch",
            "DELETE FROM {p}event WHERE seq < 0",
            "INSERT INTO {p}member (instance, until, lease_us) VALUES ('postrider-rehearsal', 0, 0) ON CONFLICT DO NOTHING",
            "DELETE FROM {p}done WHERE seq < 0",
            "DELETE FROM {p}hold WHERE seq < 0",
            "DELETE FROM {p}pause WHERE name IS NULL",
        ] {
            sqlx::query(AssertSqlSafe(splice(sql, prefix))).execute(&mut *tx).await?;
        }
    }
    tx.rollback().await?;
    Ok(ready)
}

async fn upgrade(conn: &mut SqliteConnection, prefix: &Prefix) -> sqlx::Result<Result<(), SchemaError>> {
    let version = match version(conn, prefix).await? {
        Ok(version) => version,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if version > newest() {
        return Ok(Err(SchemaError::Newer { found: version, known: newest() }));
    }
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    for migration in MIGRATIONS.iter().skip(done) {
        sqlx::raw_sql(AssertSqlSafe(splice(migration, prefix))).execute(&mut *conn).await?;
    }
    Ok(Ok(()))
}

/// The version of the tables that are there; 0 where there are none.
async fn version(conn: &mut SqliteConnection, prefix: &Prefix) -> sqlx::Result<Result<u32, SchemaError>> {
    let found = our_names(conn, prefix).await?;
    let meta = format!("{prefix}meta");
    // SQLite's names know no case, so an external outbox table may be spelled another way than ours.
    if !found.iter().any(|name| name.eq_ignore_ascii_case(&meta)) {
        return Ok(match found.into_iter().next() {
            Some(table) => Err(SchemaError::Foreign { table }),
            None => Ok(0),
        });
    }
    let version = splice("SELECT value FROM {p}meta WHERE name = 'schema_version'", prefix);
    let value = match sqlx::query(AssertSqlSafe(version)).fetch_optional(conn).await {
        Ok(Some(row)) => row.try_get::<String, _>(0).ok(),
        Ok(None) => None,
        Err(error) if is_no_match(&error) => None,
        Err(error) => return Err(error),
    };
    // A version is at least 1, so anything else was not written by us.
    let version = value.and_then(|value| value.parse().ok()).filter(|&version| version > 0);
    Ok(version.ok_or(SchemaError::Foreign { table: meta }).and_then(|version| match version {
        ours if ours <= newest() => dropped::refuse(&TABLES, prefix, &found).map(|()| ours),
        newer => Ok(newer),
    }))
}

/// Those of our names that something has already, be it a table or a view.
async fn our_names(conn: &mut SqliteConnection, prefix: &Prefix) -> sqlx::Result<Vec<String>> {
    let names = TABLES.map(|table| format!("{prefix}{table}").to_ascii_lowercase());
    let rows = sqlx::query(
        "SELECT name FROM sqlite_master
         WHERE type IN ('table', 'view') AND lower(name) IN (SELECT value FROM json_each(?1))
         ORDER BY name",
    )
    .bind(json(&names)?)
    .fetch_all(conn)
    .await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}
