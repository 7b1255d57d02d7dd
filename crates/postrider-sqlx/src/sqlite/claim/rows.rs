//! Rows as a claim reads them: what decides about them, and not their payloads.
//!
//! A page of rows comes as one JSON text. Through sqlx every column of every row is a copy of its own and every row a message between
//! two threads; a claim may read thousands of rows that it does not return.

use postrider_core::{
    Timestamp,
    event::limits,
    select::{self, Facts, FreedKey, RETURNING_KEYS_MAX, RETURNING_OF_A_KEY_MAX},
    store::{Lane, RowSummary, Seq},
    tx::Prefix,
};
use sqlx::{Row, Sqlite, SqliteConnection, query::Query, sqlite::SqliteArguments};

use super::super::{
    row::{HELD_BY, hold_of},
    statement::{Statement, integer, json, natural},
};

/// The statements of this file.
#[derive(Debug)]
pub(in super::super) struct Statements {
    pub(in super::super) recheck: Statement,
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
            recheck: page(
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
    pub(super) async fn recheck(
        &self,
        conn: &mut SqliteConnection,
        lane: Lane,
        seqs: &[Seq],
    ) -> sqlx::Result<Vec<Summary>> {
        page(conn, lane, self.recheck.query().bind(lane).bind(json(seqs)?)).await
    }

    /// The next fresh rows.
    pub(super) async fn fresh(
        &self,
        conn: &mut SqliteConnection,
        lane: Lane,
        (after, to): (Seq, Seq),
        rows: usize,
    ) -> sqlx::Result<Vec<Summary>> {
        let query = self.fresh.query().bind(lane).bind(integer(after)).bind(integer(to));
        page(conn, lane, query.bind(integer(rows))).await
    }

    /// The next rows that wait for exactly this time.
    pub(super) async fn tied(
        &self,
        conn: &mut SqliteConnection,
        lane: Lane,
        (at, after): (i64, Seq),
        rows: usize,
    ) -> sqlx::Result<Vec<Summary>> {
        page(conn, lane, self.tied.query().bind(lane).bind(at).bind(integer(after)).bind(integer(rows))).await
    }

    /// The next rows that wait for a time after this one and are due.
    pub(super) async fn waiting(
        &self,
        conn: &mut SqliteConnection,
        lane: Lane,
        (after, now): (i64, Timestamp),
        rows: usize,
    ) -> sqlx::Result<Vec<Summary>> {
        let query = self.waiting.query().bind(lane).bind(after).bind(now.as_micros());
        let mut page = page(conn, lane, query.bind(integer(rows))).await?;
        page.sort_by_key(|row| (row.facts.due_at, row.facts.seq));
        Ok(page)
    }

    /// Keys that are free again with their parked rows; a key is named by the row id of its hold.
    pub(super) async fn returning(
        &self,
        conn: &mut SqliteConnection,
        lane: Lane,
    ) -> sqlx::Result<Vec<FreedKey<Summary, i64>>> {
        type Fields = (i64, i64, Option<i64>, Option<i64>, Option<i64>, Text, Text, Text, Text);
        let mut page: Vec<Fields> = rows(conn, self.returning.query().bind(lane)).await?;
        page.sort_by_key(|(head, id, seq, ..)| (*head, *id, *seq));
        let mut freed: Vec<FreedKey<Summary, i64>> = Vec::new();
        for (head, hold, seq, payload, headers, event_type, aggregate_type, aggregate_id, key) in page {
            if freed.last().is_none_or(|freed| freed.key != hold) {
                freed.push(FreedKey { lane, head: natural(head), key: hold, parked: Vec::new() });
            }
            let (Some(seq), Some(freed)) = (seq, freed.last_mut()) else { continue };
            let aggregate_type = aggregate_type.unwrap_or_default();
            let facts = Facts {
                lane,
                seq: natural(seq),
                is_fresh: false,
                due_at: None,
                hold: Some(hold_of(-head)),
                bytes: weight(payload.unwrap_or(0), headers.unwrap_or(0)),
                is_for_another_claim: false,
            };
            freed.parked.push(Summary {
                facts,
                key: effective_key(key, &aggregate_type, aggregate_id),
                event_type: event_type.unwrap_or_default(),
                aggregate_type,
            });
        }
        Ok(freed)
    }
}

type Text = Option<String>;

/// The key as the database computes it.
fn effective_key(key: Text, aggregate_type: &str, aggregate_id: Text) -> Text {
    key.or_else(|| aggregate_id.map(|id| format!("{aggregate_type}:{id}")))
}

/// A row without its payload.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) facts: Facts,
    event_type: String,
    aggregate_type: String,
    key: Text,
}

impl select::Row for Summary {
    fn facts(&self) -> Facts {
        self.facts
    }

    fn summary(&self) -> RowSummary<'_> {
        RowSummary {
            lane: self.facts.lane,
            seq: self.facts.seq,
            event_type: &self.event_type,
            aggregate_type: &self.aggregate_type,
            key: self.key.as_deref(),
            due_at: self.facts.due_at.filter(|_| !self.facts.is_fresh),
        }
    }
}

async fn page(
    conn: &mut SqliteConnection,
    lane: Lane,
    query: Query<'static, Sqlite, SqliteArguments>,
) -> sqlx::Result<Vec<Summary>> {
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
    ): Fields| Summary {
        facts: Facts {
            lane,
            seq: natural(seq),
            is_fresh: status == 0,
            due_at: due.map(Timestamp::from_micros),
            hold: held_by.map(hold_of),
            bytes: weight(payload.unwrap_or(0), headers.unwrap_or(0)),
            is_for_another_claim: false,
        },
        key: effective_key(key, &aggregate_type, aggregate_id),
        event_type,
        aggregate_type,
    };
    let mut page: Vec<Summary> = rows::<Fields>(conn, query).await?.into_iter().map(of).collect();
    // An aggregate promises no order.
    page.sort_by_key(|row| row.facts.seq);
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
