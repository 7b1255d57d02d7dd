//! Creating, upgrading and printing our tables.

use postrider_core::{SchemaError, event::limits::PAYLOAD_BYTES_MAX, tx::Prefix};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{error::is_no_match, home, statement::splice};
use crate::dropped;

/// All migrations in order; the first makes version 1. Nothing has been released, so the first is edited in place. Each ends by writing its version into `meta`, so that tables
/// made by hand from the printed schema are the same. `{p}` stands for
/// the prefix, `{n}` for the number of lanes, `{lanes}` for `lanes.sql`.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_outbox.sql")];

/// What depends on the number of lanes; repeated when that changes.
const LANES: &str = include_str!("migrations/lanes.sql");

/// Rights for a writer, a relay and an operator.
const GRANTS: &str = include_str!("migrations/grants.sql");

/// The tables that we own, without their prefix. `meta` is the first: it is what tells ours from foreign ones.
const TABLES: [&str; 7] = ["meta", "event", "done", "lane", "member", "hold", "pause"];

/// How many lanes there are unless somebody wants another number, and most that there may be.
pub(super) const LANES_DEFAULT: u32 = 64;
pub(super) const LANES_MAX: u32 = 4096;

fn newest() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

fn spell(template: &str, prefix: &Prefix, lanes: u32) -> String {
    let template = template.replace("{lanes}", LANES).replace("{n}", &lanes.to_string());
    splice(&template.replace("{payload_max}", &PAYLOAD_BYTES_MAX.to_string()), prefix)
}

/// Everything that `migrate` would run on an empty database.
pub(super) fn schema_sql(prefix: &Prefix, lanes: u32) -> String {
    let migrations: Vec<_> = MIGRATIONS.iter().map(|migration| spell(migration, prefix, lanes)).collect();
    format!("BEGIN;\n\n{}\nCOMMIT;\n", migrations.join("\n"))
}

/// The rights that each role needs, and no more.
pub(super) fn grants_sql(prefix: &Prefix, writer: &str, relay: &str, operator: &str) -> String {
    splice(GRANTS, prefix)
        .replace("{writer}", &role(writer))
        .replace("{relay}", &role(relay))
        .replace("{operator}", &role(operator))
}

/// The name of a role, quoted.
pub(crate) fn role(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Creates or upgrades the tables in one transaction under a lock that all of us know: of many that start at once, one does it and
/// the others wait and find it done. Says how many lanes there are. The inner error says why the tables are not ours to touch;
/// then nothing was changed.
pub(super) async fn migrate(
    conn: &mut PgConnection,
    prefix: &Prefix,
    wanted: Option<u32>,
) -> sqlx::Result<Result<u32, SchemaError>> {
    let lock = splice("SELECT pg_advisory_xact_lock(hashtextextended('postrider:{p}', 0))", prefix);
    // Waiting for another who migrates is no sign of trouble, so it has no time limit.
    sqlx::raw_sql("SET LOCAL statement_timeout = 0").execute(&mut *conn).await?;
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *conn).await?;
    if let Err(refusal) = home::enter(conn, prefix).await? {
        return Ok(Err(refusal));
    }
    let version = match version(conn, prefix).await? {
        Ok(version) => version,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if version > newest() {
        return Ok(Err(SchemaError::Newer { found: version, known: newest() }));
    }
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    for migration in MIGRATIONS.iter().skip(done) {
        let migration = spell(migration, prefix, wanted.unwrap_or(LANES_DEFAULT));
        sqlx::raw_sql(AssertSqlSafe(migration)).execute(&mut *conn).await?;
    }
    lanes(conn, prefix, wanted).await
}

/// How many lanes there are, after changing their number if another is wanted and that can be done.
async fn lanes(
    conn: &mut PgConnection,
    prefix: &Prefix,
    wanted: Option<u32>,
) -> sqlx::Result<Result<u32, SchemaError>> {
    let found = meta(conn, prefix, "lanes").await?.unwrap_or(LANES_DEFAULT);
    let Some(wanted) = wanted.filter(|wanted| *wanted != found) else {
        return Ok(Ok(found));
    };
    let lock = splice("LOCK TABLE {p}event, {p}lane IN ACCESS EXCLUSIVE MODE", prefix);
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *conn).await?;
    let in_use = splice(
        "SELECT EXISTS (SELECT 1 FROM {p}event) OR EXISTS (SELECT 1 FROM {p}hold)
             OR EXISTS (SELECT 1 FROM {p}lane WHERE leased_until > clock_timestamp())",
        prefix,
    );
    let in_use: bool =
        sqlx::query(AssertSqlSafe(in_use)).persistent(false).fetch_one(&mut *conn).await?.try_get(0)?;
    if in_use {
        return Ok(Err(SchemaError::Lanes { found, wanted }));
    }
    let change = format!("{LANES}\nUPDATE {{p}}meta SET value = '{wanted}' WHERE name = 'lanes';");
    sqlx::raw_sql(AssertSqlSafe(spell(&change, prefix, wanted))).execute(conn).await?;
    Ok(Ok(wanted))
}

