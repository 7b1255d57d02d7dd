//! Creating, upgrading and printing our tables.

use std::fmt::Write;

use postrider_core::{SchemaError, tx::Prefix};
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::{
    error::is_no_match,
    statement::{natural, splice, text},
};
use crate::dropped;

/// All migrations in order; the first makes version 1. Each ends by writing its version into `meta`, so that tables
/// made by hand from the printed schema are the same. `{p}` stands for
/// the prefix, `{lanes}` for the number of lanes, `{lane_rows}` for their rows, `{bytes}` for the [collation](BYTES).
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_outbox.sql")];

/// The rights that a writer, a relay and an operator need.
const GRANTS: &str = include_str!("migrations/grants.sql");

/// The tables that we own, without their prefix. `meta` is the first: it is what tells ours from foreign ones.
const TABLES: [&str; 7] = ["meta", "event", "done", "lane", "member", "hold", "pause"];

/// The collation that compares as bytes, blanks at the end included. The first is MySQL's (8.0.17), the second MariaDB's; each
/// takes the other's for a comment.
pub(super) const BYTES: &str = "/*!80017 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */";

/// What the character set of our tables must be, and how to get there.
const CHARSET_NEEDED: &str = "utf8mb4: convert each with `ALTER TABLE name CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`, or make \
     them anew with `postrider init`";

/// How long to wait for another instance that migrates.
const LOCK_SECONDS: u32 = 60;

fn newest() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// Everything that `migrate` would run on an empty database.
pub(super) fn schema_sql(prefix: &Prefix, lanes: u32) -> String {
    let migrations: Vec<_> =
        MIGRATIONS.iter().map(|migration| written_out(migration, prefix, lanes)).collect();
    migrations.join("\n")
}

/// The rights of each role.
pub(super) fn grants_sql(prefix: &Prefix, writer: &str, relay: &str, operator: &str) -> String {
    splice(GRANTS, prefix)
        .replace("{writer}", &account(writer))
        .replace("{relay}", &account(relay))
        .replace("{operator}", &account(operator))
}

/// `'user'@'host'`. Both are quoted, so a backslash and a quote are the only characters that mean something.
pub(crate) fn account(name: &str) -> String {
    let (user, host) = name.rsplit_once('@').unwrap_or((name, "%"));
    let quoted = |part: &str| format!("'{}'", part.replace('\\', "\\\\").replace('\'', "''"));
    format!("{}@{}", quoted(user), quoted(host))
}

fn written_out(migration: &str, prefix: &Prefix, lanes: u32) -> String {
    let migration = migration.replace("{bytes}", BYTES).replace("{lane_rows}", &lane_rows(0, lanes));
    splice(&migration.replace("{lanes}", &lanes.to_string()), prefix)
}

/// `(0), (1)` and so on.
fn lane_rows(from: u32, to: u32) -> String {
    let mut rows = String::new();
    for lane in from..to {
        let between = if lane > from { ", " } else { "" };
        // Writing into a string cannot fail.
        let _ = write!(rows, "{between}({lane})");
    }
    rows
}

