//! Owns what is known of one receiver: its running sends, and whether it is up as a whole. What is known of its
//! parts is in [destinations](crate::destination).
//!
//! A handler in this process is always up, unless it says otherwise. An outside system may be down in many
//! ways, so a failed attempt counts only if the event is the cause: the destination was shown to work when the
//! attempt was made and since then, by deliveries of other keys or by its health check. Anything else may be an
//! outage, which costs no event an attempt.

use std::time::Duration;

use postrider_core::{BatchOrder, Outcome, SinkTraits, rng::Rng};
use tokio::time::Instant;

use crate::{
    brake::{AfterRejection, Brake},
    breaker::Breaker,
    concurrency_shares::{ConcurrencyShares, SendRoom},
    destination::{DestinationId, Destinations, Readiness},
    health_checks::HealthChecks,
    mutations::{self, Mutation},
    throttle::ThrottledRequest,
};

/// After an outage, this many sends in a row have to succeed before all concurrent sends are used again.
const RAMP: u32 = 8;

/// A notice that everything is rejected ends after this long, if something is delivered. Anyone who wrote it may
/// be gone.
const NOTICE_MAX: Duration = Duration::from_secs(600);

/// Events that failed before leave one part of this many of the sends to others.
const FAILED_LEAVE: usize = 4;

/// Events wait in memory for the pace of their destination up to this long.
const PACED_IN_MEMORY: Duration = Duration::from_secs(2);

/// For this many sends it is remembered that one event can fail its batch.
const WHOLE_REMEMBERED: u32 = 1000;

/// What an outcome means for its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assessment {
    /// The outcome stands as reported.
    AsReported,
    /// A failed attempt that counts.
    Counts,
    /// A failed attempt that may be the receiver's fault and does not count; how many in a row.
    Excused(u32),
    /// Its destination is down for at least this long, and others of the receiver are not. `newly` if that was
    /// not known.
    DestinationDown { pause: Duration, newly: bool },
    /// The receiver is down for at least this long. `newly` if that was not known.
    ReceiverDown { pause: Duration, newly: bool },
}

/// What to do about the notice that a receiver rejects everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejectionNotice {
    Raise,
    Clear,
}

/// One attempt, as far as its assessment needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) destination: Option<DestinationId>,
    pub(crate) key: u64,
    /// How many events the receiver had delivered when it began.
    pub(crate) since: u64,
    pub(crate) sent_at: Instant,
    /// How many events were sent together, this one included.
    pub(crate) events: usize,
    /// Whether others of its batch were delivered to the same destination.
    pub(crate) others_delivered: bool,
    /// Whether the health check has passed since.
    pub(crate) healthy: bool,
}

/// Returns the number under which a receiver's brake counts a destination.
fn number_of(destination: Option<DestinationId>) -> u64 {
    destination.map_or(0, DestinationId::get)
}

pub(crate) struct Receiver {
    /// Opens when all destinations are down, or the only one.
    breaker: Breaker,
    destinations: Destinations,
    in_process: bool,
    /// Whether a send goes to one destination, and the shares of the destinations then.
    one_destination: bool,
    shares: ConcurrencyShares,
    /// Whether each event of a batch has its own outcome.
    independent: bool,
    /// Most events in one batch.
    batch_max: usize,
    /// Most events of one key in one batch.
    pub(crate) key_max: usize,
    /// Running sends, those of them with events that failed before, and the receiver's own limit of concurrent
    /// sends.
    pub(crate) busy: usize,
    failed_busy: usize,
    concurrent: Option<usize>,
    /// How many sends have succeeded since the outage, while they are few.
    ramp: Option<u32>,
    /// A batch failed as a whole: for this many sends, failed events go alone.
    fails_whole: u32,
    /// Least time for each event, and when the next one may be sent for that reason.
    spacing: Duration,
    not_before: Option<Instant>,
    /// Counts destinations that fail whatever they are sent. Each of them may have a single key.
    brake: Brake,
    /// Whether this instance has raised the notice that it rejects everything.
    notice_raised: bool,
    /// Whether a notice from before this instance started was taken over.
    has_inherited: bool,
    /// Whether the last event that was sent is a suspect.
    pub(crate) suspect_went_last: bool,
    /// How many events were delivered, and how many by the last look at the notice.
    delivered: u64,
    delivered_at_look: u64,
    /// How many events the last send carried, one after the other, and how long that took.
    pace: (usize, Duration),
}

