//! Sends one batch through one producer: hands over records, takes reports, and gives up records that will get none.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use postrider_core::Outcome;
use postrider_net::{Deadline, Linked};
use tokio::{task::JoinHandle, time::Instant};

use crate::{
    batch::Batch,
    producer::{Producer, Reports},
};

/// How long reports of purged records may take.
const PURGE_MAX: Duration = Duration::from_secs(5);
/// How long to wait for a report before asking a broker about its topic.
const REPORT_MAX: Duration = Duration::from_secs(5);
/// How long a broker may take to describe a topic.
const ANSWER_MAX: Duration = Duration::from_secs(4);

/// How a send ended.
pub(crate) enum Ended {
    /// Every record has its report.
    Reported,
    /// Every event has its outcome, but the producer still holds records that were given up.
    GivenUp,
    /// The producer was lost.
    Lost(String),
}

/// A batch that is being sent.
pub(crate) struct Sending<'a, 'b> {
    producer: &'a Linked<Producer>,
    batch: &'a mut Batch<'b>,
    reports: Arc<Reports>,
    /// How long a record waits before a broker is asked.
    report_max: Duration,
    given_up: bool,
}

impl<'a, 'b> Sending<'a, 'b> {
    pub(crate) fn new(producer: &'a Linked<Producer>, batch: &'a mut Batch<'b>, deadline: &Deadline) -> Self {
        let report_max = REPORT_MAX.min(deadline.left() / 2);
        Self { producer, batch, reports: Arc::default(), report_max, given_up: false }
    }

    /// Sends everything. It may be dropped at any point: the batch has all that is known by then.
    pub(crate) async fn run(mut self, first: Vec<usize>) -> Ended {
        let mut asking: Option<JoinHandle<BTreeMap<String, String>>> = None;
        let mut ask_at = Instant::now() + self.report_max;
        self.hand_over(first);
        while self.batch.is_under_way() {
            tokio::select! {
                biased;
                reports = self.reports.next() => {
                    reports.into_iter().for_each(|(place, result)| self.batch.note(place, result));
                }
                why = self.producer.over() => {
                    self.purge().await;
                    return Ended::Lost(why);
                }
                wrong = answer(&mut asking), if asking.is_some() => {
                    asking = None;
                    self.give_up(&wrong);
                }
                () = tokio::time::sleep_until(ask_at), if asking.is_none() => {
                    asking = self.ask();
                    ask_at = Instant::now() + self.report_max;
                }
            }
            if self.batch.is_lost() {
                return Ended::Lost(String::new());
            }
            let next = self.batch.next();
            self.hand_over(next);
        }
        if self.given_up { Ended::GivenUp } else { Ended::Reported }
    }

    fn hand_over(&self, places: Vec<usize>) {
        for place in places {
            if let Some((key, record)) = self.batch.record(place) {
                self.producer.produce(key, record, &self.reports, place);
            }
        }
    }

    /// The producer is over: takes the reports of what it held.
    async fn purge(&mut self) {
        self.producer.purge();
        let rest = async {
            while self.batch.is_under_way() {
                let reports = self.reports.next().await;
                reports.into_iter().for_each(|(place, result)| self.batch.note(place, result));
            }
        };
        let _ = tokio::time::timeout(PURGE_MAX, rest).await;
    }

    /// Asks a broker about the topics of records that have waited too long.
    fn ask(&self) -> Option<JoinHandle<BTreeMap<String, String>>> {
        let stuck = self.batch.stuck(self.report_max);
        let topics: BTreeSet<String> = stuck.map(|(_, topic)| topic.to_owned()).collect();
        if topics.is_empty() {
            return None;
        }
        let producer = self.producer.clone();
        let ask = move |topic: String| {
            let wrong = producer.ask(std::slice::from_ref(&topic), ANSWER_MAX).ok()??;
            Some((topic, wrong))
        };
        Some(tokio::task::spawn_blocking(move || topics.into_iter().filter_map(ask).collect()))
    }

    /// Gives up records whose partition has no leader according to a broker; librdkafka would hold them until there is one.
    fn give_up(&mut self, wrong: &BTreeMap<String, String>) {
        let stuck = self.batch.stuck(self.report_max);
        let given_up = stuck.filter_map(|(place, topic)| Some((place, wrong.get(topic)?.clone())));
        for (place, why) in given_up.collect::<Vec<_>>() {
            self.batch.give_up(place, Outcome::unavailable(why));
            self.given_up = true;
        }
    }
}

/// The problem of each topic; none if no broker answers.
async fn answer(asking: &mut Option<JoinHandle<BTreeMap<String, String>>>) -> BTreeMap<String, String> {
    match asking {
        Some(asking) => asking.await.unwrap_or_default(),
        None => BTreeMap::new(),
    }
}
