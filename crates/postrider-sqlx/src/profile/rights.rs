//! Whether the rights to the table suffice, found out before anything is delivered.

use postrider_core::{Error, Result, SchemaError, StoreErrorKind};

use super::{
    Field,
    db::{Db, Tx, Use},
    lane,
    shape::Shape,
    sql::{Kind, Sql},
};

/// Why nothing can be read from this database. PostgreSQL hands texts of every encoding over as UTF-8, but for those of none.
pub(super) async fn unreadable(kind: Kind, tx: &mut Tx) -> sqlx::Result<Option<SchemaError>> {
    if kind.is_mysql() {
        return Ok(None);
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
    if shape.profile.statuses.is_none() {
        tries.push(("DELETE", format!("DELETE FROM {table} WHERE 1 = 0")));
    }
    for (right, sql) in tries {
        let tried = async {
            let mut tx = db.begin(Use::Operating).await?;
            tx.execute(shape.sql(sql)).await?;
            tx.commit().await
        };
        if let Err(error) = tried.await {
            let table = shape.profile.table.to_string();
            return Err(match db.error(error, format!("cannot look at the table {table} in {place}")) {
                Error::Store(error) if error.kind() == StoreErrorKind::Denied => {
                    SchemaError::ForeignRight { table, right }.into()
                }
                error => error,
            });
        }
    }
    Ok(())
}

/// What whoever delivers does with each of our own tables, on no row.
const OURS: [(&str, &str, &str); 7] = [
    ("lane", "SELECT", "SELECT source FROM {table} WHERE 1 = 0"),
    ("lane", "INSERT", "INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0"),
    ("lane", "UPDATE", "UPDATE {table} SET clean = 0 WHERE 1 = 0"),
    ("dead", "SELECT", "SELECT source FROM {table} WHERE 1 = 0"),
    ("dead", "INSERT", "INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0"),
    ("dead", "DELETE", "DELETE FROM {table} WHERE 1 = 0"),
    ("pause", "SELECT", "SELECT source FROM {table} WHERE 1 = 0"),
];

/// Tries the same with our own tables, in a transaction that is rolled back, and makes those that are missing if they are to be made and that
/// can be taken back.
pub(super) async fn rehearse(db: &Db, place: &str, shape: &Shape, migrate: bool) -> Result<()> {
    let what = || format!("cannot do what delivering does in {place}");
    let mut tx = db.begin(Use::Operating).await.map_err(|error| db.error(error, what()))?;
    if migrate && !shape.kind.is_mysql() {
        lane::migrate(shape, &mut tx).await.map_err(|error| db.error(error, what()))?;
    }
    for (name, right, sql) in OURS {
        if migrate && shape.kind.is_mysql() && !lane::exists(shape, &mut tx, name).await.unwrap_or(true) {
            continue;
        }
        let table = shape.ours(name);
        if let Err(error) = tx.execute(shape.sql(sql.replace("{table}", &table))).await {
            return Err(match db.error(error, what()) {
                Error::Store(error) if error.kind() == StoreErrorKind::Denied => {
                    let role = role(db, shape).await;
                    SchemaError::Right { table, right: right.to_owned(), role }.into()
                }
                error => error,
            });
        }
    }
    tx.rollback().await.map_err(|error| db.error(error, what()))
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
