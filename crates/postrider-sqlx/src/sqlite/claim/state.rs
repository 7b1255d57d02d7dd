//! What a claim asks first: whose the lane is, and which kinds of rows there can be anything of.

use postrider_core::{
    Timestamp,
    store::{Lease, Token},
    tx::Prefix,
};
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use super::super::statement::{Statement, natural};

/// The columns of [`State`]; `?1` is the lane, `?2` the time.
pub(super) const COLUMNS: &str = "
    l.epoch, l.nonce, EXISTS (SELECT 1 FROM {p}hold WHERE lane = ?1 AND reason = 'returning'),
    (SELECT min(available_at) FROM {p}event WHERE lane = ?1 AND status = 2 AND parked = 0),
    (SELECT min(available_at) FROM {p}event WHERE lane = ?1 AND status = 2 AND parked = 0 AND available_at > ?2)";

/// How many those are.
pub(super) const COUNT: usize = 5;

pub(super) fn statement(prefix: &Prefix) -> Statement {
    Statement::new(&format!("SELECT {COLUMNS} FROM {{p}}lane AS l WHERE l.lane = ?1"), prefix)
}

/// What there is in a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    token: Option<Token>,
    /// Whether parked events of some key come back.
    pub(super) returning: bool,
    /// When the first waiting event is or was due.
    first_due: Option<Timestamp>,
    /// When the next one is due that is not due yet.
    pub(super) next_due: Option<Timestamp>,
}

impl State {
    /// Reads the columns from the given one on.
    pub(super) fn decode(row: &SqliteRow, first: usize) -> sqlx::Result<Self> {
        let time =
            |column| row.try_get::<Option<i64>, _>(column).map(|time| time.map(Timestamp::from_micros));
        let epoch = natural(row.try_get(first)?);
        let nonce: Option<i64> = row.try_get(first + 1)?;
        Ok(Self {
            token: nonce.map(|nonce| Token { epoch, nonce: natural(nonce) }),
            returning: row.try_get(first + 2)?,
            first_due: time(first + 3)?,
            next_due: time(first + 4)?,
        })
    }

    /// The fence: whether the lane is still held by this token.
    pub(super) fn is_held(&self, lease: &Lease) -> bool {
        self.token == Some(lease.token)
    }

    /// Whether a waiting event is due.
    pub(super) fn waiting(&self, now: Timestamp) -> bool {
        self.first_due.is_some_and(|due| due <= now)
    }
}

pub(super) async fn state(
    sql: &Statement,
    conn: &mut SqliteConnection,
    lease: &Lease,
    now: Timestamp,
) -> sqlx::Result<Option<State>> {
    let row = sql.query().bind(lease.lane).bind(now.as_micros()).fetch_optional(conn).await?;
    row.map(|row| State::decode(&row, 0)).transpose()
}
