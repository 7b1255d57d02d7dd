//! Claim: from the table into memory, by wake-up or by poll.
//!
//! Polling is the truth, wake-ups only make it quick. The pause between polls doubles from `poll_min` to `poll_max`
//! while nothing comes, ends early when a waiting event is due, and begins anew with every event. Where a peek tells of an event that has not
//! committed yet, it begins at [`CHASE`].

use std::{ops::ControlFlow, pin::pin, sync::Arc, time::Duration};

use postrider_core::{
    Result,
    sink::error_chain,
    store::{Claimed, Lane, Lease, Marked, Seq},
};
use tokio::{sync::Notify, time::Instant};
use tracing::{debug, error};

use crate::{
    buffer::{Buffer, ClaimPlan},
    engine::Shared,
    lock,
    mutations::{self, Mutation},
    peek::PeekSchedule,
    store_timeout::bounded,
    wakeup_backoff::{GATHER, WakeupBackoff},
};

/// While something was passed over, looks from the very bottom are so many times rarer.
const FULL_LOOK_SELDOM: u32 = 10;

/// The first pause after a claim that came too early for what a peek told of: between `INSERT` and `COMMIT` lies about a write to a disk.
const CHASE: Duration = Duration::from_millis(2);

/// While peeks find what is new, polls begin so many times later.
const PEEKING_FACTOR: u32 = 10;

/// The longest pause while somebody else has locked what a claim is to write.
const LOCKED_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How claims follow one another.
pub(crate) struct ClaimPace {
    pause: Duration,
    last_full_look: Instant,
}

impl ClaimPace {
    pub(crate) fn new(now: Instant) -> Self {
        Self { pause: Duration::ZERO, last_full_look: now }
    }
}

/// What one claim brought.
pub(crate) struct ClaimReport {
    pub(crate) taken: usize,
    /// Whether more is due than it brought, or could not be looked at for want of room.
    pub(crate) more: bool,
    /// It walked over what was passed over, and says nothing of the rest.
    pub(crate) backlog: bool,
    /// When to claim again if no wake-up comes first.
    pause: Duration,
    /// No wake-up is followed before.
    not_before: Option<Instant>,
}

/// What ended a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WakeReason {
    /// The pause is over, or a waiting event is due.
    Timer,
    /// Something of this process has changed: room, a lane, a key, a pause.
    Change,
    /// Somebody says that something was committed.
    Committed,
    /// A peek has found that something was written.
    Peek,
}

pub(crate) async fn run(shared: Arc<Shared>) {
    let now = Instant::now();
    let (mut peeks, mut backoff, mut woken) =
        (PeekSchedule::new(&shared.settings, now), WakeupBackoff::new(now), WakeReason::Timer);
    while !shared.stop_claiming.is_cancelled() {
        let mut pace = shared.claim_turn.lock().await;
        if woken == WakeReason::Peek && !backoff.is_in_vain() {
            pace.pause = Duration::ZERO;
        }
        let began = Instant::now();
        // This claim answers every commit that was told of before it.
        let told = take(&shared.committed) || matches!(woken, WakeReason::Committed | WakeReason::Peek);
        let (pause, not_before) = match once(&shared, &mut pace).await {
            Ok(brought) => {
                shared.health_tracker.claimed();
                backoff.claimed(began, told, brought.taken);
                if told && brought.backlog {
                    // It read a backlog, and not what is new.
                    shared.committed.notify_one();
                }
                (brought.pause, brought.not_before)
            }
            Err(error) => {
                error!(error = error_chain(&error), "claim failed: will try again");
                shared.health_tracker.claim_failed(&error);
                pace.pause = (pace.pause * 2).max(shared.settings.poll_min * 5).min(shared.settings.poll_max);
                (pace.pause, None)
            }
        };
        drop(pace);
        // A timer has a tick of a millisecond: where there is more, nobody waits for it.
        woken = WakeReason::Timer;
        if !pause.is_zero() {
            match rest(&shared, &mut peeks, Instant::now() + pause).await {
                ControlFlow::Continue(by) => woken = by,
                ControlFlow::Break(()) => return,
            }
        }
        let until = match woken {
            WakeReason::Committed | WakeReason::Peek => Some(backoff.not_before()).max(not_before),
            WakeReason::Timer | WakeReason::Change => not_before,
        };
        if let Some(then) = until.filter(|then| *then > Instant::now()) {
            tokio::select! {
                biased;
                () = shared.stop_claiming.cancelled() => return,
                () = shared.wake.notified(), if not_before.is_none() => woken = WakeReason::Change,
                () = tokio::time::sleep_until(then) => {}
            }
        }
    }
}

