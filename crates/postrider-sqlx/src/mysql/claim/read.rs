//! The statements that a claim reads with.

use futures_util::TryStreamExt as _;
use postrider_core::{
    Timestamp,
    store::{Lane, Lease, Seq},
    tx::Prefix,
};
use sqlx::MySqlConnection;

use super::{
    super::{
        hold::Key,
        lease::token,
        row::{self, CARGO, Cargo, cargo_bytes_max},
        statement::{
            AT, LIST_MAX, Listed, NOW, Ready, Statement, bound, filled, integer, maybe_time, micros, natural,
            set, text, time,
        },
    },
    scan::Row,
};

/// Most lanes, or keys, that one statement reads a few rows of each of.
pub(super) const EACH_MAX: usize = 64;

/// The statements of this file.
#[derive(Debug)]
pub(in super::super) struct Statements {
    pub(in super::super) gate: Listed,
    pub(in super::super) fresh: Listed,
    pub(in super::super) fresh_unheld: Listed,
    pub(in super::super) fresh_places: Listed,
    pub(in super::super) fresh_among: Listed,
    pub(in super::super) again: Listed,
    pub(in super::super) first_due: Listed,
    pub(in super::super) waiting: Listed,
    pub(in super::super) returning: Statement,
    pub(in super::super) parked: Listed,
    pub(in super::super) cargo: Listed,
}

/// The index that all of them read by.
const BY_PLACE: &str = "{p}event AS e FORCE INDEX ({p}event_place)";

/// The stretch of the index that fresh rows are in, up to their `seq`.
const FRESH: &str = "e.place = 0 AND e.parked_key IS NULL AND e.due_at IS NULL";

