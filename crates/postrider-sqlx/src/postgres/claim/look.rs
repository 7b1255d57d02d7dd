//! One look at the lanes of a claim, as rows that are sorted by what can become of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use postrider_core::{
    Timestamp,
    store::{Claim, ClaimedEvent, Lane, LaneClaim, Seq},
};
use sqlx::{PgConnection, Row, postgres::PgRow};

use super::{
    super::{
        lease::with_tokens,
        row::{self, column},
        statement::{Shape, integer, natural, optional_time, time},
    },
    history::Placed,
    sight::Sight,
    trail::Behind,
};

/// Most keys that come back in one claim, and most events of each.
pub(super) const RETURNING_KEYS_MAX: usize = 256;
pub(super) const RETURNING_OF_A_KEY_MAX: usize = 16;

/// Fewest waiting rows that are looked at in a lane. Few are enough: no lane has to fill a claim alone, and the next claim goes on.
const WAITING_OF_A_LANE_MIN: usize = 16;

/// A number that lies further beyond the last one of the sequence was not drawn from it, however long ago that was asked for.
const STRAY: Seq = 1_000_000;

/// How many numbers a claim scans behind the forward reads. What is not late there is read all the same, lane by lane: so many rows of 1 KiB stay in 32 MB
/// of buffers meanwhile.
const SCAN_WIDTH: Seq = 20_000;

/// Whether a row behind the forward read is one that the last scan, of this snapshot, could not see: by the transaction that wrote the row as it is
/// now, or by that which inserted it. They differ behind a savepoint, and a snapshot knows only outermost ones: to it any other is over. Transactions are
/// numbered with 32 bits in a row's own column and with 64 in a snapshot; none in a row is later than the end of the present one. A visible row that says
/// otherwise was restored from another server, whose numbers mean nothing here, and its own column says what there is to say.
///
/// Most rows are as one transaction has inserted them before the scan: that is asked first and takes a twentieth of the rest.
pub(super) fn late(snapshot: &str, wrote: &str) -> String {
    let once = once(snapshot);
    format!(
        "CASE WHEN {once} IS NULL THEN true WHEN {} THEN false
              ELSE (SELECT (NOT pg_visible_in_snapshot(x.id::text::xid8, {once})
                            OR e.written_in < x.ended_before AND NOT pg_visible_in_snapshot(e.written_in, {once}))
                       AND x.id <> ALL ({wrote}::bigint[])
                    FROM {NUMBERED}) END",
        written_before(&once)
    )
}

/// Whether both could be seen in this snapshot, if there is one.
fn seen_in(snapshot: &str) -> String {
    let once = once(snapshot);
    format!(
        "CASE WHEN {once} IS NULL OR {} THEN true
              ELSE (SELECT pg_visible_in_snapshot(x.id::text::xid8, {once})
                       AND (e.written_in >= x.ended_before OR pg_visible_in_snapshot(e.written_in, {once}))
                    FROM {NUMBERED}) END",
        written_before(&once)
    )
}

/// A snapshot that is a parameter, taken apart once and not for each row.
fn once(snapshot: &str) -> String {
    format!("(SELECT {snapshot}::pg_snapshot)")
}

/// Whether a row is as a transaction has inserted it that was over when the first of those began which were open in this snapshot.
fn written_before(snapshot: &str) -> String {
    format!("e.written_in < (SELECT pg_snapshot_xmin({snapshot})) AND e.written_in::xid = e.xmin")
}

/// True where a row was inserted by a transaction that this snapshot, if there is one, could not see. In a backlog each row is asked, and most of them were
/// inserted before anything that was open then, so that is asked first.
pub(super) fn unscanned(snapshot: &str) -> String {
    let snapshot = once(snapshot);
    format!(
        "CASE WHEN {snapshot} IS NULL OR e.written_in < (SELECT pg_snapshot_xmin({snapshot})) THEN NULL
              WHEN e.written_in < (SELECT clock.ended_before FROM clock) THEN NOT pg_visible_in_snapshot(e.written_in, {snapshot})
              ELSE (SELECT NOT pg_visible_in_snapshot(x.id::text::xid8, {snapshot}) FROM {NUMBERED}) END"
    )
}

/// The transaction of a row's own column, with 64 bits.
const NUMBERED: &str = "(SELECT clock.xmax - ((clock.xmax - e.xmin::text::bigint) & 4294967295) AS id, clock.ended_before FROM clock) AS x";

