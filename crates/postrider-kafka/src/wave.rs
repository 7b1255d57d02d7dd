//! Which events of a batch can be sent at once: one of each key.
//!
//! librdkafka offers to keep the order behind a failure itself (`enable.gapless.guarantee`), and does not: when the first request of a
//! producer to a partition is refused, the broker knows nothing of that producer yet and takes the requests that are on their way behind
//! it, whatever their sequence numbers are (seen with librdkafka 2.12 on Kafka 4.1). So nothing of a key is sent before what stands in front of it
//! was answered, to whatever topic it goes.

use std::{collections::BTreeSet, time::Duration};

use postrider_core::{Delivery, Outcome};

use crate::message::Outgoing;

/// A batch that is being sent.
pub(crate) struct Batch<'a> {
    pub(crate) deliveries: &'a [Delivery],
    /// The records that are not sent yet.
    pub(crate) records: Vec<Option<Outgoing<'a>>>,
    pub(crate) outcomes: Vec<Option<Outcome>>,
}

impl<'a> Batch<'a> {
    /// What cannot be said has its outcome already.
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
        Self { deliveries, records, outcomes }
    }

    /// The keys of which something was not delivered.
    fn failed(&self) -> BTreeSet<&'a str> {
        let outcomes = self.deliveries.iter().zip(&self.outcomes);
        let failed = outcomes.filter(|(_, outcome)| !matches!(outcome, None | Some(Outcome::Delivered)));
        failed.filter_map(|(delivery, _)| delivery.event.key()).collect()
    }

    /// The places of what can be sent now, in order. What stands behind a failure of its key gets its outcome.
    pub(crate) fn next_wave(&mut self) -> Vec<usize> {
        let failed = self.failed();
        let mut sent = BTreeSet::new();
        let mut wave = Vec::new();
        let places = self.deliveries.iter().zip(&self.records).zip(&mut self.outcomes).enumerate();
        for (place, ((delivery, record), outcome)) in places {
            let (Some(_), None) = (record, &*outcome) else { continue };
            if let Some(key) = delivery.event.key() {
                if failed.contains(key) {
                    // It is tried again behind what it stands behind; it has done nothing wrong itself.
                    *outcome = Some(Outcome::deferred(Duration::ZERO));
                    continue;
                }
                if !sent.insert(key) {
                    continue;
                }
            }
            wave.push(place);
        }
        wave
    }
}
