//! What an operator has told to wait.

use postrider_core::{
    Timestamp,
    store::{PAUSES_MAX, Pause, Paused, Subject},
    tx::Prefix,
};
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteRow};

use super::{
    Inner,
    statement::{Statement, integer},
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
        Self {
            pause: statement(
                "INSERT INTO {p}pause (kind, name, since, reason) SELECT ?1, ?2, ?3, ?4
                 WHERE (SELECT count(*) FROM {p}pause) < ?5 ON CONFLICT DO NOTHING",
            ),
            resume: statement("DELETE FROM {p}pause WHERE kind = ?1 AND name = ?2"),
            one: statement("SELECT kind, name, since, reason FROM {p}pause WHERE kind = ?1 AND name = ?2"),
            all: statement("SELECT kind, name, since, reason FROM {p}pause ORDER BY since, kind, name"),
        }
    }
}

/// Pauses a subject; none if there are too many pauses.
pub(super) async fn pause(
    Inner { pause: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
    subject: &Subject,
    reason: &str,
) -> sqlx::Result<Option<Paused>> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let insert = sql.pause.query().bind(subject.kind()).bind(subject.name().to_owned());
    let insert = insert.bind(Timestamp::now().as_micros()).bind(reason.to_owned()).bind(integer(PAUSES_MAX));
    let new = insert.execute(&mut *tx).await?.rows_affected() > 0;
    let pause = one(sql, &mut tx, subject).await?;
    tx.commit().await?;
    Ok(pause.map(|pause| Paused { pause, new }))
}

/// Takes a pause away.
pub(super) async fn resume(
    Inner { pause: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
    subject: &Subject,
) -> sqlx::Result<Option<Pause>> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let pause = one(sql, &mut tx, subject).await?;
    let delete = sql.resume.query().bind(subject.kind()).bind(subject.name().to_owned());
    delete.execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(pause)
}

/// All that is paused.
pub(super) async fn pauses(
    Inner { pause: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
) -> sqlx::Result<Vec<Pause>> {
    sql.all.query().fetch_all(conn).await?.iter().map(decode).collect()
}

async fn one(
    sql: &Statements,
    conn: &mut SqliteConnection,
    subject: &Subject,
) -> sqlx::Result<Option<Pause>> {
    let query = sql.one.query().bind(subject.kind()).bind(subject.name().to_owned());
    query.fetch_optional(conn).await?.as_ref().map(decode).transpose()
}

fn decode(row: &SqliteRow) -> sqlx::Result<Pause> {
    let subject = Subject::from_stored(row.try_get("kind")?, row.try_get("name")?);
    Ok(Pause {
        subject: subject.map_err(|error| sqlx::Error::Decode(error.into()))?,
        since: Timestamp::from_micros(row.try_get("since")?),
        reason: row.try_get("reason")?,
    })
}
