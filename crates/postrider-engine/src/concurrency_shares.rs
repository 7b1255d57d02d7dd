//! Shares the concurrent sends of a receiver between its destinations.
//!
//! A destination that hangs keeps its sends until they are given up, and others need room meanwhile. A
//! destination that has delivered nothing yet gets one send, and all such destinations together three quarters.
//! One that has delivered gets one more send for each delivery, but while others want room no more than a
//! quarter of what is free. The last quarter is for destinations without a running send.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::{destination::DestinationId, hash::QuickState};

/// A destination's share is one part of this many, and as much is left to destinations without a running send.
const SHARE: usize = 4;

/// A send is slow after this long. What finds no room beside a slow send does not wait in memory.
const SLOW: Duration = Duration::from_secs(1);

/// Shortest and longest wait of what finds no room beside a slow send.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Events come back this far apart, and none later than the maximum.
const TURN: Duration = Duration::from_millis(2);
const TURNS_MAX: Duration = Duration::from_secs(600);

/// Most destinations whose deliveries are remembered. Others start anew.
const KNOWN_MAX: usize = 1024;

const WINDOW_MAX: usize = 1 << 20;

/// Whether there is room for one more send to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendRoom {
    Yes,
    /// Soon: ask again when a send has ended, or at this moment.
    Soon(Instant),
    /// Not soon: running sends are slow, and the event waits elsewhere for this long.
    Wait(Duration),
}

/// The running sends to one destination.
#[derive(Debug, Default)]
struct ActiveSends {
    began: VecDeque<Instant>,
    /// Sends that have ended and whose outcomes are not assessed yet.
    unassessed: usize,
}

/// What is remembered of one destination.
#[derive(Debug)]
struct DestinationShare {
    /// Most concurrent sends.
    window: usize,
    delivered_at: Option<Instant>,
    /// When the last of the events that wait elsewhere comes back.
    turns_until: Option<Instant>,
}

