//! What is due: rows that waited, and rows of the window.
//!
//! A claim looks (at the table, if it has to), chooses (in memory), and takes (marks rows and reads their payloads). What it changes in memory
//! it changes after the commit. If the commit is not answered, nobody knows whether the rows are marked: the next claim finds out before it
//! does anything else.

use std::sync::OnceLock;

use postrider_core::store::{Claim, Claimed, Lease, Position, Seq};

use super::{
    db::Tx,
    lane::{LANE, fence},
    mind::{Mind, State},
    recover,
    shape::Shape,
    take::Taken,
    window::Narrow,
};

/// What a claim works with.
pub(super) struct Claiming<'a> {
    pub(super) shape: &'a Shape,
    pub(super) claim: &'a Claim,
    pub(super) lease: Lease,
    pub(super) from: Position,
    /// The rows that waited, are due and are wanted: the admission is asked once, however often the look is tried.
    pub(super) due: OnceLock<Vec<Seq>>,
}

/// What a claim has chosen.
pub(super) struct Chosen {
    pub(super) rows: Vec<Narrow>,
    /// The place of the first row that was wanted and did not fit.
    unmet: Option<Seq>,
    /// Whether the window was read for this claim.
    just_read: bool,
}

impl Claiming<'_> {
    /// Takes the marks off rows that the engine has let go, or never had. Says which it has let go are off, and which of the others are
    /// still uncertain; none if the lane is lost.
    pub(super) async fn take_back(
        &self,
        tx: &mut Tx,
        mind: &Mind,
        seqs: &[Seq],
    ) -> sqlx::Result<Option<(Vec<Seq>, Vec<String>)>> {
        if fence(self.shape, tx, self.lease).await?.is_none() {
            return Ok(None);
        }
        let unmarked = recover::unmark(self.shape, tx, mind, seqs).await?;
        Ok(Some((unmarked, recover::unmark_uncertain(self.shape, tx, mind).await?)))
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

    /// What the claim returns, and what memory keeps of it.
    pub(super) fn end(&self, mind: &mut Mind, chosen: &Chosen, taken: Taken) -> Claimed {
        let Taken { now, rows, left, uncertain } = taken;
        mind.uncertain = uncertain;
        // What is left and left again is locked: anyone who looks at once meets nothing else.
        mind.left_in_a_row = if left && rows.is_empty() { mind.left_in_a_row.saturating_add(1) } else { 0 };
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
            more: !whole && mind.left_in_a_row < 2,
            next_due: waiting.min(),
            recovered: std::mem::take(&mut mind.recovered),
            now,
            events,
        }
    }
}

impl Chosen {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
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
        if row.admitted
            || self.claim.admission.as_ref().is_none_or(|admission| admission.admits(&row.summary()))
        {
            self.rows.push(row.clone());
        }
        true
    }
}