impl Receiver {
    pub(crate) fn new(traits: SinkTraits) -> Self {
        Self {
            breaker: Breaker::new(),
            destinations: Destinations::new(),
            in_process: traits.in_process,
            shares: ConcurrencyShares::default(),
            independent: traits.order == BatchOrder::Independent,
            one_destination: !traits.in_process && (traits.one_destination || traits.batch_max <= 1),
            batch_max: traits.batch_max.max(1),
            key_max: match traits.order {
                BatchOrder::Prefix => traits.key_max.clamp(1, traits.batch_max.max(1)),
                BatchOrder::Independent => 1,
            },
            busy: 0,
            concurrent: traits.concurrent.map(|most| most.max(1)),
            ramp: None,
            fails_whole: 0,
            spacing: traits.spacing,
            not_before: None,
            brake: Brake::default(),
            notice_raised: false,
            has_inherited: false,
            failed_busy: 0,
            suspect_went_last: false,
            delivered: 0,
            delivered_at_look: 0,
            pace: (0, Duration::ZERO),
        }
    }

    pub(crate) fn is_in_process(&self) -> bool {
        self.in_process
    }

    /// Whether it takes several events at once.
    pub(crate) fn is_batching(&self) -> bool {
        self.batch_max > 1
    }

    /// Whether it is not down as a whole.
    pub(crate) fn is_up(&self) -> bool {
        self.breaker.is_closed()
    }

    /// Whether something may be sent now.
    pub(crate) fn lets_through(&self, now: Instant) -> bool {
        self.breaker.lets_through(now) && self.opens_at(now).is_none()
    }

    /// Returns when it opens, if it is closed now.
    pub(crate) fn opens_at(&self, now: Instant) -> Option<Instant> {
        let rate = self.not_before.filter(|at| *at > now);
        let only = Some(self.destinations.only()).filter(|_| self.destinations.is_one());
        let too_fast = only.and_then(|only| only.throttle.opens_at(now));
        self.breaker.opens_at(now).max(rate).max(too_fast)
    }

    /// Whether it is closed for a long time, because its only destination asked for that.
    pub(crate) fn is_held_off(&self, now: Instant) -> bool {
        self.destinations.is_one() && self.destinations.only().throttle.is_held_off(now)
    }

    /// Records that a batch failed as a whole.
    pub(crate) fn failed_whole(&mut self) {
        self.fails_whole = WHOLE_REMEMBERED;
    }

    /// Whether one event can fail the others of its batch.
    pub(crate) fn fails_whole(&self) -> bool {
        self.fails_whole > 0
    }

    /// Returns the limit of concurrent sends, if there is one. After an outage, sends that hang leave room for
    /// others.
    pub(crate) fn concurrent(&self, now: Instant) -> Option<usize> {
        let ramp = match self.ramp {
            Some(sends) if self.is_batching() => 1 + sends as usize + self.shares.slow(now),
            Some(sends) => (1 << sends) + self.shares.slow(now),
            None => usize::MAX,
        };
        match self.concurrent {
            None if self.ramp.is_none() => None,
            most => Some(most.unwrap_or(usize::MAX).min(ramp)),
        }
    }

    /// Returns when a running send is known to hang, so that another one may go beside it during or after an
    /// outage.
    pub(crate) fn next_slow_at(&self, now: Instant) -> Option<Instant> {
        let slow = self.ramp.and_then(|_| self.shares.next_slow_at(now));
        slow.into_iter().chain(self.breaker.next_probe_at(now)).min()
    }