/// Creates or upgrades the tables, and says how many lanes there are. Of many that start at once, one does it and the others
/// wait and find it done. A change of tables commits by itself, so each step can be repeated.
///
/// The connection must be closed afterwards, whatever happens: the lock ends with it. The inner error says why the tables are
/// not ours to touch; then nothing was changed.
pub(super) async fn migrate(
    conn: &mut MySqlConnection,
    prefix: &Prefix,
    wanted: Option<u32>,
    default: u32,
) -> sqlx::Result<Result<u32, SchemaError>> {
    lock(conn, prefix).await?;
    let version = match version(conn, prefix).await? {
        Ok(version) => version,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if version.is_some_and(|version| version > newest()) {
        return Ok(Err(SchemaError::Newer { found: version.unwrap_or_default(), known: newest() }));
    }
    // What was begun goes on with the lanes that it was begun with.
    let begun = lanes(conn, prefix, version).await?;
    let count = begun.unwrap_or(wanted.unwrap_or(default));
    let done = usize::try_from(version.unwrap_or_default()).unwrap_or(usize::MAX);
    for migration in MIGRATIONS.iter().skip(done) {
        sqlx::raw_sql(AssertSqlSafe(written_out(migration, prefix, count))).execute(&mut *conn).await?;
    }
    match wanted.filter(|wanted| *wanted != count) {
        None => Ok(Ok(count)),
        Some(wanted) => change_lanes(conn, prefix, count, wanted).await,
    }
}

async fn lock(conn: &mut MySqlConnection, prefix: &Prefix) -> sqlx::Result<()> {
    // A name has 64 characters at most. MySQL has MD5 and SHA1 no more without a component of its own.
    let name =
        "SELECT GET_LOCK(CONCAT('postrider:', LEFT(SHA2(CONCAT(DATABASE(), ':', ?), 256), 48)), ?) AS got";
    let got = sqlx::query(name).bind(prefix.to_string()).bind(LOCK_SECONDS).fetch_one(conn).await?;
    if natural::<u32>(&got, "got")? == 1 {
        Ok(())
    } else {
        Err(sqlx::Error::Io(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            "another instance has been migrating for a minute",
        )))
    }
}

/// The version of the tables that are there, 0 where a migration ended half-way; none where there are none.
///
/// The first two steps of a migration make `meta` and fill it. Where the second was not taken `meta` is empty, and none of the other tables is
/// there.
pub(super) async fn version(
    conn: &mut MySqlConnection,
    prefix: &Prefix,
) -> sqlx::Result<Result<Option<u32>, SchemaError>> {
    let found = our_names(conn, prefix).await?;
    let meta = format!("{prefix}meta");
    if !found.iter().any(|name| name.eq_ignore_ascii_case(&meta)) {
        return Ok(match found.into_iter().next() {
            Some(table) => Err(SchemaError::Foreign { table }),
            None => Ok(None),
        });
    }
    let foreign = Err(SchemaError::Foreign { table: meta });
    let version = match meta_value(conn, prefix, "schema_version").await {
        Ok(version) => version.and_then(|version| version.parse().ok()),
        Err(error) if is_no_match(&error) => return Ok(foreign),
        Err(error) => return Err(error),
    };
    if version.is_none() && found.len() == 1 && is_just_made(conn, prefix).await? {
        return Ok(Ok(Some(0)));
    }
    if let Some((table, found)) = foreign_charset(conn, prefix).await? {
        tracing::warn!(table, found, "a table of ours is in another character set");
        return Ok(Err(SchemaError::Setting {
            setting: "character set of our tables",
            found,
            needed: CHARSET_NEEDED,
        }));
    }
    Ok(version.map_or(foreign, |version| match version {
        ours if (1..=newest()).contains(&ours) => {
            dropped::refuse(&TABLES, prefix, &found).map(|()| Some(ours))
        }
        other => Ok(Some(other)),
    }))
}

/// Whether `meta` is as the first step of a migration makes it, and has no row.
async fn is_just_made(conn: &mut MySqlConnection, prefix: &Prefix) -> sqlx::Result<bool> {
    let ours = "SELECT COUNT(*) = 2 AS ours FROM information_schema.columns
                WHERE table_schema = DATABASE() AND LOWER(table_name) = ?
                  AND (column_name = 'name' AND column_type = 'varchar(64)'
                       OR column_name = 'value' AND column_type = 'varchar(255)')";
    let ours =
        sqlx::query(ours).bind(format!("{prefix}meta").to_ascii_lowercase()).fetch_one(&mut *conn).await?;
    if !ours.try_get_unchecked::<bool, _>("ours")? {
        return Ok(false);
    }
    let row = splice("SELECT name FROM {p}meta LIMIT 1", prefix);
    Ok(sqlx::query(AssertSqlSafe(row)).fetch_optional(conn).await?.is_none())
}

