//! What is known of one receiver: how much is being sent to it, and whether it is there as a whole. What is known of its parts is with its
//! [destinations](crate::destination).
//!
//! A handler in this process is always there, unless it says that it is not. An outside system may be down in many ways, and an attempt that failed
//! counts only if it is about that event: the destination was shown to work when it was made and since, by events of other keys that were delivered
//! there or by its health check. Everything else may be an outage, which costs no event an attempt.

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

/// After an outage it takes so many sends in a row until all that is allowed goes at once again.
const RAMP: u32 = 8;

/// A notice that everything is rejected ends after so long, if something is delivered: whoever wrote it may be gone.
const NOTICE_MAX: Duration = Duration::from_secs(600);

/// What failed before leaves one part in so many of the sends to what has not.
const FAILED_LEAVE: usize = 4;

/// What has to wait for the pace of its destination does so in memory, if it is no longer than this.
const PACED_IN_MEMORY: Duration = Duration::from_secs(2);

/// That one event can fail the others of its batch is remembered for so many sends.
const WHOLE_REMEMBERED: u32 = 1000;

/// What an outcome means for the event that it was said of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assessment {
    /// It stands as it was said.
    AsReported,
    /// A failed attempt, and it counts.
    Counts,
    /// A failed attempt that may have been the receiver's fault: it does not count. So many in a row were.
    Excused(u32),
    /// Its destination is down for so long at least, and others of the receiver are not; whether that is news.
    DestinationDown { pause: Duration, newly: bool },
    /// The receiver is down for so long at least; whether that is news.
    ReceiverDown { pause: Duration, newly: bool },
}

/// What is to be done about a receiver that rejects everything, or no longer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejectionNotice {
    Raise,
    Clear,
}

/// One attempt, as its receiver has to know it to rule on its outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) destination: Option<DestinationId>,
    pub(crate) key: u64,
    /// How many events the receiver had delivered when it began.
    pub(crate) since: u64,
    pub(crate) sent_at: Instant,
    /// How many events were sent with it, itself among them.
    pub(crate) events: usize,
    /// Others of its batch were delivered to the same destination.
    pub(crate) others_delivered: bool,
    /// The health check has passed since.
    pub(crate) healthy: bool,
}

/// A destination among others, as the brake of their receiver counts it.
fn number_of(destination: Option<DestinationId>) -> u64 {
    destination.map_or(0, DestinationId::get)
}

pub(crate) struct Receiver {
    /// Opens when all its destinations are down, or its only one.
    breaker: Breaker,
    destinations: Destinations,
    in_process: bool,
    /// Whether a send goes to one destination, and what each has under way then.
    one_destination: bool,
    shares: ConcurrencyShares,
    /// Whether each event of a batch has an outcome of its own.
    independent: bool,
    /// Most events in one batch.
    batch_max: usize,
    /// Most events of one key in one batch.
    pub(crate) key_max: usize,
    /// Sends under way, those of them with events that have failed before, and most of them at a time, if it says so.
    pub(crate) busy: usize,
    failed_busy: usize,
    concurrent: Option<usize>,
    /// Sends that got through since it was down, as long as that are few.
    ramp: Option<u32>,
    /// A batch of it has failed as a whole: for so many sends what failed before goes alone.
    fails_whole: u32,
    /// Least time for each event, and when the next may be sent for that reason.
    spacing: Duration,
    not_before: Option<Instant>,
    /// Counts destinations that reject or exhaust what they are sent: each of them may have a single key.
    brake: Brake,
    /// Whether operators were told by this instance that it rejects everything.
    notice_raised: bool,
    /// Whether what operators had been told before this instance began was taken over.
    has_inherited: bool,
    /// Whether what was sent last was a suspect.
    pub(crate) suspect_went_last: bool,
    /// Counts what was delivered, and how much that was when operators were last thought of.
    delivered: u64,
    delivered_at_look: u64,
    /// How many events it was sent the last time, one after the other, and how long that took.
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

