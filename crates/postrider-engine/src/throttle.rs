//! How fast a destination takes what it is sent, as far as it has ever said "too fast".
//!
//! A destination that never says so has no limit here. When it does, nothing is sent to it for as long as it asks for, and then at most as much as
//! it has taken. From there the rate rises again by itself, slowly at first, then faster: a limit that was lifted is found within a minute or two,
//! and one that stays is met every twenty seconds or so, at a cost of about one part in twenty.

use std::time::Duration;

use tokio::time::Instant;

/// What a rate falls to, as a part of itself: a little if it lasted, and more with each time that it falls again at once.
const FALLS: [f64; 4] = [FALLEN_LITTLE, 0.9, 0.7, FALLEN_MOST];
const FALLEN_LITTLE: f64 = 0.98;
const FALLEN_MOST: f64 = 0.5;

/// A rate that lasted so long was nearly right.
const PROVED_AFTER: Duration = Duration::from_secs(5);

/// By how much a rate rises within a second, as a part of itself: fast when nothing is known, slowly near a limit that was met twice. After a while
/// it rises twice as fast.
const STEP_FIRST: f64 = 0.5;
const STEP_FALLEN: f64 = 0.01;
const STEP_MIN: f64 = 0.0005;
const STEP_MAX: f64 = 1.0;
const STEP_DOUBLES: Duration = Duration::from_secs(10);

/// No rate is lower than one in ten seconds, nor than one a second at first; one beyond a million a second is none.
const RATE_MIN: f64 = 0.1;
const RATE_FIRST: f64 = 1.0;
const RATE_MAX: f64 = 1_000_000.0;

/// Nobody is obeyed who asks for more than a day.
const HOLD_OFF_MAX: Duration = Duration::from_secs(86_400);

/// A destination that takes nothing is given pauses of its own after so many times, and this is the longest.
const IN_VAIN_FREE: u32 = 5;
const IN_VAIN_MAX: Duration = Duration::from_secs(10);

/// What was taken is counted over so long before a limit is known.
const WINDOW: Duration = Duration::from_secs(1);

/// Requests may be so much ahead of the rate: a timer comes late, and tells no less than a millisecond.
const AHEAD: Duration = Duration::from_millis(5);

/// What has to wait elsewhere comes again at least this often, as long as none waits for longer than that.
const TURN: Duration = Duration::from_millis(2);
const TURNS_MAX: Duration = Duration::from_secs(600);

/// Where events are counted, a batch has as many as may go in this time.
const AT_ONCE: Duration = Duration::from_millis(50);

/// A destination that asks for more time than this cannot be waited for by what is to end soon.
const LONG: Duration = Duration::from_secs(5);

/// The rate of one destination, in requests, or in events if it counts these.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// How many a second; none as long as no limit is known.
    rate: Option<f64>,
    counts_events: bool,
    /// Nothing is sent before this moment, as it has asked.
    held_off_until: Option<Instant>,
    /// When the next request has its turn.
    not_before: Option<Instant>,
    /// When the rate fell last, and what was under way by then says nothing new.
    fell_at: Option<Instant>,
    /// How often in a row it fell at once.
    falls: usize,
    /// How often in a row it said so with nothing taken in between.
    in_vain: u32,
    /// When the rate last rose, and by how much it rises within a second since it fell.
    rose_at: Option<Instant>,
    step: f64,
    /// How many were taken since this moment.
    taken: u64,
    taken_since: Option<Instant>,
    /// What has to wait elsewhere is told to come again at moments that lie apart as the rate says.
    turns_until: Option<Instant>,
    /// The most events in one request, while it takes no request at all: one event of a batch, or their number, may be the reason.
    batch_most: usize,
}

