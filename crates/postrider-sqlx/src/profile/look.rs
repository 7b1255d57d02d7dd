//! Looking at the table: what waited and is due, and what can be read ahead.

use std::collections::HashMap;

use postrider_core::{
    Timestamp,
    store::{Claim, Seq},
};
use tokio::time::Instant;

use super::{
    Field,
    claim::Claiming,
    db::Tx,
    lane::{fence, micros},
    mind::{Mind, Row, State},
    shape::Shape,
    spec::Mark,
    sql::Sql,
    window::{self, Narrow, Window},
};

/// What a look at the table found.
pub(super) struct Looked {
    now: Timestamp,
    due: Vec<Narrow>,
    /// Rows that waited and are not there any more.
    gone: Vec<Seq>,
    window: Option<Window>,
}

impl Claiming<'_> {
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

    /// The places of rows that waited, are due by now, and are wanted, at most as many as the claim has room for. Those that are not wanted take
    /// no room: otherwise so many of them would keep back all that stand behind them.
    fn due_and_wanted(&self, mind: &Mind, now: Timestamp) -> Vec<Seq> {
        let Claim { in_flight, limit, admission, .. } = self.claim;
        let wanted = |(seq, row): &(&Seq, &Row)| match row.state {
            State::Waiting(until) if until <= now && in_flight.binary_search(seq).is_err() => {
                let glance = row.shown.summary(**seq, Some(until));
                admission.as_ref().is_none_or(|admission| admission.admits(&glance))
            }
            _ => false,
        };
        mind.rows.iter().filter(wanted).map(|(seq, _)| *seq).take(*limit).collect()
    }

    /// Rows that waited and are due by now, and those of them that are not there any more.
    async fn due(&self, tx: &mut Tx, mind: &Mind, now: Timestamp) -> sqlx::Result<(Vec<Narrow>, Vec<Seq>)> {
        let shape = self.shape;
        let mut due: HashMap<&str, (Seq, &Row, Timestamp)> = HashMap::new();
        for seq in self.due.get_or_init(|| self.due_and_wanted(mind, now)) {
            if let Some(row) = mind.rows.get(seq)
                && let State::Waiting(until) = row.state
            {
                due.insert(row.id.as_str(), (*seq, row, until));
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
            (row.seq, row.due_at, row.admitted) = (seq, Some(until), true);
            // A table without a column for it is not asked how often it was tried.
            row.attempts = if shape.profile.has(Field::Attempts) { row.attempts } else { known.attempts };
            found.push(row);
        }
        found.sort_unstable_by_key(|row| row.seq);
        // Anyone who took the others away has freed their keys.
        Ok((found, due.values().map(|(seq, ..)| *seq).collect()))
    }

    /// Reads another window. Where it would be full of rows that cannot be claimed, those are left out.
    async fn read(&self, tx: &mut Tx, mind: &Mind) -> sqlx::Result<Window> {
        let began_at = Instant::now();
        let limit = window::ROWS_MAX + mind.rows.len();
        let mut rows = self.rows(tx, page(self.shape, limit, |_| {})).await?;
        let free = |row: &Narrow| {
            !mind.has(&row.id)
                && row.key().is_none_or(|key| !mind.holds.contains_key(key) && !mind.foreign.contains(&**key))
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