    /// Whether it takes several events at a time.
    pub(crate) fn is_batching(&self) -> bool {
        self.batch_max > 1
    }

    /// Whether nothing is known against it as a whole.
    pub(crate) fn is_up(&self) -> bool {
        self.breaker.is_closed()
    }

    /// Whether something may be sent now.
    pub(crate) fn lets_through(&self, now: Instant) -> bool {
        self.breaker.lets_through(now) && self.opens_at(now).is_none()
    }

    /// When it will let something through, if it does not now.
    pub(crate) fn opens_at(&self, now: Instant) -> Option<Instant> {
        let rate = self.not_before.filter(|at| *at > now);
        let only = Some(self.destinations.only()).filter(|_| self.destinations.is_one());
        let too_fast = only.and_then(|only| only.throttle.opens_at(now));
        self.breaker.opens_at(now).max(rate).max(too_fast)
    }

    /// Whether nothing can be sent for a long time, because its only destination has asked for it.
    pub(crate) fn is_held_off(&self, now: Instant) -> bool {
        self.destinations.is_one() && self.destinations.only().throttle.is_held_off(now)
    }

    /// A batch has failed as a whole.
    pub(crate) fn failed_whole(&mut self) {
        self.fails_whole = WHOLE_REMEMBERED;
    }

    /// Whether one event can fail the others of its batch.
    pub(crate) fn fails_whole(&self) -> bool {
        self.fails_whole > 0
    }

    /// Most sends at a time, where it has a limit of its own. After an outage those that hang leave room for others.
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

    /// When a send that is under way is known to hang, so that another one may go beside it, during an outage or after it.
    pub(crate) fn next_slow_at(&self, now: Instant) -> Option<Instant> {
        let slow = self.ramp.and_then(|_| self.shares.next_slow_at(now));
        slow.into_iter().chain(self.breaker.next_probe_at(now)).min()
    }

    /// The most events in one batch, for now.
    pub(crate) fn batch_now(&self) -> usize {
        let ramp = self.ramp.map_or(usize::MAX, |sends| 1 << sends);
        self.batch_max.min(ramp)
    }

    /// The most events that its destination takes in one batch, for now. A batch for several destinations has the limits of each of them.
    pub(crate) fn events_at_once(&self, destination: Option<DestinationId>) -> usize {
        if self.one_destination || self.destinations.is_one() {
            self.destinations.throttle(destination).events_at_once()
        } else {
            usize::MAX
        }
    }

    /// With how many others of its kind the next event of a key goes to a destination, itself among them. None for those that go with any.
    pub(crate) fn batch_limit(&self, destination: Option<DestinationId>, key: u64) -> Option<usize> {
        self.destinations.throttle(destination).batch_limit(key)
    }

    /// Whether each event has to be asked about, because something is known against one of the destinations.
    pub(crate) fn is_troubled(&mut self) -> bool {
        self.is_up() && self.destinations.are_troubled()
    }

    /// Whether something may go to this destination now.
    ///
    /// What is in the same batch to a destination in `along` goes with the others.
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

    /// Whether one of its destinations takes nothing now, because it is down or has asked for time.
    pub(crate) fn is_shut(&self, destination: Option<DestinationId>, now: Instant) -> bool {
        let known = self.destinations.of(destination);
        let shut = !known.breaker.lets_through(now) || known.throttle.opens_at(now).is_some();
        shut && self.is_up() && !self.destinations.is_one()
    }

    /// So many events are about to be sent: the next ones have to leave room for them.
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

    /// Whether there is room for a send to this destination beside those to others.
    ///
    /// The engine has so many `workers` for it, if it sets no limit itself.
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

    /// The same where nobody else wants room.
    pub(crate) fn has_room_alone(&self, destination: Option<DestinationId>, workers: usize) -> bool {
        self.shares.has_room_alone(destination, self.busy, self.concurrent.unwrap_or(workers))
    }

