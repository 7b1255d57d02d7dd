//! Rows as a claim looks at them: what decides about them, and not their payloads.
//!
//! A page of rows comes as one JSON text. Through sqlx every column of every row is a copy of its own and every row a message between
//! two threads; a claim may walk over thousands of rows that it does not return.

use postrider_core::{
    Timestamp,
    event::limits,
    store::{Glance, Lane, Seq},
    tx::Prefix,
};
use sqlx::{Row, Sqlite, SqliteConnection, query::Query, sqlite::SqliteArguments};

use super::super::{
    row::{HELD_BY, HeldBy},
    statement::{Statement, integer, json, natural},
};

/// Most keys that come back in one claim, and most events of each.
pub(super) const RETURNING_KEYS_MAX: usize = 256;
pub(super) const RETURNING_OF_A_KEY_MAX: usize = 16;

/// The statements of this file.
#[derive(Debug)]
pub(in super::super) struct Statements {
    pub(in super::super) again: Statement,
    pub(in super::super) fresh: Statement,
    pub(in super::super) tied: Statement,
    pub(in super::super) waiting: Statement,
    pub(in super::super) returning: Statement,
}

/// What a row of `e` weighs, and where it would go. Names longer than any event has are cut: a table can be written to by anybody.
fn seen() -> String {
    let (event_type, aggregate_type, id, key) = (
        limits::EVENT_TYPE_CHARS_MAX,
        limits::AGGREGATE_TYPE_CHARS_MAX,
        limits::AGGREGATE_ID_CHARS_MAX,
        limits::KEY_CHARS_MAX,
    );
    format!(
        "coalesce(octet_length(e.payload), octet_length(e.payload_bytes)), octet_length(e.headers),
         substr(e.event_type, 1, {event_type} + 1), substr(e.aggregate_type, 1, {aggregate_type} + 1),
         substr(e.aggregate_id, 1, {id} + 1), substr(e.ordering_key, 1, {key} + 1)"
    )
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        // The rows are found first, by the index alone: what is carried through a LIMIT is copied once more.
        let seen = seen();
        let page = |page: &str, condition: &str| {
            let sql = format!(
                "SELECT json_group_array(json_array(
                     e.seq, e.status, iif(e.status = 0 AND e.available_at <= e.created_at, NULL, e.available_at),
                     {HELD_BY}, {seen}))
                 FROM ({page}) AS page CROSS JOIN {{p}}event AS e ON e.seq = page.seq {condition}"
            );
            Statement::new(&sql, prefix)
        };
        Self {
            again: page(
                "SELECT value AS seq FROM json_each(?2)",
                "WHERE +e.lane = ?1 AND e.parked = 0 AND e.status IN (0, 2)",
            ),
            fresh: page(
                "SELECT seq FROM {p}event WHERE lane = ?1 AND parked = 0 AND status = 0 AND seq > ?2 AND seq <= ?3
                 ORDER BY seq LIMIT ?4",
                "",
            ),
            // Two statements for what is (available_at, seq) > (?, ?): SQLite would find the time by the index and walk
            // over every event of that time that was read before, and a batch that failed together is due together.
            tied: page(
                "SELECT seq FROM {p}event WHERE lane = ?1 AND parked = 0 AND status = 2 AND available_at = ?2 AND seq > ?3
                 ORDER BY seq LIMIT ?4",
                "",
            ),
            waiting: page(
                "SELECT seq FROM {p}event
                 WHERE lane = ?1 AND parked = 0 AND status = 2 AND available_at > ?2 AND available_at <= ?3
                 ORDER BY available_at, seq LIMIT ?4",
                "",
            ),
            // SQLite has no LATERAL; the IN with a LIMIT inside, once for each key, is what stands in for it. One more
            // than is wanted of each, to know whether there is more.
            returning: Statement::new(
                &format!(
                    "SELECT json_group_array(json_array(freed_key.seq, freed_key.id, e.seq, {seen}))
                     FROM (SELECT rowid AS id, lane, effective_key, seq FROM {{p}}hold
                           WHERE lane = ?1 AND reason = 'returning'
                           ORDER BY seq LIMIT {RETURNING_KEYS_MAX} + 1) AS freed_key
                     LEFT JOIN {{p}}event AS e ON e.seq IN (
                         SELECT p.seq FROM {{p}}event AS p
                         WHERE p.lane = freed_key.lane AND p.effective_key = freed_key.effective_key AND p.parked = 1
                         ORDER BY p.seq LIMIT {RETURNING_OF_A_KEY_MAX} + 1)"
                ),
                prefix,
            ),
        }
    }

    /// All of these that can still be delivered.
    pub(super) async fn again(
        &self,
        conn: &mut SqliteConnection,
        lane: Lane,
        seqs: &[Seq],
    ) -> sqlx::Result<Vec<Glanced>> {
        page(conn, self.again.query().bind(lane).bind(json(seqs)?)).await
    }

    /// The next fresh rows.
    pub(super) async fn fresh(
        &self,
        conn: &mut SqliteConnection,
        lane: Lane,
        (after, to): (Seq, Seq),
        rows: usize,
    ) -> sqlx::Result<Vec<Glanced>> {
        let query = self.fresh.query().bind(lane).bind(integer(after)).bind(integer(to));
        page(conn, query.bind(integer(rows))).await
    }

    /// The next rows that wait for exactly this time.
    pub(super) async fn tied(
        &self,
        conn: &mut SqliteConnection,
        lane: Lane,
        (at, after): (i64, Seq),
        rows: usize,
    ) -> sqlx::Result<Vec<Glanced>> {
        page(conn, self.tied.query().bind(lane).bind(at).bind(integer(after)).bind(integer(rows))).await
    }

    /// The next rows that wait for a time after this one and are due.
    pub(super) async fn waiting(
        &self,
        conn: &mut SqliteConnection,
        lane: Lane,
        (after, now): (i64, Timestamp),
        rows: usize,
    ) -> sqlx::Result<Vec<Glanced>> {
        let query = self.waiting.query().bind(lane).bind(after).bind(now.as_micros());
        let mut page = page(conn, query.bind(integer(rows))).await?;
        page.sort_by_key(|row| (row.due, row.seq));
        Ok(page)
    }

    /// Parked rows of keys that are free again, by their holds.
    pub(super) async fn returning(
        &self,
        conn: &mut SqliteConnection,
        lane: Lane,
    ) -> sqlx::Result<Vec<Returned>> {
        type Fields = (i64, i64, Option<i64>, Option<i64>, Option<i64>, Text, Text, Text, Text);
        let mut page: Vec<Fields> = rows(conn, self.returning.query().bind(lane)).await?;
        page.sort_by_key(|(head, id, seq, ..)| (*head, *id, *seq));
        let of =
            |(head, hold, seq, payload, headers, event_type, aggregate_type, aggregate_id, key): Fields| {
                let (event_type, aggregate_type) =
                    (event_type.unwrap_or_default(), aggregate_type.unwrap_or_default());
                let glanced = |seq| Glanced {
                    seq: natural(seq),
                    is_new: false,
                    due: None,
                    held_by: None,
                    bytes: weight(payload.unwrap_or(0), headers.unwrap_or(0)),
                    key: effective_key(key, &aggregate_type, aggregate_id),
                    event_type,
                    aggregate_type,
                };
                Returned { head: natural(head), hold, row: seq.map(glanced) }
            };
        Ok(page.into_iter().map(of).collect())
    }
}

