//! What an operator has told to wait.

use postrider_core::{
    store::{PAUSES_MAX, Pause, Paused, Subject},
    tx::Prefix,
};
use sqlx::{Connection, MySqlConnection, mysql::MySqlRow};

use super::{
    Inner,
    statement::{Statement, integer, micros, text, time},
};

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    pause: Statement,
    resume: Statement,
    one: Statement,
    all: Statement,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let statement = |template: &str| Statement::new(template, prefix);
        let columns = format!("kind, name, {} AS since, reason", micros("since"));
        Self {
            // Names and reasons were measured before, so that a duplicate is all there is to ignore.
            pause: statement(
                "INSERT IGNORE INTO {p}pause (kind, name, since, reason)
                 SELECT ?, ?, UTC_TIMESTAMP(6), ? FROM (SELECT COUNT(*) AS n FROM {p}pause) AS known WHERE known.n < ?",
            ),
            resume: statement("DELETE FROM {p}pause WHERE kind = ? AND name = ?"),
            one: statement(&format!(
                "SELECT {columns} FROM {{p}}pause WHERE kind = ? AND name = ? FOR UPDATE"
            )),
            all: statement(&format!("SELECT {columns} FROM {{p}}pause ORDER BY {{p}}pause.since, kind, name")),
        }
    }
}

/// Pauses a subject; none if there are too many pauses.
pub(super) async fn pause(
    Inner { pause: sql, .. }: &Inner,
    conn: &mut MySqlConnection,
    subject: &Subject,
    reason: &str,
) -> sqlx::Result<Option<Paused>> {
    let mut tx = conn.begin().await?;
    let insert = sql.pause.query().bind(subject.kind()).bind(subject.name().to_owned());
    let insert = insert.bind(reason.to_owned()).bind(integer(PAUSES_MAX));
    let new = insert.execute(&mut *tx).await?.rows_affected() > 0;
    let pause = one(sql, &mut tx, subject).await?;
    tx.commit().await?;
    Ok(pause.map(|pause| Paused { pause, new }))
}

/// Takes a pause away.
pub(super) async fn resume(
    Inner { pause: sql, .. }: &Inner,
    conn: &mut MySqlConnection,
    subject: &Subject,
) -> sqlx::Result<Option<Pause>> {
    let mut tx = conn.begin().await?;
    let pause = one(sql, &mut tx, subject).await?;
    let delete = sql.resume.query().bind(subject.kind()).bind(subject.name().to_owned());
    delete.execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(pause)
}

/// All that is paused.
pub(super) async fn pauses(
    Inner { pause: sql, .. }: &Inner,
    conn: &mut MySqlConnection,
) -> sqlx::Result<Vec<Pause>> {
    sql.all.query().fetch_all(conn).await?.iter().map(decode).collect()
}

async fn one(sql: &Statements, conn: &mut MySqlConnection, subject: &Subject) -> sqlx::Result<Option<Pause>> {
    let query = sql.one.query().bind(subject.kind()).bind(subject.name().to_owned());
    query.fetch_optional(conn).await?.as_ref().map(decode).transpose()
}

fn decode(row: &MySqlRow) -> sqlx::Result<Pause> {
    let kind = text(row, "kind")?.unwrap_or_default();
    let subject = Subject::from_stored(&kind, text(row, "name")?.unwrap_or_default());
    Ok(Pause {
        subject: subject.map_err(|error| sqlx::Error::Decode(error.into()))?,
        since: time(row, "since")?,
        reason: text(row, "reason")?.unwrap_or_default(),
    })
}