/// Takes a notification that nobody has waited for; whether there was one.
fn take(notify: &Notify) -> bool {
    let mut notified = pin!(notify.notified());
    notified.as_mut().enable()
}

/// Rests until a wake-up, the end of the pause, or the moment that a waiting event is due. Peeks meanwhile.
async fn rest(
    shared: &Arc<Shared>,
    peeks: &mut PeekSchedule,
    pause_ends: Instant,
) -> ControlFlow<(), WakeReason> {
    peeks.begin(Instant::now());
    loop {
        let (due_at, may_claim) = {
            let buffer = lock(&shared.buffer);
            let due_at = buffer.due_at().into_iter().chain(buffer.starved_until()).min();
            (due_at.unwrap_or(pause_ends), buffer.may_claim())
        };
        let ends = pause_ends.min(due_at);
        tokio::select! {
            biased;
            () = shared.stop_claiming.cancelled() => return ControlFlow::Break(()),
            () = shared.wake.notified() => return ControlFlow::Continue(WakeReason::Change),
            () = shared.committed.notified() => return ControlFlow::Continue(WakeReason::Committed),
            () = shared.due.notified() => {}
            () = tokio::time::sleep_until(ends) => return ControlFlow::Continue(WakeReason::Timer),
            news = peeks.peek(shared), if may_claim && peeks.is_on() => {
                if news && !mutations::active(Mutation::PeeksIgnored) {
                    return ControlFlow::Continue(WakeReason::Peek);
                }
            }
        }
    }
}

/// One claim, if there is a lane to claim from and room to claim into.
pub(crate) async fn once(shared: &Shared, pace: &mut ClaimPace) -> Result<ClaimReport> {
    let started = Instant::now();
    let (plan, from_bottom, ahead) = {
        let mut buffer = lock(&shared.buffer);
        // What was passed over is a long way to walk again.
        let seldom = if buffer.has_backlog() { FULL_LOOK_SELDOM } else { 1 };
        let from_bottom = started - pace.last_full_look >= shared.settings.full_look_every * seldom;
        let plan = buffer.begin_claim(&shared.settings, &shared.routes, started, from_bottom);
        let Some(plan) = plan else {
            // Whoever takes a lane or makes room wakes the poller.
            let pause = shared.settings.poll_max;
            return Ok(ClaimReport {
                taken: 0,
                more: !buffer.is_empty() && !buffer.is_full_of_unavailable(started),
                backlog: false,
                pause,
                not_before: None,
            });
        };
        let ahead = buffer.marks_ahead(&plan, shared.settings.cold_queue as Seq);
        (plan, from_bottom, ahead)
    };
    if from_bottom {
        pace.last_full_look = started;
    }
    let mut underway = ClaimGuard { shared, plan, brought: Vec::new(), ended: false };
    let plan = &underway.plan;
    let claim = &plan.claim;
    let (claimed, lost) = tokio::join!(bounded(shared, shared.store.claim(claim)), mark_ahead(shared, ahead));
    let mut claimed = claimed?;
    underway.brought = claimed.events.iter().map(|event| (event.lane, event.seq)).collect();
    claimed.lost.extend(lost);
    mark_sent(shared, &mut claimed).await?;
    if claimed.recovered > 0 {
        shared.metrics.recovered(claimed.recovered);
    }
    let lag = Buffer::oldest(&claimed).map_or(Duration::ZERO, |created_at| claimed.now.since(created_at));
    let (returned, next_due) = (claimed.events.len(), claimed.next_due);
    let lost = !claimed.lost.is_empty();
    // A claim may have done nothing but park what it met; then what it returns says nothing of what lies behind.
    let got_on = plan.got_on(&claimed);
    let more = claimed.more;
    // What somebody else has locked comes back from every claim until the lock is gone: it is asked for ever more seldom.
    let only_locked = !got_on && plan.brought_nothing_new(&claimed);
    lock(&shared.buffer).acquit(&claimed);
    let mut items =
        plan.items(std::mem::take(&mut claimed.events), &shared.routes, shared.settings.key_order);
    let failing = lock(&shared.failing_events);
    if !failing.is_empty() {
        for item in &mut items {
            (item.failed, item.only_deferred) = failing.has(item.id());
        }
    }
    drop(failing);
    let (taken, again, (hot, cold)) = {
        let mut buffer = lock(&shared.buffer);
        let taken = buffer.take(plan, claimed, items);
        if let Some(at) = next_due.and_then(|due| Instant::now().checked_add(due)) {
            buffer.due(at);
        }
        (taken, buffer.has_recheck(), buffer.depths())
    };
    underway.ended = true;
    if lost {
        shared.lanes.notify_one();
    }
    if taken > 0 {
        shared.work.notify_one();
        shared.metrics.cold_enqueued(taken as u64);
    }
    shared.metrics.claimed(returned as u64, started.elapsed());
    shared.metrics.oldest_lag(lag);
    shared.metrics.queue_depths(hot as u64, cold as u64);

    let settings = &shared.settings;
    let least = least(shared);
    pace.pause = match taken > 0 || again && !only_locked {
        true => least,
        false if again => (pace.pause * 2).min(settings.poll_max).min(LOCKED_PAUSE_MAX).max(least),
        false => (pace.pause * 2).clamp(least, settings.poll_max),
    };
    // Between two looks at backlogs the lanes' own positions have their turn, and the other way round.
    let more_elsewhere = taken > 0 && shared.settings.poller && lock(&shared.buffer).has_unpaused_backlog();
    // What was let go is for the lanes' own claims to bring, which may have had to wait for this one.
    let backlog = underway.plan.is_backlog();
    let at_once = (more && (taken > 0 || got_on)) || more_elsewhere || (backlog && again);
    let pause = if at_once { Duration::ZERO } else { pace.pause };
    let gathers = taken > 0 && !more && !again && !pause.is_zero();
    let not_before = gathers.then(|| started + GATHER);
    Ok(ClaimReport { taken, more: more || again || taken > 0, backlog, pause, not_before })
}