    /// Returns the limit of events in one batch, for now.
    pub(crate) fn batch_now(&self) -> usize {
        let ramp = self.ramp.map_or(usize::MAX, |sends| 1 << sends);
        self.batch_max.min(ramp)
    }

    /// Returns the limit of events that a destination takes in one batch, for now. A batch for several
    /// destinations has the limit of each.
    pub(crate) fn events_at_once(&self, destination: Option<DestinationId>) -> usize {
        if self.one_destination || self.destinations.is_one() {
            self.destinations.throttle(destination).events_at_once()
        } else {
            usize::MAX
        }
    }

    /// Returns the size limit of a batch with the next event of this key; none if the key has no limit.
    pub(crate) fn batch_limit(&self, destination: Option<DestinationId>, key: u64) -> Option<usize> {
        self.destinations.throttle(destination).batch_limit(key)
    }

    /// Whether every event needs a check, because something is known against a destination.
    pub(crate) fn is_troubled(&mut self) -> bool {
        self.is_up() && self.destinations.are_troubled()
    }

    /// Returns whether an event may go to this destination now.
    ///
    /// Events for a destination in `batch_destinations` go with the others of their batch.
    pub(crate) fn gate(
        &mut self,
        destination: Option<DestinationId>,
        batch_destinations: &mut Vec<Option<DestinationId>>,
        spread: u64,
        now: Instant,
    ) -> Readiness {
        if batch_destinations.contains(&destination)
            && !self.destinations.throttle(destination).counts_events()
        {
            return Readiness::Ready;
        }
        let gate = self.destinations.gate(destination, spread, now);
        if gate == Readiness::Ready {
            self.destinations.throttle_mut(destination, now).sending(1, now);
            batch_destinations.push(destination);
        }
        gate
    }

    /// Whether a destination takes nothing now, because it is down or has asked for time, while the receiver is
    /// up.
    pub(crate) fn is_shut(&self, destination: Option<DestinationId>, now: Instant) -> bool {
        let known = self.destinations.of(destination);
        let shut = !known.breaker.lets_through(now) || known.throttle.opens_at(now).is_some();
        shut && self.is_up() && !self.destinations.is_one()
    }

    /// Records that this many events are about to be sent. The next ones keep their distance.
    pub(crate) fn spaced(&mut self, events: usize, now: Instant) {
        if !self.spacing.is_zero() {
            let room = self.spacing.saturating_mul(u32::try_from(events).unwrap_or(u32::MAX));
            self.not_before = Some(self.not_before.map_or(now, |at| at.max(now)) + room);
        }
        if self.destinations.is_one() && !self.in_process {
            self.destinations.only_mut().throttle.sending(events, now);
        }
    }

    /// Whether a send goes to one destination only.
    pub(crate) fn has_one_destination(&self) -> bool {
        self.one_destination
    }

    /// Returns whether there is room for a send to this destination beside those to others.
    ///
    /// The limit is `workers`, if the receiver has none of its own.
    pub(crate) fn room(
        &mut self,
        destination: Option<DestinationId>,
        workers: usize,
        spread: u64,
        now: Instant,
    ) -> SendRoom {
        if !self.one_destination || mutations::active(Mutation::HangingDestinationTakesAll) {
            return SendRoom::Yes;
        }
        let most = self.concurrent.unwrap_or(workers);
        if self.destinations.is_one() && destination.is_none() {
            return SendRoom::Yes;
        }
        self.shares.room(destination, (self.busy, most), spread, now)
    }

    /// Whether there is room while no other destination wants it.
    pub(crate) fn has_room_alone(&self, destination: Option<DestinationId>, workers: usize) -> bool {
        self.shares.has_room_alone(destination, self.busy, self.concurrent.unwrap_or(workers))
    }

