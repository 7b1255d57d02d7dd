//! Limits how fast a destination is sent to, once it has said "too fast".
//!
//! Without that there is no limit. After it, nothing is sent for a while, and then at most as much as the
//! destination had taken. From there the rate rises, slowly at first, then faster: a limit that was lifted is
//! found within a minute or two, and one that stays is met every twenty seconds or so, at a cost of about one
//! part in twenty.
//!
//! Some events always draw "too fast", whatever the pace, because their tenant has used up its quota. So an
//! answer binds other events for as long as it asks, but a few seconds at most. Each further key that draws it,
//! with nothing taken in between, makes that four times as long. An event that draws it again and again after
//! others were taken waits alone. If that happens to many events, the destination is doubted, and its answers
//! bind others for less and less. If it later takes what it refused, it is trusted again.

use std::time::Duration;

use tokio::time::Instant;

use crate::faulty_keys::FaultyKeys;

/// What a rate falls to, as a fraction: a little if it lasted, and more each time that it falls again at once.
const FALLS: [f64; 4] = [FALLEN_LITTLE, 0.9, 0.7, FALLEN_MOST];
const FALLEN_LITTLE: f64 = 0.98;
const FALLEN_MOST: f64 = 0.5;

/// A rate that lasted this long was nearly right.
const PROVED_AFTER: Duration = Duration::from_secs(5);

/// How much a rate rises within a second, as a fraction: fast when nothing is known, slowly near a limit that
/// was met twice. The rise doubles after a while.
const STEP_FIRST: f64 = 0.5;
const STEP_FALLEN: f64 = 0.01;
const STEP_MIN: f64 = 0.0005;
const STEP_MAX: f64 = 1.0;
const STEP_DOUBLES: Duration = Duration::from_secs(10);

/// The lowest rate is one in ten seconds, and one a second at first. Beyond a million a second there is no
/// limit.
const RATE_MIN: f64 = 0.1;
const RATE_FIRST: f64 = 1.0;
const RATE_MAX: f64 = 1_000_000.0;

/// Nobody is obeyed for longer than a day.
const HOLD_OFF_MAX: Duration = Duration::from_secs(86_400);

/// How long one answer binds other events at most, and the factor for each further key that draws it with
/// nothing taken in between.
const UNCONFIRMED: Duration = Duration::from_secs(5);
const CONFIRMED_BY: u32 = 4;

/// Each doubt halves that. With this many doubts, only the refused event waits...
const DOUBTS_MAX: u32 = 5;

/// ...as long as one event is refused for at least this many that are taken, except for a few.
const TAKEN_FOR_EACH: u32 = 3;
const CREDIT: u32 = 2 * TAKEN_FOR_EACH;
const CREDIT_MAX: u32 = 20 * TAKEN_FOR_EACH;

/// How long a destination is trusted after doubts were wrong; twice as long each time. Several processes may share its
/// limit, and what it takes from the others makes refusals look as if they concerned single events.
const TRUSTS_MIN: Duration = Duration::from_secs(5);
const TRUSTS_MAX: Duration = Duration::from_secs(80);

/// An event that is refused again after others were taken counts as much as this many that are taken after a
/// refusal.
const REFUSED_AGAIN: u32 = 2;

/// An event refused this often after others were taken has a reason of its own.
const ALONE: u32 = 3;

/// A destination that takes nothing gets pauses of its own after this many answers; and the longest of them.
const IN_VAIN_FREE: u32 = 5;
const IN_VAIN_MAX: Duration = Duration::from_secs(10);

/// Over how long taken requests are counted before a limit is known.
const WINDOW: Duration = Duration::from_secs(1);

/// How much requests may be ahead of the rate: timers come late, with a resolution of a millisecond.
const AHEAD: Duration = Duration::from_millis(5);

/// Events that wait elsewhere come back this far apart, and none later than the maximum.
const TURN: Duration = Duration::from_millis(2);
const TURNS_MAX: Duration = Duration::from_secs(600);

