//! What is due: rows that waited, and rows of the window.
//!
//! A claim looks (at the table, if it has to), chooses (in memory), and takes (marks rows and reads their payloads). What it changes in memory
//! it changes after the commit. If the commit is not answered, nobody knows whether the rows are marked: the next claim finds out before it
//! does anything else.

use std::collections::{HashMap, HashSet};

use postrider_core::{
    Timestamp,
    event::limits::EVENT_FLAT_BYTES,
    store::{Claim, Claimed, ClaimedEvent, Lease, Position, Seq},
};
use tokio::time::Instant;

use super::{
    Field,
    db::Tx,
    event,
    lane::{LANE, fence, micros},
    mind::{Mind, Row, State},
    recover,
    shape::Shape,
    spec::Mark,
    sql::Sql,
    window::{self, Narrow, Window},
};

/// What a claim works with.
pub(super) struct Claiming<'a> {
    pub(super) shape: &'a Shape,
    pub(super) claim: &'a Claim,
    pub(super) lease: Lease,
    pub(super) from: Position,
}

/// What a look at the table found.
pub(super) struct Looked {
    now: Timestamp,
    due: Vec<Narrow>,
    /// Rows that waited and are not there any more.
    gone: Vec<Seq>,
    window: Option<Window>,
}

/// What a claim has chosen.
pub(super) struct Chosen {
    rows: Vec<Narrow>,
    /// The place of the first row that was wanted and did not fit.
    unmet: Option<Seq>,
    /// Whether the window was read for this claim.
    just_read: bool,
}

/// What was taken.
pub(super) struct Taken {
    now: Timestamp,
    rows: Vec<(Seq, Row, ClaimedEvent)>,
    /// Whether rows had to be left: they are too large together, or somebody else has them.
    left: bool,
}