    /// Records that a send begins. Returns the count of deliveries, for the assessment of its outcome.
    pub(crate) fn sending(&mut self, destination: Option<DestinationId>, now: Instant) -> u64 {
        self.busy += 1;
        // The start is known even for sends to several destinations: one that hangs leaves room for others.
        if !self.in_process {
            self.shares.sending(destination, now);
        }
        self.suspect_went_last = false;
        self.breaker.sending(now);
        self.delivered
    }

    /// Records that a probe goes to a destination that is down.
    pub(crate) fn probing(&mut self, destination: Option<DestinationId>, now: Instant) {
        self.destinations.of_mut(destination, now).breaker.sending(now);
    }

    /// Records that a send to this destination is over, assessment included.
    pub(crate) fn ended(&mut self, destination: Option<DestinationId>) {
        self.busy = self.busy.saturating_sub(1);
        if !self.in_process {
            self.shares.ended(destination);
        }
    }

    /// Records that a send was answered or given up.
    pub(crate) fn was_sent(&mut self, destination: Option<DestinationId>, began: Instant, now: Instant) {
        if !self.in_process {
            self.shares.sent(destination, began, now);
        }
    }

    /// Ends a probe. If its outcome was not assessed, it was never sent.
    pub(crate) fn end_probe(&mut self, probe: bool, probed: Option<Option<DestinationId>>, now: Instant) {
        if probe {
            self.breaker.not_sent(now);
        }
        if let Some(destination) = probed {
            self.destinations.of_mut(destination, now).breaker.not_sent(now);
        }
    }

    /// Records how long this many events took, one after the other.
    pub(crate) fn note_pace(&mut self, events: usize, took: Duration) {
        if events > 0 {
            self.pace = (events, took);
        }
    }

    /// Returns how many events the last send would have carried in this time. Zero if that is unknown: a clock
    /// that stands still shows nothing.
    pub(crate) fn sent_within(&self, time: Duration) -> usize {
        let (events, took) = self.pace;
        let sent = (events as u128 * time.as_nanos()).checked_div(took.as_nanos()).unwrap_or(0);
        usize::try_from(sent).unwrap_or(usize::MAX)
    }

    /// Forgets its state.
    pub(crate) fn reset(&mut self) {
        (self.breaker, self.busy, self.failed_busy, self.not_before) = (Breaker::new(), 0, 0, None);
        (self.destinations, self.shares) = (Destinations::new(), ConcurrencyShares::default());
    }

    /// Records delivered events, each with its destination and key, and the moment when they were sent.
    pub(crate) fn note_delivered(
        &mut self,
        events: impl Iterator<Item = (Option<DestinationId>, u64)>,
        sent_at: Instant,
        now: Instant,
    ) {
        let before = self.delivered;
        // A batch is one request to each destination, unless that counts events.
        let mut counted: Vec<Option<DestinationId>> = Vec::new();
        for (name, key) in events {
            self.delivered += 1;
            if self.in_process {
                self.destinations.only_mut().delivered(key, self.delivered, sent_at);
                continue;
            }
            self.destinations.of_mut(name, now).delivered(key, self.delivered, sent_at);
            let throttle = self.destinations.throttle_mut(name, now);
            let was_refused = throttle.delivered(key);
            if throttle.counts_events() || !counted.contains(&name) {
                counted.push(name);
                throttle.taken(sent_at, was_refused, now);
            }
            self.brake.delivered(number_of(name));
            if self.one_destination {
                self.shares.delivered(name, now);
            }
        }
        if self.delivered > before {
            self.destinations.end_inheritance();
            self.breaker.answered();
            self.fails_whole = self.fails_whole.saturating_sub(1);
            self.ramp = self.ramp.map(|sends| sends + 1).filter(|sends| *sends < RAMP);
        }
    }

    /// Returns how many events it has taken.
    pub(crate) fn taken(&self) -> u64 {
        self.delivered
    }

    /// Returns the health checks of a destination.
    pub(crate) fn health_checks(&self, destination: Option<DestinationId>) -> HealthChecks {
        self.destinations.health_checks(destination)
    }