type Text = Option<String>;

/// The key as the database computes it.
fn effective_key(key: Text, aggregate_type: &str, aggregate_id: Text) -> Text {
    key.or_else(|| aggregate_id.map(|id| format!("{aggregate_type}:{id}")))
}

/// A row without its payload.
#[derive(Debug)]
pub(super) struct Glanced {
    pub(super) seq: Seq,
    pub(super) is_new: bool,
    /// When it is due; none if it was written to be delivered at once.
    pub(super) due: Option<Timestamp>,
    pub(super) held_by: Option<HeldBy>,
    pub(super) bytes: usize,
    event_type: String,
    aggregate_type: String,
    key: Text,
}

impl Glanced {
    /// What an admission is asked about.
    pub(super) fn glance(&self, lane: Lane) -> Glance<'_> {
        Glance {
            lane,
            seq: self.seq,
            event_type: &self.event_type,
            aggregate_type: &self.aggregate_type,
            key: self.key.as_deref(),
            due_at: self.due.filter(|_| !self.is_new),
        }
    }
}

/// A parked row of a key that comes back; none if nothing is left behind the hold.
#[derive(Debug)]
pub(super) struct Returned {
    /// The event that the key waited for.
    pub(super) head: Seq,
    /// The row id of the hold.
    pub(super) hold: i64,
    pub(super) row: Option<Glanced>,
}

async fn page(
    conn: &mut SqliteConnection,
    query: Query<'static, Sqlite, SqliteArguments>,
) -> sqlx::Result<Vec<Glanced>> {
    type Fields = (i64, u8, Option<i64>, Option<i64>, Option<i64>, Option<i64>, String, String, Text, Text);
    let of = |(
        seq,
        status,
        due,
        held_by,
        payload,
        headers,
        event_type,
        aggregate_type,
        aggregate_id,
        key,
    ): Fields| Glanced {
        seq: natural(seq),
        is_new: status == 0,
        due: due.map(Timestamp::from_micros),
        held_by: held_by.map(HeldBy::new),
        bytes: weight(payload.unwrap_or(0), headers.unwrap_or(0)),
        key: effective_key(key, &aggregate_type, aggregate_id),
        event_type,
        aggregate_type,
    };
    let mut page: Vec<Glanced> = rows::<Fields>(conn, query).await?.into_iter().map(of).collect();
    // An aggregate promises no order.
    page.sort_by_key(|row| row.seq);
    Ok(page)
}

async fn rows<T: serde::de::DeserializeOwned>(
    conn: &mut SqliteConnection,
    query: Query<'static, Sqlite, SqliteArguments>,
) -> sqlx::Result<Vec<T>> {
    let row = query.fetch_one(conn).await?;
    // A name may be no UTF-8; that is for the decoder to complain about.
    let text = String::from_utf8_lossy(row.try_get_unchecked(0)?);
    serde_json::from_str(&text).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// What a row weighs in the claim, as [`Event::weight_bytes`](postrider_core::Event::weight_bytes) counts; little if its
/// payload is too large to be read.
pub(super) fn weight(payload: i64, headers: i64) -> usize {
    let (payload, headers): (usize, usize) = (natural(payload), natural(headers));
    let payload = if payload > limits::PAYLOAD_BYTES_MAX { 0 } else { payload };
    payload + headers + limits::EVENT_FLAT_BYTES
}
