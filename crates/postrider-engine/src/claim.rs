//! Claims: reads due events from the table into memory, on a wake-up or by polling.
//!
//! Polling finds everything; wake-ups make it quick. The pause between polls doubles from `poll_min` to
//! `poll_max` while nothing comes, ends early when a waiting event is due, and starts anew with every event.
//! When a peek finds an event that has not committed yet, the pause starts at [`CHASE`].

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
    lock,
    mutations::{self, Mutation},
    peek::PeekSchedule,
    shared::Shared,
    store_timeout::bounded,
    wakeup_backoff::{GATHER, WakeupBackoff},
};

/// Scans from the very start are this many times rarer while there is a backlog.
const FULL_SCAN_SELDOM: u32 = 10;

/// The first pause after a claim that came too early for what a peek found: about one disk write lies between
/// `INSERT` and `COMMIT`.
const CHASE: Duration = Duration::from_millis(2);

/// Polls are this many times rarer while peeks find what is new.
const PEEKING_FACTOR: u32 = 10;

/// Longest pause while another session has locked what a claim is to write.
const LOCKED_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The pace of claims.
pub(crate) struct ClaimPace {
    pause: Duration,
    last_full_scan: Instant,
}

impl ClaimPace {
    pub(crate) fn new(now: Instant) -> Self {
        Self { pause: Duration::ZERO, last_full_scan: now }
    }
}

/// The result of one claim.
pub(crate) struct ClaimReport {
    pub(crate) taken: usize,
    /// Whether more is due than it brought, or there was no room to look.
    pub(crate) more: bool,
    /// Whether it read a backlog, and says nothing of the rest.
    pub(crate) backlog: bool,
    /// When to claim again without a wake-up.
    pause: Duration,
    /// No wake-up is followed before this moment.
    not_before: Option<Instant>,
}

/// What ended a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WakeReason {
    /// The pause is over, or a waiting event is due.
    Timer,
    /// Something in this process has changed: room, a lane, a key, a pause.
    Change,
    /// Somebody reported a commit.
    Committed,
    /// A peek found a new number.
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
        // This claim answers every commit that was reported before it.
        let answers_commit =
            take(&shared.committed) || matches!(woken, WakeReason::Committed | WakeReason::Peek);
        let (pause, not_before) = match once(&shared, &mut pace).await {
            Ok(brought) => {
                shared.health_tracker.claimed();
                backoff.claimed(began, answers_commit, brought.taken);
                if answers_commit && brought.backlog {
                    // It read a backlog, and not what is new.
                    shared.committed.notify_one();
                }
                (brought.pause, brought.not_before)
            }
            Err(error) => {
                error!(error = error_chain(&error), "claim failed: retrying");
                shared.health_tracker.claim_failed(&error);
                pace.pause = (pace.pause * 2).max(shared.settings.poll_min * 5).min(shared.settings.poll_max);
                (pace.pause, None)
            }
        };
        drop(pace);
        // Timers have a resolution of a millisecond. If there is more to claim, nothing waits for one.
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

/// Takes a notification that is already there. Returns whether there was one.
fn take(notify: &Notify) -> bool {
    let mut notified = pin!(notify.notified());
    notified.as_mut().enable()
}

/// Rests until a wake-up, the end of the pause, or the next due moment. Peeks meanwhile.
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

/// Runs one claim, if there is a lane and room.
pub(crate) async fn once(shared: &Shared, pace: &mut ClaimPace) -> Result<ClaimReport> {
    let started = Instant::now();
    let (plan, from_bottom, ahead) = {
        let mut buffer = lock(&shared.buffer);
        // A backlog is long to scan again.
        let seldom = if buffer.has_backlog() { FULL_SCAN_SELDOM } else { 1 };
        let from_bottom = started - pace.last_full_scan >= shared.settings.full_look_every * seldom;
        let plan = buffer.begin_claim(&shared.settings, &shared.routes, started, from_bottom);
        let Some(plan) = plan else {
            // A lane or room that comes up wakes the poller.
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
        pace.last_full_scan = started;
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
    // A claim that only parked rows says nothing of what follows them.
    let got_on = plan.got_on(&claimed);
    let more = claimed.more;
    // Rows that another session has locked come back with every claim until they are unlocked. They are asked
    // for less and less often.
    let only_locked = !got_on && plan.brought_nothing_new(&claimed);
    lock(&shared.buffer).clear_suspicion(&claimed);
    let mut items =
        plan.items(std::mem::take(&mut claimed.events), &shared.routes, shared.settings.key_order);
    let failing = lock(&shared.failing_events);
    if !failing.is_empty() {
        for item in &mut items {
            (item.failed, item.only_deferred) = failing.has(item.id());
        }
    }
    drop(failing);
    let (taken, recheck, (hot, cold)) = {
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
    let shortest_pause = shortest_pause(shared);
    pace.pause = match taken > 0 || recheck && !only_locked {
        true => shortest_pause,
        false if recheck => (pace.pause * 2).min(settings.poll_max).min(LOCKED_PAUSE_MAX).max(shortest_pause),
        false => (pace.pause * 2).clamp(shortest_pause, settings.poll_max),
    };
    // Backlogs and the lanes' own positions are read in turn.
    let more_elsewhere = taken > 0 && shared.settings.poller && lock(&shared.buffer).has_unpaused_backlog();
    // The lanes' own claims bring the rows to recheck, and may have waited for this one.
    let backlog = underway.plan.is_backlog();
    let at_once = (more && (taken > 0 || got_on)) || more_elsewhere || (backlog && recheck);
    let pause = if at_once { Duration::ZERO } else { pace.pause };
    let gathers = taken > 0 && !more && !recheck && !pause.is_zero();
    let not_before = gathers.then(|| started + GATHER);
    Ok(ClaimReport { taken, more: more || recheck || taken > 0, backlog, pause, not_before })
}

/// Returns the shortest pause from now on. While peeks find what is new, a poll soon after a claim would find
/// nothing. If a peek found an event that has not come, it is near, unless other instances hold lanes: then it
/// is as likely theirs.
fn shortest_pause(shared: &Shared) -> Duration {
    let settings = &shared.settings;
    let lanes = shared.store.features().lanes as usize;
    let buffer = lock(&shared.buffer);
    match (buffer.misses_events(), buffer.can_peek()) {
        (true, _) if buffer.lanes_owned() >= lanes => CHASE.min(settings.poll_min),
        (false, true) => (settings.poll_min * PEEKING_FACTOR).min(settings.poll_max),
        _ => settings.poll_min,
    }
}

/// Marks in the table that claimed events may be sent, before they are: anyone who takes the lane after a crash
/// treats them as suspects. One mark covers many events.
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

/// Marks what the running claim is likely to bring, so that nobody waits for the mark. Returns the lost lanes.
async fn mark_ahead(shared: &Shared, marks: Vec<(Lease, Seq)>) -> Vec<Lane> {
    if marks.is_empty() {
        return Vec::new();
    }
    match bounded(shared, shared.store.mark_sent(&marks)).await {
        Ok(Marked { lost, locked }) => {
            lock(&shared.buffer).marked(marks.iter().filter(|(lease, _)| !locked.contains(&lease.lane)));
            lost
        }
        // The mark is written when the claim has returned.
        Err(error) => {
            debug!(
                error = error_chain(&error),
                "marking events ahead of a claim failed: they are marked after it"
            );
            Vec::new()
        }
    }
}

/// A running claim. If it fails or its future is dropped, its rows are rechecked.
struct ClaimGuard<'a> {
    shared: &'a Shared,
    plan: ClaimPlan,
    /// The rows that the store has returned, and may not return again by itself.
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
