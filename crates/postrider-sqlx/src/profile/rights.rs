//! Whether the rights to the table suffice, found out before anything is delivered.

use postrider_core::{Result, SchemaError};

use super::{
    Field,
    db::{Db, Tx, Use},
    lane,
    shape::Shape,
    sql::{Kind, Sql},
};
use crate::connections::opening;

/// Why nothing can be delivered from this database. PostgreSQL hands texts of every encoding over as UTF-8, but for those of none.
pub(super) async fn unusable(kind: Kind, tx: &mut Tx) -> sqlx::Result<Option<SchemaError>> {
    #[cfg(feature = "mysql")]
    if kind.is_mysql() {
        use crate::mysql::row_log;
        let found = tx.fetch(Sql::new(kind, row_log::ASK)).await?;
        return Ok(row_log::refusal(found.iter().map(|row| (row.text(0), row.text(1)))));
    }
    let found = tx.fetch(Sql::new(kind, "SELECT current_setting('server_encoding')")).await?;
    let found = found.first().and_then(|row| row.text(0)).filter(|found| found == "SQL_ASCII");
    let needed = "a real one: with SQL_ASCII nobody knows which texts the bytes stand for; dump the database and restore it into one made with \
                  `CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0`";
    Ok(found.map(|found| SchemaError::Setting { setting: "server_encoding", found, needed }))
}

/// Tries, on no row, what delivery does with the table. A right that is missing is named.
pub(super) async fn check(db: &Db, place: &str, shape: &Shape) -> Result<()> {
    let (table, id) = (shape.table(), shape.column(Field::Id));
    let mut tries = vec![
        ("SELECT", format!("SELECT {} FROM {table} WHERE 1 = 0", shape.text(Field::Id))),
        // Rows are locked while they are claimed, which takes this right too.
        ("UPDATE", format!("UPDATE {table} SET {id} = {id} WHERE 1 = 0")),
    ];
    if shape.profile.deletes() {
        tries.push(("DELETE", format!("DELETE FROM {table} WHERE 1 = 0")));
    }
    for (right, sql) in tries {
        let tried = async {
            let mut tx = db.begin(Use::Operating).await?;
            tx.execute(shape.sql(sql)).await?;
            tx.commit().await
        };
        if let Err(error) = opening(tried).await {
            let table = shape.profile.table.to_string();
            return Err(match db.is_denied(&error) {
                true => SchemaError::ForeignRight { table, right }.into(),
                false => db.error(error, format!("cannot look at the table {table} in {place}")),
            });
        }
    }
    Ok(())
}

/// What anyone who delivers does with each of our own tables, on no row.
const OURS: [(&str, &str, &str); 9] = [
    ("lane", "SELECT", "SELECT source FROM {table} WHERE 1 = 0"),
    ("lane", "INSERT", "INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0"),
    ("lane", "UPDATE", "UPDATE {table} SET clean = 0 WHERE 1 = 0"),
    ("dead", "SELECT", "SELECT source FROM {table} WHERE 1 = 0"),
    ("dead", "INSERT", "INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0"),
    ("dead", "DELETE", "DELETE FROM {table} WHERE 1 = 0"),
    ("pause", "SELECT", "SELECT source FROM {table} WHERE 1 = 0"),
    ("pause", "INSERT", "INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0"),
    ("pause", "DELETE", "DELETE FROM {table} WHERE 1 = 0"),
];

/// Tries the same with our own tables, in a transaction that is rolled back, and makes those that are missing if they are to be made and that
/// can be taken back.
pub(super) async fn rehearse(db: &Db, place: &str, shape: &Shape, migrate: bool) -> Result<()> {
    let missing = opening(missing_right(db, shape, migrate)).await;
    let missing =
        missing.map_err(|error| db.error(error, format!("cannot do what delivering does in {place}")))?;
    match missing {
        None => Ok(()),
        Some((table, right)) => {
            let role = role(db, shape).await;
            Err(SchemaError::Right { table, right: right.to_owned(), role }.into())
        }
    }
}

/// The first right to a table of ours that is missing.
async fn missing_right(
    db: &Db,
    shape: &Shape,
    migrate: bool,
) -> sqlx::Result<Option<(String, &'static str)>> {
    let mut tx = db.begin(Use::Operating).await?;
    let mut tries: Vec<_> =
        OURS.iter().map(|(name, right, sql)| (*name, *right, (*sql).to_owned())).collect();
    // MySQL cannot take a new table back. It looks at rights before it looks for the table, so that they can be tried without it.
    let absent_is_fine = migrate && shape.kind.is_mysql();
    if absent_is_fine {
        for name in lane::OURS {
            if !lane::exists(shape, &mut tx, name).await? {
                if let Some(schema) = &shape.profile.beside.schema {
                    tx.execute(shape.sql(format!("SHOW TABLES FROM {}", shape.kind.quoted(schema)))).await?;
                }
                let like = shape.ours("rehearsal_of_nothing");
                tries.insert(0, (name, "CREATE", format!("CREATE TABLE {{table}} LIKE {like}")));
            }
        }
    } else if migrate {
        lane::migrate(shape, &mut tx).await?;
    }
    for (name, right, sql) in tries {
        let table = shape.ours(name);
        match tx.execute(shape.sql(sql.replace("{table}", &table))).await {
            Err(error) if db.is_denied(&error) => return Ok(Some((table, right))),
            Err(error) if !(absent_is_fine && db.is_missing_table(&error)) => return Err(error),
            _ => {}
        }
    }
    tx.rollback().await?;
    Ok(None)
}

/// Who connects, as SQL names them. A transaction that met an error answers no more, so another one is asked.
async fn role(db: &Db, shape: &Shape) -> String {
    let name = user(db, shape).await.ok().flatten();
    name.map_or_else(|| "the role that connects".to_owned(), |name| shape.kind.role(&name))
}

async fn user(db: &Db, shape: &Shape) -> sqlx::Result<Option<String>> {
    let mut tx = db.begin(Use::Operating).await?;
    let ask = shape.kind.pick("SELECT current_user::text", "SELECT CURRENT_USER()");
    let rows = tx.fetch(shape.sql(ask)).await?;
    tx.rollback().await?;
    Ok(rows.first().and_then(|row| row.text(0)))
}