/// The shortest pause from now on. Where peeks tell of what comes next, a poll soon after a claim would find nothing. Where one told of something
/// that has not come, it is near; but where others hold lanes too, it is as likely theirs.
fn least(shared: &Shared) -> Duration {
    let settings = &shared.settings;
    let lanes = shared.store.features().lanes as usize;
    let buffer = lock(&shared.buffer);
    match (buffer.misses_events(), buffer.can_peek()) {
        (true, _) if buffer.lanes_owned() >= lanes => CHASE.min(settings.poll_min),
        (false, true) => (settings.poll_min * PEEKING_FACTOR).min(settings.poll_max),
        _ => settings.poll_min,
    }
}

/// Before events are sent, the table must know that they may be: whoever takes the lane after a crash is told to look out.
/// One mark stands for many events.
async fn mark_sent(shared: &Shared, claimed: &mut Claimed) -> Result<()> {
    let marks = lock(&shared.buffer).marks(claimed, shared.settings.cold_queue as Seq);
    if marks.is_empty() {
        return Ok(());
    }
    let Marked { lost, locked } = bounded(shared, shared.store.mark_sent(&marks)).await?;
    claimed.lost.extend(lost);
    let mut buffer = lock(&shared.buffer);
    buffer.marked(marks.iter().filter(|(lease, _)| !locked.contains(&lease.lane)));
    if !locked.is_empty() {
        buffer.leave_unmarked(claimed, &locked, Instant::now());
    }
    Ok(())
}

/// Marks what the claim under way is likely to bring, so that nobody has to wait for it. Says which lanes are lost.
async fn mark_ahead(shared: &Shared, marks: Vec<(Lease, Seq)>) -> Vec<Lane> {
    if marks.is_empty() {
        return Vec::new();
    }
    match bounded(shared, shared.store.mark_sent(&marks)).await {
        Ok(Marked { lost, locked }) => {
            lock(&shared.buffer).marked(marks.iter().filter(|(lease, _)| !locked.contains(&lease.lane)));
            lost
        }
        // Then it is marked when the claim has returned.
        Err(error) => {
            debug!(error = error_chain(&error), "could not mark ahead what will be under way");
            Vec::new()
        }
    }
}

/// A claim under way. If it fails, or its future is dropped, what it was to look at again is not forgotten.
struct ClaimGuard<'a> {
    shared: &'a Shared,
    plan: ClaimPlan,
    /// What the store has given, and may not give again by itself.
    brought: Vec<(Lane, Seq)>,
    ended: bool,
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            lock(&self.shared.buffer).claim_failed(&self.plan, &self.brought);
        }
    }
}