impl Claiming<'_> {
    /// Takes the marks off rows that the engine has let go, or never had. None if the lane is lost.
    pub(super) async fn take_back(
        &self,
        tx: &mut Tx,
        mind: &Mind,
        seqs: &[Seq],
    ) -> sqlx::Result<Option<Timestamp>> {
        let now = fence(self.shape, tx, self.lease).await?;
        if now.is_some() {
            recover::unmark(self.shape, tx, mind, seqs).await?;
            recover::unmark_uncertain(self.shape, tx, mind).await?;
        }
        Ok(now)
    }

    /// Whether the table has to be looked at before anything can be chosen.
    pub(super) fn has_to_look(&self, mind: &Mind) -> bool {
        self.has_to_read(mind) || mind.rows.values().any(|row| row.state != State::Claimed)
    }

    fn has_to_read(&self, mind: &Mind) -> bool {
        let serves = |window: &Window| !window.is_old() && window.rows.iter().any(|row| mind.is_free(row));
        !mind.is_full() && !mind.window.as_ref().is_some_and(serves)
    }

    /// Looks at the table. None if the lane is lost.
    pub(super) async fn look(&self, tx: &mut Tx, mind: &Mind) -> sqlx::Result<Option<Looked>> {
        let Some(now) = fence(self.shape, tx, self.lease).await? else { return Ok(None) };
        let (due, gone) = self.due(tx, mind, now).await?;
        let window = if self.has_to_read(mind) { Some(self.read(tx, mind).await?) } else { None };
        Ok(Some(Looked { now, due, gone, window }))
    }

    /// Rows that waited and are due by now.
    async fn due(&self, tx: &mut Tx, mind: &Mind, now: Timestamp) -> sqlx::Result<(Vec<Narrow>, Vec<Seq>)> {
        let shape = self.shape;
        let mut due: HashMap<&str, (Seq, &Row, Timestamp)> = HashMap::new();
        for (seq, row) in &mind.rows {
            match row.state {
                State::Waiting(until) if until <= now && self.claim.in_flight.binary_search(seq).is_err() => {
                    due.insert(row.id.as_str(), (*seq, row, until));
                }
                _ => {}
            }
            if due.len() == self.claim.limit {
                break;
            }
        }
        if due.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let mut sql = window::select(shape);
        sql.push(" AND ");
        shape.ids(&mut sql, due.keys().copied());
        let mut found = Vec::with_capacity(due.len());
        for mut row in tx.fetch(sql).await?.iter().map(|row| Narrow::new(shape, row)) {
            let Some((seq, known, until)) = due.remove(row.id.as_str()) else { continue };
            (row.seq, row.due_at) = (seq, Some(until));
            // A table without a column for it is not asked how often it was tried.
            row.attempts = if shape.profile.has(Field::Attempts) { row.attempts } else { known.attempts };
            found.push(row);
        }
        found.sort_unstable_by_key(|row| row.seq);
        // Whoever took the others away has freed their keys.
        Ok((found, due.values().map(|(seq, ..)| *seq).collect()))
    }

    /// Reads another window. Where it would be full of rows that cannot be claimed, those are left out.
    async fn read(&self, tx: &mut Tx, mind: &Mind) -> sqlx::Result<Window> {
        let began_at = Instant::now();
        let limit = window::ROWS_MAX + mind.rows.len();
        let mut rows = self.rows(tx, page(self.shape, limit, |_| {})).await?;
        let free = |row: &Narrow| {
            !mind.has(&row.id)
                && row
                    .key
                    .as_ref()
                    .is_none_or(|key| !mind.holds.contains_key(key) && !mind.foreign.contains(&**key))
        };
        let is_waste = rows.len() == limit && rows.iter().filter(|row| free(row)).count() < limit / 2;
        if is_waste && !(mind.holds.is_empty() && mind.foreign.is_empty() && mind.rows.is_empty()) {
            rows = self.rows(tx, self.page_without(mind, limit)).await?;
        }
        let truncated = rows.len() == limit;
        Ok(Window::new(rows, truncated, began_at))
    }

    async fn rows(&self, tx: &mut Tx, sql: Sql) -> sqlx::Result<Vec<Narrow>> {
        Ok(tx.fetch(sql).await?.iter().map(|row| Narrow::new(self.shape, row)).collect())
    }

    /// The same without what is in memory, and without keys that wait. One look at each row, however long the lists are: a subquery is
    /// hashed, where a list that is a parameter would be searched from end to end for each row.
    fn page_without(&self, mind: &Mind, limit: usize) -> Sql {
        page(self.shape, limit, |sql| {
            let held: Vec<String> =
                mind.holds.keys().map(ToString::to_string).chain(mind.foreign.iter().cloned()).collect();
            if self.shape.is_ordered() && !held.is_empty() {
                sql.push(" AND (");
                self.shape.key(sql);
                sql.push(" IS NULL OR ");
                self.shape.key(sql);
                sql.none_of("text", held).push(")");
            }
            if !mind.rows.is_empty() {
                sql.push(&format!(" AND {}", self.shape.column(Field::Id)));
                let ids = mind.rows.values().map(|row| row.id.clone()).collect();
                sql.none_of(self.shape.of_type(Field::Id), ids);
            }
        })
    }

    /// Chooses from what waited and from the window: half of what is wanted from each, and what one leaves goes to the other.
    pub(super) fn choose(&self, mind: &mut Mind, due: Vec<Narrow>, just_read: bool) -> Chosen {
        let mut choice = Choice { claim: self.claim, rows: Vec::new(), unmet: None };
        let mut due = due.into_iter().peekable();
        while choice.rows.len() < self.claim.limit.div_ceil(2) {
            let Some(row) = due.next() else { break };
            choice.offer(&row);
        }
        if let Some(window) = mind.window.as_ref().filter(|_| !mind.is_full()) {
            let free = window.rows.iter().filter(|row| mind.is_free(row));
            let taken = free.take_while(|row| choice.offer(row)).count();
            tracing::trace!(taken, of = window.rows.len(), "went over the window");
        }
        if choice.unmet.is_none() {
            due.by_ref().find(|row| !choice.offer(row));
        }
        let Choice { mut rows, unmet, .. } = choice;
        rows.sort_by_key(|row| row.seq);
        if let Some(window) = &mut mind.window {
            window.spent |= unmet.is_none();
        }
        Chosen { rows, unmet, just_read }
    }

    /// Marks what was chosen and reads the rest of it. None if the lane is lost.
    pub(super) async fn take(
        &self,
        tx: &mut Tx,
        mind: &mut Mind,
        chosen: &Chosen,
    ) -> sqlx::Result<Option<Taken>> {
        let shape = self.shape;
        let Some(now) = fence(shape, tx, self.lease).await? else { return Ok(None) };
        recover::unmark_uncertain(shape, tx, mind).await?;
        let rows = self.lock(tx, &chosen.rows).await?;
        let left = rows.len() < chosen.rows.len();
        if rows.is_empty() {
            return Ok(Some(Taken { now, rows: Vec::new(), left }));
        }
        let mut sql = event::whole(shape);
        shape.ids(&mut sql, rows.iter().map(|row| row.id.as_str()));
        let mut whole = event::by_id(tx.fetch(sql).await?);
        if shape.mark != Mark::Nothing {
            mind.uncertain.extend(rows.iter().map(|row| row.id.clone()));
        }
        let mut stamps = self.mark(tx, &rows).await?;
        let mut taken = Vec::with_capacity(rows.len());
        for row in rows {
            let Some(cells) = whole.remove(&row.id) else { continue };
            let Narrow { seq, id, key, attempts, created_at, event_type, aggregate_type, .. } = row.clone();
            let event = event::event(shape, cells, &id, event_type, aggregate_type, key.clone(), created_at);
            let held = mind.is_head(seq);
            let claimed = ClaimedEvent { lane: LANE, seq, attempts, held, created_at, event };
            let stamp = stamps.remove(&id);
            taken.push((
                seq,
                Row { id, key, attempts, counted: attempts, stamp, state: State::Claimed },
                claimed,
            ));
        }
        Ok(Some(Taken { now, rows: taken, left }))
    }

    /// Locks what was chosen, as far as it is still pending and fits into the bytes that there is room for. Where a row is left, later ones
    /// of its key are too.
    async fn lock<'r>(&self, tx: &mut Tx, chosen: &'r [Narrow]) -> sqlx::Result<Vec<&'r Narrow>> {
        let shape = self.shape;
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let sizes: Vec<String> = [Field::Payload, Field::Headers]
            .into_iter()
            .filter(|field| shape.profile.has(*field))
            .map(|field| format!("COALESCE({}, 0)", shape.size(field)))
            .collect();
        let size = shape.kind.text(&sizes.join(" + "));
        let mut sql =
            shape.sql(format!("SELECT {}, {size} FROM {} WHERE ", shape.text(Field::Id), shape.table()));
        shape.ids(&mut sql, chosen.iter().map(|row| row.id.as_str()));
        sql.push(" AND ");
        shape.pending(&mut sql);
        sql.push(" FOR UPDATE");
        let found = tx.fetch(sql).await?;
        let bytes: HashMap<String, usize> = found
            .iter()
            .filter_map(|row| Some((row.text(0)?, usize::try_from(row.number(1)?).unwrap_or(usize::MAX))))
            .collect();
        let (mut locked, mut sum) = (Vec::with_capacity(chosen.len()), 0usize);
        let mut left: HashSet<&str> = HashSet::new();
        for row in chosen {
            let Some(bytes) =
                bytes.get(&row.id).filter(|_| row.key.as_deref().is_none_or(|key| !left.contains(key)))
            else {
                left.extend(row.key.as_deref());
                continue;
            };
            sum = sum.saturating_add(bytes.saturating_add(EVENT_FLAT_BYTES));
            if sum > self.claim.bytes && !locked.is_empty() {
                break;
            }
            locked.push(row);
        }
        Ok(locked)
    }

    /// Marks rows as claimed, and reads back when.
    async fn mark(&self, tx: &mut Tx, rows: &[&Narrow]) -> sqlx::Result<HashMap<String, String>> {
        let shape = self.shape;
        let ids = || rows.iter().map(|row| row.id.as_str());
        let mut sql = shape.sql(format!("UPDATE {} SET ", shape.table()));
        match (shape.mark, &shape.profile.statuses) {
            (Mark::Nothing, _) => return Ok(HashMap::new()),
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
            sql.push(&format!(", {} = {}", shape.column(Field::ClaimedAt), shape.kind.began()));
        }
        sql.push(&recover::kept(shape)).push(" WHERE ");
        shape.ids(&mut sql, ids());
        tx.execute(sql).await?;
        if shape.mark != Mark::Status || !shape.profile.has(Field::ClaimedAt) {
            return Ok(HashMap::new());
        }
        let (id, at) = (shape.text(Field::Id), shape.text(Field::ClaimedAt));
        let mut sql = shape.sql(format!("SELECT {id}, {at} FROM {} WHERE ", shape.table()));
        shape.ids(&mut sql, ids());
        Ok(tx.fetch(sql).await?.iter().filter_map(|row| Some((row.text(0)?, row.text(1)?))).collect())
    }

    /// What the claim returns, and what memory keeps of it.
    pub(super) fn end(&self, mind: &mut Mind, chosen: &Chosen, taken: Taken) -> Claimed {
        let Taken { now, rows, left } = taken;
        mind.uncertain.clear();
        let mut seqs: Vec<Seq> = rows.iter().map(|(seq, ..)| *seq).collect();
        seqs.sort_unstable();
        let mut events = Vec::with_capacity(rows.len());
        for (seq, row, event) in rows {
            mind.insert(seq, row);
            events.push(event);
        }
        let truncated = mind.window.as_ref().is_some_and(|window| window.truncated);
        match &mut mind.window {
            // What somebody else has taken away, or was too large, is to be seen anew.
            Some(_) if left => mind.window = None,
            Some(window) => window.take_out(&seqs),
            None => {}
        }
        // With memory full of rows that wait, nothing fresh was looked at, and nothing will be before some of them are gone.
        let full = mind.is_full();
        // A window that gave nothing and is not new says nothing of what is there now.
        let whole =
            chosen.unmet.is_none() && !left && !truncated && (chosen.just_read || !events.is_empty() || full);
        let seq = match chosen.unmet {
            Some(unmet) => unmet.saturating_sub(1),
            None if events.is_empty() && (full || (chosen.just_read && truncated)) => self.from.seq,
            None if !chosen.just_read => mind.step(),
            None => mind.last(),
        };
        let met = if whole { Seq::MAX } else { seq };
        let waiting = mind.rows.values().filter_map(|row| match row.state {
            State::Waiting(until) if until > now => Some(until.since(now)),
            _ => None,
        });
        Claimed {
            positions: vec![(LANE, Position { seq, met, ..Position::START })],
            again: Vec::new(),
            lost: Vec::new(),
            more: !whole,
            next_due: waiting.min(),
            now,
            events,
        }
    }
}

