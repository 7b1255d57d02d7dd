//! Drain: waiting until what is due has been delivered.

use postrider_core::Result;
use tokio::time::Instant;

use crate::{Engine, buffer::Buffer, claim, lock};

/// What a drain that waits for no unavailable receiver has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drained {
    /// All that is due, as far as it is not paused.
    Everything,
    /// Something is left for receivers that are unavailable.
    AllButUnavailable,
}

impl Engine {
    /// Waits until everything that is due has been delivered, or has failed and waits, and its outcome is settled. What
    /// comes in meanwhile is waited for too; what waits for a later time is not. An engine that does not hold all lanes waits until
    /// those who hold the others have delivered everything, or for as long as it takes to take over from one that is gone; one that holds none
    /// waits for its lanes. What is paused is not waited for, except by an engine that stands by: it
    /// cannot tell. While a receiver is unavailable, what is in memory for it is waited for: give it a time limit, or see
    /// [`drain_available`](Self::drain_available).
    pub async fn drain(&self) -> Result<()> {
        self.drain_to(Buffer::is_empty).await
    }

    /// As [`drain`](Self::drain), but ends also when all that is left is for receivers that are unavailable, or waits behind that in
    /// its key. A receiver is unavailable once it was tried and its breaker is open.
    pub async fn drain_available(&self) -> Result<Drained> {
        self.drain_to(|buffer| buffer.is_empty() || buffer.is_unavailable(Instant::now())).await?;
        let empty = lock(&self.shared.buffer).is_empty();
        Ok(if empty { Drained::Everything } else { Drained::AllButUnavailable })
    }

    async fn drain_to(&self, end: impl Fn(&Buffer) -> bool) -> Result<()> {
        let mut others_until = None;
        while !self.shared.stop_claiming.is_cancelled() {
            let progress = self.shared.progress.notified();
            if self.is_at_rest() {
                return Ok(());
            }
            if lock(&self.shared.buffer).lanes_owned() == 0 && self.left_to_others().await? {
                return Ok(());
            }
            // A claim that ran beside a settle says nothing of what that made due: memory must have been at its end before it too, once it is
            // our turn. The poller may have had its own before, and left something that is being settled.
            let (idle, brought) = {
                let mut pace = self.shared.claim_turn.lock().await;
                (self.is_idle(&end), claim::once(&self.shared, &mut pace).await?)
            };
            if idle && !brought.more && !brought.backlog && self.is_idle(&end) {
                // A lane whose owner left without giving it back is ours after its lease; those who live deliver what is theirs meanwhile.
                let until = *others_until.get_or_insert(Instant::now() + self.shared.settings.lease * 2);
                if self.has_all_lanes() || Instant::now() >= until || self.left_to_others().await? {
                    return Ok(());
                }
            }
            if !idle && self.is_idle(&end) {
                continue;
            }
            // A breaker that opens, or a lane that is lost, is no progress that somebody tells of.
            let _ = tokio::time::timeout(self.shared.settings.poll_min, progress).await;
        }
        Ok(())
    }

    /// For an instance that stands by: whether those who hold the lanes have delivered all that is due. A retry whose time has come is
    /// due, and so is what was parked behind a head that is gone.
    async fn left_to_others(&self) -> Result<bool> {
        let stats = self.shared.store.stats().await?;
        let not_due = stats.waiting.saturating_sub(stats.due) + stats.parked;
        Ok(stats.pending <= not_due && stats.returning == 0)
    }

    /// Whether there is nothing to wait for but what it sees itself. What is paused cannot be told from what others have not delivered yet.
    fn has_all_lanes(&self) -> bool {
        let buffer = lock(&self.shared.buffer);
        buffer.lanes_owned() >= self.shared.store.features().lanes as usize || buffer.has_pauses()
    }

    /// Everything is paused, and nothing is under way any more.
    fn is_at_rest(&self) -> bool {
        let buffer = lock(&self.shared.buffer);
        buffer.is_paused() && buffer.is_drained(Instant::now())
    }

    fn is_idle(&self, end: impl Fn(&Buffer) -> bool) -> bool {
        let buffer = lock(&self.shared.buffer);
        buffer.knows_pauses()
            && end(&buffer)
            && buffer.lanes_owned() > 0
            && !buffer.is_expired(Instant::now())
    }
}
