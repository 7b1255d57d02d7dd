//! What became of rows: each outcome as that system's own program would write it, under the fence of the lane and of the row.

use std::{collections::BTreeMap, time::Duration};

use postrider_core::{
    event::limits::ERROR_CHARS_MAX,
    store::{Change, Lease, Seq, Settled, Settlement},
};
use tokio::time::Instant;
use tracing::warn;

use super::{
    Field,
    db::Tx,
    lane::{LANE, fence, micros},
    mind::{Mind, Row, State, Wait},
    recover::{claim_kept, kept, locked_by_others, mark_of, unlocked},
    shape::Shape,
    spec::Mark,
    sql::Sql,
};

/// When rows were claimed, and how often they had been tried: what rows have in common that were claimed together.
type Together<'m> = (Option<&'m str>, u32);

/// What memory has to do once the outcomes are committed.
pub(super) enum Then {
    Forget(Seq),
    Counted(Seq, u32),
    Wait(Seq, Wait),
}

impl Then {
    pub(super) fn apply(self, shape: &Shape, mind: &mut Mind) {
        match self {
            Self::Forget(seq) => mind.remove(seq),
            Self::Counted(seq, attempts) => {
                mind.rows.get_mut(&seq).into_iter().for_each(|row| row.counted = attempts);
            }
            Self::Wait(seq, wait) => {
                let told = shape.profile.has(Field::AvailableAt) && shape.profile.has(Field::Attempts);
                mind.wait(seq, wait, told);
            }
        }
    }
}

/// Writes outcomes.
pub(super) struct Settle<'a> {
    pub(super) shape: &'a Shape,
    pub(super) lease: Lease,
    /// How long delivered rows are to be kept, where their system deletes them.
    pub(super) retention: Duration,
    /// When to commit what was written, and leave the rest to the next settle: most outcomes are a statement each, and a transaction that does not fit into
    /// the time of a verb would be tried again as it is.
    pub(super) until: Instant,
}