    /// Returns how many events it had taken when this destination took its last one, and whether the
    /// destination fails for other keys too.
    pub(crate) fn seen_at(&self, destination: Option<DestinationId>, key: u64) -> (u64, bool) {
        let known = self.destinations.of(destination);
        (known.last_at(), known.is_out_for_others(key))
    }

    /// Records an event that used up its attempts. Returns whether it may die, which it may not where all do.
    pub(crate) fn allows_death(
        &mut self,
        destination: Option<DestinationId>,
        key: u64,
        now: Instant,
    ) -> bool {
        if self.in_process {
            return true;
        }
        let there = self.destinations.of_mut(destination, now).exhausted(key);
        let anywhere = !self.destinations.is_one() && self.brake.exhausted(number_of(destination));
        !there && !anywhere
    }

    /// Records a sign that it works, whatever it says of the event.
    fn answered(&mut self, destination: Option<DestinationId>, now: Instant) {
        self.destinations.of_mut(destination, now).answered();
        self.breaker.answered();
    }

    /// Whether only the health check can tell what this failure means.
    pub(crate) fn has_to_be_asked(&self, outcome: &Outcome, attempt: &Attempt) -> bool {
        let failed = matches!(
            outcome,
            Outcome::Retry { .. }
                | Outcome::Unknown { .. }
                | Outcome::Unavailable { .. }
                | Outcome::Later { .. }
        );
        failed && !self.in_process && !(self.is_alive_for(attempt) && self.worked_for_others(attempt))
    }

    /// Whether the destination worked for others when the attempt was made.
    fn worked_for_others(&self, attempt: &Attempt) -> bool {
        let known = self.destinations.of(attempt.destination);
        known.worked_for_others(attempt.key, attempt.sent_at, Instant::now())
    }

    pub(crate) fn is_alive_for(&self, attempt: &Attempt) -> bool {
        self.destinations.of(attempt.destination).is_alive_for(attempt.key, attempt.since)
    }

    /// Whether its key is known to be faulty, so that it says nothing about the destination.
    fn is_faulty(&self, attempt: &Attempt) -> bool {
        !self.in_process && self.destinations.of(attempt.destination).is_faulty(attempt.key)
    }

    /// Assesses a failure with deliveries of others since the event was sent. The event is the cause if its
    /// destination worked for others when it was sent and still does: an outage may have ended meanwhile, or
    /// begun.
    fn assess_beside_others(&mut self, attempt: &Attempt, now: Instant) -> Assessment {
        let Attempt { destination, key, sent_at, healthy, .. } = *attempt;
        let known = self.destinations.of_mut(destination, now);
        let works = !known.fails_for_others(key) && (known.worked_for_others(key, sent_at, now) || healthy);
        known.failed_beside_others(key);
        if works || mutations::active(Mutation::OutageCounts) {
            Assessment::Counts
        } else {
            Assessment::Excused(1)
        }
    }

