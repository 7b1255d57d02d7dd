//! What an operator has told to wait.

use postrider_core::store::{PAUSES_MAX, Pause, Paused, Subject};
use sqlx::{PgConnection, Row, postgres::PgRow};

use super::{
    Inner,
    statement::{Shape, Statement, integer, time},
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
    pub(super) fn new(shape: &Shape) -> Self {
        let statement = |template: &str| Statement::new(template, shape);
        Self {
            pause: statement(
                "INSERT INTO {p}pause (kind, name, since, reason) SELECT $1, $2, clock_timestamp(), $3
                 WHERE (SELECT count(*) FROM {p}pause) < $4 ON CONFLICT DO NOTHING",
            ),
            resume: statement(
                "DELETE FROM {p}pause WHERE kind = $1 AND name = $2 RETURNING kind, name, since, reason",
            ),
            one: statement("SELECT kind, name, since, reason FROM {p}pause WHERE kind = $1 AND name = $2"),
            all: statement("SELECT kind, name, since, reason FROM {p}pause ORDER BY since, kind, name"),
        }
    }
}

/// Pauses a subject; none if there are too many pauses. Two statements: of two who pause at once, the second sees what the first has written
/// only in a snapshot that is taken after it has waited.
pub(super) async fn pause(
    Inner { pause: sql, .. }: &Inner,
    conn: &mut PgConnection,
    subject: &Subject,
    reason: &str,
) -> sqlx::Result<Option<Paused>> {
    let insert = sql.pause.query().bind(subject.kind()).bind(subject.name().to_owned());
    let insert = insert.bind(reason.to_owned()).bind(integer(PAUSES_MAX));
    let new = insert.execute(&mut *conn).await?.rows_affected() > 0;
    let one = sql.one.query().bind(subject.kind()).bind(subject.name().to_owned());
    let pause = one.fetch_optional(conn).await?.as_ref().map(decode).transpose()?;
    Ok(pause.map(|pause| Paused { pause, new }))
}

/// Takes a pause away.
pub(super) async fn resume(
    Inner { pause: sql, .. }: &Inner,
    conn: &mut PgConnection,
    subject: &Subject,
) -> sqlx::Result<Option<Pause>> {
    let delete = sql.resume.query().bind(subject.kind()).bind(subject.name().to_owned());
    delete.fetch_optional(conn).await?.as_ref().map(decode).transpose()
}

/// All that is paused.
pub(super) async fn pauses(
    Inner { pause: sql, .. }: &Inner,
    conn: &mut PgConnection,
) -> sqlx::Result<Vec<Pause>> {
    sql.all.query().fetch_all(conn).await?.iter().map(decode).collect()
}

fn decode(row: &PgRow) -> sqlx::Result<Pause> {
    let subject = Subject::from_stored(row.try_get("kind")?, row.try_get("name")?);
    Ok(Pause {
        subject: subject.map_err(|error| sqlx::Error::Decode(error.into()))?,
        since: time(row, "since")?,
        reason: row.try_get("reason")?,
    })
}
