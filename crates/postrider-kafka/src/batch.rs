//! Decides which events of a batch can be sent now: the first of each key, and the next once that was delivered.
//!
//! librdkafka offers to keep the order after a failure (`enable.gapless.guarantee`) but does not: if the first request of a producer to a
//! partition is refused, the broker does not know that producer yet and accepts the requests behind it, whatever their sequence numbers are
//! (seen with librdkafka 2.12 on Kafka 4.1). So an event of a key is sent only after the previous one was answered, whatever their topics are.
//! Keys do not wait for each other: a partition that does not answer delays only its own keys.
//!
//! An event without an outcome is not sent, under way, or set aside. A request holds many records, and a refusal does not say which of them it is
//! about. The records of a refused request are set aside and, once nothing else is under way, sent again one at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use postrider_core::{Delivery, Outcome};
use tokio::time::Instant;

use crate::{message::Outgoing, outcome::RecordResult};

/// A batch that is being sent.
pub(crate) struct Batch<'a> {
    deliveries: &'a [Delivery],
    records: Vec<Option<Outgoing<'a>>>,
    outcomes: Vec<Option<Outcome>>,
    /// Since when each record under way waits for its report.
    under_way: BTreeMap<usize, Instant>,
    /// Whether only one record is under way, so that a refusal is about it.
    alone: bool,
    aside: BTreeSet<usize>,
    /// Whether a record that was set aside was refused for its content.
    refused: bool,
    /// Whether the producer ended while a record was under way.
    lost: bool,
}

impl<'a> Batch<'a> {
    /// Starts a batch. Events without a valid record have their outcome already.
    pub(crate) fn new(
        deliveries: &'a [Delivery],
        record: impl Fn(&'a Delivery) -> Result<Outgoing<'a>, String>,
    ) -> Self {
        let (records, outcomes) = deliveries
            .iter()
            .map(|delivery| match record(delivery) {
                Ok(record) => (Some(record), None),
                Err(reason) => (None, Some(Outcome::rejected(reason))),
            })
            .unzip();
        let (under_way, aside) = (BTreeMap::new(), BTreeSet::new());
        Self { deliveries, records, outcomes, under_way, alone: false, aside, refused: false, lost: false }
    }

    /// Marks the events that can be sent now as under way and returns their positions. Events behind a failure of their key get their outcome.
    pub(crate) fn next(&mut self) -> Vec<usize> {
        let next = if self.aside.is_empty() {
            self.next_of_each_key()
        } else if self.under_way.is_empty() && self.refused {
            self.aside.pop_first().into_iter().collect()
        } else {
            Vec::new()
        };
        self.refused &= !self.aside.is_empty();
        if !next.is_empty() {
            self.alone = self.under_way.is_empty() && next.len() == 1;
            self.under_way.extend(next.iter().map(|place| (*place, Instant::now())));
        }
        next
    }

    fn next_of_each_key(&mut self) -> Vec<usize> {
        let failed = self.failed();
        let mut taken = BTreeSet::new();
        let mut next = Vec::new();
        for (place, (delivery, outcome)) in self.deliveries.iter().zip(&mut self.outcomes).enumerate() {
            if outcome.is_some() {
                continue;
            }
            let (key, sent) = (delivery.event.key(), self.under_way.contains_key(&place));
            if !sent && key.is_some_and(|key| failed.contains(key)) {
                // It is retried behind the failed one; nothing is wrong with it.
                *outcome = Some(Outcome::deferred(Duration::ZERO));
                continue;
            }
            let first = key.is_none_or(|key| taken.insert(key));
            if first && !sent {
                next.push(place);
            }
        }
        next
    }

    /// The keys with an event that was not delivered.
    fn failed(&self) -> BTreeSet<&'a str> {
        let outcomes = self.deliveries.iter().zip(&self.outcomes);
        let failed = outcomes.filter(|(_, outcome)| !matches!(outcome, None | Some(Outcome::Delivered)));
        failed.filter_map(|(delivery, _)| delivery.event.key()).collect()
    }

    /// Records the report of a record.
    pub(crate) fn note(&mut self, place: usize, result: RecordResult) {
        let expected = self.under_way.remove(&place).is_some();
        match result {
            RecordResult::Known(outcome) => self.conclude(place, outcome),
            // The record was given up before.
            _ if !expected => {}
            RecordResult::Suspected(error) if self.alone => self.conclude(place, Outcome::rejected(error)),
            RecordResult::Suspected(_) => {
                self.aside.insert(place);
                self.refused = true;
            }
            RecordResult::Lost => {
                self.aside.insert(place);
                self.lost |= self.alone;
            }
        }
    }

    /// Gives up a record that is under way.
    pub(crate) fn give_up(&mut self, place: usize, outcome: Outcome) {
        self.under_way.remove(&place);
        self.conclude(place, outcome);
    }

    fn conclude(&mut self, place: usize, outcome: Outcome) {
        if let Some(slot) = self.outcomes.get_mut(place) {
            *slot = Some(outcome);
        }
    }

    pub(crate) fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether the producer lost a record and has nothing else to report.
    pub(crate) fn is_lost(&self) -> bool {
        self.under_way.is_empty() && !self.aside.is_empty() && (self.lost || !self.refused)
    }