pub(in super::super) fn statement(shape: &Shape) -> Placed {
    let sql = row::spell(include_str!("claim.sql"))
        .replace("{late}", &format!("{} AND {}", late("$15", "$16"), seen_in("$19")))
        .replace("{unscanned}", &unscanned("$19"))
        .replace("{not_in_flight}", "e.seq NOT IN (SELECT unnest($8::bigint[]))")
        .replace("{keys}", &RETURNING_KEYS_MAX.to_string())
        .replace("{of_a_key}", &RETURNING_OF_A_KEY_MAX.to_string());
    Placed::new(&sql, shape)
}

/// What a row that was met says for itself.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) lane: Lane,
    pub(super) seq: Seq,
    pub(super) state: State,
    pub(super) available_at: Timestamp,
    /// Whether it was inserted by a transaction that the last scan behind the forward read could not see.
    pub(super) unscanned: bool,
    /// Whether it waits, so that its time is a place too.
    pub(super) waits: bool,
    pub(super) weight: usize,
    /// Whether its key is held because of it, or because others stand behind it.
    pub(super) held: bool,
    /// What an admission wants to know.
    pub(super) words: Option<Words>,
}

impl Seen {
    /// The key that orders it, if that was read.
    pub(super) fn key(&self) -> Option<&str> {
        self.words.as_ref()?.key.as_deref()
    }
}

/// A row's key and types, as they stand in the table.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) key: Option<String>,
    pub(super) event_type: String,
    pub(super) aggregate_type: String,
}

/// What can become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It is due and nothing is in front of it.
    Due,
    /// Its key waits for another event, or for those that are coming back.
    Follower { returning: bool },
    /// It is not due and was never tried: it waits for its time, without holding its key.
    Delayed,
    /// It waits already, or the engine has it.
    Elsewhere,
}

/// A key that is free again, and what is parked behind it.
#[derive(Debug)]
pub(super) struct Freed {
    pub(super) lane: Lane,
    pub(super) key: String,
    /// The event that it waited for.
    pub(super) head: Seq,
    pub(super) parked: Vec<Seen>,
}

impl Freed {
    /// Whether all that is parked and not in memory comes after this event, as far as is known.
    fn is_behind(&self, seq: Seq) -> bool {
        match self.parked.iter().find(|seen| seen.state == State::Due) {
            Some(first) => seq < first.seq,
            None => self.parked.len() <= RETURNING_OF_A_KEY_MAX,
        }
    }
}

/// What a lane says for itself.
#[derive(Debug, Default)]
pub(super) struct LaneSeen {
    /// Where its forward read stood.
    pub(super) front: Seq,
    /// Whether it has a fresh row beyond that.
    pub(super) any: bool,
    /// Whether it has fresh rows over the ceiling.
    pub(super) beyond: bool,
    pub(super) next_due: Option<Timestamp>,
}

/// What a look saw.
#[derive(Debug, Default)]
pub(in super::super) struct Look {
    pub(super) sight: Sight,
    pub(super) lanes: BTreeMap<Lane, LaneSeen>,
    /// Up to where all lanes were read.
    pub(super) ceiling: Option<Seq>,
    /// Up to where they were scanned behind their forward reads, if that is not all.
    pub(super) scan_ceiling: Option<Seq>,
    pub(super) again: Vec<Seen>,
    pub(super) fresh: Vec<Seen>,
    pub(super) waiting: Vec<Seen>,
    pub(super) returning: Vec<Freed>,
    /// Fresh rows that were read whole.
    pub(super) read: HashMap<Seq, ClaimedEvent>,
    pub(super) limits: Limits,
}

/// What a look has to know of the database.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Scale {
    /// How many lanes there are in all.
    pub(in super::super) lanes: u32,
    /// Whether the position of the log may be asked for.
    pub(in super::super) reads_log: bool,
}

/// How much a look may see.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    pub(super) fresh: usize,
    pub(super) fresh_of_a_lane: usize,
    /// Of these, rows behind the forward read. Few are enough: no lane has to fill a claim alone, and a scan goes on.
    pub(super) late_of_a_lane: usize,
    pub(super) waiting_of_a_lane: usize,
    /// How far over the first row to look.
    pub(super) width: u64,
}

