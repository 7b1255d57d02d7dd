//! Remembers when delivered events were sent, to tell whether a destination worked at the moment when another
//! event was sent.
//!
//! An event that hangs with its receiver fails long after the receiver delivers again. Deliveries since it was
//! sent prove nothing then; deliveries of events that were sent right after it do.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// Each step of this length keeps its last moments.
const STEP: Duration = Duration::from_millis(250);

/// An event sent within this time after another one was sent right after it.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// Most steps that are kept: five minutes, longer than nearly every send may take.
const STEPS_MAX: usize = 1200;

#[derive(Debug, Default)]
pub(crate) struct DeliveryHistory {
    /// When the first step began.
    began: Option<Instant>,
    /// In order.
    steps: VecDeque<HistoryStep>,
}

/// The last delivered events of one step: when the last one was sent, with its key, and the last one of another
/// key.
#[derive(Debug, Clone, Copy)]
struct HistoryStep {
    number: u64,
    last: (u64, Instant),
    other: Option<(u64, Instant)>,
}

impl HistoryStep {
    fn note(&mut self, key: u64, at: Instant) {
        if key == self.last.0 {
            self.last.1 = at.max(self.last.1);
        } else if at >= self.last.1 {
            self.other = Some(std::mem::replace(&mut self.last, (key, at)));
        } else if self.other.is_none_or(|(_, other)| at > other) {
            self.other = Some((key, at));
        }
    }

    /// Whether it has another key within this time.
    fn has_other_than(&self, key: u64, from: Instant, to: Instant) -> bool {
        let is_witness = |(other, at): (u64, Instant)| other != key && at >= from && at <= to;
        is_witness(self.last) || self.other.is_some_and(is_witness)
    }
}

impl DeliveryHistory {
    /// Records a delivered event with the moment when it was sent.
    pub(crate) fn delivered(&mut self, key: u64, sent_at: Instant) {
        let began = *self.began.get_or_insert(sent_at);
        let number = number(began, sent_at);
        // Nearly always it is one of the last.
        let place = self.steps.iter().rposition(|step| step.number <= number);
        match place.and_then(|place| self.steps.get_mut(place)) {
            Some(step) if step.number == number => step.note(key, sent_at),
            _ => {
                let step = HistoryStep { number, last: (key, sent_at), other: None };
                self.steps.insert(place.map_or(0, |place| place + 1), step);
            }
        }
        if self.steps.len() > STEPS_MAX {
            self.steps.pop_front();
        }
    }

    /// Whether an event of another key was delivered that was sent at this moment or right after it.
    pub(crate) fn worked_for_others(&self, key: u64, sent_at: Instant) -> bool {
        let Some(began) = self.began else { return false };
        let to = sent_at + SOON;
        let (first, last) = (number(began, sent_at), number(began, to));
        let later = self.steps.iter().rev().skip_while(|step| step.number > last);
        later.take_while(|step| step.number >= first).any(|step| step.has_other_than(key, sent_at, to))
    }
}

fn number(began: Instant, at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(began).as_millis() / STEP.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: f64) -> Duration {
        Duration::from_secs_f64(secs)
    }

    #[test]
    fn others_that_were_sent_right_after_it_are_witnesses() {
        let (mut history, start) = (DeliveryHistory::default(), Instant::now());
        assert!(!history.worked_for_others(1, start));
        history.delivered(1, start + secs(10.0));
        assert!(!history.worked_for_others(1, start + secs(10.0)), "its own key is none");
        for (moment, worked) in [(8.9, false), (9.1, true), (10.0, true), (10.1, false)] {
            assert_eq!(history.worked_for_others(2, start + secs(moment)), worked, "{moment}");
        }
        history.delivered(2, start + secs(10.1));
        assert!(history.worked_for_others(1, start + secs(10.1)));
        assert!(!history.worked_for_others(2, start + secs(10.05)));
    }

    #[test]
    fn what_was_sent_earlier_and_delivered_later_is_one_too() {
        let (mut history, start) = (DeliveryHistory::default(), Instant::now());
        for moment in [0.0, 20.0, 10.0, 20.0, 5.0] {
            history.delivered(1, start + secs(moment));
        }
        for (moment, worked) in
            [(0.0, true), (2.5, false), (4.5, true), (7.5, false), (9.5, true), (19.5, true), (20.5, false)]
        {
            assert_eq!(history.worked_for_others(2, start + secs(moment)), worked, "{moment}");
        }
    }

    #[test]
    fn of_two_keys_in_one_step_both_are_known() {
        let (mut history, start) = (DeliveryHistory::default(), Instant::now());
        for (key, moment) in [(1, 0.02), (2, 0.01), (3, 0.1), (1, 0.05)] {
            history.delivered(key, start + secs(moment));
        }
        assert!(history.worked_for_others(3, start + secs(0.04)));
        assert!(history.worked_for_others(1, start + secs(0.04)));
        assert!(!history.worked_for_others(3, start + secs(0.06)));
    }

    #[test]
    fn no_more_than_the_last_minutes_are_remembered() {
        let (mut history, start) = (DeliveryHistory::default(), Instant::now());
        for second in 0..2000 {
            history.delivered(1, start + secs(second.into()));
        }
        assert_eq!(history.steps.len(), STEPS_MAX);
        assert!(history.worked_for_others(2, start + secs(1999.0)));
        assert!(!history.worked_for_others(2, start));
    }
}
