//! Whether the rights to the table suffice, found out before anything is delivered.

use postrider_core::{Error, Result, SchemaError, StoreErrorKind};

use super::{
    Field,
    db::{Db, Use},
    shape::Shape,
};

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