    /// Something is being sent to this destination, or to several. Gives the moment to name when its outcome is ruled on.
    pub(crate) fn sending(&mut self, destination: Option<DestinationId>, now: Instant) -> u64 {
        self.busy += 1;
        // Where a send goes to several destinations, when it began is known all the same: one that hangs leaves room for others.
        if !self.in_process {
            self.shares.sending(destination, now);
        }
        self.suspect_went_last = false;
        self.breaker.sending(now);
        self.delivered
    }

    /// One event is sent to a destination that is down, to see whether it is back.
    pub(crate) fn probing(&mut self, destination: Option<DestinationId>, now: Instant) {
        self.destinations.of_mut(destination, now).breaker.sending(now);
    }

    /// What was to be sent to this destination has ended, one way or another.
    pub(crate) fn ended(&mut self, destination: Option<DestinationId>) {
        self.busy = self.busy.saturating_sub(1);
        if !self.in_process {
            self.shares.ended(destination);
        }
    }

    /// What was sent to this destination at that moment was answered, or given up.
    pub(crate) fn was_sent(&mut self, destination: Option<DestinationId>, began: Instant, now: Instant) {
        if !self.in_process {
            self.shares.sent(destination, began, now);
        }
    }

    /// A probe that nobody has ruled on by the end of its send was never sent.
    pub(crate) fn end_probe(&mut self, probe: bool, probed: Option<Option<DestinationId>>, now: Instant) {
        if probe {
            self.breaker.not_sent(now);
        }
        if let Some(destination) = probed {
            self.destinations.of_mut(destination, now).breaker.not_sent(now);
        }
    }

    /// So many events were sent one after the other, and took so long.
    pub(crate) fn note_pace(&mut self, events: usize, took: Duration) {
        if events > 0 {
            self.pace = (events, took);
        }
    }

    /// How many events it was sent in such a time, the last time. None if that is not known: a clock that stands still tells nothing.
    pub(crate) fn sent_within(&self, time: Duration) -> usize {
        let (events, took) = self.pace;
        let sent = (events as u128 * time.as_nanos()).checked_div(took.as_nanos()).unwrap_or(0);
        usize::try_from(sent).unwrap_or(usize::MAX)
    }

    /// Forgets everything but what it is.
    pub(crate) fn reset(&mut self) {
        (self.breaker, self.busy, self.failed_busy, self.not_before) = (Breaker::new(), 0, 0, None);
        (self.destinations, self.shares) = (Destinations::new(), ConcurrencyShares::default());
    }

    /// Events that were sent at this moment were delivered, each with its key, to these destinations.
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

    /// How many events it has taken.
    pub(crate) fn taken(&self) -> u64 {
        self.delivered
    }

    /// The health checks of a destination.
    pub(crate) fn health_checks(&self, destination: Option<DestinationId>) -> HealthChecks {
        self.destinations.health_checks(destination)
    }

    /// How many events it had taken when this destination took its last one, and whether that is out for other keys than this one.
    pub(crate) fn seen_at(&self, destination: Option<DestinationId>, key: u64) -> (u64, bool) {
        let known = self.destinations.of(destination);
        (known.last_at(), known.is_out_for_others(key))
    }

    /// An event of this key has used up its attempts. Says whether it may die: not if all do.
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

    /// It works, whatever it says of the event.
    fn answered(&mut self, destination: Option<DestinationId>, now: Instant) {
        self.destinations.of_mut(destination, now).answered();
        self.breaker.answered();
    }

    /// Whether only its health check can tell what this failure means.
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

    /// Whether the destination of an attempt worked for others when it was made.
    fn worked_for_others(&self, attempt: &Attempt) -> bool {
        let known = self.destinations.of(attempt.destination);
        known.worked_for_others(attempt.key, attempt.sent_at, Instant::now())
    }

    pub(crate) fn is_alive_for(&self, attempt: &Attempt) -> bool {
        self.destinations.of(attempt.destination).is_alive_for(attempt.key, attempt.since)
    }

    /// Whether its key is known to fail where others are delivered: it says nothing about the destination.
    fn is_culprit(&self, attempt: &Attempt) -> bool {
        !self.in_process && self.destinations.of(attempt.destination).is_culprit(attempt.key)
    }

