//! Trying what delivery does, in a transaction that is rolled back.
//!
//! The rights are asked for one by one, so that the missing one can be named. The statements are planned, which finds a column that is
//! missing, and one of them is run, which finds a database that may not be written to.

use std::time::Duration;

use postrider_core::SchemaError;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{Inner, home, lease, schema, statement::Statement};

/// What anyone who delivers does with each table; as `migrations/grants.sql` grants it.
const RIGHTS: [(&str, &[&str]); 7] = [
    ("meta", &["SELECT"]),
    ("event", &["SELECT", "UPDATE", "DELETE"]),
    ("done", &["SELECT", "INSERT", "DELETE"]),
    ("lane", &["SELECT", "UPDATE"]),
    ("member", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("hold", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("pause", &["SELECT", "INSERT", "DELETE"]),
];

/// Nobody is called so for longer than the transaction.
const INSTANCE: &str = "postrider-rehearsal";

/// Tries all of it. The inner error says what is missing.
pub(super) async fn rehearse(
    store: &Inner,
    conn: &mut PgConnection,
    migrate: bool,
) -> sqlx::Result<Result<(), SchemaError>> {
    let prefix = &store.shape.prefix;
    let ready = if migrate {
        schema::migrate(conn, prefix, store.lanes_wanted).await?.map(drop)
    } else {
        match home::find(conn, prefix).await? {
            Ok(None) => Err(home::missing(conn, prefix).await?),
            Ok(Some(_)) => home::enter(conn, prefix).await?,
            Err(refusal) => Err(refusal),
        }
    };
    if let Err(refusal) = ready {
        return Ok(Err(refusal));
    }
    if let Some(missing) = missing_right(store, conn).await? {
        return Ok(Err(missing));
    }
    for statement in statements(store) {
        // By a name of SQL's own: the driver's would outlive the transaction, also behind a pooler.
        let plan =
            format!("PREPARE postrider_rehearsal AS {}\n;DEALLOCATE postrider_rehearsal", statement.text());
        sqlx::raw_sql(AssertSqlSafe(plan)).execute(&mut *conn).await?;
    }
    lease::join(store, conn, INSTANCE, Duration::ZERO).await?;
    Ok(Ok(()))
}

/// The statements that run all the time.
fn statements(store: &Inner) -> [&Statement; 7] {
    let (claim, settle) = (store.claim.of(false), store.settle.of(false));
    [
        claim.look.of(true),
        claim.quick.of(true),
        &claim.read,
        &settle.delete,
        &settle.keep,
        &settle.delete_and_change,
        &settle.keep_and_change,
    ]
}

/// The first table that is missing, or the first right.
async fn missing_right(store: &Inner, conn: &mut PgConnection) -> sqlx::Result<Option<SchemaError>> {
    let name = |table: &str| format!("{}{table}", store.shape.prefix).to_ascii_lowercase();
    let rights =
        RIGHTS.iter().flat_map(|(table, rights)| rights.iter().map(move |right| (name(table), *right)));
    let (tables, rights): (Vec<String>, Vec<&str>) = rights.unzip();
    let missing = "SELECT r.name, r.what, c.oid IS NULL, quote_ident(current_user)
                   FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS r (name, what, place)
                   LEFT JOIN (pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = current_schema())
                     ON c.relname = r.name
                   WHERE c.oid IS NULL OR NOT has_table_privilege(c.oid, r.what) ORDER BY r.place LIMIT 1";
    let query = sqlx::query(missing).persistent(false).bind(tables).bind(rights);
    let Some(row) = query.fetch_optional(conn).await? else { return Ok(None) };
    let table: String = row.try_get(0)?;
    Ok(Some(match row.try_get(2)? {
        true => SchemaError::Missing { table },
        false => SchemaError::Right { table, right: row.try_get(1)?, role: row.try_get(3)? },
    }))
}