    /// Assesses an outcome other than `Delivered`.
    pub(crate) fn assess(
        &mut self,
        outcome: &Outcome,
        attempt: &Attempt,
        now: Instant,
        rng: &mut Rng,
    ) -> Assessment {
        let Attempt { destination, key, healthy, .. } = *attempt;
        let alive = self.is_alive_for(attempt);
        match outcome {
            // Others get through. It is unknown why this one does not, and it costs only time.
            Outcome::Unavailable { .. } | Outcome::Later { .. } if alive => Assessment::Excused(1),
            Outcome::Unavailable { .. } => {
                let by_itself = self.destinations.of_mut(destination, now).refused(key);
                if by_itself && !self.in_process {
                    Assessment::Excused(1)
                } else {
                    self.down(attempt, now, rng)
                }
            }
            Outcome::Retry { .. } | Outcome::Unknown { .. } if self.in_process => {
                // A probe without an answer is no sign of life.
                if matches!(outcome, Outcome::Unknown { .. }) && !self.is_up() {
                    return self.down(attempt, now, rng);
                }
                self.answered(destination, now);
                Assessment::Counts
            }
            // The receiver works, and asks for time for this event only.
            Outcome::Later { .. } if self.in_process || healthy => {
                self.answered(destination, now);
                Assessment::Excused(1)
            }
            Outcome::Retry { .. } | Outcome::Unknown { .. } if alive => {
                self.assess_beside_others(attempt, now)
            }
            Outcome::Retry { .. } | Outcome::Unknown { .. }
                if healthy && !mutations::active(Mutation::HealthCheckIgnored) =>
            {
                self.answered(destination, now);
                Assessment::Counts
            }
            Outcome::Retry { .. } | Outcome::Unknown { .. } | Outcome::Later { .. } => {
                let known = self.destinations.of_mut(destination, now);
                let closed = known.breaker.is_closed();
                let (in_a_row, outage) = known.failed(key);
                if outage || (!closed || !self.is_up()) && !self.is_faulty(attempt) {
                    return self.down(attempt, now, rng);
                }
                Assessment::Excused(in_a_row)
            }
            Outcome::Rejected { .. } if !self.in_process => {
                let there = self.destinations.of_mut(destination, now).rejected(key);
                let anywhere = if self.destinations.is_one() {
                    AfterRejection::Die
                } else {
                    self.brake.rejected(number_of(destination))
                };
                // It has answered, so it is asked again soon.
                let attempt = Attempt { healthy: true, ..*attempt };
                if anywhere == AfterRejection::Brake {
                    return self.down_as_a_whole(true, now, rng);
                }
                if there == AfterRejection::Brake {
                    return self.down(&attempt, now, rng);
                }
                self.answered(destination, now);
                if there.max(anywhere) == AfterRejection::Wait {
                    Assessment::Excused(1)
                } else {
                    Assessment::AsReported
                }
            }
            // An event deferred for no time was not sent, because of an earlier one: nobody has answered.
            Outcome::Deferred { after } if after.is_zero() && !self.in_process => {
                if !self.is_up() {
                    self.breaker.refused(false, now, rng);
                }
                Assessment::AsReported
            }
            Outcome::Deferred { after }
                if !self.in_process && !mutations::active(Mutation::TooFastIgnored) =>
            {
                if self.destinations.is_shared(destination) {
                    // It says nothing of the others that share its entry.
                    self.breaker.answered();
                } else {
                    self.answered(destination, now);
                }
                let Some(throttle) = self.destinations.throttle_of_its_own(destination, now) else {
                    // The answer says nothing of the pace of others, so only this event waits, longer each time.
                    return Assessment::Excused(1);
                };
                // Where one event can fail the others, a batch may be several requests.
                if attempt.others_delivered && self.independent {
                    throttle.count_events();
                }
                let Attempt { key, sent_at, events, .. } = *attempt;
                let alone = throttle.too_fast(ThrottledRequest { key, sent_at, events, after: *after }, now);
                if alone { Assessment::Excused(1) } else { Assessment::AsReported }
            }
            _ => {
                self.answered(destination, now);
                Assessment::AsReported
            }
        }
    }

    /// Marks the destination as down, and the receiver if no other destination is up.
    fn down(&mut self, attempt: &Attempt, now: Instant, rng: &mut Rng) -> Assessment {
        if !self.is_up() {
            return Assessment::ReceiverDown {
                pause: self.breaker.refused(attempt.healthy, now, rng),
                newly: false,
            };
        }
        let known = self.destinations.of_mut(attempt.destination, now);
        let newly = known.breaker.is_closed();
        let pause = known.down(attempt.healthy, now, rng);
        if !self.destinations.are_all_down(now) && !mutations::active(Mutation::OneDestinationIsAll) {
            self.destinations.note_trouble();
            return Assessment::DestinationDown { pause, newly };
        }
        self.down_as_a_whole(attempt.healthy, now, rng)
    }

