//! What an operator has told to wait, in a table of ours beside the foreign one.

use postrider_core::{
    Timestamp,
    store::{PAUSES_MAX, Pause, Paused, Subject},
};

use super::{
    db::{Cells, Tx},
    shape::Shape,
    sql::{Kind, Sql},
};

/// The SQL of the table. Names compare as bytes: of two keys that differ by a blank at the end, one can be paused.
pub(super) fn table(kind: Kind, table: &str) -> String {
    let (text, name, time) = kind.pick(
        ("varchar(255)", "varchar(255) COLLATE \"C\"", "timestamptz"),
        ("varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "varbinary(1020)", "datetime(6)"),
    );
    format!(
        "CREATE TABLE IF NOT EXISTS {table} (source {text} NOT NULL, kind varchar(16) NOT NULL, name {name} NOT NULL, \
         since {time} NOT NULL, reason text NOT NULL, PRIMARY KEY (source, kind, name))"
    )
}

/// Pauses a subject; none if there are too many pauses.
pub(super) async fn pause(
    shape: &Shape,
    tx: &mut Tx,
    subject: &Subject,
    reason: &str,
) -> sqlx::Result<Option<Paused>> {
    let table = shape.ours("pause");
    let ignore = shape.kind.pick(("", " ON CONFLICT DO NOTHING"), (" IGNORE", ""));
    let mut sql =
        shape.sql(format!("INSERT{} INTO {table} (source, kind, name, reason, since) SELECT ", ignore.0));
    sql.bind(shape.source(), "text").push(", ").bind(subject.kind(), "text").push(", ");
    sql.bind(subject.name(), "text").push(", ").bind(reason, "text");
    sql.push(&format!(", {} FROM (SELECT COUNT(*) AS n FROM {table} WHERE source = ", shape.kind.now()));
    sql.bind(shape.source(), "text");
    sql.push(&format!(") AS known WHERE known.n < {PAUSES_MAX}{}", ignore.1));
    let new = tx.execute(sql).await? > 0;
    Ok(one(shape, tx, subject).await?.map(|pause| Paused { pause, new }))
}

/// Takes a pause away.
pub(super) async fn resume(shape: &Shape, tx: &mut Tx, subject: &Subject) -> sqlx::Result<Option<Pause>> {
    let pause = one(shape, tx, subject).await?;
    let mut sql = shape.sql(format!("DELETE FROM {} WHERE ", shape.ours("pause")));
    of(shape, &mut sql, subject);
    tx.execute(sql).await?;
    Ok(pause)
}

/// All that is paused.
pub(super) async fn pauses(shape: &Shape, tx: &mut Tx) -> sqlx::Result<Vec<Pause>> {
    let mut sql = select(shape);
    sql.bind(shape.source(), "text").push(" ORDER BY since, kind, name");
    tx.fetch(sql).await?.iter().map(decode).collect()
}

async fn one(shape: &Shape, tx: &mut Tx, subject: &Subject) -> sqlx::Result<Option<Pause>> {
    let mut sql = select(shape);
    sql.bind(shape.source(), "text").push(" AND ");
    of(shape, &mut sql, subject);
    tx.fetch(sql).await?.first().map(decode).transpose()
}

fn select(shape: &Shape) -> Sql {
    let since = shape.kind.micros("since");
    shape.sql(format!("SELECT kind, name, {since}, reason FROM {} WHERE source = ", shape.ours("pause")))
}

fn of(shape: &Shape, sql: &mut Sql, subject: &Subject) {
    sql.push("source = ").bind(shape.source(), "text");
    sql.push(" AND kind = ").bind(subject.kind(), "text");
    sql.push(" AND name = ").bind(subject.name(), "text");
}

fn decode(row: &Cells) -> sqlx::Result<Pause> {
    let text = |column| row.text(column).unwrap_or_default();
    let subject = Subject::from_stored(&text(0), text(1));
    Ok(Pause {
        subject: subject.map_err(|error| sqlx::Error::Decode(error.into()))?,
        since: Timestamp::from_micros(row.number(2).unwrap_or_default()),
        reason: text(3),
    })
}