impl Limits {
    /// Rows that are passed over are no candidates, so with an admission more are looked at than can come.
    pub(super) fn of(claim: &Claim, lanes_in_all: u32) -> Self {
        let fresh = match claim.admission {
            Some(_) => claim.limit.saturating_mul(4).max(1024),
            None => claim.limit.max(1),
        };
        let lanes = claim.lanes.len().max(1);
        let waiting = (fresh.saturating_mul(2) / lanes).max(WAITING_OF_A_LANE_MIN);
        // Numbers are dense, and this part of them falls into our lanes.
        let width = fresh.saturating_mul(lanes_in_all as usize) / lanes;
        let width = u64::try_from(width).unwrap_or(u64::MAX).clamp(1, 1 << 40) - 1;
        let waiting_of_a_lane = waiting.min(fresh.saturating_add(1));
        let late_of_a_lane = waiting.min(fresh);
        Self { fresh, fresh_of_a_lane: fresh, late_of_a_lane, waiting_of_a_lane, width }
    }

    /// Without a ceiling: no lane has to fill a claim alone.
    pub(super) fn few_of_a_lane(self) -> Self {
        Self { fresh_of_a_lane: self.late_of_a_lane, width: u64::MAX, ..self }
    }

    /// Where one limit holds for what lies before the forward read and behind it.
    pub(super) fn together(self) -> Self {
        Self { late_of_a_lane: self.fresh_of_a_lane, ..self }
    }

    /// For a look that returns fewer rows than these, of whichever lanes: none of them is full.
    pub(super) fn for_all_lanes(self, rows: usize) -> Self {
        let width = u64::try_from(rows).unwrap_or(u64::MAX).max(1) - 1;
        Self { fresh_of_a_lane: rows, late_of_a_lane: rows, width, ..self }
    }

    /// Where only a part of the numbers stands for rows that can be seen.
    pub(super) fn times_as_wide(self, times: u64) -> Self {
        Self { width: self.width.saturating_add(1).saturating_mul(times) - 1, ..self }
    }

    /// The largest event that is read together with the look: all that the look can see must fit.
    pub(super) fn read_at_once(self, claim: &Claim, late: usize) -> Option<i64> {
        let rows = integer(self.width.saturating_add(1))
            .min(integer(self.fresh_of_a_lane.saturating_mul(claim.lanes.len())))
            .saturating_add(integer(late));
        claim.admission.is_none().then(|| integer(claim.bytes) / rows.max(1))
    }
}

/// Where a lane is read from: its forward read from the front, and what lies behind that from there.
pub(super) struct Cursor<'a> {
    pub(super) lane: &'a LaneClaim,
    pub(super) scans_from: Seq,
    pub(super) front: Seq,
}