/// The hold of a row's key.
const ITS_HOLD: &str = "LEFT JOIN {p}hold AS h ON h.lane = e.lane AND h.effective_key = e.effective_key";

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let of_values = |template: &str| Listed::of_values(template, prefix);
        let of_each = |template: &str| Listed::up_to(EACH_MAX, "{list}", template, " UNION ALL ", prefix);
        let columns = row::columns();
        let glance = format!("{columns}, h.seq AS head, h.reason = 'returning' AS is_returning, {CARGO}");
        Self {
            // One statement, and all that a claim of an idle outbox needs. The tip is looked for above where the lanes stand:
            // below it lie rows that were deleted a moment ago, which a search in the index still walks over.
            gate: of_values(&format!(
                "SELECT l.lane, l.epoch, l.nonce, {NOW} AS now,
                        (SELECT MAX(seq) FROM {{p}}event WHERE seq > ?) AS tip,
                        EXISTS (SELECT 1 FROM {BY_PLACE} WHERE e.place = 2) AS waiting,
                        EXISTS (SELECT 1 FROM {{p}}hold FORCE INDEX ({{p}}hold_reason) WHERE reason = 'returning')
                            AS returning_keys,
                        EXISTS (SELECT 1 FROM {{p}}hold) AS holds
                 FROM {{p}}lane AS l WHERE l.lane IN ({{list}})"
            )),
            // A window of the order over all lanes, which is one range of the index for each. A few rows of each lane by
            // UNION ALL took twice the time: sixty-four plans are made at each execution. There is no LATERAL in MariaDB.
            fresh: of_values(&format!(
                "SELECT {glance} FROM {BY_PLACE} {ITS_HOLD}
                 WHERE {FRESH} AND e.lane IN ({{list}}) AND e.seq > ? AND e.seq <= ? LIMIT ?"
            )),
            // The same while no key is held at all: looking for a hold of each row took a sixth of the time.
            fresh_unheld: of_values(&format!(
                "SELECT {columns}, NULL AS head, 0 AS is_returning, {CARGO} FROM {BY_PLACE}
                 WHERE {FRESH} AND e.lane IN ({{list}}) AND e.seq > ? AND e.seq <= ? LIMIT ?"
            )),
            // The index alone, no rows.
            fresh_places: of_values(&format!(
                "SELECT e.lane, e.seq FROM {BY_PLACE}
                 WHERE {FRESH} AND e.lane IN ({{list}}) AND e.seq > ? AND e.seq <= ? LIMIT ?"
            )),
            // Numbers of which most are of no row.
            fresh_among: of_values(
                "SELECT e.lane, e.seq FROM {p}event AS e FORCE INDEX (PRIMARY)
                 WHERE e.seq IN ({list}) AND e.status = 0 AND e.parked = 0",
            ),
            again: of_values(&format!(
                "SELECT {glance} FROM {{p}}event AS e FORCE INDEX (PRIMARY) {ITS_HOLD}
                 WHERE e.seq IN ({{list}}) AND e.status IN (0, 2) AND e.parked = 0"
            )),
            // By the lane too: by `due_at` alone MySQL reads all waiting rows of the lane and sorts them; by more columns MariaDB does.
            first_due: of_values(&format!(
                "SELECT l.lane, {} AS due_at FROM {{p}}lane AS l WHERE l.lane IN ({{list}})",
                micros(&format!(
                    "(SELECT e.due_at FROM {BY_PLACE}
                      WHERE e.place = 2 AND e.lane = l.lane AND e.parked_key IS NULL
                      ORDER BY e.lane, e.due_at LIMIT 1)"
                ))
            )),
            waiting: of_each(&format!(
                "(SELECT {glance} FROM {BY_PLACE} {ITS_HOLD}
                  WHERE e.place = 2 AND e.lane = ? AND e.parked_key IS NULL
                    AND ((e.due_at = {AT} AND e.seq > ?) OR e.due_at > {AT})
                  ORDER BY e.due_at, e.seq LIMIT ?)"
            )),
            returning: Statement::new(
                "SELECT lane, effective_key, seq FROM {p}hold FORCE INDEX ({p}hold_reason)
                 WHERE reason = 'returning' AND FIND_IN_SET(lane, ?) ORDER BY seq LIMIT ?",
                prefix,
            ),
            parked: of_each(&format!(
                "(SELECT {columns}, e.seq AS head, 1 AS is_returning, {CARGO} FROM {BY_PLACE}
                  WHERE e.place = 1 AND e.lane = ? AND e.parked_key = ? AND e.due_at IS NULL
                  ORDER BY e.seq LIMIT ?)"
            )),
            cargo: of_values(&format!(
                "SELECT e.seq, {CARGO} FROM {{p}}event AS e FORCE INDEX (PRIMARY) WHERE e.seq IN ({{list}})"
            )),
        }
    }
}

/// What a claim learns first, all of it at one moment.
#[derive(Debug, Default)]
pub(super) struct Gate {
    pub(super) now: Timestamp,
    /// The lanes that are held, and by which token.
    pub(super) held: Vec<Lease>,
    /// The largest `seq` that is to be seen; at least the one after which it was looked for.
    pub(super) tip: Seq,
    /// Whether anything waits for a time of its own.
    pub(super) waiting: bool,
    /// Whether any key is held, and whether any is coming back.
    pub(super) holds: bool,
    pub(super) returning: bool,
}

/// A place among the waiting rows of one lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct DueFrom {
    pub(super) lane: Lane,
    pub(super) due_at: Timestamp,
    pub(super) due_seq: Seq,
}

/// Reads for one claim.
pub(super) struct Reader<'a> {
    pub(super) sql: &'a Statements,
    /// Payloads and headers come with their rows up to so many bytes for all rows of a statement; larger ones are read when they are
    /// wanted.
    pub(super) inline_bytes: usize,
    /// Most rows of a statement, as a rule.
    pub(super) rows_max: usize,
}