impl Default for DestinationShare {
    fn default() -> Self {
        Self { window: 1, delivered_at: None, turns_until: None }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ConcurrencyShares {
    /// Only destinations with running sends.
    under_way: HashMap<u64, ActiveSends, QuickState>,
    known: HashMap<u64, DestinationShare, QuickState>,
}

fn number(name: Option<DestinationId>) -> u64 {
    name.map_or(0, DestinationId::get)
}

impl ConcurrencyShares {
    fn known(&mut self, name: u64) -> &mut DestinationShare {
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&name) {
            self.known.retain(|name, _| self.under_way.contains_key(name));
        }
        self.known.entry(name).or_default()
    }

    fn has_delivered(&self, name: u64) -> bool {
        self.known.get(&name).is_some_and(|known| known.window > 1)
    }

    /// The sends to destinations that have delivered nothing yet.
    fn on_trial(&self) -> impl Iterator<Item = &ActiveSends> {
        self.under_way.iter().filter(|(name, _)| !self.has_delivered(**name)).map(|(_, sends)| sends)
    }

    /// Whether `free` of `most` sends allow one more to this destination, while others want room or not.
    fn is_room(&self, name: u64, free: usize, most: usize, contended: bool) -> bool {
        let window = self.known.get(&name).map_or(1, |known| known.window);
        match self.under_way.get(&name) {
            Some(sends) => {
                let all = sends.began.len() + sends.unassessed;
                sends.began.len() < window
                    && free > most / SHARE
                    && !(contended && all.saturating_mul(SHARE) >= free)
            }
            None if window > 1 => true,
            None => self.on_trial().map(|sends| sends.began.len()).sum::<usize>() < (most - most / SHARE),
        }
    }

    /// Returns how many sends are slow, and no sign of what others will take.
    pub(crate) fn slow(&self, now: Instant) -> usize {
        let began = self.under_way.values().flat_map(|sends| &sends.began);
        began.filter(|began| now.saturating_duration_since(**began) >= SLOW).count()
    }

    /// Returns when the next send becomes slow.
    pub(crate) fn next_slow_at(&self, now: Instant) -> Option<Instant> {
        let began = self.under_way.values().flat_map(|sends| &sends.began);
        began.map(|began| *began + SLOW).filter(|at| *at > now).min()
    }

    /// Returns whether there is room for one more send, while `busy` of `most` run and others want room too.
    /// `spread` separates those that wait elsewhere.
    pub(crate) fn room(
        &mut self,
        name: Option<DestinationId>,
        (busy, most): (usize, usize),
        spread: u64,
        now: Instant,
    ) -> SendRoom {
        let name = number(name);
        if self.is_room(name, most.saturating_sub(busy), most, true) {
            return SendRoom::Yes;
        }
        // A destination without running sends waits for others that have delivered nothing.
        let oldest = match self.under_way.get(&name) {
            Some(sends) => sends.began.front().copied(),
            None => self.on_trial().filter_map(|sends| sends.began.front().copied()).min(),
        };
        let oldest = oldest.unwrap_or(now);
        if oldest + SLOW > now {
            SendRoom::Soon(oldest + SLOW)
        } else {
            SendRoom::Wait(self.turn(name, oldest, spread, now))
        }
    }

    /// Whether there is room while no other destination wants it.
    pub(crate) fn has_room_alone(&self, name: Option<DestinationId>, busy: usize, most: usize) -> bool {
        self.is_room(number(name), most.saturating_sub(busy), most, false)
    }

    /// Returns how long an event waits for its turn to come back.
    fn turn(&mut self, name: u64, oldest: Instant, spread: u64, now: Instant) -> Duration {
        let wait = (now.saturating_duration_since(oldest) / 2).clamp(WAIT_MIN, WAIT_MAX);
        let known = self.known(name);
        let turn = known.turns_until.map_or(now + wait, |until| until.max(now + wait));
        known.turns_until = Some((turn + TURN).min(now + TURNS_MAX));
        let later = wait.mul_f64((spread % 64) as f64 / 128.0);
        (turn.saturating_duration_since(now) + later).min(TURNS_MAX)
    }

    pub(crate) fn sending(&mut self, name: Option<DestinationId>, now: Instant) {
        self.under_way.entry(number(name)).or_default().began.push_back(now);
    }

    /// Records that a send has ended. Its outcome is still to be assessed.
    pub(crate) fn sent(&mut self, name: Option<DestinationId>, began: Instant, now: Instant) {
        let name = number(name);
        let Some(sends) = self.under_way.get_mut(&name) else { return };
        if let Some(place) = sends.began.iter().position(|at| *at == began) {
            sends.began.remove(place);
            sends.unassessed += 1;
        }
        let known = self.known(name);
        let is_slow = now.saturating_duration_since(began) >= SLOW;
        let has_delivered = known.delivered_at.is_some_and(|at| at >= began);
        if is_slow && !has_delivered {
            known.window = 1;
        }
        if !is_slow && has_delivered {
            // It is quick again. New events do not queue behind turns from the time when it hung.
            known.turns_until = None;
        }
    }

    /// Records that an ended send was assessed.
    pub(crate) fn ended(&mut self, name: Option<DestinationId>) {
        let name = number(name);
        let Some(sends) = self.under_way.get_mut(&name) else { return };
        sends.unassessed = sends.unassessed.saturating_sub(1);
        if sends.unassessed == 0 && sends.began.is_empty() {
            self.under_way.remove(&name);
        }
    }

    /// Records a delivery to this destination.
    pub(crate) fn delivered(&mut self, name: Option<DestinationId>, now: Instant) {
        let known = self.known(number(name));
        known.window = (known.window + 1).min(WINDOW_MAX);
        known.delivered_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::destination_id;

    const MOST: usize = 160;

    fn place(n: usize) -> Option<DestinationId> {
        Some(destination_id(&format!("/{n}")))
    }

    /// Sends to a destination while there is room. Returns how often.
    fn fill(shares: &mut ConcurrencyShares, busy: &mut usize, n: usize, now: Instant) -> usize {
        let mut sent = 0;
        while *busy < MOST && shares.room(place(n), (*busy, MOST), 0, now) == SendRoom::Yes {
            shares.sending(place(n), now);
            (*busy, sent) = (*busy + 1, sent + 1);
        }
        sent
    }

    #[test]
    fn one_that_has_delivered_nothing_has_one_send_and_all_such_leave_a_quarter_to_others() {
        let (mut shares, mut busy, now) = (ConcurrencyShares::default(), 0, Instant::now());
        shares.delivered(place(1000), now);
        assert_eq!(fill(&mut shares, &mut busy, 0, now), 1);
        let sent: usize = (1..500).map(|n| fill(&mut shares, &mut busy, n, now)).sum();
        assert_eq!(sent + 1, MOST - MOST / SHARE);
        assert!(fill(&mut shares, &mut busy, 1000, now) > 0, "it has delivered before");
    }

    #[test]
    fn those_that_delivered_and_hang_now_leave_room_for_others_and_for_new_ones() {
        let (mut shares, mut busy, now) = (ConcurrencyShares::default(), 0, Instant::now());
        for n in 0..20 {
            (0..1000).for_each(|_| shares.delivered(place(n), now));
        }
        let sent: Vec<usize> = (0..19).map(|n| fill(&mut shares, &mut busy, n, now)).collect();
        assert!(busy < MOST - 5 && sent.iter().all(|sent| *sent > 0), "{sent:?}");
        assert!(fill(&mut shares, &mut busy, 19, now) > 0);
        assert!(fill(&mut shares, &mut busy, 99, now) > 0, "nobody has met it before");
    }

    #[test]
    fn one_alone_has_three_quarters_and_gives_them_back() {
        let (mut shares, now) = (ConcurrencyShares::default(), Instant::now());
        (0..1000).for_each(|_| shares.delivered(place(0), now));
        let mut busy = 0;
        while shares.has_room_alone(place(0), busy, MOST) {
            shares.sending(place(0), now);
            busy += 1;
        }
        assert_eq!(busy, MOST - MOST / SHARE);
        for _ in 0..busy {
            shares.sent(place(0), now, now);
            shares.ended(place(0));
        }
        assert!(shares.under_way.is_empty());
    }

    #[test]
    fn what_finds_no_room_beside_a_slow_send_waits_elsewhere_and_no_two_come_back_together() {
        let (mut shares, now) = (ConcurrencyShares::default(), Instant::now());
        shares.sending(place(0), now);
        assert_eq!(shares.room(place(0), (1, MOST), 0, now), SendRoom::Soon(now + SLOW));
        let later = now + SLOW * 10;
        let waits: Vec<SendRoom> = (0..3).map(|_| shares.room(place(0), (1, MOST), 0, later)).collect();
        assert_eq!(waits[0], SendRoom::Wait(SLOW * 5));
        // Deliveries meanwhile do not change that.
        shares.delivered(place(0), later);
        shares.sending(place(0), now);
        assert_eq!(shares.room(place(0), (2, MOST), 0, later), SendRoom::Wait(SLOW * 5 + TURN * 3));
    }

    #[test]
    fn a_destination_that_has_recovered_makes_nobody_wait_for_those_that_waited_before() {
        let (mut shares, began) = (ConcurrencyShares::default(), Instant::now());
        shares.sending(place(0), began);
        let later = began + SLOW * 10;
        for _ in 0..400_000 {
            assert!(matches!(shares.room(place(0), (1, MOST), 0, later), SendRoom::Wait(_)));
        }
        assert_eq!(shares.room(place(0), (1, MOST), 0, later), SendRoom::Wait(TURNS_MAX));
        // Events beyond the longest wait move nobody's turn.
        let in_a_minute = later + Duration::from_secs(60);
        assert_eq!(
            shares.room(place(0), (1, MOST), 0, in_a_minute),
            SendRoom::Wait(TURNS_MAX - Duration::from_secs(60))
        );
        // The send that hung is given up, and the next one is answered at once.
        shares.sent(place(0), began, in_a_minute);
        shares.ended(place(0));
        shares.sending(place(0), in_a_minute);
        let answered = in_a_minute + Duration::from_millis(20);
        shares.delivered(place(0), answered);
        shares.sent(place(0), in_a_minute, answered);
        shares.ended(place(0));
        // Later it is slow once.
        (0..2).for_each(|_| shares.sending(place(0), answered));
        let slow = answered + SLOW * 2;
        assert_eq!(shares.room(place(0), (2, MOST), 0, slow), SendRoom::Wait(WAIT_MIN));
    }
}
