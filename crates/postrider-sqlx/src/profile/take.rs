//! Taking what was chosen: rows are locked, marked where their table has room for it, and read whole.

use std::collections::{HashMap, HashSet};

use postrider_core::{
    Timestamp,
    event::limits::EVENT_FLAT_BYTES,
    store::{ClaimedEvent, Seq},
};

use super::{
    Field,
    claim::{Chosen, Claiming},
    db::Tx,
    event,
    lane::{LANE, fence},
    mind::{Mind, Row, State},
    recover,
    spec::Mark,
    window::Narrow,
};

/// What was taken.
pub(super) struct Taken {
    pub(super) now: Timestamp,
    pub(super) rows: Vec<(Seq, Row, ClaimedEvent)>,
    /// Whether rows had to be left: they are too large together, or somebody else has them.
    pub(super) left: bool,
    /// Rows of an earlier claim that may be marked and are locked.
    pub(super) uncertain: Vec<String>,
}

impl Claiming<'_> {
    /// Marks what was chosen and reads the rest of it. None if the lane is lost.
    pub(super) async fn take(
        &self,
        tx: &mut Tx,
        mind: &mut Mind,
        chosen: &Chosen,
    ) -> sqlx::Result<Option<Taken>> {
        let shape = self.shape;
        let Some(now) = fence(shape, tx, self.lease).await? else { return Ok(None) };
        let uncertain = recover::unmark_uncertain(shape, tx, mind).await?;
        let rows = self.lock(tx, &chosen.rows).await?;
        let left = rows.len() < chosen.rows.len();
        if rows.is_empty() {
            return Ok(Some(Taken { now, rows: Vec::new(), left, uncertain }));
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
            let Narrow { seq, id, shown, attempts, created_at, .. } = row.clone();
            let event = event::event(shape, cells, &id, shown.clone(), created_at);
            let held = mind.is_head(seq);
            let claimed = ClaimedEvent { lane: LANE, seq, attempts, held, created_at, event };
            let stamp = stamps.remove(&id);
            taken.push((
                seq,
                Row {
                    id,
                    key: shown.key.clone(),
                    attempts,
                    counted: attempts,
                    stamp,
                    state: State::Claimed,
                    shown,
                },
                claimed,
            ));
        }
        Ok(Some(Taken { now, rows: taken, left, uncertain }))
    }

    /// Locks what was chosen, as far as nobody else has, it is still pending and fits into the bytes that there is room for. Where a row is left, later ones
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
        sql.push(recover::SKIP_LOCKED);
        let found = tx.fetch(sql).await?;
        let bytes: HashMap<String, usize> = found
            .iter()
            .filter_map(|row| Some((row.text(0)?, usize::try_from(row.number(1)?).unwrap_or(usize::MAX))))
            .collect();
        let (mut locked, mut sum) = (Vec::with_capacity(chosen.len()), 0usize);
        let mut left: HashSet<&str> = HashSet::new();
        for row in chosen {
            let Some(bytes) =
                bytes.get(&row.id).filter(|_| row.key().is_none_or(|key| !left.contains(&**key)))
            else {
                left.extend(row.key().map(|key| &**key));
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
}

impl Taken {
    pub(super) fn nothing(now: Timestamp) -> Self {
        Self { now, rows: Vec::new(), left: false, uncertain: Vec::new() }
    }
}