impl Reader<'_> {
    /// The size up to which a payload comes with its row, where a statement reads so many.
    fn inline_bytes_max(&self, rows: usize) -> usize {
        self.inline_bytes / self.rows_max.max(rows).max(1)
    }

    /// What is to be known first of these lanes, which stand at `after` or further on.
    pub(super) async fn gate(
        &self,
        conn: &mut MySqlConnection,
        lanes: &[Lane],
        after: Seq,
    ) -> sqlx::Result<Gate> {
        let mut gate = Gate::default();
        for lanes in lanes.chunks(LIST_MAX) {
            let query = with_list(self.sql.gate.query(lanes.len()).bind(after), lanes);
            for row in query.fetch_all(&mut *conn).await? {
                gate.held.extend(token(&row)?);
                gate.now = time(&row, "now")?;
                gate.tip = natural::<Seq>(&row, "tip")?.max(after);
                gate.waiting = natural::<u8>(&row, "waiting")? != 0;
                gate.holds = natural::<u8>(&row, "holds")? != 0;
                gate.returning = natural::<u8>(&row, "returning_keys")? != 0;
            }
        }
        Ok(gate)
    }

    /// Fresh rows of these lanes in a window of the order, at most so many, in no order. Their holds are looked for where there
    /// are any: those that come while a claim runs are the engine's own, which knows them.
    pub(super) async fn fresh(
        &self,
        conn: &mut MySqlConnection,
        lanes: &[Lane],
        (after, to): (Seq, Seq),
        most: usize,
        holds: bool,
    ) -> sqlx::Result<Vec<Row>> {
        let statement = if holds { &self.sql.fresh } else { &self.sql.fresh_unheld };
        let inline = self.inline_bytes_max(most);
        let query = with_list(with_cargo(statement.query(lanes.len()), inline), lanes);
        rows(query.bind(after).bind(to).bind(integer(most)), inline, conn).await
    }

    /// Where the fresh rows of these lanes are in a stretch of the order: at most so many, of each lane the first ones.
    pub(super) async fn fresh_places(
        &self,
        conn: &mut MySqlConnection,
        lanes: &[Lane],
        (after, to): (Seq, Seq),
        most: usize,
    ) -> sqlx::Result<Vec<(Lane, Seq)>> {
        let query = with_list(self.sql.fresh_places.query(lanes.len()), lanes).bind(after).bind(to);
        places(query.bind(integer(most)), conn).await
    }

    /// Which of these numbers, at most [`LIST_MAX`], are fresh rows, of whichever lane.
    pub(super) async fn fresh_among(
        &self,
        conn: &mut MySqlConnection,
        seqs: &[Seq],
    ) -> sqlx::Result<Vec<(Lane, Seq)>> {
        match seqs {
            [] => Ok(Vec::new()),
            seqs => places(with_list(self.sql.fresh_among.query(seqs.len()), seqs), conn).await,
        }
    }

    /// Those of these rows that are new or wait, and are not parked, in order.
    pub(super) async fn again(&self, conn: &mut MySqlConnection, seqs: &[Seq]) -> sqlx::Result<Vec<Row>> {
        let mut found = Vec::with_capacity(seqs.len());
        let inline = self.inline_bytes_max(seqs.len());
        for seqs in seqs.chunks(LIST_MAX) {
            let query = with_list(with_cargo(self.sql.again.query(seqs.len()), inline), seqs);
            found.extend(rows(query, inline, conn).await?);
        }
        found.sort_unstable_by_key(|row| row.seq);
        Ok(found)
    }

    /// When the first waiting row of each lane is due, or was.
    pub(super) async fn first_due(
        &self,
        conn: &mut MySqlConnection,
        lanes: &[Lane],
    ) -> sqlx::Result<Vec<(Lane, Timestamp)>> {
        let mut first = Vec::new();
        for lanes in lanes.chunks(LIST_MAX) {
            for row in with_list(self.sql.first_due.query(lanes.len()), lanes).fetch_all(&mut *conn).await? {
                let lane = natural(&row, "lane")?;
                first.extend(maybe_time(&row, "due_at")?.map(|due_at| (lane, due_at)));
            }
        }
        Ok(first)
    }

    /// The next waiting rows of each of these lanes, at most so many of each, in the order of their times.
    pub(super) async fn waiting(
        &self,
        conn: &mut MySqlConnection,
        from: &[DueFrom],
        of_each: usize,
    ) -> sqlx::Result<Vec<Row>> {
        let mut found = Vec::new();
        let inline = self.inline_bytes_max(from.len() * of_each);
        for from in from.chunks(EACH_MAX) {
            let mut query = self.sql.waiting.query(from.len());
            for (n, DueFrom { lane, due_at, due_seq }) in filled(from).enumerate() {
                let due_at = bound(due_at);
                query = with_cargo(query, inline).bind(lane).bind(due_at).bind(due_seq).bind(due_at);
                query = query.bind(integer(if n < from.len() { of_each } else { 0 }));
            }
            found.extend(rows(query, inline, conn).await?);
        }
        Ok(found)
    }

    /// Keys that are free again and the events that they waited for, oldest first.
    pub(super) async fn returning(
        &self,
        conn: &mut MySqlConnection,
        lanes: &[Lane],
        most: usize,
    ) -> sqlx::Result<Vec<(Key, Seq)>> {
        let query = self.sql.returning.query().bind(set(lanes.iter().copied())).bind(integer(most));
        let keys = query.fetch_all(conn).await?;
        let key = |row| -> sqlx::Result<Key> {
            Ok(Key { lane: natural(row, "lane")?, key: text(row, "effective_key")?.unwrap_or_default() })
        };
        keys.iter().map(|row| Ok((key(row)?, natural(row, "seq")?))).collect()
    }

    /// The first rows that are parked behind each of these keys, at most [`EACH_MAX`] keys.
    pub(super) async fn parked(
        &self,
        conn: &mut MySqlConnection,
        keys: &[(Key, Seq)],
        of_each: usize,
    ) -> sqlx::Result<Vec<Row>> {
        let keys: Vec<&Key> = keys.iter().map(|(key, _)| key).collect();
        let inline = self.inline_bytes_max(keys.len() * of_each);
        let mut query = self.sql.parked.query(keys.len());
        for (n, Key { lane, key }) in filled(&keys).enumerate() {
            query = with_cargo(query, inline).bind(*lane).bind(key.clone());
            query = query.bind(integer(if n < keys.len() { of_each } else { 0 }));
        }
        rows(query, inline, conn).await
    }

    /// What is heavy of these rows, in no order.
    pub(super) async fn cargo(
        &self,
        conn: &mut MySqlConnection,
        seqs: &[Seq],
    ) -> sqlx::Result<Vec<(Seq, Cargo)>> {
        let mut found = Vec::with_capacity(seqs.len());
        for seqs in seqs.chunks(LIST_MAX) {
            let query = with_list(with_cargo(self.sql.cargo.query(seqs.len()), usize::MAX), seqs);
            let mut rows = query.fetch(&mut *conn);
            while let Some(row) = rows.try_next().await? {
                found.push((natural(&row, "seq")?, Cargo::of(&row)?));
            }
        }
        Ok(found)
    }
}

fn with_cargo(query: Ready, most: usize) -> Ready {
    cargo_bytes_max(most).into_iter().fold(query, |query, bytes| query.bind(integer(bytes)))
}

fn with_list<T>(query: Ready, list: &[T]) -> Ready
where
    T: Copy + for<'q> sqlx::Encode<'q, sqlx::MySql> + sqlx::Type<sqlx::MySql> + Send + 'static,
{
    filled(list).fold(query, |query, item| query.bind(item))
}

/// Decodes rows one by one, as they come: what the driver holds of each is gone before the next.
async fn rows(query: Ready, inline: usize, conn: &mut MySqlConnection) -> sqlx::Result<Vec<Row>> {
    let (mut rows, mut found) = (query.fetch(conn), Vec::new());
    while let Some(row) = rows.try_next().await? {
        found.push(Row::of(&row, inline)?);
    }
    Ok(found)
}

async fn places(query: Ready, conn: &mut MySqlConnection) -> sqlx::Result<Vec<(Lane, Seq)>> {
    let (mut rows, mut found) = (query.fetch(conn), Vec::new());
    while let Some(row) = rows.try_next().await? {
        found.push((natural(&row, "lane")?, natural(&row, "seq")?));
    }
    Ok(found)
}
