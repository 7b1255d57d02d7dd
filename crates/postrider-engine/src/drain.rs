//! Waits until everything that is due has been delivered.

use postrider_core::Result;
use tokio::time::Instant;

use crate::{Engine, buffer::Buffer, claim, lock, orphans};

/// The result of a drain that waits for no unavailable receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drained {
    /// Everything due was delivered, except what is paused.
    Everything,
    /// Events are left for receivers that are unavailable.
    AllButUnavailable,
    /// The outcomes of some events could not be written for two leases.
    AllButUnsettled {
        /// Outcomes whose rows another session has locked.
        locked: usize,
        /// Outcomes that the database refuses to write.
        refused: usize,
        /// Outcomes whose settle fails as a whole, for example because the database does not answer.
        failing: usize,
    },
    /// Events are left in lanes that could not be taken for two leases, because another session has locked
    /// their rows.
    AllButLockedLanes {
        /// Lanes that are locked.
        locked: usize,
        /// Lanes that this instance holds.
        owned: usize,
    },
}

impl Engine {
    /// Waits until everything due has been delivered, or has failed and waits, and its outcome is settled. That
    /// includes what comes in meanwhile, but not what waits for a later time. An engine that does not hold all
    /// lanes also waits for those who hold the others, for as long as a takeover from a dead owner takes; one
    /// that holds none waits for its lanes. Paused events are not waited for, except by an engine on standby,
    /// which cannot tell. Events in memory for an unavailable receiver are waited for: set a time limit, or see
    /// [`drain_available`](Self::drain_available).
    pub async fn drain(&self) -> Result<()> {
        self.drain_to(Buffer::is_empty, |_, _| None).await.map(|_| ())
    }

    /// As [`drain`](Self::drain), but ends also when all that is left is for unavailable receivers, or waits
    /// behind such events in its key. A receiver is unavailable once it was tried and its breaker is open. It
    /// also ends when the database has been in the way for two leases: rows or lanes are locked by another
    /// session, or outcomes are refused.
    pub async fn drain_available(&self) -> Result<Drained> {
        let end = |buffer: &Buffer| buffer.is_empty() || buffer.is_unavailable(Instant::now());
        if let Some(hindered) = self.drain_to(end, Self::hindered).await? {
            return Ok(hindered);
        }
        // Events that came in since were not waited for.
        let buffer = lock(&self.shared.buffer);
        Ok(if !buffer.is_empty() && buffer.is_unavailable(Instant::now()) {
            Drained::AllButUnavailable
        } else {
            Drained::Everything
        })
    }

    /// Waits until memory meets `end` and there is nothing more to claim. Ends early, and returns why, if
    /// something is in the way for good.
    async fn drain_to(
        &self,
        end: impl Fn(&Buffer) -> bool,
        hindered: impl Fn(&Self, Instant) -> Option<Drained>,
    ) -> Result<Option<Drained>> {
        let (began, limit, mut others_until) = (Instant::now(), self.shared.settings.lease * 2, None);
        while !self.shared.stop_claiming.is_cancelled() {
            let progress = self.shared.progress.notified();
            if self.is_at_rest() {
                return Ok(None);
            }
            if lock(&self.shared.buffer).lanes_owned() == 0
                && self.left_to_others().await?
                && !orphans::free_all(&self.shared).await?
            {
                return Ok(None);
            }
            // A claim that ran beside a settle says nothing of what that settle made due. So memory must have
            // met `end` before the claim too, once it is our turn: the poller may have claimed before and left
            // something that is being settled. Nor does a claim say anything of a lane that is taken while it
            // runs.
            let (idle, has_all, brought) = {
                let mut pace = self.shared.claim_turn.lock().await;
                (self.is_idle(&end), self.has_all_lanes(), claim::once(&self.shared, &mut pace).await?)
            };
            if idle && !brought.more && !brought.backlog && self.is_idle(&end) {
                // A lane whose owner crashed is ours after its lease. Live owners deliver their events
                // meanwhile.
                let until = *others_until.get_or_insert_with(|| Instant::now() + limit);
                if has_all || self.left_to_others().await? {
                    // A key whose head was deleted is due once it is freed.
                    if orphans::free_all(&self.shared).await? {
                        continue;
                    }
                    return Ok(None);
                }
                if Instant::now() >= until {
                    return Ok(hindered(self, Instant::now()));
                }
            } else if !brought.more
                && !brought.backlog
                && let Some(long_ago) =
                    Instant::now().checked_sub(limit).filter(|long_ago| *long_ago >= began)
                && let Some(hindered) = hindered(self, long_ago)
            {
                return Ok(Some(hindered));
            }
            if !idle && self.is_idle(&end) {
                continue;
            }
            // An opening breaker or a lost lane notifies nobody.
            let _ = tokio::time::timeout(self.shared.settings.poll_min, progress).await;
        }
        Ok(None)
    }

    /// Returns what the database has been blocking since then, if nothing else is left here.
    fn hindered(&self, since: Instant) -> Option<Drained> {
        let now = Instant::now();
        let buffer = lock(&self.shared.buffer);
        let fails = self.shared.health_tracker.settle_failing_since().is_some_and(|failing| failing <= since);
        let writes_none = self.shared.health_tracker.wrote_at() <= since && buffer.sending() == 0;
        if writes_none && (fails || buffer.has_only_postponed(now)) {
            let (locked, refused) = buffer.postponed_counts();
            return Some(Drained::AllButUnsettled { locked, refused, failing: buffer.unwritten() });
        }
        let is_idle = buffer.is_empty() || buffer.is_unavailable(now);
        let locked =
            self.shared.health_tracker.locked_lanes().filter(|locked| is_idle && locked.since <= since)?;
        Some(Drained::AllButLockedLanes { locked: locked.lanes, owned: buffer.lanes_owned() })
    }

    /// Whether the owners of the lanes have delivered everything that is due, for an engine on standby. Due
    /// retries count, and so do events parked behind a head that is gone.
    async fn left_to_others(&self) -> Result<bool> {
        let stats = self.shared.store.stats().await?;
        let not_due = stats.waiting.saturating_sub(stats.due) + stats.parked;
        Ok(stats.pending <= not_due && stats.returning == 0)
    }

    /// Whether this engine sees everything there is to wait for. It cannot tell paused events from those that
    /// others have not delivered yet.
    fn has_all_lanes(&self) -> bool {
        let buffer = lock(&self.shared.buffer);
        buffer.lanes_owned() >= self.shared.store.features().lanes as usize || buffer.has_pauses()
    }

    /// Whether everything is paused and nothing is under way.
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
