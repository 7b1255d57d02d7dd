//! Looking at what could be claimed, without reading any payload.

use std::collections::HashSet;

use futures_util::TryStreamExt;
use postrider_core::{
    Timestamp,
    event::limits,
    store::{Lane, Position, Seq},
    tx::Prefix,
};
use sqlx::{
    Row, Sqlite, SqliteConnection,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{
    super::statement::{Statement, integer, json, natural},
    choose::Candidate,
};

/// Most keys that come back in one claim, and most events of each.
const RETURNING_KEYS_MAX: usize = 256;
const RETURNING_OF_A_KEY_MAX: usize = 16;

/// The statements of this file.
#[derive(Debug)]
pub(in super::super) struct Statements {
    pub(in super::super) again: Statement,
    pub(in super::super) fresh: Statement,
    pub(in super::super) tied: Statement,
    pub(in super::super) waiting: Statement,
    pub(in super::super) returning: Statement,
    pub(in super::super) next_due: Statement,
}

/// A row as a scan sees it, with the hold of its key.
const GLANCE: &str = "
    SELECT e.seq, e.status, e.available_at, e.created_at, h.seq AS head, h.reason = 'returning' AS coming_back,
           coalesce(octet_length(e.payload), octet_length(e.payload_bytes), 0) AS payload_size,
           coalesce(octet_length(e.headers), 0) AS headers_size
    FROM {p}event AS e LEFT JOIN {p}hold AS h ON h.lane = e.lane AND h.effective_key = e.effective_key
    WHERE e.lane = ?1 AND e.parked = 0";

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let glance = |rest: &str| Statement::new(&format!("{GLANCE} {rest}"), prefix);
        Self {
            again: glance(
                "AND e.status IN (0, 2) AND e.seq IN (SELECT value FROM json_each(?2)) ORDER BY e.seq",
            ),
            fresh: glance("AND e.status = 0 AND e.seq > ?2 ORDER BY e.seq"),
            // Two statements for what is (available_at, seq) > (?, ?): SQLite would find the time by the index and walk
            // over every event of that time that was read before, and a batch that failed together is due together.
            tied: glance("AND e.status = 2 AND e.available_at = ?2 AND e.seq > ?3 ORDER BY e.seq"),
            waiting: glance(
                "AND e.status = 2 AND e.available_at > ?2 AND e.available_at <= ?3
                 ORDER BY e.available_at, e.seq",
            ),
            // SQLite has no LATERAL; the IN with a LIMIT inside, once for each key, is what stands in for it. One more
            // than is wanted of each, to know whether there is more.
            returning: Statement::new(
                &format!(
                    "SELECT freed_key.id, e.seq,
                            coalesce(octet_length(e.payload), octet_length(e.payload_bytes), 0) AS payload_size,
                            coalesce(octet_length(e.headers), 0) AS headers_size
                     FROM (SELECT rowid AS id, lane, effective_key, seq FROM {{p}}hold
                           WHERE lane = ?1 AND reason = 'returning' ORDER BY seq LIMIT {RETURNING_KEYS_MAX} + 1) AS freed_key
                     LEFT JOIN {{p}}event AS e ON e.seq IN (
                         SELECT p.seq FROM {{p}}event AS p
                         WHERE p.lane = freed_key.lane AND p.effective_key = freed_key.effective_key AND p.parked = 1
                         ORDER BY p.seq LIMIT {RETURNING_OF_A_KEY_MAX} + 1)
                     ORDER BY freed_key.seq, freed_key.id, e.seq"
                ),
                prefix,
            ),
            next_due: Statement::new(
                "SELECT min(available_at) FROM {p}event
                 WHERE lane = ?1 AND status = 2 AND parked = 0 AND available_at > ?2",
                prefix,
            ),
        }
    }
}

/// What is to become of a row that a scan met.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verdict {
    /// It is due and nothing is in front of it.
    Return(Candidate),
    /// Its key waits for another event, or for those that are coming back.
    Park { returning: bool },
    /// It is not due and was never tried: it waits for its time, without holding its key.
    Turn,
    /// It waits already, or the engine has it.
    Pass,
}

/// A row that a scan met.
#[derive(Debug, Clone, Copy)]
pub(super) struct Met {
    pub(super) seq: Seq,
    pub(super) available_at: Timestamp,
    pub(super) verdict: Verdict,
}