    /// The records that have waited for a report for longer than this, with their topics.
    pub(crate) fn stuck(&self, longer_than: Duration) -> impl Iterator<Item = (usize, &str)> {
        let stuck = self.under_way.iter().filter(move |(_, since)| since.elapsed() >= longer_than);
        stuck.filter_map(|(place, _)| Some((*place, &*self.record(*place)?.1.topic)))
    }

    /// The key and the record of an event.
    pub(crate) fn record(&self, place: usize) -> Option<(Option<&str>, &Outgoing<'a>)> {
        let key = self.deliveries.get(place)?.event.key();
        Some((key, self.records.get(place)?.as_ref()?))
    }

    /// The outcomes of all events at the end: `unanswered` for those that were sent, `not_sent` for the rest.
    pub(crate) fn end(mut self, unanswered: &Outcome, not_sent: &Outcome) -> Vec<Outcome> {
        for place in self.under_way.keys().chain(&self.aside) {
            if let Some(slot @ None) = self.outcomes.get_mut(*place) {
                *slot = Some(unanswered.clone());
            }
        }
        self.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| not_sent.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::{Event, EventError, Source};

    use super::*;
    use crate::{KafkaConfig, message};

    fn deliveries(keys: &[&str]) -> Result<Vec<Delivery>, EventError> {
        let delivery = |key: &&str| {
            let event = Event::json_text("Tested", "{}").key(*key).build()?;
            Ok(Delivery { event, source: Source::Cold, attempt: 1, lane: 0 })
        };
        keys.iter().map(delivery).collect()
    }

    /// Runs steps on a batch as a sink does.
    fn with_batch(keys: &[&str], steps: impl FnOnce(Batch<'_>)) -> Result<(), Box<dyn std::error::Error>> {
        let (config, deliveries) = (KafkaConfig::new("host:9092", "topic")?, deliveries(keys)?);
        steps(Batch::new(&deliveries, |delivery| message::outgoing(&config, &delivery.event)));
        Ok(())
    }

    const DELIVERED: RecordResult = RecordResult::Known(Outcome::Delivered);

    fn end(batch: Batch<'_>) -> Vec<Outcome> {
        batch.end(&Outcome::unknown("sent"), &Outcome::retry("not sent"))
    }

    #[test]
    fn the_next_event_of_a_key_follows_its_own_and_no_other() -> Result<(), Box<dyn std::error::Error>> {
        with_batch(&["a", "b", "a", "b"], |mut batch| {
            assert_eq!(batch.next(), [0, 1]);
            assert!(batch.next().is_empty());
            batch.note(1, DELIVERED);
            assert_eq!(batch.next(), [3]);
            let (sent, not_sent) = (Outcome::unknown("sent"), Outcome::retry("not sent"));
            assert_eq!(end(batch), [sent.clone(), Outcome::Delivered, not_sent, sent]);
        })
    }

    #[test]
    fn behind_a_failure_nothing_of_its_key_is_sent() -> Result<(), Box<dyn std::error::Error>> {
        with_batch(&["a", "a", "b"], |mut batch| {
            assert_eq!(batch.next(), [0, 2]);
            batch.give_up(0, Outcome::unavailable("no leader"));
            batch.note(2, DELIVERED);
            assert!(batch.next().is_empty() && !batch.is_under_way() && !batch.is_lost());
            let deferred = Outcome::deferred(Duration::ZERO);
            assert_eq!(end(batch), [Outcome::unavailable("no leader"), deferred, Outcome::Delivered]);
        })
    }

    #[test]
    fn what_was_refused_together_is_sent_alone_when_nothing_else_is_under_way()
    -> Result<(), Box<dyn std::error::Error>> {
        with_batch(&["a", "b", "c", "a", "c"], |mut batch| {
            assert_eq!(batch.next(), [0, 1, 2]);
            batch.note(0, RecordResult::Suspected("too large".to_owned()));
            batch.note(1, RecordResult::Lost);
            assert!(batch.next().is_empty(), "the third is under way");
            batch.note(2, DELIVERED);
            assert!(!batch.is_lost());
            assert_eq!(batch.next(), [0]);
            batch.note(0, RecordResult::Suspected("too large".to_owned()));
            assert_eq!(batch.next(), [1]);
            batch.note(1, DELIVERED);
            assert_eq!(batch.next(), [4]);
            batch.note(4, DELIVERED);
            let (rejected, deferred) = (Outcome::rejected("too large"), Outcome::deferred(Duration::ZERO));
            let delivered = Outcome::Delivered;
            assert_eq!(end(batch), [rejected, delivered.clone(), delivered.clone(), deferred, delivered]);
        })
    }

    #[test]
    fn a_loss_ends_the_batch_once_nothing_is_under_way() -> Result<(), Box<dyn std::error::Error>> {
        with_batch(&["a", "b", "a"], |mut batch| {
            assert_eq!(batch.next(), [0, 1]);
            batch.note(0, RecordResult::Lost);
            assert!(!batch.is_lost() && batch.next().is_empty());
            batch.note(1, DELIVERED);
            assert!(batch.is_lost());
            let (sent, not_sent) = (Outcome::unknown("sent"), Outcome::retry("not sent"));
            assert_eq!(end(batch), [sent, Outcome::Delivered, not_sent]);
        })
    }
}
