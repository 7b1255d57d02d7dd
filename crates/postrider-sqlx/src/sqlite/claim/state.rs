//! What a claim asks first: whose the lane is, and which kinds of rows there can be anything of.

use postrider_core::{
    Timestamp,
    store::{Lease, Token},
    tx::Prefix,
};
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use super::super::statement::{Statement, natural};

/// The column of [`State`], a JSON array; `?1` is the lane, `?2` the time.
pub(super) const COLUMN: &str = "json_array(
    l.epoch, l.nonce, EXISTS (SELECT 1 FROM {p}hold WHERE lane = ?1 AND reason = 'returning'),
    (SELECT min(available_at) FROM {p}event WHERE lane = ?1 AND status = 2 AND parked = 0),
    (SELECT min(available_at) FROM {p}event WHERE lane = ?1 AND status = 2 AND parked = 0 AND available_at > ?2))";

pub(super) fn statement(prefix: &Prefix) -> Statement {
    Statement::new(&format!("SELECT {COLUMN} FROM {{p}}lane AS l WHERE l.lane = ?1"), prefix)
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
    pub(super) fn decode(row: &SqliteRow) -> sqlx::Result<Self> {
        type Fields = (i64, Option<i64>, u8, Option<i64>, Option<i64>);
        let fields = serde_json::from_str(row.try_get(0)?);
        let (epoch, nonce, returning, first_due, next_due): Fields =
            fields.map_err(|error| sqlx::Error::Decode(error.into()))?;
        Ok(Self {
            token: nonce.map(|nonce| Token { epoch: natural(epoch), nonce: natural(nonce) }),
            returning: returning == 1,
            first_due: first_due.map(Timestamp::from_micros),
            next_due: next_due.map(Timestamp::from_micros),
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
    row.map(|row| State::decode(&row)).transpose()
}