/// What a scan met, in its order.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) met: Vec<Met>,
    /// Whether it was stopped before it came to its end.
    pub(super) stopped: bool,
    /// How many of them could be returned.
    candidates: usize,
    /// How many of them were new to the engine.
    counted: usize,
}

impl Scan {
    /// Those that could be returned.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        self.met
            .iter()
            .filter_map(|met| match met.verdict {
                Verdict::Return(candidate) => Some(candidate),
                _ => None,
            })
            .collect()
    }

    /// Keeps what came before the first candidate that was not taken, and gives back the rest.
    pub(super) fn cut_after(&mut self, taken: usize) -> Vec<Met> {
        let mut candidates = 0;
        let end = self.met.iter().position(|met| {
            candidates += usize::from(matches!(met.verdict, Verdict::Return(_)));
            candidates > taken
        });
        let rest = self.met.split_off(end.unwrap_or(self.met.len()));
        self.stopped |= !rest.is_empty();
        rest
    }
}

/// What comes back because its key is free again.
#[derive(Debug, Default)]
pub(super) struct Returning {
    /// In the order of their keys' holds, and within a key in order.
    pub(super) candidates: Vec<Candidate>,
    /// Row ids of the holds behind which nothing is left.
    pub(super) empty: Vec<i64>,
    /// Whether more is behind them.
    pub(super) more: bool,
}

/// Scans one lane for one claim.
pub(super) struct Scanner<'a> {
    pub(super) sql: &'a Statements,
    pub(super) lane: Lane,
    pub(super) now: Timestamp,
    /// What the engine has in memory, sorted.
    pub(super) in_flight: &'a [Seq],
    /// Most candidates that are wanted from a scan.
    pub(super) candidates_max: usize,
}