impl Settle<'_> {
    /// Writes outcomes, if the lane is still held.
    pub(super) async fn settle(
        &self,
        tx: &mut Tx,
        mind: &Mind,
        settlements: &[Settlement],
    ) -> sqlx::Result<(Settled, Vec<Then>)> {
        let held =
            if mind.lease == Some(self.lease) { fence(self.shape, tx, self.lease).await? } else { None };
        let Some(now) = held else {
            return Ok((Settled { lost: vec![LANE], ..Settled::default() }, Vec::new()));
        };
        let ours = settlements.iter().filter(|settlement| self.claimed(mind, settlement).is_some());
        let ids: Vec<&str> = ours.map(|settlement| settlement.event_id.as_str()).collect();
        let locked = locked_by_others(self.shape, tx, &ids).await?;
        let (mut applied, mut expected, mut left) = (0, 0, Vec::new());
        let mut then = Vec::with_capacity(settlements.len());
        // Rows that were claimed together are settled together.
        let mut done: BTreeMap<Together<'_>, Vec<(Seq, &Row)>> = BTreeMap::new();
        for settlement in settlements {
            let Settlement { seq, event_id, change, key, .. } = settlement;
            let Some(row) = self.claimed(mind, settlement) else { continue };
            if locked.contains(event_id.as_str()) {
                left.push(*seq);
                continue;
            }
            match change {
                Change::Done => {
                    done.entry((row.stamp.as_deref(), row.counted)).or_default().push((*seq, row));
                    continue;
                }
                _ if self.is_late(expected) => {
                    left.push(*seq);
                    continue;
                }
                Change::Attempt { attempts } => {
                    applied += self.attempt(tx, row, *attempts).await?;
                    then.push(Then::Counted(*seq, *attempts));
                }
                Change::Wait { after, attempts, error, reason } => {
                    applied += self.wait(tx, row, micros(*after), *attempts, error.as_deref()).await?;
                    let (attempts, reason) = (*attempts, *reason);
                    let wait = Wait { until: now.plus(*after), attempts, reason, holds: key.is_some() };
                    then.push(Then::Wait(*seq, wait));
                }
                Change::Dead { attempts, error, .. } => {
                    applied += self.dead(tx, row, *attempts, error).await?;
                    then.push(Then::Forget(*seq));
                }
            }
            expected += 1;
        }
        for rows in done.into_values() {
            let (seqs, rows): (Vec<Seq>, Vec<&Row>) = rows.into_iter().unzip();
            if self.is_late(expected) {
                left.extend(seqs);
                continue;
            }
            expected += seqs.len() as u64;
            applied += self.done(tx, &rows).await?;
            then.extend(seqs.into_iter().map(Then::Forget));
        }
        if applied < expected {
            warn!(table = %self.shape.profile.table, events = expected - applied,
                "events were changed by somebody else while they were under way: their outcomes were not written");
        }
        Ok((Settled { applied, locked: left, ..Settled::default() }, then))
    }

    /// Whether the rest is left to the next settle. Something is written in any case.
    fn is_late(&self, written: u64) -> bool {
        written > 0 && Instant::now() >= self.until
    }

    /// The row of a settlement, if it is the one that was claimed.
    fn claimed<'m>(&self, mind: &'m Mind, settlement: &Settlement) -> Option<&'m Row> {
        let ours = |row: &&Row| row.state == State::Claimed && row.id == settlement.event_id.as_str();
        mind.rows.get(&settlement.seq).filter(ours)
    }

    fn update(&self) -> Sql {
        self.shape.sql(format!("UPDATE {} SET ", self.shape.table()))
    }

    /// Sets a status, and takes the mark of the claim away where it is not the status itself.
    fn set_status(&self, sql: &mut Sql, pick: impl Fn(&super::Statuses) -> &super::Value) {
        let shape = self.shape;
        if let Some(statuses) = &shape.profile.statuses {
            sql.push(&format!("{} = ", shape.column(Field::Status)));
            shape.value(sql, Field::Status, pick(statuses));
        }
        if shape.mark == Mark::Owner {
            sql.push(", ").push(&unlocked(shape));
        }
    }

    fn set_attempts(&self, sql: &mut Sql, attempts: u32) {
        let shape = self.shape;
        if shape.profile.has(Field::Attempts) {
            sql.push(&format!(", {} = ", shape.column(Field::Attempts)));
            sql.bind_number(attempts.into(), shape.of_type(Field::Attempts));
        }
    }

    fn set_error(&self, sql: &mut Sql, error: &str) {
        let shape = self.shape;
        if shape.profile.has(Field::Error) {
            sql.push(&format!(", {} = ", shape.column(Field::Error)));
            let error: String = cleaned(error).chars().take(shape.length(Field::Error)).collect();
            sql.bind(error, shape.of_type(Field::Error));
        }
    }

    /// The rows, as far as they are still ours: claimed when and by whom we remember, and tried as often.
    fn fenced(&self, sql: &mut Sql, rows: &[&Row]) {
        let shape = self.shape;
        sql.push(" WHERE ");
        shape.ids(sql, rows.iter().map(|row| row.id.as_str()));
        let Some(statuses) = &shape.profile.statuses else { return };
        match shape.mark {
            Mark::Status => {
                sql.push(&format!(" AND {} = ", shape.column(Field::Status)));
                statuses.claimed.iter().for_each(|value| shape.value(sql, Field::Status, value));
                let Some(first) = rows.first() else { return };
                if let Some(stamp) = &first.stamp {
                    sql.push(&format!(" AND {} = ", shape.text(Field::ClaimedAt))).bind(stamp, "text");
                }
                if shape.profile.has(Field::Attempts) {
                    sql.push(&format!(" AND {} = ", shape.column(Field::Attempts)));
                    sql.bind_number(first.counted.into(), "bigint");
                }
            }
            Mark::Owner => {
                sql.push(&format!(" AND {} = ", shape.column(Field::ClaimedBy)));
                sql.bind(mark_of(self.lease.token), shape.of_type(Field::ClaimedBy)).push(" AND ");
                shape.pending(sql);
            }
            Mark::Nothing => {
                sql.push(" AND ");
                shape.pending(sql);
            }
        }
    }

    async fn done(&self, tx: &mut Tx, rows: &[&Row]) -> sqlx::Result<u64> {
        let shape = self.shape;
        let is_kept = shape.profile.statuses.is_some() && !(shape.profile.purges && self.retention.is_zero());
        let mut sql = match is_kept {
            false => shape.sql(format!("DELETE FROM {}", shape.table())),
            true => {
                let mut sql = self.update();
                self.set_status(&mut sql, |statuses| &statuses.done);
                if shape.profile.has(Field::DoneAt) {
                    sql.push(&format!(", {} = {}", shape.column(Field::DoneAt), shape.kind.now()));
                }
                sql.push(&kept(shape));
                sql
            }
        };
        self.fenced(&mut sql, rows);
        tx.execute(sql).await
    }

    async fn wait(
        &self,
        tx: &mut Tx,
        row: &Row,
        after: i64,
        attempts: u32,
        error: Option<&str>,
    ) -> sqlx::Result<u64> {
        let shape = self.shape;
        if shape.profile.statuses.is_none() {
            return Ok(1);
        }
        let mut sql = self.update();
        self.set_status(&mut sql, |statuses| &statuses.retry);
        self.set_attempts(&mut sql, attempts);
        if shape.profile.has(Field::AvailableAt) {
            sql.push(&format!(", {} = ", shape.column(Field::AvailableAt))).after_now(after);
        }
        if let Some(error) = error.filter(|_| shape.profile.tells_retry) {
            self.set_error(&mut sql, error);
        }
        sql.push(&kept(shape));
        self.fenced(&mut sql, &[row]);
        tx.execute(sql).await
    }

    async fn attempt(&self, tx: &mut Tx, row: &Row, attempts: u32) -> sqlx::Result<u64> {
        let shape = self.shape;
        if !shape.profile.has(Field::Attempts) {
            return Ok(1);
        }
        let mut sql = self.update();
        sql.push(&format!("{} = ", shape.column(Field::Attempts)));
        sql.bind_number(attempts.into(), shape.of_type(Field::Attempts));
        sql.push(&kept(shape)).push(&claim_kept(shape));
        self.fenced(&mut sql, &[row]);
        tx.execute(sql).await
    }

    async fn dead(&self, tx: &mut Tx, row: &Row, attempts: u32, error: &str) -> sqlx::Result<u64> {
        let shape = self.shape;
        // Their programs do not count the attempt that was the last.
        let counted =
            if shape.profile.counts_last { attempts } else { attempts.saturating_sub(1).max(row.attempts) };
        if shape.profile.statuses.is_none() {
            return self.bury(tx, row, attempts, error).await;
        }
        let mut sql = self.update();
        self.set_status(&mut sql, |statuses| &statuses.dead);
        self.set_attempts(&mut sql, counted);
        self.set_error(&mut sql, error);
        sql.push(&kept(shape));
        self.fenced(&mut sql, &[row]);
        tx.execute(sql).await
    }

    /// A table without a status cannot say that a row is dead: a table of ours does.
    async fn bury(&self, tx: &mut Tx, row: &Row, attempts: u32, error: &str) -> sqlx::Result<u64> {
        let shape = self.shape;
        let (ignore, conflict) = shape.kind.pick(("", " ON CONFLICT DO NOTHING"), (" IGNORE", ""));
        let dead = shape.ours("dead");
        let mut sql = shape.sql(format!(
            "INSERT{ignore} INTO {dead} (dead_at, source, event_id, attempts, error) VALUES ({}, ",
            shape.kind.now()
        ));
        sql.bind(shape.source(), "text").push(", ").bind(&row.id, "text").push(", ");
        sql.bind_number(attempts.into(), "int").push(", ").bind(cleaned(error), "text").push(")");
        sql.push(conflict);
        tx.execute(sql).await
    }
}

/// Error text as it is stored: of bounded length, and without what PostgreSQL cannot store.
fn cleaned(error: &str) -> String {
    error.chars().filter(|c| *c != '\0').take(ERROR_CHARS_MAX).collect()
}