    /// Marks the receiver as down with all its destinations.
    fn down_as_a_whole(&mut self, healthy: bool, now: Instant, rng: &mut Rng) -> Assessment {
        let newly = self.is_up();
        if newly {
            self.destinations.cover();
            self.ramp = Some(0).filter(|_| !self.in_process && !mutations::active(Mutation::NoRamp));
        }
        Assessment::ReceiverDown { pause: self.breaker.refused(healthy, now, rng), newly }
    }

    /// Lets rejected events die on an operator's word, or no longer.
    pub(crate) fn allow_rejections(&mut self, may: bool) {
        let was_braked = self.rejects_everything();
        self.destinations.allow_rejections(may);
        self.brake.release(may);
        if may && was_braked {
            self.breaker.answered();
            // What dies now takes as many sends as deliveries did before.
            self.ramp = None;
        }
    }

    /// Whether it or a destination rejects everything.
    fn rejects_everything(&self) -> bool {
        self.brake.holds() || self.destinations.rejects_everything()
    }

    /// Records that the notice was raised.
    pub(crate) fn notice_raised(&mut self) {
        self.notice_raised = true;
    }

    /// Returns what to do about the notice, given whether and for how long it is listed.
    ///
    /// A notice from before this instance started is taken over: the first failure at a destination pulls its
    /// brake, and the first delivery ends the notice. Another instance's notice is left alone unless it is old:
    /// an instance whose sink still rejects everything raises it again.
    pub(crate) fn update_rejection_notice(&mut self, listed: Option<Duration>) -> Option<RejectionNotice> {
        let first = !std::mem::replace(&mut self.has_inherited, true);
        let Some(lasts) = listed else { return self.rejects_everything().then_some(RejectionNotice::Raise) };
        if first && !self.in_process {
            self.destinations.inherit();
            self.notice_raised = true;
        }
        if self.rejects_everything() || self.destinations.inherits() {
            return None;
        }
        let delivers = self.delivered > std::mem::replace(&mut self.delivered_at_look, self.delivered);
        let is_old = lasts >= NOTICE_MAX && delivers;
        (std::mem::take(&mut self.notice_raised) || is_old).then_some(RejectionNotice::Clear)
    }

    /// Records that a send with a failed event begins.
    pub(crate) fn sending_failed(&mut self) {
        self.failed_busy += 1;
    }

    /// Records that a send with a failed event has ended.
    pub(crate) fn failed_ended(&mut self) {
        self.failed_busy = self.failed_busy.saturating_sub(1);
    }

    /// Whether another failed event may be sent. Such events may hang, so they leave a quarter of the sends to
    /// others.
    pub(crate) fn has_room_for_failed(&self, workers: usize) -> bool {
        let most = self.concurrent.unwrap_or(workers);
        self.in_process || self.failed_busy < (most - most / FAILED_LEAVE).max(1)
    }

    /// Whether failed events use up all the sends they may have.
    pub(crate) fn is_full_of_failed(&self, workers: usize) -> bool {
        !self.has_room_for_failed(workers)
    }

    /// Returns how long an event waits for the pace of its destination.
    pub(crate) fn next_turn(
        &mut self,
        destination: Option<DestinationId>,
        spread: u64,
        now: Instant,
    ) -> Duration {
        let per_request = self.batch_max;
        self.destinations.throttle_mut(destination, now).next_turn(per_request, spread, now)
    }

    /// Returns until when events wait for the pace of this destination, and how many more may wait in memory;
    /// none if they need not wait.
    pub(crate) fn paced_until(
        &self,
        destination: Option<DestinationId>,
        now: Instant,
    ) -> Option<(Instant, usize)> {
        let known = Some(self.destinations.of(destination)).filter(|_| !self.destinations.is_one())?;
        let throttle = self.destinations.throttle(destination);
        let opens = throttle.opens_at(now).filter(|_| known.breaker.is_closed())?;
        let soon = opens.saturating_duration_since(now) <= PACED_IN_MEMORY;
        Some((opens, if soon { throttle.within(PACED_IN_MEMORY, self.batch_max) } else { 0 }))
    }
}

#[cfg(test)]
mod tests;
