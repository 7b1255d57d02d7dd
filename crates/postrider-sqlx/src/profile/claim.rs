//! What is due, in order.
//!
//! A claim reads from the oldest row on: rows of a foreign table can be committed in any order, and nothing but their status says which
//! were met. It reads narrow rows first, marks those that are wanted and fit, and reads the payloads of these alone.

use std::sync::Arc;

use postrider_core::{
    GLOBAL_AGGREGATE, Timestamp,
    event::limits::EVENT_FLAT_BYTES,
    store::{Claim, Claimed, ClaimedEvent, Glance, Lease, Position, Seq},
};

use super::{
    Field,
    db::{Cells, Tx},
    event,
    lane::{LANE, fence, micros},
    mind::{Cursor, Mind, Row, State},
    recover,
    shape::Shape,
    spec::Mark,
    sql::Sql,
};

/// Most pages of narrow rows that one claim reads, and the least that is in one.
const PAGES_MAX: usize = 20;
const PAGE_MIN: usize = 50;

/// A row before its payload is read.
struct Narrow {
    id: String,
    event_type: String,
    aggregate_type: String,
    key: Option<Arc<str>>,
    attempts: u32,
    created_at: Timestamp,
    created_text: Option<String>,
    bytes: usize,
}

impl Narrow {
    fn new(shape: &Shape, row: &Cells) -> Self {
        let unsigned = |column| row.number(column).and_then(|number| u32::try_from(number).ok());
        Self {
            id: row.text(0).unwrap_or_default(),
            event_type: row.text(1).unwrap_or_else(|| shape.profile.event_type.clone()),
            aggregate_type: row.text(2).unwrap_or_else(|| GLOBAL_AGGREGATE.to_owned()),
            key: row.text(3).map(Arc::from),
            attempts: unsigned(4).unwrap_or_default(),
            created_at: Timestamp::from_micros(row.number(5).unwrap_or_default()),
            created_text: row.text(6),
            bytes: unsigned(7).unwrap_or_default() as usize + EVENT_FLAT_BYTES,
        }
    }
}

/// How far a walk over the table came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// All of it was seen.
    Whole,
    /// It came to the end, and began in the middle.
    Rest,
    /// Something is left.
    Stopped,
}

/// What a claim works with.
pub(super) struct Claiming<'a> {
    pub(super) shape: &'a Shape,
    pub(super) claim: &'a Claim,
    pub(super) lease: Lease,
    pub(super) from: Position,
}

