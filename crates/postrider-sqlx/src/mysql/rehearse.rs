//! Trying what delivery does, on no row, in a transaction that is rolled back. Changes of tables cannot be taken back, so none is made.

use postrider_core::{SchemaError, tx::Prefix};
use sqlx::{AssertSqlSafe, MySqlConnection};

use super::{
    error::{is_denied, is_missing_table},
    schema,
    statement::{splice, text},
};

/// A statement for each right that anyone who delivers needs; as `migrations/grants.sql` grants them.
const TRIES: [(&str, &str, &str); 23] = [
    ("meta", "SELECT", "SELECT name, value FROM {p}meta WHERE 1 = 0"),
    ("event", "SELECT", "SELECT seq, event_id, lane, place, effective_key FROM {p}event WHERE 1 = 0"),
    (
        "event",
        "INSERT",
        "INSERT INTO {p}event (event_type, payload) SELECT d.x, d.x FROM (SELECT '' AS x) AS d WHERE 1 = 0",
    ),
    ("event", "UPDATE", "UPDATE {p}event SET status = 0 WHERE 1 = 0"),
    ("event", "DELETE", "DELETE FROM {p}event WHERE 1 = 0"),
    ("done", "SELECT", "SELECT seq FROM {p}done WHERE 1 = 0"),
    ("done", "INSERT", "INSERT INTO {p}done SELECT * FROM {p}done WHERE 1 = 0"),
    ("done", "DELETE", "DELETE FROM {p}done WHERE 1 = 0"),
    ("hold", "SELECT", "SELECT seq FROM {p}hold WHERE 1 = 0"),
    ("hold", "INSERT", "INSERT INTO {p}hold SELECT * FROM {p}hold WHERE 1 = 0"),
    ("hold", "UPDATE", "UPDATE {p}hold SET seq = 0 WHERE 1 = 0"),
    ("hold", "DELETE", "DELETE FROM {p}hold WHERE 1 = 0"),
    ("lane", "SELECT", "SELECT lane, epoch, nonce FROM {p}lane WHERE 1 = 0"),
    ("lane", "UPDATE", "UPDATE {p}lane SET epoch = 0 WHERE 1 = 0"),
    ("member", "SELECT", "SELECT instance FROM {p}member WHERE 1 = 0"),
    ("member", "INSERT", "INSERT INTO {p}member SELECT * FROM {p}member WHERE 1 = 0"),
    ("member", "UPDATE", "UPDATE {p}member SET until = until WHERE 1 = 0"),
    ("member", "DELETE", "DELETE FROM {p}member WHERE 1 = 0"),
    ("pause", "SELECT", "SELECT kind, name FROM {p}pause WHERE 1 = 0"),
    ("pause", "INSERT", "INSERT INTO {p}pause SELECT * FROM {p}pause WHERE 1 = 0"),
    ("pause", "UPDATE", "UPDATE {p}pause SET reason = reason WHERE 1 = 0"),
    ("pause", "DELETE", "DELETE FROM {p}pause WHERE 1 = 0"),
    ("lane", "UPDATE", "SELECT lane FROM {p}lane WHERE 1 = 0 FOR UPDATE"),
];

/// Tries all of it. The inner error says what is missing.
pub(super) async fn rehearse(
    conn: &mut MySqlConnection,
    prefix: &Prefix,
    migrate: bool,
) -> sqlx::Result<Result<(), SchemaError>> {
    match schema::version(conn, prefix).await? {
        Err(refusal) => return Ok(Err(refusal)),
        Ok(Some(version)) if version > 0 => {}
        // Anyone who migrates makes them, or finishes what was begun.
        Ok(_) if migrate => return may_create(conn, prefix).await,
        Ok(_) => return Ok(Err(SchemaError::Missing { table: format!("{prefix}meta") })),
    }
    for (table, right, sql) in TRIES {
        if let Err(error) = sqlx::query(AssertSqlSafe(splice(sql, prefix))).execute(&mut *conn).await {
            if !is_denied(&error) {
                return Err(error);
            }
            return Ok(Err(missing_right(conn, format!("{prefix}{table}"), right).await?));
        }
    }
    Ok(Ok(()))
}

/// Whether tables could be made. The right is looked at before the table that another is to be made like, and that one does not exist.
async fn may_create(conn: &mut MySqlConnection, prefix: &Prefix) -> sqlx::Result<Result<(), SchemaError>> {
    let sql = splice("CREATE TABLE {p}rehearsal LIKE {p}rehearsal_of_nothing", prefix);
    match sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *conn).await {
        Err(error) if is_denied(&error) => {
            Ok(Err(missing_right(conn, format!("{prefix}meta"), "CREATE").await?))
        }
        Err(error) if !is_missing_table(&error) => Err(error),
        _ => Ok(Ok(())),
    }
}

async fn missing_right(
    conn: &mut MySqlConnection,
    table: String,
    right: &'static str,
) -> sqlx::Result<SchemaError> {
    let role = sqlx::raw_sql("SELECT CURRENT_USER() AS role").fetch_one(conn).await?;
    let role = super::account(&text(&role, "role")?.unwrap_or_default());
    Ok(SchemaError::Right { table, right: right.to_owned(), role })
}
