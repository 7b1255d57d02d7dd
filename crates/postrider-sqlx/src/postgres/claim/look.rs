//! One look at the lanes of a claim, as rows that are sorted by what can become of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use postrider_core::{
    Timestamp,
    select::{self, Facts, FreedKey, Hold, RETURNING_KEYS_MAX, RETURNING_OF_A_KEY_MAX},
    store::{Claim, ClaimedEvent, Lane, LaneClaim, RowSummary, Seq},
};
use sqlx::{PgConnection, Row, postgres::PgRow};

use super::{
    super::{
        lease::with_tokens,
        row::{self, column},
        statement::{Shape, integer, natural, optional_time, time},
    },
    history::Placed,
    moment::Moment,
    watermarks::{Begun, Behind},
};

/// Fewest waiting rows that are looked at in a lane. Few are enough: no lane has to fill a claim alone, and the next claim goes on.
const WAITING_OF_A_LANE_MIN: usize = 16;

/// A number that lies further beyond the last one of the sequence was not drawn from it, however long ago that was asked for.
const STRAY: Seq = 1_000_000;

pub(in super::super) fn statement(shape: &Shape) -> Placed {
    let sql = row::spell(include_str!("claim.sql"))
        .replace("{not_in_flight}", "e.seq NOT IN (SELECT unnest($8::bigint[]))")
        .replace("{keys}", &RETURNING_KEYS_MAX.to_string())
        .replace("{of_a_key}", &RETURNING_OF_A_KEY_MAX.to_string());
    Placed::new(&sql, shape)
}

/// A row as a claim reads it, without its payload.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) facts: Facts,
    /// What an admission wants to know, where there is one.
    pub(super) words: Option<Box<Words>>,
}

impl Seen {
    pub(super) fn seq(&self) -> Seq {
        self.facts.seq
    }

    pub(super) fn lane(&self) -> Lane {
        self.facts.lane
    }
}

impl select::Row for Seen {
    fn facts(&self) -> Facts {
        self.facts
    }

    fn summary(&self) -> RowSummary<'_> {
        let words = self.words.as_deref();
        RowSummary {
            lane: self.lane(),
            seq: self.seq(),
            event_type: words.map_or("", |words| &words.event_type),
            aggregate_type: words.map_or("", |words| &words.aggregate_type),
            key: words.and_then(|words| words.key.as_deref()),
            due_at: self.facts.due_at.filter(|_| !self.facts.is_fresh),
        }
    }
}

/// A row's key and types, as they stand in the table.
#[derive(Debug, Default)]
pub(super) struct Words {
    key: Option<String>,
    event_type: String,
    aggregate_type: String,
}

/// What a lane says for itself.
#[derive(Debug, Default)]
pub(super) struct LaneSeen {
    /// Whether it has fresh rows over the ceiling.
    pub(super) beyond: bool,
    pub(super) next_due: Option<Timestamp>,
}

/// What a look saw.
#[derive(Debug, Default)]
pub(in super::super) struct Look {
    pub(super) moment: Moment,
    pub(super) lanes: BTreeMap<Lane, LaneSeen>,
    /// Up to where all lanes were read.
    pub(super) ceiling: Option<Seq>,
    /// How many rows were read because they are late, and the last of them.
    pub(super) late: (usize, Seq),
    pub(super) again: Vec<Seen>,
    pub(super) fresh: Vec<Seen>,
    pub(super) waiting: Vec<Seen>,
    pub(super) freed: Vec<FreedKey<Seen, String>>,
    /// Fresh rows that were read whole.
    pub(super) read: HashMap<Seq, ClaimedEvent>,
    /// Fresh rows that name a transaction which is not over, or has not begun: another server's.
    pub(super) restored: HashSet<Seq>,
    pub(super) limits: Limits,
}

/// Where the fresh rows of a look were cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// All that there were are there.
    Nowhere,
    /// Behind the last late row, which is this one: there may be more of them. Not all of these are for this claim.
    BehindTheLate(Seq),
    /// Behind the last one that is left.
    BehindTheLast,
}

/// What became of rows with a number that the sequence is far from giving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strays {
    /// There is none.
    None,
    Come,
    /// At least one has to wait.
    Wait,
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
    pub(super) waiting_of_a_lane: usize,
    /// How far over the first row to look.
    pub(super) width: u64,
}