/// The version of the tables that are there; 0 where there are none.
async fn version(conn: &mut PgConnection, prefix: &Prefix) -> sqlx::Result<Result<u32, SchemaError>> {
    let found = our_names(conn, prefix).await?;
    let meta_table = format!("{prefix}meta").to_ascii_lowercase();
    if !found.contains(&meta_table) {
        return Ok(match found.into_iter().next() {
            Some(table) => Err(SchemaError::Foreign { table }),
            None => Ok(0),
        });
    }
    // An error would end the transaction, so the table is asked for its columns before it is read.
    let ours = sqlx::query(
        "SELECT count(*) = 2 FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
         JOIN pg_namespace AS n ON n.oid = c.relnamespace
         WHERE c.relname = $1 AND n.nspname = current_schema() AND a.attname IN ('name', 'value')
           AND a.atttypid = 'text'::regtype",
    );
    let ours: bool =
        ours.bind(meta_table.clone()).persistent(false).fetch_one(&mut *conn).await?.try_get(0)?;
    let version = if ours { meta(conn, prefix, "schema_version").await? } else { None };
    // A version is at least 1, so anything else was not written by us.
    let version = version.filter(|version| *version > 0).ok_or(SchemaError::Foreign { table: meta_table });
    Ok(version.and_then(|version| match version {
        ours if ours <= newest() => dropped::refuse(&TABLES, prefix, &found).map(|()| ours),
        newer => Ok(newer),
    }))
}

/// A number that `meta` holds.
async fn meta(conn: &mut PgConnection, prefix: &Prefix, name: &str) -> sqlx::Result<Option<u32>> {
    let sql = splice("SELECT value FROM {p}meta WHERE name = $1", prefix);
    let query = sqlx::query(AssertSqlSafe(sql)).bind(name.to_owned()).persistent(false);
    match query.fetch_optional(conn).await {
        Ok(Some(row)) => Ok(row.try_get::<String, _>(0)?.parse().ok()),
        Ok(None) => Ok(None),
        Err(error) if is_no_match(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Those of our names that something has already in the schema that we would create them in, be it a table, a view or an index.
async fn our_names(conn: &mut PgConnection, prefix: &Prefix) -> sqlx::Result<Vec<String>> {
    // Names that are not quoted are folded to lower case, and ours are not.
    let names: Vec<String> =
        TABLES.iter().map(|table| format!("{prefix}{table}").to_ascii_lowercase()).collect();
    let rows = sqlx::query(
        "SELECT c.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = current_schema() AND c.relname = ANY ($1) ORDER BY c.relname",
    )
    .bind(names)
    .persistent(false)
    .fetch_all(conn)
    .await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}