    /// Rules on a failure where others were delivered since the event was sent. It is about the event if its destination worked for others when it was
    /// sent, and works for them still: an outage may have ended meanwhile, or begun.
    fn rule_beside_others(&mut self, attempt: &Attempt, now: Instant) -> Assessment {
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

    /// Rules on an outcome that is not `Delivered`.
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
            // Others get through: nobody knows why this one does not, and it costs nothing but time.
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
                // A probe that nobody answered is no sign of life.
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
            Outcome::Retry { .. } | Outcome::Unknown { .. } if alive => self.rule_beside_others(attempt, now),
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
                if outage || (!closed || !self.is_up()) && !self.is_culprit(attempt) {
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
                // Whoever rejects has answered, so it is asked again soon.
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
            // What is put off for no time was not sent, because of what stands before it: nobody has answered.
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
                    // It says nothing of those that it shares with.
                    self.breaker.answered();
                } else {
                    self.answered(destination, now);
                }
                let Some(throttle) = self.destinations.throttle_of_its_own(destination, now) else {
                    return Assessment::AsReported;
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

    /// The destination is down, and the receiver with it unless others of it are not.
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

    /// The receiver is down with all its destinations.
    fn down_as_a_whole(&mut self, healthy: bool, now: Instant, rng: &mut Rng) -> Assessment {
        let newly = self.is_up();
        if newly {
            self.destinations.cover();
            self.ramp = Some(0).filter(|_| !self.in_process && !mutations::active(Mutation::NoRamp));
        }
        Assessment::ReceiverDown { pause: self.breaker.refused(healthy, now, rng), newly }
    }

    /// Whether what it rejects is to die, as an operator says.
    pub(crate) fn allow_rejections(&mut self, may: bool) {
        let was_braked = self.rejects_everything();
        self.destinations.allow_rejections(may);
        self.brake.release(may);
        if may && was_braked {
            self.breaker.answered();
            // What dies now takes as many sends as what was delivered before.
            self.ramp = None;
        }
    }

    /// Whether it, or a part of it, rejects whatever it is sent.
    fn rejects_everything(&self) -> bool {
        self.brake.holds() || self.destinations.rejects_everything()
    }

    /// Operators were told that it rejects everything.
    pub(crate) fn notice_raised(&mut self) {
        self.notice_raised = true;
    }

    /// What to tell operators, after a look at whether they are told already, and for how long.
    ///
    /// What they were told before this instance began is taken over: the first failure at a destination pulls its brake, and the first delivery
    /// ends the notice. One that
    /// another instance has written is its own affair, unless it is old: whoever still rejects everything tells it again.
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

    /// A send with an event that failed before has begun.
    pub(crate) fn sending_failed(&mut self) {
        self.failed_busy += 1;
    }

    /// A send with an event that failed before has ended.
    pub(crate) fn failed_ended(&mut self) {
        self.failed_busy = self.failed_busy.saturating_sub(1);
    }

    /// Whether another event that failed before may be sent. Such events may hang, so they leave a quarter of the sends to the others.
    pub(crate) fn has_room_for_failed(&self, workers: usize) -> bool {
        let most = self.concurrent.unwrap_or(workers);
        self.in_process || self.failed_busy < (most - most / FAILED_LEAVE).max(1)
    }

    /// Whether events that failed before use up all the sends they may have.
    pub(crate) fn is_full_of_failed(&self, workers: usize) -> bool {
        !self.has_room_for_failed(workers)
    }

    /// How long an event waits for the pace of its destination.
    pub(crate) fn next_turn(
        &mut self,
        destination: Option<DestinationId>,
        spread: u64,
        now: Instant,
    ) -> Duration {
        let per_request = self.batch_max;
        self.destinations.throttle_mut(destination, now).next_turn(per_request, spread, now)
    }

    /// Whether what goes to this destination waits for its pace: until when, and how many more may do so in memory.
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