impl Throttle {
    pub(crate) const fn new() -> Self {
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
            batch_most: usize::MAX,
        }
    }

    /// Whether a limit is known.
    pub(crate) fn is_limited(&self) -> bool {
        self.rate.is_some()
    }

    /// When something may be sent, if not now. What goes faster than a timer can tell goes a few at once.
    pub(crate) fn opens_at(&self, now: Instant) -> Option<Instant> {
        let begins = self.held_off_until;
        let opens = self.not_before.and_then(|at| at.checked_sub(self.ahead()));
        begins.max(opens).filter(|at| *at > now)
    }

    /// Whether it has asked for a long time, most of which is still to come.
    pub(crate) fn is_held_off(&self, now: Instant) -> bool {
        self.held_off_until.is_some_and(|until| until > now + LONG)
    }

    /// By how much requests may be ahead of the rate.
    fn ahead(&self) -> Duration {
        let room = self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate));
        let ahead = if self.counts_events { AT_ONCE } else { AHEAD };
        ahead.saturating_sub(room)
    }

    /// Whether it takes some events of a batch and says "too fast" to the others.
    pub(crate) fn counts_events(&self) -> bool {
        self.counts_events
    }

    /// It does.
    pub(crate) fn count_events(&mut self) {
        self.counts_events = true;
    }

    /// The most events that may go in one request.
    pub(crate) fn at_once(&self) -> usize {
        match self.rate.filter(|_| self.counts_events) {
            Some(rate) => ((rate * AT_ONCE.as_secs_f64()) as usize).max(1),
            None => self.batch_most,
        }
    }

    /// A request with so many events is about to be sent.
    pub(crate) fn sending(&mut self, events: usize, now: Instant) {
        if let Some(rate) = self.rate {
            let count = if self.counts_events { events.max(1) } else { 1 };
            let room = Duration::from_secs_f64(count as f64 / rate);
            self.not_before = Some(self.not_before.map_or(now, |at| at.max(now)) + room);
        }
    }

    /// A request was taken, or an event where these are counted.
    pub(crate) fn taken(&mut self, now: Instant) {
        let since = *self.taken_since.get_or_insert(now);
        if self.rate.is_none() && now - since >= WINDOW {
            (self.taken, self.taken_since) = (0, Some(now));
        }
        self.taken += 1;
        self.batch_most = self.batch_most.saturating_mul(2);
        self.rise(now);
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
            *self = Self::new();
        }
    }

    /// It says "too fast" to a request that was sent at this moment with so many events, and asks for so much time.
    pub(crate) fn too_fast(&mut self, sent_at: Instant, events: usize, after: Duration, now: Instant) {
        if self.fell_at.is_some_and(|fell_at| sent_at <= fell_at) {
            return;
        }
        // One that takes nothing may count what it refuses: it is left alone for longer and longer.
        let in_vain = if self.rate.is_some() && self.taken == 0 { self.in_vain.saturating_add(1) } else { 0 };
        let least = match in_vain.checked_sub(IN_VAIN_FREE) {
            Some(more) => Duration::from_secs(1 << more.min(8)).min(IN_VAIN_MAX),
            None => Duration::ZERO,
        };
        let after = after.max(least);
        let asked = now + after.min(HOLD_OFF_MAX);
        let begins = self.held_off_until.map_or(asked, |at| at.max(asked));
        let lasted = now.saturating_duration_since(self.taken_since.unwrap_or(now));
        let falls = self.falls.min(FALLS.len() - 1);
        let fall = FALLS.get(falls).copied().unwrap_or(FALLEN_MOST);
        let (rate, falls, step) = match self.rate {
            // All that was taken may have been taken at once.
            None => ((self.taken as f64 / lasted.max(WINDOW).as_secs_f64()).max(RATE_FIRST), 0, STEP_FIRST),
            // It took nothing at all: that says nothing of how much it takes.
            Some(rate) if self.taken == 0 => ((rate * fall).max(RATE_FIRST), falls + 1, STEP_FIRST),
            Some(rate) if lasted >= PROVED_AFTER => {
                (rate * FALLEN_LITTLE, 1, (self.step / 10.0).max(STEP_MIN))
            }
            Some(rate) => (rate * fall, falls + 1, STEP_FALLEN),
        };
        let took_nothing = self.rate.is_some() && self.taken == 0;
        let batch_most = if took_nothing { (events / 2).max(1) } else { self.batch_most };
        *self = Self {
            rate: Some(rate.max(RATE_MIN)),
            counts_events: self.counts_events,
            held_off_until: Some(begins),
            not_before: Some(begins),
            fell_at: Some(now),
            falls,
            in_vain,
            rose_at: Some(begins),
            step,
            taken: 0,
            taken_since: Some(begins),
            turns_until: None,
            batch_most,
        };
    }

    /// How long an event waits that cannot go now, where a request carries so many of them.
    ///
    /// Events come again one after the other, as fast as they can be sent but no slower than one every two milliseconds: how fast that is may change
    /// before they come. Where many wait, or the destination asked for a long time, they come in the last half of the longest wait.
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

    /// How many events may wait in memory for their turn: as many as can go within so long.
    pub(crate) fn within(&self, time: Duration, per_request: usize) -> usize {
        let events = if self.counts_events { 1 } else { per_request.max(1) };
        self.rate
            .map_or(usize::MAX, |rate| ((rate * time.as_secs_f64()) as usize).max(1).saturating_mul(events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A receiver that takes so many requests a second, and so many at once.
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

    /// Sends without end for so many seconds, each request answered at once; says how many were taken and how many were not.
    fn send_all(
        throttle: &mut Throttle,
        bucket: &mut Bucket,
        begin: Instant,
        seconds: u64,
        after: Duration,
    ) -> (u64, u64) {
        let (mut taken, mut refused, mut now) = (0, 0, begin);
        while now < begin + Duration::from_secs(seconds) {
            if let Some(at) = throttle.opens_at(now) {
                now = at;
                continue;
            }
            throttle.sending(1, now);
            let sent_at = now;
            now += ms(1);
            if bucket.takes(now) {
                taken += 1;
                throttle.taken(now);
            } else {
                refused += 1;
                throttle.too_fast(sent_at, 1, after, now);
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
                // The first minute finds out.
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
    fn a_limit_that_is_lifted_is_found() {
        let now = Instant::now();
        let (mut throttle, mut bucket) = (Throttle::new(), Bucket::new(20.0, 20.0, now));
        send_all(&mut throttle, &mut bucket, now, 60, ms(1000));
        let mut bucket = Bucket::new(1e9, 1e9, now);
        let (taken, _) = send_all(&mut throttle, &mut bucket, now + Duration::from_secs(60), 180, ms(1000));
        // As fast as one after the other can be.
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
            if requests.len() <= 20 {
                taken += 1;
                throttle.taken(now);
            } else {
                throttle.too_fast(sent_at, 1, ms(1000), now);
            }
        }
        assert!(taken > 150, "{taken} taken in half an hour");
    }

    #[test]
    fn what_was_under_way_when_the_rate_fell_does_not_lower_it_again() {
        let now = Instant::now();
        let mut throttle = Throttle::new();
        (0..100).for_each(|_| throttle.taken(now));
        (0..50).for_each(|_| throttle.too_fast(now, 1, ms(1000), now + ms(10)));
        assert!((throttle.rate.unwrap() - 100.0).abs() < 0.1, "{throttle:?}");
    }

    #[test]
    fn a_batch_that_is_refused_again_with_nothing_taken_in_between_is_halved_until_something_is_taken() {
        let now = Instant::now();
        let mut throttle = Throttle::new();
        throttle.too_fast(now, 100, ms(1), now + ms(1));
        assert_eq!(throttle.at_once(), usize::MAX, "the first time says nothing but that it was too fast");
        throttle.too_fast(now + ms(2), 100, ms(1), now + ms(3));
        throttle.too_fast(now + ms(4), 50, ms(1), now + ms(5));
        assert_eq!(throttle.at_once(), 25);
        throttle.taken(now + ms(6));
        assert_eq!(throttle.at_once(), 50);
        throttle.too_fast(now + ms(7), 50, ms(1), now + ms(8));
        assert_eq!(throttle.at_once(), 50, "others are taken, so it is no reason to send less at once");
    }

    #[test]
    fn what_has_to_wait_comes_again_one_after_the_other_and_within_the_longest_wait() {
        let now = Instant::now();
        let mut throttle = Throttle::new();
        (0..10).for_each(|_| throttle.taken(now));
        throttle.too_fast(now, 1, ms(1000), now);
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
        (0..50).for_each(|_| throttle.taken(now));
        throttle.too_fast(now, 1, ms(1000), now);
        let last = (0..5000).map(|_| throttle.next_turn(100, 0, now)).max();
        assert!(last.is_some_and(|last| last < ms(2100)), "{last:?}");
    }
}