/// Where events are counted, a batch has as many as may go in this time.
const AT_ONCE: Duration = Duration::from_millis(50);

/// A drain does not wait for a destination that asks for more time than this.
const LONG: Duration = Duration::from_secs(5);

/// The rate of one destination, in requests, or in events if it counts those.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// How many a second; none while no limit is known.
    rate: Option<f64>,
    counts_events: bool,
    /// Nothing is sent before this moment, as it asked.
    held_off_until: Option<Instant>,
    /// When the next request may go.
    not_before: Option<Instant>,
    /// When the rate last fell. Answers to what was under way by then are old.
    fell_at: Option<Instant>,
    /// How often in a row it fell at once.
    falls: usize,
    /// How often in a row it said "too fast" with nothing taken in between.
    in_vain: u32,
    /// When the rate last rose, and how much it rises within a second since it fell.
    rose_at: Option<Instant>,
    step: f64,
    /// How many were taken since this moment.
    taken: u64,
    taken_since: Option<Instant>,
    /// When the last of the events that wait elsewhere comes back, at distances that suit the rate.
    turns_until: Option<Instant>,
    /// Keys that were refused, and those of them that are refused while others are taken.
    limited: FaultyKeys,
    /// When the last refused request was sent. It may have carried many events.
    refused_at: Option<Instant>,
    /// How many keys were refused for the first time since anything was taken, each in a request sent after the
    /// last answer.
    confirmations: u32,
    /// Until when it asked for time. Only a part of that may bind others.
    asked_until: Option<Instant>,
    /// How often its answers turned out to concern single events, less those that did not.
    doubts: u32,
    /// Until when it is not doubted, and how long it is trusted when doubts turn out wrong again.
    trusted_until: Option<Instant>,
    trusts_for: Duration,
    /// What is left for answers that count as drawn by single events.
    credit: u32,
}

/// A request that was answered with "too fast".
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThrottledRequest {
    /// The key of one of its events.
    pub(crate) key: u64,
    pub(crate) sent_at: Instant,
    pub(crate) events: usize,
    /// How long it was asked to wait.
    pub(crate) after: Duration,
}

impl Throttle {
    pub(crate) fn new() -> Self {
        Self {
            rate: None,
            counts_events: false,
            held_off_until: None,
            not_before: None,
            fell_at: None,
            falls: 0,
            in_vain: 0,
            rose_at: None,
            step: STEP_FIRST,
            taken: 0,
            taken_since: None,
            turns_until: None,
            limited: FaultyKeys::default(),
            refused_at: None,
            confirmations: 0,
            asked_until: None,
            doubts: 0,
            trusted_until: None,
            trusts_for: TRUSTS_MIN,
            credit: CREDIT,
        }
    }

    /// Whether a limit is known.
    pub(crate) fn is_limited(&self) -> bool {
        self.rate.is_some()
    }

    /// Returns when something may be sent, if not now. At rates beyond a timer's resolution, a few requests go
    /// at once.
    pub(crate) fn opens_at(&self, now: Instant) -> Option<Instant> {
        let begins = self.held_off_until;
        let opens = self.not_before.and_then(|at| at.checked_sub(self.ahead()));
        begins.max(opens).filter(|at| *at > now)
    }

    /// Whether it asked for a long time, most of which is still to come.
    pub(crate) fn is_held_off(&self, now: Instant) -> bool {
        self.held_off_until.is_some_and(|until| until > now + LONG)
    }