impl Claiming<'_> {
    /// What the claim returns if the lane is somebody else's.
    fn lost(&self) -> Claimed {
        Claimed { lost: vec![LANE], ..Claimed::default() }
    }

    /// Takes the marks off rows that the engine has let go. False if the lane is lost.
    pub(super) async fn take_back(
        &self,
        tx: &mut Tx,
        mind: &Mind,
        seqs: &[Seq],
    ) -> sqlx::Result<Option<Timestamp>> {
        let now = fence(self.shape, tx, self.lease).await?;
        if now.is_some() {
            recover::unmark(self.shape, tx, mind, seqs).await?;
        }
        Ok(now)
    }

    pub(super) async fn claim(&self, tx: &mut Tx, mind: &mut Mind) -> sqlx::Result<Claimed> {
        let Some(now) = fence(self.shape, tx, self.lease).await? else { return Ok(self.lost()) };
        let mut choice = Choice { claim: self.claim, chosen: Vec::new(), bytes: 0, full: false };
        self.choose_due(tx, mind, now, &mut choice).await?;
        let walk = self.choose_fresh(tx, mind, &mut choice).await?;
        let (ended, more) = (walk == Walk::Whole, choice.full || walk == Walk::Stopped);
        let events = self.take(tx, mind, choice.chosen).await?;
        let seq = self.from.seq.max(mind.last()) + Seq::from(!ended);
        let met = if ended { Seq::MAX } else { seq };
        let waiting = mind.rows.values().filter_map(|row| match row.state {
            State::Waiting(until) if until > now => Some(until.since(now)),
            _ => None,
        });
        Ok(Claimed {
            events,
            positions: vec![(LANE, Position { seq, met, ..Position::START })],
            again: Vec::new(),
            lost: Vec::new(),
            more,
            next_due: waiting.min(),
            now,
        })
    }

    fn narrow(&self) -> Sql {
        let shape = self.shape;
        let (event_type, of) = (shape.text(Field::EventType), shape.text(Field::AggregateType));
        let mut sql = shape.sql(format!("SELECT {}, {event_type}, {of}, ", shape.text(Field::Id)));
        shape.key(&mut sql);
        let sizes: Vec<String> = [Field::Payload, Field::Headers]
            .into_iter()
            .filter(|field| shape.profile.has(*field))
            .map(|field| format!("COALESCE({}, 0)", shape.size(field)))
            .collect();
        let created = match shape.profile.has(Field::CreatedAt) {
            true => shape.kind.micros(&shape.column(Field::CreatedAt)),
            false => shape.kind.micros(shape.kind.now()),
        };
        let size = shape.kind.text(&sizes.join(" + "));
        sql.push(&format!(
            ", {}, {created}, {}, {size} FROM {} WHERE ",
            shape.text(Field::Attempts),
            shape.text(Field::CreatedAt),
            shape.table()
        ));
        shape.pending(&mut sql);
        sql
    }

    /// Rows that waited and are due by now.
    async fn choose_due(
        &self,
        tx: &mut Tx,
        mind: &mut Mind,
        now: Timestamp,
        choice: &mut Choice<'_>,
    ) -> sqlx::Result<()> {
        let is_due = |(seq, row): &(&Seq, &Row)| {
            matches!(row.state, State::Waiting(until) if until <= now)
                && self.claim.in_flight.binary_search(seq).is_err()
        };
        let due: Vec<(Seq, String)> = mind
            .rows
            .iter()
            .filter(is_due)
            .take(self.claim.limit)
            .map(|(seq, row)| (*seq, row.id.clone()))
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        let mut sql = self.narrow();
        sql.push(" AND ");
        self.shape.ids(&mut sql, due.iter().map(|(_, id)| id.as_str()));
        sql.push(&format!(" ORDER BY {}", self.shape.order()));
        let rows: Vec<Narrow> = tx.fetch(sql).await?.iter().map(|row| Narrow::new(self.shape, row)).collect();
        // Whoever took it away has freed its key.
        for (seq, id) in &due {
            if !rows.iter().any(|row| row.id == *id) {
                mind.remove(*seq);
            }
        }
        for mut row in rows {
            // A table without a column for it is not asked how often it was tried.
            let known = mind.rows.get(&mind.place(&row.id)).map_or(0, |row| row.attempts);
            row.attempts = if self.shape.profile.has(Field::Attempts) { row.attempts } else { known };
            choice.offer(mind, row);
        }
        Ok(())
    }

    /// Rows that nobody has met, or that were let go. Says how far it came.
    async fn choose_fresh(
        &self,
        tx: &mut Tx,
        mind: &mut Mind,
        choice: &mut Choice<'_>,
    ) -> sqlx::Result<Walk> {
        let mut cursor = mind.cursor.take();
        let began_within = cursor.is_some();
        for _ in 0..PAGES_MAX {
            let page = (self.claim.limit.saturating_sub(choice.chosen.len())).max(PAGE_MIN);
            let rows = tx.fetch(self.page(mind, cursor.as_ref(), page)).await?;
            let ended = rows.len() < page;
            for row in &rows {
                let row = Narrow::new(self.shape, row);
                let next = Cursor { created_at: row.created_text.clone(), id: row.id.clone() };
                if !choice.offer(mind, row) {
                    // It stands at the bottom the next time, unless rows before it were passed over.
                    mind.cursor = cursor.filter(|_| began_within);
                    return Ok(Walk::Stopped);
                }
                cursor = Some(next);
            }
            if ended {
                // A walk that began in the middle has not seen what lies before.
                return Ok(if began_within { Walk::Rest } else { Walk::Whole });
            }
        }
        mind.cursor = cursor;
        Ok(Walk::Stopped)
    }

    /// One page of fresh rows.
    fn page(&self, mind: &Mind, cursor: Option<&Cursor>, limit: usize) -> Sql {
        let Self { shape, .. } = self;
        let mut sql = self.narrow();
        self.due(&mut sql);
        let held = mind.holds.keys().map(ToString::to_string);
        let held: Vec<String> = held.chain(mind.foreign.iter().cloned()).collect();
        if shape.is_ordered() && !held.is_empty() {
            sql.push(" AND (");
            shape.key(&mut sql);
            sql.push(" IS NULL OR NOT (");
            among_keys(shape, &mut sql, held);
            sql.push("))");
        }
        let known = mind.rows.values().filter(|row| match row.state {
            State::Claimed => shape.mark != Mark::Status,
            State::Waiting(_) => row.key.is_none(),
        });
        let known: Vec<&str> = known.map(|row| row.id.as_str()).collect();
        if !known.is_empty() {
            sql.push(" AND NOT (");
            shape.ids(&mut sql, known.into_iter());
            sql.push(")");
        }
        if let Some(cursor) = cursor {
            let id = shape.column(Field::Id);
            match &cursor.created_at {
                Some(created_at) => sql
                    .push(&format!(" AND ({}, {id}) > (", shape.column(Field::CreatedAt)))
                    .bind(created_at, shape.of_type(Field::CreatedAt))
                    .push(", "),
                None => sql.push(&format!(" AND {id} > (")),
            };
            sql.bind(&cursor.id, shape.of_type(Field::Id)).push(")");
        }
        sql.push(&format!(" ORDER BY {} LIMIT {limit}", shape.order()));
        sql
    }

    /// A row that is not waiting, not too young, and not somebody else's.
    fn due(&self, sql: &mut Sql) {
        let shape = self.shape;
        let now = shape.kind.now();
        if shape.profile.has(Field::AvailableAt) {
            let due = shape.column(Field::AvailableAt);
            sql.push(&format!(" AND ({due} IS NULL OR {due} <= {now})"));
        }
        if shape.profile.has(Field::CreatedAt) && !shape.profile.skip_recent.is_zero() {
            let created = shape.column(Field::CreatedAt);
            sql.push(&format!(" AND {created} <= ")).after_now(-micros(shape.profile.skip_recent));
        }
        if shape.mark == Mark::Owner {
            let by = shape.column(Field::ClaimedBy);
            sql.push(&format!(" AND ({by} IS NULL"));
            if shape.profile.has(Field::ClaimedAt) {
                let at = shape.column(Field::ClaimedAt);
                sql.push(&format!(" OR {at} <= ")).after_now(-micros(shape.profile.recover_after));
            }
            sql.push(")");
        }
    }

    /// Marks what was chosen and reads the rest of it.
    async fn take(
        &self,
        tx: &mut Tx,
        mind: &mut Mind,
        chosen: Vec<Narrow>,
    ) -> sqlx::Result<Vec<ClaimedEvent>> {
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let shape = self.shape;
        let mut sql = event::whole(shape);
        shape.ids(&mut sql, chosen.iter().map(|row| row.id.as_str()));
        sql.push(" AND ");
        shape.pending(&mut sql);
        sql.push(" FOR UPDATE");
        let mut whole = event::by_id(tx.fetch(sql).await?);
        // What somebody else has taken meanwhile is not there any more.
        let chosen: Vec<Narrow> = chosen.into_iter().filter(|row| whole.contains_key(&row.id)).collect();
        let stamps = self.mark(tx, &chosen).await?;
        let mut events = Vec::with_capacity(chosen.len());
        for row in chosen {
            let Some(cells) = whole.remove(&row.id) else { continue };
            let Narrow { id, key, attempts, created_at, event_type, aggregate_type, .. } = row;
            let stamp = stamps.iter().find(|(marked, _)| *marked == id).map(|(_, stamp)| stamp.clone());
            let seq = mind.place(&id);
            let held = mind.is_head(seq);
            let event = event::event(shape, cells, &id, event_type, aggregate_type, key.clone(), created_at);
            let state = State::Claimed;
            let seq = mind.insert(Row { id, key, attempts, counted: attempts, stamp, state });
            events.push(ClaimedEvent { lane: LANE, seq, attempts, held, created_at, event });
        }
        events.sort_unstable_by_key(|event| event.seq);
        Ok(events)
    }

    /// Marks rows as claimed, and reads back when.
    async fn mark(&self, tx: &mut Tx, rows: &[Narrow]) -> sqlx::Result<Vec<(String, String)>> {
        let shape = self.shape;
        let ids = || rows.iter().map(|row| row.id.as_str());
        let mut sql = shape.sql(format!("UPDATE {} SET ", shape.table()));
        // The same for all rows of the statement.
        let now = shape.kind.pick("statement_timestamp()", "UTC_TIMESTAMP(6)");
        match (shape.mark, &shape.profile.statuses) {
            (Mark::Nothing, _) => return Ok(Vec::new()),
            (Mark::Status, Some(statuses)) => {
                sql.push(&format!("{} = ", shape.column(Field::Status)));
                statuses.claimed.iter().for_each(|value| shape.value(&mut sql, Field::Status, value));
            }
            _ => {
                sql.push(&format!("{} = ", shape.column(Field::ClaimedBy)));
                sql.bind(recover::mark_of(self.lease.token), shape.of_type(Field::ClaimedBy));
            }
        }
        if shape.profile.has(Field::ClaimedAt) {
            sql.push(&format!(", {} = {now}", shape.column(Field::ClaimedAt)));
        }
        sql.push(&recover::kept(shape)).push(" WHERE ");
        shape.ids(&mut sql, ids());
        tx.execute(sql).await?;
        if shape.mark != Mark::Status || !shape.profile.has(Field::ClaimedAt) {
            return Ok(Vec::new());
        }
        let (id, at) = (shape.text(Field::Id), shape.text(Field::ClaimedAt));
        let mut sql = shape.sql(format!("SELECT {id}, {at} FROM {} WHERE ", shape.table()));
        shape.ids(&mut sql, ids());
        Ok(tx.fetch(sql).await?.iter().filter_map(|row| Some((row.text(0)?, row.text(1)?))).collect())
    }
}

/// The row's key is one of these.
fn among_keys(shape: &Shape, sql: &mut Sql, keys: Vec<String>) {
    let before = sql.text.len();
    shape.key(sql);
    let expression = sql.text.split_off(before);
    sql.among(&expression, "text", keys.into_iter());
}

/// What a claim has chosen so far.
struct Choice<'a> {
    claim: &'a Claim,
    chosen: Vec<Narrow>,
    bytes: usize,
    full: bool,
}

impl Choice<'_> {
    /// Takes a row if it is wanted. False if it did not fit.
    fn offer(&mut self, mind: &Mind, row: Narrow) -> bool {
        let bytes = self.bytes.saturating_add(row.bytes);
        if self.chosen.len() >= self.claim.limit || (bytes > self.claim.bytes && !self.chosen.is_empty()) {
            self.full = true;
            return false;
        }
        let glance = Glance {
            lane: LANE,
            seq: mind.place(&row.id),
            event_type: &row.event_type,
            aggregate_type: &row.aggregate_type,
            key: row.key.as_deref(),
            due_at: None,
        };
        if self.claim.admission.as_ref().is_none_or(|admission| admission.admits(&glance)) {
            self.bytes = bytes;
            self.chosen.push(row);
        }
        true
    }
}