/// The first place that is scanned behind a forward read; 0 if there is none.
pub(super) fn first_behind(cursors: &[Cursor<'_>]) -> Seq {
    let behind = cursors.iter().filter(|cursor| cursor.scans_from < cursor.front);
    behind.map(|cursor| cursor.scans_from).min().unwrap_or_default()
}

/// Looks at all lanes of a claim.
pub(super) async fn look(
    sql: &Placed,
    conn: &mut PgConnection,
    claim: &Claim,
    cursors: &[Cursor<'_>],
    (behind, bound): (Option<&Behind>, Option<&str>),
    scale: Scale,
) -> sqlx::Result<Look> {
    let limits = Limits::of(claim, scale.lanes);
    let scanned = cursors.iter().filter(|cursor| cursor.scans_from < cursor.front).count();
    let lanes = || cursors.iter().map(|cursor| cursor.lane);
    let at_start = |lane: &LaneClaim| (lane.from.due_at, lane.from.due_seq) == (Timestamp::EPOCH, 0);
    let due_at = lanes().map(|lane| (!at_start(lane)).then(|| lane.from.due_at.as_micros()));
    let in_flight: Vec<i64> = claim.in_flight.iter().map(|seq| integer(*seq)).collect();
    let again: Vec<i64> = lanes().flat_map(|lane| &lane.again).map(|seq| integer(*seq)).collect();
    let rows = with_tokens(sql.of(scale.reads_log), lanes().map(|lane| lane.lease))
        .bind(cursors.iter().map(|cursor| integer(cursor.scans_from)).collect::<Vec<_>>())
        .bind(lanes().map(|lane| integer(lane.to)).collect::<Vec<_>>())
        .bind(due_at.collect::<Vec<_>>())
        .bind(lanes().map(|lane| integer(lane.from.due_seq)).collect::<Vec<_>>())
        .bind(in_flight)
        .bind(again)
        .bind(integer(limits.fresh))
        .bind(integer(limits.width))
        .bind(integer(limits.waiting_of_a_lane))
        .bind(limits.read_at_once(claim, limits.late_of_a_lane.saturating_mul(scanned)))
        .bind(cursors.iter().map(|cursor| integer(cursor.front)).collect::<Vec<_>>())
        .bind(behind.map(|behind| behind.snapshot.as_str()))
        .bind(behind.map(|behind| behind.wrote.as_slice()))
        .bind(integer(limits.late_of_a_lane))
        .bind(integer(first_behind(cursors)))
        .bind(bound)
        .bind((scanned > 0).then(|| integer(SCAN_WIDTH - 1)))
        .fetch_all(conn)
        .await?;
    let mut look = Look { limits, ..Look::default() };
    // What is due is judged by the clock, which comes in a row of its own.
    for row in rows.iter().filter(|row| kind(row) == 0) {
        look.sight = Sight::of(row)?;
        look.ceiling = row.try_get::<Option<i64>, _>(column::WEIGHT)?.map(natural);
        look.scan_ceiling = scan_ceiling(row, cursors)?;
    }
    for row in &rows {
        look.take(row, claim)?;
    }
    for cursor in cursors {
        if let Some(lane) = look.lanes.get_mut(&cursor.lane.lease.lane) {
            lane.front = cursor.front;
        }
    }
    look.again.sort_unstable_by_key(|seen| seen.seq);
    look.fresh.sort_unstable_by_key(|seen| seen.seq);
    look.waiting.sort_unstable_by_key(|seen| (seen.available_at, seen.seq));
    look.returning.sort_by_key(|freed| freed.head);
    Ok(look)
}

/// Up to where a look has scanned, if that is not all.
fn scan_ceiling(row: &PgRow, cursors: &[Cursor<'_>]) -> sqlx::Result<Option<Seq>> {
    let ceiling: Option<&str> = row.try_get(column::AGGREGATE_ID)?;
    let ceiling: Option<Seq> = ceiling.and_then(|ceiling| ceiling.parse().ok());
    let is_beyond = |ceiling: &Seq| {
        cursors.iter().any(|cursor| cursor.scans_from < cursor.front && cursor.front > *ceiling)
    };
    Ok(ceiling.filter(is_beyond))
}

/// The last place where the first row behind the forward reads may not lie, or there is more than a claim scans; none if there cannot be.
pub(super) fn too_far_back(cursors: &[Cursor<'_>]) -> Option<Seq> {
    let behind = cursors.iter().filter(|cursor| cursor.scans_from < cursor.front);
    let last = behind.map(|cursor| cursor.front).max()?.checked_sub(SCAN_WIDTH)?;
    (first_behind(cursors) < last).then_some(last)
}

/// The kind of rows that are looked at once more.
const AGAIN: i32 = 2;

fn kind(row: &PgRow) -> i32 {
    row.try_get(column::KIND).unwrap_or_default()
}

impl Look {
    /// Leaves as many fresh rows as a look may see, and none that lies over one of a lane that had more. Says whether there
    /// were as many.
    pub(super) fn cut_fresh(&mut self) -> bool {
        /// How many rows a lane has, and the last of them.
        #[derive(Default)]
        struct Count {
            all: (usize, Seq),
            late: (usize, Seq),
        }
        let lanes = self.lanes.iter().map(|(lane, seen)| (*lane, (seen.front, Count::default())));
        let mut counts: BTreeMap<Lane, (Seq, Count)> = lanes.collect();
        for seen in &self.fresh {
            let Some((front, count)) = counts.get_mut(&seen.lane) else { continue };
            count.all = (count.all.0 + 1, seen.seq);
            if seen.seq <= *front {
                count.late = count.all;
            }
        }
        let Limits { fresh_of_a_lane, late_of_a_lane, .. } = self.limits;
        let full = counts.values().flat_map(|(_, count)| {
            let all = (count.all.0 >= fresh_of_a_lane).then_some(count.all.1);
            all.into_iter().chain((count.late.0 >= late_of_a_lane).then_some(count.late.1))
        });
        let full = full.min();
        if let Some(last) = full {
            self.fresh.retain(|seen| seen.seq <= last);
        }
        let over = self.fresh.len() > self.limits.fresh;
        self.fresh.truncate(self.limits.fresh);
        over || full.is_some()
    }

    /// Sets aside what bears a number that the sequence is far from giving: somebody has written it by hand. Such a row comes like one that is looked
    /// at once more, because a forward read that had gone on to it would take all that is written from then on for late. It comes when nothing else
    /// of its lane does, which may be of its key and before it. Says whether one has to wait.
    pub(super) fn set_strays_aside(&mut self, drawn: Seq, is_cut: bool) -> bool {
        let first = self.fresh.partition_point(|seen| seen.seq <= drawn.saturating_add(STRAY));
        let strays = self.fresh.split_off(first);
        if strays.is_empty() {
            return false;
        }
        let busy: BTreeSet<Lane> = self.fresh.iter().map(|seen| seen.lane).collect();
        let found = strays.len();
        let free = strays.into_iter().filter(|seen| !is_cut && !busy.contains(&seen.lane));
        let before = self.again.len();
        self.again.extend(free);
        self.again.len() - before < found
    }

    /// Whether a forward read has met what the last scan behind it could not see.
    pub(super) fn is_unscanned(&self) -> bool {
        self.fresh.iter().any(|seen| seen.unscanned && self.is_forward(seen))
    }

    fn is_forward(&self, seen: &Seen) -> bool {
        self.lanes.get(&seen.lane).is_none_or(|lane| seen.seq > lane.front)
    }

    /// Leaves out what the forward reads have met beyond the end of a scan that is not over: an event that comes first may lie behind it. Says
    /// which is the first of them.
    pub(super) fn wait_for_scan(&mut self) -> Option<Seq> {
        let ceiling = self.scan_ceiling?;
        let first = self.fresh.partition_point(|seen| seen.seq <= ceiling);
        self.fresh.drain(first..).next().map(|seen| seen.seq)
    }

    /// Leaves out what the forward reads have met from the first such row on. Says which one that is.
    pub(super) fn hold_back(&mut self) -> Option<Seq> {
        let first = self.fresh.iter().find(|seen| seen.unscanned && self.is_forward(seen))?.seq;
        let fresh = std::mem::take(&mut self.fresh);
        self.fresh = fresh.into_iter().filter(|seen| seen.seq < first || !self.is_forward(seen)).collect();
        Some(first)
    }

    /// For a claim that reads up to a place: what was unparked of a key that comes back is due, unless something is parked before it that the
    /// engine does not have.
    pub(super) fn let_out(&mut self) {
        let Self { again, fresh, waiting, returning, .. } = self;
        for seen in again.iter_mut().chain(fresh).chain(waiting) {
            let key = seen.key();
            let of_key = |freed: &&Freed| freed.lane == seen.lane && Some(freed.key.as_str()) == key;
            if seen.state == (State::Follower { returning: true })
                && returning.iter().find(of_key).is_some_and(|freed| freed.is_behind(seen.seq))
            {
                seen.state = State::Due;
            }
        }
    }

    pub(super) fn take(&mut self, row: &PgRow, claim: &Claim) -> sqlx::Result<()> {
        match kind(row) {
            0 => {}
            1 => {
                let seen = LaneSeen {
                    front: 0,
                    any: row.try_get::<Option<i64>, _>(column::SEQ)?.is_some(),
                    beyond: row.try_get::<Option<i64>, _>(column::HEAD)?.is_some(),
                    next_due: optional_time(row, column::AVAILABLE_AT)?,
                };
                self.lanes.insert(lane(row)?, seen);
            }
            5 => self.take_returning(row, claim)?,
            kind => {
                let seen = self.see(row, claim)?;
                match kind {
                    AGAIN => self.again.push(seen),
                    3 => {
                        if row.try_get(column::READ)? {
                            self.read.insert(seen.seq, row::claimed(row, seen.held)?);
                        }
                        self.fresh.push(seen);
                    }
                    _ => self.waiting.push(seen),
                }
            }
        }
        Ok(())
    }

    /// A fresh row as the usual claim sends it: without what is the same for all of them, or follows from the rest.
    pub(super) fn take_fresh(&mut self, row: &PgRow, claim: &Claim) -> sqlx::Result<()> {
        let (seq, lane) = (natural(row.try_get_unchecked(column::SEQ)?), lane(row)?);
        let (available_at, created_at) = (time(row, column::AVAILABLE_AT)?, time(row, column::CREATED_AT)?);
        let head = row.try_get_unchecked::<Option<i64>, _>(column::HEAD)?.map(natural::<Seq>);
        let state = self.state(claim, seq, (available_at, Some(created_at)), (head, false));
        let weight = match row.try_get_unchecked::<Option<i64>, _>(column::WEIGHT)? {
            Some(too_large) => natural(too_large),
            None => {
                self.read.insert(seq, row::claimed(row, head.is_some())?);
                row::weight(row)?
            }
        };
        let (held, unscanned) = (head.is_some(), flag(row, column::COMING_BACK)?);
        let seen =
            Seen { lane, seq, state, available_at, unscanned, waits: false, weight, held, words: None };
        self.fresh.push(seen);
        Ok(())
    }

    fn see(&self, row: &PgRow, claim: &Claim) -> sqlx::Result<Seen> {
        let seq: Seq = natural(row.try_get(column::SEQ)?);
        let available_at = time(row, column::AVAILABLE_AT)?;
        let head = row.try_get::<Option<i64>, _>(column::HEAD)?.map(natural::<Seq>);
        let is_new = row.try_get::<i16, _>(column::STATUS)? == 0;
        let created_at = if is_new { Some(time(row, column::CREATED_AT)?) } else { None };
        let returning = row.try_get::<Option<bool>, _>(column::COMING_BACK)?.unwrap_or(false);
        let state = self.state(claim, seq, (available_at, created_at), (head, returning));
        seen(row, seq, (state, available_at, head.is_some()), claim)
    }

    /// What can become of a row that is due then, was inserted then if it is new, and whose key waits for this head.
    fn state(
        &self,
        claim: &Claim,
        seq: Seq,
        (available_at, created_at): (Timestamp, Option<Timestamp>),
        (head, returning): (Option<Seq>, bool),
    ) -> State {
        // One that was written to be delivered at once is never early, also if the clock was set back since: taken for a
        // delayed one, it would let later events of its key pass.
        let early =
            available_at > self.sight.now && created_at.is_none_or(|created_at| available_at > created_at);
        if claim.in_flight.binary_search(&seq).is_ok() {
            State::Elsewhere
        } else if early {
            // Time comes before the key: what is parked is due.
            if created_at.is_some() { State::Delayed } else { State::Elsewhere }
        } else if head.is_some_and(|head| head != seq) {
            State::Follower { returning }
        } else {
            State::Due
        }
    }

    fn take_returning(&mut self, row: &PgRow, claim: &Claim) -> sqlx::Result<()> {
        let (lane, key) = (lane(row)?, row.try_get::<String, _>(column::KEY)?);
        // The rows of one key come one after the other.
        if self.returning.last().is_none_or(|freed| (freed.lane, &freed.key) != (lane, &key)) {
            let head = natural(row.try_get(column::HEAD)?);
            self.returning.push(Freed { lane, key, head, parked: Vec::new() });
        }
        let parked = row.try_get::<Option<i64>, _>(column::SEQ)?.map(natural::<Seq>);
        if let (Some(seq), Some(freed)) = (parked, self.returning.last_mut()) {
            let in_memory = claim.in_flight.binary_search(&seq).is_ok();
            let state = if in_memory { State::Elsewhere } else { State::Due };
            let available_at = optional_time(row, column::AVAILABLE_AT)?.unwrap_or(Timestamp::EPOCH);
            freed.parked.push(seen(row, seq, (state, available_at, true), claim)?);
        }
        Ok(())
    }
}

fn lane(row: &PgRow) -> sqlx::Result<Lane> {
    Ok(natural(row.try_get::<i32, _>(column::LANE)?.into()))
}

fn seen(
    row: &PgRow,
    seq: Seq,
    (state, available_at, held): (State, Timestamp, bool),
    claim: &Claim,
) -> sqlx::Result<Seen> {
    // Only an admission asks for these, and a key that comes back for those of its events that are looked at once more.
    let words = match claim.admission.is_some() || kind(row) == AGAIN {
        true => Some(Words {
            key: row.try_get(column::KEY)?,
            event_type: row.try_get(column::EVENT_TYPE)?,
            aggregate_type: row.try_get(column::AGGREGATE_TYPE)?,
        }),
        false => None,
    };
    let weight = natural(row.try_get(column::WEIGHT)?);
    let waits = row.try_get::<Option<i16>, _>(column::STATUS)? == Some(2);
    let (lane, unscanned) = (lane(row)?, flag(row, column::UNSCANNED)?);
    Ok(Seen { lane, seq, state, available_at, unscanned, waits, weight, held, words })
}

fn flag(row: &PgRow, place: usize) -> sqlx::Result<bool> {
    Ok(row.try_get_unchecked::<Option<bool>, _>(place)?.unwrap_or(false))
}