    /// Returns how much requests may be ahead of the rate.
    fn ahead(&self) -> Duration {
        let room = self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate));
        let ahead = if self.counts_events { AT_ONCE } else { AHEAD };
        ahead.saturating_sub(room)
    }

    /// Whether it takes some events of a batch and says "too fast" to the others.
    pub(crate) fn counts_events(&self) -> bool {
        self.counts_events
    }

    /// Records that it does.
    pub(crate) fn count_events(&mut self) {
        self.counts_events = true;
    }

    /// Returns the limit of events in one request.
    pub(crate) fn events_at_once(&self) -> usize {
        match self.rate.filter(|_| self.counts_events) {
            Some(rate) => ((rate * AT_ONCE.as_secs_f64()) as usize).max(1),
            None => usize::MAX,
        }
    }

    /// Returns the batch limit of this key, which was refused in a batch; none for other keys.
    pub(crate) fn batch_limit(&self, key: u64) -> Option<usize> {
        self.limited.batch_limit(key)
    }

    /// Records that a request with this many events is about to be sent.
    pub(crate) fn sending(&mut self, events: usize, now: Instant) {
        if let Some(rate) = self.rate {
            let count = if self.counts_events { events.max(1) } else { 1 };
            let room = Duration::from_secs_f64(count as f64 / rate);
            self.not_before = Some(self.not_before.map_or(now, |at| at.max(now)) + room);
        }
    }

    /// Records that an event of this key was taken. Returns whether the key had been refused.
    pub(crate) fn delivered(&mut self, key: u64) -> bool {
        let was_refused = self.limited.batch_limit(key).is_some();
        self.limited.delivered(key);
        was_refused
    }

    /// Records a request that was taken, or an event where those are counted, and whether its key had been
    /// refused.
    pub(crate) fn taken(&mut self, sent_at: Instant, was_refused: bool, now: Instant) {
        (self.confirmations, self.credit) = (0, (self.credit + 1).min(CREDIT_MAX));
        if was_refused {
            // The refusal concerned the pace, and not the event.
            self.doubts = self.doubts.saturating_sub(1);
        } else if self.asked_until.is_some_and(|until| now < until)
            && self.fell_at.is_some_and(|at| sent_at > at)
        {
            self.asked_until = None;
            self.doubt(1, now);
        }
        let since = *self.taken_since.get_or_insert(now);
        if self.rate.is_none() && now.saturating_duration_since(since) >= WINDOW {
            (self.taken, self.taken_since) = (0, Some(now));
        }
        self.taken += 1;
        self.rise(now);
    }

    /// Records that an answer concerned a single event. If that happens again and again, nothing is known of
    /// the pace.
    fn doubt(&mut self, by: u32, now: Instant) {
        if self.doubts < DOUBTS_MAX && self.trusted_until.is_none_or(|until| now >= until) {
            self.doubts = (self.doubts + by).min(DOUBTS_MAX);
            if self.doubts == DOUBTS_MAX {
                self.lift();
            }
        }
    }

    /// Forgets the rate, and keeps what is known of the answers.
    fn lift(&mut self) {
        let limited = std::mem::take(&mut self.limited);
        let Self { fell_at, refused_at, doubts, trusted_until, trusts_for, .. } = *self;
        *self = Self { limited, fell_at, refused_at, doubts, trusted_until, trusts_for, ..Self::new() };
    }

    fn rise(&mut self, now: Instant) {
        let (Some(rate), Some(fell_at), Some(rose_at)) = (self.rate, self.fell_at, self.rose_at) else {
            return;
        };
        let passed = now.saturating_duration_since(rose_at);
        if passed < Duration::from_millis(100) {
            return;
        }
        let doublings = now.saturating_duration_since(fell_at).as_secs_f64() / STEP_DOUBLES.as_secs_f64();
        let step = (self.step * doublings.exp2()).min(STEP_MAX);
        let rate = rate * (1.0 + step * passed.as_secs_f64().min(1.0));
        (self.rate, self.rose_at) = (Some(rate), Some(now));
        if rate > RATE_MAX {
            self.lift();
        }
    }

    /// Records that a request was refused. Returns whether that concerns this event alone.
    pub(crate) fn too_fast(&mut self, refused: ThrottledRequest, now: Instant) -> bool {
        let ThrottledRequest { key, sent_at, events, after } = refused;
        let is_new = self.limited.batch_limit(key).is_none();
        self.limited.failed(key);
        self.limited.halve_batch(key, events);
        let times = self.limited.times(key);
        let alone = times >= ALONE && events <= 1;
        if self.fell_at.is_some_and(|fell_at| sent_at <= fell_at) || self.refused_at == Some(sent_at) {
            return alone;
        }
        self.refused_at = Some(sent_at);
        self.confirmations = self.confirmations.saturating_add(u32::from(is_new));
        if alone {
            return true;
        }
        if times > 0 {
            self.doubt(REFUSED_AGAIN, now);
        }
        if self.doubts >= DOUBTS_MAX {
            if let Some(credit) = self.credit.checked_sub(TAKEN_FOR_EACH) {
                self.credit = credit;
                return false;
            }
            // It refuses more than it takes, so the doubts were wrong.
            self.doubts = 0;
            self.trusted_until = Some(now + self.trusts_for);
            self.trusts_for = (self.trusts_for * 2).min(TRUSTS_MAX);
        }
        self.fall(after, now);
        false
    }

    /// Returns how long an answer that asks for this much time binds others.
    fn binds_for(&self, after: Duration) -> Duration {
        let further = self.confirmations.saturating_sub(1);
        let most = UNCONFIRMED.saturating_mul(CONFIRMED_BY.saturating_pow(further));
        after.min(HOLD_OFF_MAX).min(most / (1 << self.doubts))
    }

    /// Sends nothing for a while, and less after that.
    fn fall(&mut self, after: Duration, now: Instant) {
        // A destination that takes nothing may count what it refuses. It is left alone for longer and longer.
        let in_vain = if self.rate.is_some() && self.taken == 0 { self.in_vain.saturating_add(1) } else { 0 };
        let least = match in_vain.checked_sub(IN_VAIN_FREE) {
            Some(more) => Duration::from_secs(1 << more.min(8)).min(IN_VAIN_MAX),
            None => Duration::ZERO,
        };
        let bound = now + self.binds_for(after).max(least);
        let begins = self.held_off_until.map_or(bound, |at| at.max(bound));
        let lasted = now.saturating_duration_since(self.taken_since.unwrap_or(now));
        let falls = self.falls.min(FALLS.len() - 1);
        let fall = FALLS.get(falls).copied().unwrap_or(FALLEN_MOST);
        let (rate, falls, step) = match self.rate {
            // All that was taken may have been taken at once.
            None => ((self.taken as f64 / lasted.max(WINDOW).as_secs_f64()).max(RATE_FIRST), 0, STEP_FIRST),
            // It took nothing, which says nothing of how much it can take.
            Some(rate) if self.taken == 0 => ((rate * fall).max(RATE_FIRST), falls + 1, STEP_FIRST),
            Some(rate) if lasted >= PROVED_AFTER => {
                (rate * FALLEN_LITTLE, 1, (self.step / 10.0).max(STEP_MIN))
            }
            Some(rate) => (rate * fall, falls + 1, STEP_FALLEN),
        };
        (self.rate, self.falls, self.step, self.in_vain) = (Some(rate.max(RATE_MIN)), falls, step, in_vain);
        (self.held_off_until, self.not_before, self.rose_at) = (Some(begins), Some(begins), Some(begins));
        (self.fell_at, self.asked_until, self.turns_until) =
            (Some(now), Some(now + after.min(HOLD_OFF_MAX)), None);
        (self.taken, self.taken_since, self.credit) = (0, Some(begins), CREDIT);
    }

    /// Returns how long an event waits that cannot go now, where requests carry this many events.
    ///
    /// Events come back one by one, as fast as they can be sent but at least one every two milliseconds: the
    /// rate may change before they come. If many wait, or the destination asked for a long time, they come in
    /// the last half of the longest wait.
    pub(crate) fn next_turn(&mut self, per_request: usize, spread: u64, now: Instant) -> Duration {
        let opens = self.opens_at(now).unwrap_or(now);
        let events = if self.counts_events { 1 } else { per_request.max(1) };
        let room = self.rate.map_or(TURN, |rate| Duration::from_secs_f64(1.0 / (rate * events as f64)));
        let turn = self.turns_until.map_or(opens, |at| at.max(opens)) + room.min(TURN);
        let wait = turn.saturating_duration_since(now);
        if wait <= TURNS_MAX {
            self.turns_until = Some(turn);
            return wait;
        }
        TURNS_MAX - (TURNS_MAX / 2).mul_f64((spread % 1024) as f64 / 1024.0)
    }

    /// Returns how many events may wait in memory: as many as can go within this time.
    pub(crate) fn within(&self, time: Duration, per_request: usize) -> usize {
        let events = if self.counts_events { 1 } else { per_request.max(1) };
        self.rate
            .map_or(usize::MAX, |rate| ((rate * time.as_secs_f64()) as usize).max(1).saturating_mul(events))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A receiver that takes this many requests a second, and this many at once.
    struct Bucket {
        rate: f64,
        most: f64,
        tokens: f64,
        at: Instant,
    }

    impl Bucket {
        fn new(rate: f64, most: f64, now: Instant) -> Self {
            Self { rate, most, tokens: most, at: now }
        }

        fn takes(&mut self, now: Instant) -> bool {
            let passed = now.saturating_duration_since(self.at).as_secs_f64();
            (self.tokens, self.at) = ((self.tokens + passed * self.rate).min(self.most), now);
            let takes = self.tokens >= 1.0;
            self.tokens -= f64::from(u8::from(takes));
            takes
        }
    }

    /// Records a request with one event of this key as taken.
    fn take(throttle: &mut Throttle, key: u64, sent_at: Instant, now: Instant) {
        let was_refused = throttle.delivered(key);
        throttle.taken(sent_at, was_refused, now);
    }

    /// Records a request as refused. Returns whether that concerns its event alone.
    fn refuse(throttle: &mut Throttle, key: u64, sent_at: Instant, after: Duration, now: Instant) -> bool {
        throttle.too_fast(ThrottledRequest { key, sent_at, events: 1, after }, now)
    }

    /// Sends for this many seconds, with immediate answers. Returns how many were taken and how many refused.
    fn send_all(
        throttle: &mut Throttle,
        bucket: &mut Bucket,
        begin: Instant,
        seconds: u64,
        after: Duration,
    ) -> (u64, u64) {
        let (mut taken, mut refused, mut now) = (0, 0, begin);
        let mut key = 0;
        while now < begin + Duration::from_secs(seconds) {
            if let Some(at) = throttle.opens_at(now) {
                now = at;
                continue;
            }
            throttle.sending(1, now);
            let sent_at = now;
            now += ms(1);
            key += 1;
            if bucket.takes(now) {
                taken += 1;
                take(throttle, key, sent_at, now);
            } else {
                refused += 1;
                refuse(throttle, key, sent_at, after, now);
            }
        }
        (taken, refused)
    }

    #[test]
    fn what_a_receiver_allows_is_used_but_for_a_tenth_and_seldom_exceeded() {
        for (rate, most) in
            [(20.0, 20.0), (20.0, 1.0), (20.0, 200.0), (2.0, 2.0), (500.0, 500.0), (500.0, 5.0)]
        {
            for after in [ms(1000), ms(100)] {
                let now = Instant::now();
                let (mut throttle, mut bucket) = (Throttle::new(), Bucket::new(rate, most, now));
                // The first minute finds the rate.
                send_all(&mut throttle, &mut bucket, now, 60, after);
                let (taken, refused) =
                    send_all(&mut throttle, &mut bucket, now + Duration::from_secs(60), 240, after);
                let share = taken as f64 / (rate * 240.0);
                assert!(share > 0.9, "{share} of {rate}/s with bursts of {most}, {refused} refused");
                assert!(refused < 40, "{refused} refused of {rate}/s with bursts of {most}");
            }
        }
    }

    #[test]
    fn what_several_processes_share_is_refused_seldom_to_each_of_them() {
        for (rate, most, after) in [(2.0, 1.0, ms(1150)), (3.0, 2.0, ms(400)), (5.0, 1.0, ms(1900))] {
            let began = Instant::now();
            let mut bucket = Bucket::new(rate, most, began);
            // Each has a few keys, whose events it sends again until they are taken: one that is refused for a reason of its own after a while.
            let keys = |first: u64| (first..first + 8).map(|key| (began, key)).collect::<VecDeque<_>>();
            let mut processes = [(Throttle::new(), keys(0)), (Throttle::new(), keys(100))];
            let (mut taken, mut refused, mut next) = (0_u64, 0_u64, 1000);
            for now in (0..90_000).map(|at| began + ms(at)) {
                for (throttle, keys) in &mut processes {
                    // What is due together goes together.
                    for _ in 0..keys.len() {
                        let Some((due, key)) = keys.pop_front() else { break };
                        if due > now || throttle.opens_at(now).is_some() {
                            keys.push_back((due, key));
                            continue;
                        }
                        throttle.sending(1, now);
                        if bucket.takes(now) {
                            taken += 1;
                            next += 1;
                            take(throttle, key, now, now + ms(1));
                            keys.push_back((now, next));
                        } else {
                            refused += 1;
                            let alone = refuse(throttle, key, now, after, now + ms(1));
                            keys.push_back((if alone { now + after } else { now }, key));
                        }
                    }
                }
            }
            assert!(refused < 40 + taken / 4, "{rate}/s: {taken} taken, {refused} refused");
        }
    }

    #[test]
    fn a_limit_that_is_lifted_is_found() {
        let now = Instant::now();
        let (mut throttle, mut bucket) = (Throttle::new(), Bucket::new(20.0, 20.0, now));
        send_all(&mut throttle, &mut bucket, now, 60, ms(1000));
        let mut bucket = Bucket::new(1e9, 1e9, now);
        let (taken, _) = send_all(&mut throttle, &mut bucket, now + Duration::from_secs(60), 180, ms(1000));
        // As fast as sequential requests can be.
        assert!(taken > 60_000, "{taken}");
    }

    #[test]
    fn a_limit_that_falls_is_obeyed_within_seconds() {
        let now = Instant::now();
        let (mut throttle, mut bucket) = (Throttle::new(), Bucket::new(200.0, 20.0, now));
        send_all(&mut throttle, &mut bucket, now, 60, ms(1000));
        let mut bucket = Bucket::new(5.0, 5.0, now + Duration::from_secs(60));
        let (taken, refused) =
            send_all(&mut throttle, &mut bucket, now + Duration::from_secs(60), 60, ms(1000));
        assert!(taken > 200 && refused < 25, "{taken} taken, {refused} refused");
    }

    #[test]
    fn after_a_time_of_nothing_but_too_fast_the_rate_comes_back_within_seconds() {
        let now = Instant::now();
        let (mut throttle, mut closed) = (Throttle::new(), Bucket::new(0.0, 0.0, now));
        send_all(&mut throttle, &mut closed, now, 90, ms(1000));
        let mut bucket = Bucket::new(1e9, 1e9, now);
        let (taken, _) = send_all(&mut throttle, &mut bucket, now + Duration::from_secs(90), 20, ms(1000));
        assert!(taken > 1000, "{taken}");
    }

    #[test]
    fn a_receiver_that_counts_what_it_refuses_takes_something_again() {
        // Twenty requests in any minute, refused ones included.
        let (mut throttle, began) = (Throttle::new(), Instant::now());
        let (mut requests, mut taken, mut now) = (Vec::new(), 0, began);
        while now < began + Duration::from_secs(1800) {
            if let Some(at) = throttle.opens_at(now) {
                now = at;
                continue;
            }
            throttle.sending(1, now);
            let sent_at = now;
            now += ms(1);
            requests.retain(|at| *at + Duration::from_secs(60) > now);
            requests.push(now);
            let key = now.saturating_duration_since(began).as_millis() as u64;
            if requests.len() <= 20 {
                taken += 1;
                take(&mut throttle, key, sent_at, now);
            } else {
                refuse(&mut throttle, key, sent_at, ms(1000), now);
            }
        }
        assert!(taken > 150, "{taken} taken in half an hour");
    }

    #[test]
    fn what_was_under_way_when_the_rate_fell_does_not_lower_it_again() {
        let now = Instant::now();
        let mut throttle = Throttle::new();
        (0..100).for_each(|key| take(&mut throttle, key, now, now));
        (100..150).for_each(|key| _ = refuse(&mut throttle, key, now, ms(1000), now + ms(10)));
        assert!((throttle.rate.unwrap() - 100.0).abs() < 0.1, "{throttle:?}");
    }

    #[test]
    fn a_batch_that_is_refused_is_sent_again_in_halves_and_no_other_is() {
        let (now, mut throttle) = (Instant::now(), Throttle::new());
        let refuse = |throttle: &mut Throttle, events, at| {
            (0..events as u64).for_each(|key| {
                throttle.too_fast(ThrottledRequest { key, sent_at: at, events, after: ms(1) }, at + ms(1));
            });
        };
        refuse(&mut throttle, 100, now);
        assert_eq!((throttle.batch_limit(99), throttle.batch_limit(1000)), (Some(50), None));
        refuse(&mut throttle, 50, now + ms(2));
        assert_eq!((throttle.batch_limit(0), throttle.batch_limit(99)), (Some(25), Some(50)));
        take(&mut throttle, 0, now + ms(3), now + ms(4));
        assert_eq!(throttle.batch_limit(0), None);
        refuse(&mut throttle, 1, now + ms(5));
        assert_eq!(throttle.batch_limit(0), Some(1));
    }

    #[test]
    fn an_answer_binds_others_for_seconds_and_each_further_key_with_nothing_taken_in_between_makes_it_longer()
    {
        let (hour, mut now, mut throttle) = (Duration::from_secs(3600), Instant::now(), Throttle::new());
        let mut sends = 0;
        let end = now + hour;
        while now < end {
            refuse(&mut throttle, sends, now, hour, now + ms(1));
            sends += 1;
            now = throttle.opens_at(now + ms(1)).unwrap();
        }
        assert!(sends < 8, "{sends}");
        assert!(throttle.is_held_off(now - hour / 2));
    }

    #[test]
    fn one_event_that_is_refused_time_and_again_while_others_are_taken_holds_up_nobody() {
        let (mut now, mut throttle) = (Instant::now(), Throttle::new());
        take(&mut throttle, 1, now, now);
        assert!(!refuse(&mut throttle, 0, now + ms(1), ms(1000), now + ms(2)));
        assert!(throttle.opens_at(now + ms(3)).is_some(), "nobody knows it yet");
        for key in 1..100 {
            now += ms(5000);
            // Others are refused and taken in between, as at a destination that has a limit of its own.
            refuse(&mut throttle, key, now, ms(100), now + ms(1));
            take(&mut throttle, key, now + ms(2000), now + ms(2001));
            let alone = refuse(&mut throttle, 0, now + ms(2002), ms(1000), now + ms(2003));
            assert!(key < 3 || alone && throttle.opens_at(now + ms(3500)).is_none(), "{key}");
        }
    }

    #[test]
    fn new_events_that_are_refused_all_the_time_while_others_are_taken_hold_up_the_others_for_less_and_less()
    {
        for after in [ms(1000), ms(60_000), ms(3_600_000)] {
            let (begin, mut throttle) = (Instant::now(), Throttle::new());
            let (mut now, mut was_refused, mut taken) = (begin, VecDeque::new(), 0);
            for key in 0.. {
                now = throttle.opens_at(now).unwrap_or(now + ms(40));
                if now > begin + Duration::from_secs(60) {
                    break;
                }
                throttle.sending(1, now);
                // Queued events are sooner there than those that come back from the table.
                let (bad, key) = match was_refused.pop_front_if(|(at, _)| *at + ms(100) <= now) {
                    Some((_, key)) => (true, key),
                    None => (key % 10 == 0, key),
                };
                if bad {
                    let alone = refuse(&mut throttle, key, now, after, now + ms(1));
                    was_refused
                        .push_back((if alone { now + after.max(ms(60_000)) } else { now + after }, key));
                } else {
                    take(&mut throttle, key, now, now + ms(1));
                    taken += 1;
                }
            }
            assert!(taken > 500, "{taken} of 1350 in a minute, {after:?}");
        }
    }

    #[test]
    fn a_destination_that_is_doubted_is_obeyed_again_once_it_takes_what_it_refused() {
        let (mut now, mut throttle) = (Instant::now(), Throttle::new());
        for key in 0..DOUBTS_MAX as u64 {
            refuse(&mut throttle, key, now, ms(60_000), now + ms(1));
            now += ms(10_000);
            take(&mut throttle, 1000 + key, now, now + ms(1));
        }
        assert!(!refuse(&mut throttle, 99, now + ms(2), ms(1000), now + ms(3)));
        assert_eq!(throttle.opens_at(now + ms(4)), None, "only the event waits");
        (0..3).for_each(|key| take(&mut throttle, key, now + ms(5), now + ms(6)));
        refuse(&mut throttle, 100, now + ms(7), ms(1000), now + ms(8));
        assert!(throttle.opens_at(now + ms(9)).is_some());
        // Even a doubted one is obeyed if it refuses more than it takes.
        for key in 0..DOUBTS_MAX as u64 {
            now += ms(10_000);
            take(&mut throttle, 1000 + key, now, now + ms(1));
            refuse(&mut throttle, 2000 + key, now + ms(2), ms(60_000), now + ms(3));
        }
        let refused = (0..100).find(|n| {
            refuse(&mut throttle, 3000 + n, now + ms(10 + n), ms(1000), now + ms(10 + n));
            throttle.opens_at(now + ms(11 + n)).is_some()
        });
        assert!(refused.is_some());
    }

    #[test]
    fn what_has_to_wait_comes_again_one_after_the_other_and_within_the_longest_wait() {
        let now = Instant::now();
        let mut throttle = Throttle::new();
        (0..10).for_each(|key| take(&mut throttle, key, now, now));
        refuse(&mut throttle, 10, now, ms(1000), now);
        let turns: Vec<_> = (0..3).map(|_| throttle.next_turn(1, 0, now)).collect();
        assert_eq!(turns, [ms(1002), ms(1004), ms(1006)]);
        let waits: Vec<Duration> = (0..1_000_000).map(|n| throttle.next_turn(1, n, now)).collect();
        assert!(waits.iter().all(|wait| *wait <= TURNS_MAX));
        let late = waits.iter().filter(|wait| **wait > TURNS_MAX / 2).count();
        assert!(late > 700_000, "they do not all come back at once: {late}");
    }

    #[test]
    fn a_request_that_carries_many_events_lets_as_many_come_again() {
        let now = Instant::now();
        let mut throttle = Throttle::new();
        (0..50).for_each(|key| take(&mut throttle, key, now, now));
        refuse(&mut throttle, 50, now, ms(1000), now);
        let last = (0..5000).map(|_| throttle.next_turn(100, 0, now)).max();
        assert!(last.is_some_and(|last| last < ms(2100)), "{last:?}");
    }
}
