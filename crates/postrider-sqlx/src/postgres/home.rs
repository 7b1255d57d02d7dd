//! Which schema our tables are in: the only one along the search path that has them.

use postrider_core::{Error, Result, SchemaError, tx::Prefix};
use sqlx::{ConnectOptions, Connection, PgConnection, Row, postgres::PgConnectOptions};

use super::{
    connect::{Opening, place},
    error::of_sqlx,
    schema::role,
};
use crate::connections::opening;

/// The table that tells our tables from foreign ones. A name that is not quoted is folded to lower case.
fn mark(prefix: &Prefix) -> String {
    format!("{prefix}meta").to_ascii_lowercase()
}

/// The schemas along the search path that have such a table, in its order.
async fn along_the_path(conn: &mut PgConnection, table: &str) -> sqlx::Result<Vec<String>> {
    let found = "SELECT s.name::text FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (name, place)
                 JOIN pg_namespace AS n ON n.nspname = s.name
                 JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = $1
                 GROUP BY s.name ORDER BY min(s.place)";
    texts(conn, found, table).await
}

/// All schemas that have such a table. Those of other sessions' temporary tables do not count.
async fn anywhere(conn: &mut PgConnection, table: &str) -> sqlx::Result<Vec<String>> {
    let found = "SELECT n.nspname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                 WHERE c.relname = $1 AND c.relpersistence <> 't' ORDER BY n.nspname LIMIT 10";
    texts(conn, found, table).await
}

async fn texts(conn: &mut PgConnection, sql: &'static str, table: &str) -> sqlx::Result<Vec<String>> {
    let rows = sqlx::query(sql).persistent(false).bind(table.to_owned()).fetch_all(conn).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// The schema that has our tables; none if the search path leads to none. Several are refused: some program would write to the one and
/// another deliver from the other.
pub(super) async fn find(
    conn: &mut PgConnection,
    prefix: &Prefix,
) -> sqlx::Result<Result<Option<String>, SchemaError>> {
    let table = mark(prefix);
    let mut schemas = along_the_path(conn, &table).await?;
    Ok(match schemas.len() {
        0 | 1 => Ok(schemas.pop()),
        _ => Err(SchemaError::Twice { table, schemas }),
    })
}

/// Why there are no tables: they are elsewhere, or nowhere.
pub(super) async fn missing(conn: &mut PgConnection, prefix: &Prefix) -> sqlx::Result<SchemaError> {
    let table = mark(prefix);
    let schemas = anywhere(conn, &table).await?;
    Ok(if schemas.is_empty() {
        SchemaError::Missing { table }
    } else {
        SchemaError::Elsewhere { table, schemas }
    })
}

/// Has the transaction go to the schema that has our tables. Where there are none they may be made in the first schema of the search path, if
/// there is one that this role may create tables in.
pub(super) async fn enter(conn: &mut PgConnection, prefix: &Prefix) -> sqlx::Result<Result<(), SchemaError>> {
    match find(conn, prefix).await? {
        Err(refusal) => Ok(Err(refusal)),
        Ok(Some(home)) => {
            let enter = "SELECT set_config('search_path', quote_ident($1), true)";
            sqlx::query(enter).persistent(false).bind(home).execute(conn).await?;
            Ok(Ok(()))
        }
        Ok(None) => {
            let ask = "SELECT coalesce(has_schema_privilege(current_schema(), 'CREATE'), false), current_schema() IS NULL";
            let row = sqlx::query(ask).persistent(false).fetch_one(&mut *conn).await?;
            if row.try_get(0)? {
                return Ok(Ok(()));
            }
            let refusal = missing(conn, prefix).await?;
            let nowhere = matches!(refusal, SchemaError::Missing { .. });
            Ok(match (nowhere, row.try_get(1)?) {
                (true, true) => Err(SchemaError::NoSchema),
                // That it may not create tables is best said by the database.
                (true, false) => Ok(()),
                (false, _) => Err(refusal),
            })
        }
    }
}

/// The options of these sessions, with the search path fixed to the schema that has our tables, if there are any: another set that is made in
/// front of it later does not lead sessions there.
pub(super) async fn fixed(sessions: &Opening, prefix: &Prefix) -> Result<PgConnectOptions> {
    let look = async {
        let mut conn = sessions.session().connect().await?;
        let found = find(&mut conn, prefix).await?;
        let _ = conn.close().await;
        Ok(found)
    };
    let options = sessions.options.clone();
    let found = opening(look).await;
    let found = found.map_err(|error| of_sqlx(error, format!("cannot connect to {}", place(&options))))?;
    match found.map_err(Error::from)? {
        Some(home) => Ok(options.options([("search_path", role(&home))])),
        None => Ok(options),
    }
}