impl Limits {
    /// Rows that are skipped are no candidates, so with an admission more are looked at than can come.
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
        Self { fresh, fresh_of_a_lane: fresh, waiting_of_a_lane, width }
    }

    /// Without a ceiling: no lane has to fill a claim alone.
    pub(super) fn few_of_a_lane(self) -> Self {
        Self { fresh_of_a_lane: self.waiting_of_a_lane.min(self.fresh), width: u64::MAX, ..self }
    }

    /// For a look that returns fewer rows than these, of whichever lanes: none of them is full.
    pub(super) fn for_all_lanes(self, rows: usize) -> Self {
        let width = u64::try_from(rows).unwrap_or(u64::MAX).max(1) - 1;
        Self { fresh_of_a_lane: rows, width, ..self }
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

/// Looks at all lanes of a claim.
pub(super) async fn look(
    sql: &Placed,
    conn: &mut PgConnection,
    claim: &Claim,
    begun: &Begun<'_>,
    scale: Scale,
) -> sqlx::Result<Look> {
    let limits = Limits::of(claim, scale.lanes);
    let lanes = || claim.lanes.iter();
    let at_start = |lane: &LaneClaim| (lane.from.due_at, lane.from.due_seq) == (Timestamp::EPOCH, 0);
    let due_at = lanes().map(|lane| (!at_start(lane)).then(|| lane.from.due_at.as_micros()));
    let fronts = begun.cursors.iter().map(|cursor| cursor.forward.then(|| integer(cursor.front)));
    let numbers = |seqs: &[Seq]| seqs.iter().map(|seq| integer(*seq)).collect::<Vec<i64>>();
    let again: Vec<i64> = lanes().flat_map(|lane| &lane.again).map(|seq| integer(*seq)).collect();
    let (since, rest, reached) = match &begun.behind {
        Behind::Nothing => (None, Vec::new(), 0),
        Behind::Since(known) => (Some(known.snapshot.text()), Vec::new(), 0),
        Behind::Rest { transactions, reached } => (None, transactions.to_vec(), *reached),
    };
    let late = if matches!(begun.behind, Behind::Nothing) { 0 } else { limits.fresh };
    let rows = with_tokens(sql.of(scale.reads_log), lanes().map(|lane| lane.lease))
        .bind(fronts.collect::<Vec<Option<i64>>>())
        .bind(lanes().map(|lane| integer(lane.to)).collect::<Vec<_>>())
        .bind(due_at.collect::<Vec<_>>())
        .bind(lanes().map(|lane| integer(lane.from.due_seq)).collect::<Vec<_>>())
        .bind(numbers(&claim.in_flight))
        .bind(again)
        .bind(integer(limits.fresh_of_a_lane))
        .bind(integer(limits.width))
        .bind(integer(limits.waiting_of_a_lane))
        .bind(limits.read_at_once(claim, late))
        .bind(since)
        .bind(rest)
        .bind(integer(reached))
        .bind(integer(begun.front()))
        .bind(integer(limits.fresh))
        .fetch_all(conn)
        .await?;
    let mut look = Look { limits, ..Look::default() };
    // What is due is decided by the clock, which comes in a row of its own.
    for row in rows.iter().filter(|row| kind(row) == 0) {
        look.moment = Moment::of(row)?;
        look.ceiling = row.try_get::<Option<i64>, _>(column::WEIGHT)?.map(natural);
    }
    for row in &rows {
        look.take(row, claim, begun)?;
    }
    look.again.sort_unstable_by_key(Seen::seq);
    look.fresh.sort_unstable_by_key(Seen::seq);
    look.waiting.sort_unstable_by_key(|seen| (seen.facts.due_at, seen.seq()));
    look.freed.sort_by_key(|freed| freed.head);
    Ok(look)
}

/// The kind of rows that are looked at once more.
const AGAIN: i32 = 2;
/// The kind of rows that have committed behind the forward reads.
const LATE: i32 = 6;

fn kind(row: &PgRow) -> i32 {
    row.try_get(column::KIND).unwrap_or_default()
}

impl Look {
    /// Leaves as many fresh rows as a look may see: none beyond the last late one if there may be more of these, and none that lies over one of a
    /// lane that had more.
    pub(super) fn cut_fresh(&mut self, begun: &Begun<'_>) -> Cut {
        let late_end = self.late_end();
        if let Some(end) = late_end {
            self.fresh.retain(|seen| seen.seq() <= end);
        }
        // What is late has a limit of its own.
        let mut forward: BTreeMap<Lane, (Seq, usize, Seq)> =
            begun.cursors.iter().map(|cursor| (cursor.lane.lease.lane, (cursor.front, 0, 0))).collect();
        for seen in &self.fresh {
            if let Some((_, count, last)) =
                forward.get_mut(&seen.lane()).filter(|(front, ..)| seen.seq() > *front)
            {
                (*count, *last) = (*count + 1, seen.seq());
            }
        }
        let full = forward.values().filter(|(_, count, _)| *count >= self.limits.fresh_of_a_lane);
        let full = full.map(|(.., last)| *last).min();
        if let Some(last) = full {
            self.fresh.retain(|seen| seen.seq() <= last);
        }
        let is_over = self.fresh.len() > self.limits.fresh;
        self.fresh.truncate(self.limits.fresh);
        match (full.is_some() || is_over, late_end) {
            (true, _) => Cut::BehindTheLast,
            (false, Some(end)) => Cut::BehindTheLate(end),
            (false, None) => Cut::Nowhere,
        }
    }

    /// The last row that is known to be late, if there may be more of them.
    pub(super) fn late_end(&self) -> Option<Seq> {
        let (count, last) = self.late;
        (count >= self.limits.fresh).then_some(last)
    }

    /// Sets aside what bears a number that the sequence is far from giving: somebody has written it by hand. Such a row comes like one that is looked
    /// at once more, because a forward read that had gone on to it would take all that is written from then on for late. It comes when nothing else
    /// of its lane does, which may be of its key and before it.
    pub(super) fn set_strays_aside(&mut self, drawn: Seq, is_cut: bool) -> Strays {
        let first = self.fresh.partition_point(|seen| seen.seq() <= drawn.saturating_add(STRAY));
        let strays = self.fresh.split_off(first);
        if strays.is_empty() {
            return Strays::None;
        }
        let busy: BTreeSet<Lane> = self.fresh.iter().map(|seen| seen.lane()).collect();
        let found = strays.len();
        let free = strays.into_iter().filter(|seen| !is_cut && !busy.contains(&seen.lane()));
        let before = self.again.len();
        self.again.extend(free);
        if self.again.len() - before < found { Strays::Wait } else { Strays::Come }
    }

    pub(super) fn take(&mut self, row: &PgRow, claim: &Claim, begun: &Begun<'_>) -> sqlx::Result<()> {
        match kind(row) {
            0 => {}
            1 => {
                let seen = LaneSeen {
                    beyond: row.try_get::<Option<i64>, _>(column::HEAD)?.is_some(),
                    next_due: optional_time(row, column::AVAILABLE_AT)?,
                };
                self.lanes.insert(lane(row)?, seen);
            }
            5 => self.take_parked(row, claim)?,
            kind => {
                let mut seen = see(row, claim)?;
                if matches!(kind, 3 | LATE) && !self.is_for_this_claim(&mut seen, row, begun)? {
                    return Ok(());
                }
                match kind {
                    AGAIN => self.again.push(seen),
                    3 | LATE => {
                        if row.try_get(column::READ)? {
                            self.read.insert(seen.seq(), row::claimed(row, seen.facts.hold.is_some())?);
                        }
                        self.fresh.push(seen);
                    }
                    _ => self.waiting.push(seen),
                }
            }
        }
        Ok(())
    }

    /// Whether a fresh row is for this claim; see [`is_for_claim`](Self::is_for_claim).
    fn is_for_this_claim(&mut self, seen: &mut Seen, row: &PgRow, begun: &Begun<'_>) -> sqlx::Result<bool> {
        let transaction: i64 = row.try_get_unchecked(column::WRITTEN_IN)?;
        Ok(self.is_for_claim(seen, transaction, kind(row) == LATE, begun))
    }

    /// Whether a fresh row is not left to another claim: one that is late may have been met by an earlier claim of its lane, or lie where its
    /// forward read meets it. A claim that reads up to a place skips what it leaves to the lane's own.
    pub(super) fn is_for_claim(
        &mut self,
        seen: &mut Seen,
        transaction: i64,
        is_late: bool,
        begun: &Begun<'_>,
    ) -> bool {
        // A visible row was inserted by a transaction that is over. One that names another was restored from another server.
        let is_restored = !self.moment.snapshot.sees(transaction);
        let transaction = if is_restored { 0 } else { transaction };
        if is_restored {
            self.restored.insert(seen.seq());
        }
        let cursor = begun.cursor(seen.lane());
        if is_late {
            self.late = (self.late.0 + 1, self.late.1.max(seen.seq()));
            return cursor.is_some_and(|cursor| cursor.takes_late(seen.seq(), transaction));
        }
        if cursor.is_some_and(|cursor| cursor.leaves_out(seen.seq(), transaction)) {
            seen.facts.is_for_another_claim = true;
        }
        true
    }

    /// A fresh row as the usual claim sends it: without what is the same for all of them, or follows from the rest.
    pub(super) fn take_fresh(&mut self, row: &PgRow, begun: &Begun<'_>) -> sqlx::Result<()> {
        let (seq, lane) = (natural(row.try_get_unchecked(column::SEQ)?), lane(row)?);
        if kind(row) == LATE {
            self.late = (self.late.0 + 1, self.late.1.max(seq));
            // One that lies beyond its lane's front is met by the forward read.
            if begun.cursor(lane).is_none_or(|cursor| seq > cursor.front) {
                return Ok(());
            }
        }
        let (available_at, created_at) = (time(row, column::AVAILABLE_AT)?, time(row, column::CREATED_AT)?);
        let head = row.try_get_unchecked::<Option<i64>, _>(column::HEAD)?.map(natural::<Seq>);
        let bytes = match row.try_get_unchecked::<Option<i64>, _>(column::WEIGHT)? {
            Some(too_large) => natural(too_large),
            None => {
                self.read.insert(seq, row::claimed(row, head.is_some())?);
                row::weight(row)?
            }
        };
        let facts = Facts {
            lane,
            seq,
            is_fresh: true,
            due_at: (available_at > created_at).then_some(available_at),
            hold: head.map(|head| Hold { head, is_returning: false }),
            bytes,
            is_for_another_claim: false,
        };
        self.fresh.push(Seen { facts, words: None });
        Ok(())
    }

    /// A row that is parked behind a freed key, or that such a key has none. The rows of one key come one after the other.
    fn take_parked(&mut self, row: &PgRow, claim: &Claim) -> sqlx::Result<()> {
        let (lane, key) = (lane(row)?, row.try_get::<String, _>(column::KEY)?);
        let head: Seq = natural(row.try_get(column::HEAD)?);
        if self.freed.last().is_none_or(|freed| (freed.lane, freed.head) != (lane, head)) {
            self.freed.push(FreedKey { lane, head, key, parked: Vec::new() });
        }
        let parked = row.try_get::<Option<i64>, _>(column::SEQ)?.is_some();
        if let Some(freed) = self.freed.last_mut().filter(|_| parked) {
            freed.parked.push(see(row, claim)?);
        }
        Ok(())
    }
}

fn lane(row: &PgRow) -> sqlx::Result<Lane> {
    Ok(natural(row.try_get::<i32, _>(column::LANE)?.into()))
}

fn see(row: &PgRow, claim: &Claim) -> sqlx::Result<Seen> {
    let available_at = optional_time(row, column::AVAILABLE_AT)?;
    let is_fresh = row.try_get::<i16, _>(column::STATUS)? == 0;
    // What is parked comes without the time that it was written at.
    let created_at = optional_time(row, column::CREATED_AT)?.filter(|_| is_fresh);
    let head = row.try_get::<Option<i64>, _>(column::HEAD)?.map(natural::<Seq>);
    let is_returning = row.try_get::<Option<bool>, _>(column::COMING_BACK)?.unwrap_or(false);
    // Only an admission asks for these.
    let words = match claim.admission.is_some() {
        true => Some(Box::new(Words {
            key: row.try_get(column::KEY)?,
            event_type: row.try_get(column::EVENT_TYPE)?,
            aggregate_type: row.try_get(column::AGGREGATE_TYPE)?,
        })),
        false => None,
    };
    let facts = Facts {
        lane: lane(row)?,
        seq: natural(row.try_get(column::SEQ)?),
        is_fresh,
        due_at: available_at.filter(|at| created_at.is_none_or(|created_at| *at > created_at)),
        hold: head.map(|head| Hold { head, is_returning }),
        bytes: natural(row.try_get(column::WEIGHT)?),
        is_for_another_claim: false,
    };
    Ok(Seen { facts, words })
}