impl Scanner<'_> {
    /// The events that are to be looked at once more.
    pub(super) async fn again(&self, conn: &mut SqliteConnection, seqs: &[Seq]) -> sqlx::Result<Scan> {
        let mut scan = Scan::default();
        if !seqs.is_empty() {
            let query = self.sql.again.query().bind(self.lane).bind(json(seqs)?);
            // All of them, or those beyond the limit would be forgotten.
            self.scan(conn, query, &HashSet::new(), usize::MAX, &mut scan).await?;
        }
        Ok(scan)
    }

    /// The events above `from`.
    pub(super) async fn fresh(&self, conn: &mut SqliteConnection, from: Seq) -> sqlx::Result<Scan> {
        let mut scan = Scan::default();
        let query = self.sql.fresh.query().bind(self.lane).bind(integer(from));
        self.scan(conn, query, &HashSet::new(), self.candidates_max, &mut scan).await?;
        Ok(scan)
    }

    /// The waiting events that are due, but for those that were met `already`.
    pub(super) async fn waiting(
        &self,
        conn: &mut SqliteConnection,
        from: Position,
        already: &HashSet<Seq>,
    ) -> sqlx::Result<Scan> {
        let mut scan = Scan::default();
        // The start lies before every time, those before the epoch included.
        let at_start = (from.due_at, from.due_seq) == (Timestamp::EPOCH, 0);
        let due_at = if at_start { i64::MIN } else { from.due_at.as_micros() };
        // A cursor may stand in the future if the clock was set back; what lies there is not due.
        if !at_start && from.due_at <= self.now {
            let tied = self.sql.tied.query().bind(self.lane).bind(due_at).bind(integer(from.due_seq));
            self.scan(conn, tied, already, self.candidates_max, &mut scan).await?;
        }
        if !scan.stopped {
            let later = self.sql.waiting.query().bind(self.lane).bind(due_at).bind(self.now.as_micros());
            self.scan(conn, later, already, self.candidates_max, &mut scan).await?;
        }
        Ok(scan)
    }

    /// Goes on with a scan until it has enough.
    async fn scan(
        &self,
        conn: &mut SqliteConnection,
        query: Query<'static, Sqlite, SqliteArguments>,
        already: &HashSet<Seq>,
        candidates_max: usize,
        scan: &mut Scan,
    ) -> sqlx::Result<()> {
        // Rows that are parked or turned are no candidates; this is what bounds the writing of one claim.
        let counted_max = candidates_max.saturating_mul(4).max(1024);
        let mut rows = query.fetch(conn);
        while let Some(row) = rows.try_next().await? {
            if scan.candidates >= candidates_max || scan.counted >= counted_max {
                scan.stopped = true;
                break;
            }
            let row = self.judge(&row, already)?;
            scan.candidates += usize::from(matches!(row.verdict, Verdict::Return(_)));
            scan.counted += usize::from(!matches!(row.verdict, Verdict::Pass));
            scan.met.push(row);
        }
        Ok(())
    }

    fn judge(&self, row: &SqliteRow, already: &HashSet<Seq>) -> sqlx::Result<Met> {
        let seq: Seq = natural(row.try_get("seq")?);
        let available_at = Timestamp::from_micros(row.try_get("available_at")?);
        let head = row.try_get::<Option<i64>, _>("head")?.map(natural::<Seq>);
        let verdict = if self.in_flight.binary_search(&seq).is_ok() || already.contains(&seq) {
            Verdict::Pass
        } else if self.is_early(row, available_at)? {
            // Time comes before the key: what is parked is due.
            if row.try_get::<i64, _>("status")? == 0 { Verdict::Turn } else { Verdict::Pass }
        } else if head.is_some_and(|head| head != seq) {
            Verdict::Park { returning: row.try_get::<Option<bool>, _>("coming_back")?.unwrap_or(false) }
        } else {
            Verdict::Return(Candidate { seq, bytes: weight(row)?, held: head.is_some() })
        };
        Ok(Met { seq, available_at, verdict })
    }

    /// Whether a row's time has not come. One that was written to be delivered at once is never early, also if the clock
    /// was set back since: taken for a delayed one, it would let later events of its key pass.
    fn is_early(&self, row: &SqliteRow, available_at: Timestamp) -> sqlx::Result<bool> {
        let was_delayed = row.try_get::<i64, _>("status")? != 0
            || available_at > Timestamp::from_micros(row.try_get("created_at")?);
        Ok(available_at > self.now && was_delayed)
    }

    /// The parked events of keys that are free again, and the holds behind which nothing is left.
    /// Beyond what was met something unparked of a key may come first, so nothing comes back from there.
    pub(super) async fn returning(&self, conn: &mut SqliteConnection, met: Seq) -> sqlx::Result<Returning> {
        let mut found = Returning::default();
        let (mut key, mut keys, mut of_key, mut wanted) = (None, 0, 0, false);
        for row in self.sql.returning.query().bind(self.lane).fetch_all(conn).await? {
            let id: i64 = row.try_get("id")?;
            if key != Some(id) {
                (key, keys, of_key, wanted) = (Some(id), keys + 1, 0, false);
            }
            if keys > RETURNING_KEYS_MAX {
                found.more |= !found.candidates.is_empty();
                break;
            }
            of_key += 1;
            match row.try_get::<Option<i64>, _>("seq")?.map(natural::<Seq>) {
                None => found.empty.push(id),
                // What stands behind events that are all in memory already is not due: the next settle makes it so.
                Some(_) if of_key > RETURNING_OF_A_KEY_MAX => found.more |= wanted,
                Some(seq) if seq > met || self.in_flight.binary_search(&seq).is_ok() => {}
                Some(seq) => {
                    wanted = true;
                    found.candidates.push(Candidate { seq, bytes: weight(&row)?, held: true });
                }
            }
        }
        Ok(found)
    }

    /// When the next waiting event is due that is not due yet.
    pub(super) async fn next_due(&self, conn: &mut SqliteConnection) -> sqlx::Result<Option<Timestamp>> {
        let query = self.sql.next_due.query().bind(self.lane).bind(self.now.as_micros());
        Ok(query.fetch_one(conn).await?.try_get::<Option<i64>, _>(0)?.map(Timestamp::from_micros))
    }
}

/// What a row weighs in the claim, as [`Event::weight_bytes`](postrider_core::Event::weight_bytes) counts; little if its
/// payload is too large to be read.
fn weight(row: &SqliteRow) -> sqlx::Result<usize> {
    let (payload, headers): (usize, usize) =
        (natural(row.try_get("payload_size")?), natural(row.try_get("headers_size")?));
    let payload = if payload > limits::PAYLOAD_BYTES_MAX { 0 } else { payload };
    Ok(payload + headers + limits::EVENT_FLAT_BYTES)
}