impl Looked {
    /// Takes what was found into memory. Gives the rows that waited and are due.
    pub(super) fn remember(self, mind: &mut Mind) -> (Timestamp, Vec<Narrow>, bool) {
        self.gone.into_iter().for_each(|seq| mind.remove(seq));
        let just_read = self.window.is_some();
        if let Some(mut window) = self.window {
            mind.number(&mut window.rows);
            mind.window = Some(window);
            mind.windows_read += 1;
        }
        (self.now, self.due, just_read)
    }
}

impl Chosen {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Taken {
    pub(super) fn nothing(now: Timestamp) -> Self {
        Self { now, rows: Vec::new(), left: false }
    }
}

/// Pending rows in their order, but for those that wait, are too young, or are somebody else's.
fn page(shape: &Shape, limit: usize, without: impl Fn(&mut Sql)) -> Sql {
    let mut sql = window::select(shape);
    if shape.profile.has(Field::AvailableAt) {
        let due = shape.column(Field::AvailableAt);
        sql.push(&format!(" AND ({due} IS NULL OR {due} <= {})", shape.kind.began()));
    }
    if shape.profile.has(Field::CreatedAt) && !shape.profile.skip_recent.is_zero() {
        let created = shape.column(Field::CreatedAt);
        sql.push(&format!(" AND {created} <= ")).before_now(micros(shape.profile.skip_recent));
    }
    if shape.mark == Mark::Owner {
        let by = shape.column(Field::ClaimedBy);
        sql.push(&format!(" AND ({by} IS NULL"));
        if shape.profile.has(Field::ClaimedAt) {
            let at = shape.column(Field::ClaimedAt);
            sql.push(&format!(" OR {at} <= ")).before_now(micros(shape.profile.recover_after));
        }
        sql.push(")");
    }
    without(&mut sql);
    sql.push(&format!(" ORDER BY {} LIMIT {limit}", shape.order()));
    sql
}

/// The plan of a look for pending rows.
pub(super) fn explained(shape: &Shape) -> Sql {
    let mut sql = page(shape, window::ROWS_MAX, |_| {});
    sql.text.insert_str(0, shape.kind.pick("EXPLAIN ", "EXPLAIN FORMAT=JSON "));
    sql
}

/// What a claim has chosen so far.
struct Choice<'a> {
    claim: &'a Claim,
    rows: Vec<Narrow>,
    unmet: Option<Seq>,
}

impl Choice<'_> {
    /// Takes a row if it is wanted. False if it did not fit.
    fn offer(&mut self, row: &Narrow) -> bool {
        if self.rows.len() >= self.claim.limit {
            self.unmet = Some(row.seq);
            return false;
        }
        if self.claim.admission.as_ref().is_none_or(|admission| admission.admits(&row.glance())) {
            self.rows.push(row.clone());
        }
        true
    }
}