/// One of our tables that keeps not every text, and its collation.
async fn foreign_charset(
    conn: &mut MySqlConnection,
    prefix: &Prefix,
) -> sqlx::Result<Option<(String, String)>> {
    let names = TABLES.map(|table| format!("{prefix}{table}").to_ascii_lowercase());
    let sql = "SELECT table_name AS name, table_collation AS found FROM information_schema.tables
               WHERE table_schema = DATABASE() AND LOWER(table_name) IN (?, ?, ?, ?, ?, ?, ?)
                 AND table_collation NOT LIKE 'utf8mb4%' ORDER BY table_name LIMIT 1";
    let row = names.into_iter().fold(sqlx::query(sql), |query, name| query.bind(name));
    let Some(row) = row.fetch_optional(conn).await? else { return Ok(None) };
    Ok(Some((text(&row, "name")?.unwrap_or_default(), text(&row, "found")?.unwrap_or_default())))
}

/// How many lanes the tables were made with.
async fn lanes(
    conn: &mut MySqlConnection,
    prefix: &Prefix,
    version: Option<u32>,
) -> sqlx::Result<Option<u32>> {
    if version.is_none() {
        return Ok(None);
    }
    Ok(meta_value(conn, prefix, "lanes").await?.and_then(|lanes| lanes.parse().ok()))
}

async fn meta_value(
    conn: &mut MySqlConnection,
    prefix: &Prefix,
    name: &'static str,
) -> sqlx::Result<Option<String>> {
    let sql = splice("SELECT value FROM {p}meta WHERE name = ?", prefix);
    let row = sqlx::query(AssertSqlSafe(sql)).bind(name).fetch_optional(conn).await?;
    row.map_or(Ok(None), |row| text(&row, "value"))
}

/// Those of our names that something has already, be it a table or a view.
async fn our_names(conn: &mut MySqlConnection, prefix: &Prefix) -> sqlx::Result<Vec<String>> {
    let names = TABLES.map(|table| format!("{prefix}{table}").to_ascii_lowercase());
    let rows = sqlx::query(
        "SELECT table_name AS name FROM information_schema.tables
         WHERE table_schema = DATABASE() AND LOWER(table_name) IN (?, ?, ?, ?, ?, ?, ?) ORDER BY table_name",
    );
    let rows = names.into_iter().fold(rows, |rows, name| rows.bind(name)).fetch_all(conn).await?;
    rows.iter().map(|row| Ok(text(row, "name")?.unwrap_or_default())).collect()
}

/// Changes the number of lanes of an outbox that is empty and that nobody delivers from. Lanes are added before events can
/// fall into them, and taken away when none can any more, so that ending half-way strands nothing.
async fn change_lanes(
    conn: &mut MySqlConnection,
    prefix: &Prefix,
    found: u32,
    wanted: u32,
) -> sqlx::Result<Result<u32, SchemaError>> {
    let used = "SELECT EXISTS (SELECT 1 FROM {p}event) OR EXISTS (SELECT 1 FROM {p}hold) OR EXISTS
                (SELECT 1 FROM {p}lane WHERE owner IS NOT NULL AND leased_until > UTC_TIMESTAMP(6)) AS used";
    let used = sqlx::query(AssertSqlSafe(splice(used, prefix))).fetch_one(&mut *conn).await?;
    if used.try_get_unchecked::<bool, _>("used")? {
        return Ok(Err(SchemaError::Lanes { found, wanted }));
    }
    let steps = format!(
        "INSERT IGNORE INTO {{p}}lane (lane) VALUES {};
         ALTER TABLE {{p}}event MODIFY lane SMALLINT UNSIGNED AS (MOD(COALESCE(CRC32(COALESCE(ordering_key,
             CONCAT(aggregate_type, ':', aggregate_id))), lane_hint, CRC32(event_id)), {wanted})) STORED;
         DELETE FROM {{p}}lane WHERE lane >= {wanted};
         UPDATE {{p}}meta SET value = '{wanted}' WHERE name = 'lanes';",
        lane_rows(0, wanted)
    );
    sqlx::raw_sql(AssertSqlSafe(splice(&steps, prefix))).execute(conn).await?;
    Ok(Ok(wanted))
}
