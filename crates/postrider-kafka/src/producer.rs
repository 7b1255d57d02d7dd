//! Creates a producer, notices its end, and collects the reports of its records.
//!
//! A producer reconnects by itself and cannot be asked whether it is connected. It reports when all brokers are down and when it can no longer
//! tell which records it has sent. Either ends it here: what it holds is purged, and the next send makes a new one.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use postrider_net::Connect;
use rdkafka::{
    ClientConfig, ClientContext, Message,
    config::{FromClientConfigAndContext, RDKafkaLogLevel},
    error::KafkaError,
    message::DeliveryResult,
    metadata::MetadataTopic,
    producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext, PurgeConfig},
    types::RDKafkaErrorCode as Code,
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tracing::debug;

use crate::{
    message::Outgoing,
    outcome::{self, RecordResult},
};

/// How long one request for a broker's answer blocks.
const ASK_FOR: Duration = Duration::from_millis(50);

/// How long one call for reports blocks; reports end it early. librdkafka polls continuously during the last millisecond of it, because it counts
/// whole milliseconds: with a tenth of a second, as its own `ThreadedProducer` uses, an idle process takes 0.8 % of a core, with this a tenth
/// of that.
const REPORTS_FOR: Duration = Duration::from_secs(1);

/// How long a broker may take to create a topic that it was asked for.
const TOPIC_MADE_MAX: Duration = Duration::from_secs(1);

/// The reports of one send that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    waiting: Mutex<Vec<(usize, RecordResult)>>,
    news: Notify,
}

impl Reports {
    /// Adds the report of a record.
    fn tell(&self, place: usize, result: RecordResult) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((place, result));
        self.news.notify_one();
    }

    /// Waits for reports and returns all there are.
    pub(crate) async fn next(&self) -> Vec<(usize, RecordResult)> {
        loop {
            let reports = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            if !reports.is_empty() {
                return reports;
            }
            self.news.notified().await;
        }
    }
}

/// One record of a send, as librdkafka passes it back.
pub struct Ticket {
    reports: Arc<Reports>,
    place: usize,
}

/// Receives what a producer reports.
pub struct Context {
    /// Why the producer is over, if it is.
    over: watch::Sender<Option<String>>,
    /// The last error of a broker, for the message that none can be reached.
    last_error: Mutex<String>,
}

impl ClientContext for Context {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        debug!(facility, message, "librdkafka");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let mut last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        match error.rdkafka_error_code() {
            Some(Code::AllBrokersDown | Code::Fatal) => {
                let why =
                    if last_error.is_empty() { reason.to_owned() } else { format!("{reason}: {last_error}") };
                self.over.send_if_modified(|over| over.is_none().then(|| *over = Some(why)).is_some());
            }
            _ => *last_error = reason.to_owned(),
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let report = match result {
            Ok(_) => Ok(()),
            Err((error, record)) => {
                Err(error.rdkafka_error_code().unwrap_or(Code::Unknown)).inspect_err(|code| {
                    debug!(%code, topic = record.topic(), "a record was not delivered");
                })
            }
        };
        ticket.reports.tell(ticket.place, outcome::of_report(report));
    }
}

/// Makes producers for a cluster.
pub struct Connector {
    config: ClientConfig,
    brokers: String,
    connect_timeout: Duration,
}

impl Connector {
    pub(crate) fn new(config: ClientConfig, brokers: String, connect_timeout: Duration) -> Self {
        Self { config, brokers, connect_timeout }
    }
}

/// A producer that many sends can use at once. When the last user drops it, it purges what it holds.
pub struct Producer {
    inner: Option<Arc<BaseProducer<Context>>>,
    /// Ends the thread that collects reports.
    ended: Arc<AtomicBool>,
}

impl Producer {
    /// Creates a producer, with a thread that collects its reports.
    fn start(config: &ClientConfig) -> Result<Self, String> {
        let cannot = |error: &dyn std::error::Error| format!("no producer can be made: {error}");
        let context = Context { over: watch::Sender::new(None), last_error: Mutex::default() };
        let made = BaseProducer::from_config_and_context(config, context).map_err(|error| cannot(&error))?;
        let (inner, ended) = (Arc::new(made), Arc::new(AtomicBool::new(false)));
        let (polled, over) = (Arc::clone(&inner), Arc::clone(&ended));
        let reports = move || {
            while !over.load(SeqCst) {
                polled.poll(REPORTS_FOR);
            }
        };
        let named = thread::Builder::new().name("kafka reports".to_owned());
        named.spawn(reports).map_err(|error| cannot(&error))?;
        Ok(Self { inner: Some(inner), ended })
    }

    fn inner(&self) -> Option<&Arc<BaseProducer<Context>>> {
        self.inner.as_ref()
    }

    /// Hands over a record. Its report, or why it was not accepted, goes to `reports`.
    pub(crate) fn produce(
        &self,
        key: Option<&str>,
        record: &Outgoing<'_>,
        reports: &Arc<Reports>,
        place: usize,
    ) {
        let Some(inner) = self.inner() else { return reports.tell(place, RecordResult::Lost) };
        let ticket = Box::new(Ticket { reports: Arc::clone(reports), place });
        let outgoing: BaseRecord<'_, str, [u8], _> = BaseRecord {
            topic: &record.topic,
            partition: None,
            payload: Some(record.body()),
            key,
            timestamp: None,
            headers: Some(record.headers()),
            delivery_opaque: ticket,
        };
        if let Err((error, _)) = inner.send(outgoing) {
            let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
            reports.tell(place, outcome::of_refusal(code));
        }
    }

    /// Waits until the producer is over; returns why.
    pub(crate) async fn over(&self) -> String {
        let Some(inner) = self.inner() else { return String::new() };
        let mut over = inner.context().over.subscribe();
        let why = over.wait_for(Option::is_some).await;
        why.ok().and_then(|why| why.clone()).unwrap_or_default()
    }

    /// Gives up everything that the producer holds; each record gets a report.
    pub(crate) fn purge(&self) {
        if let Some(inner) = self.inner() {
            inner.purge(PurgeConfig::default().queue().inflight());
        }
    }

    /// Asks a broker anew whether it answers, and what is wrong with one of these topics. Blocks.
    pub(crate) fn ask(&self, topics: &[String], limit: Duration) -> Result<Option<String>, String> {
        let Some(inner) = self.inner() else { return Err("the producer has ended".to_owned()) };
        let until = Instant::now() + limit;
        let ask = |topic| {
            let left = until.saturating_duration_since(Instant::now());
            inner.client().fetch_metadata(topic, left).map_err(|error| error.to_string())
        };
        if topics.is_empty() {
            ask(None)?;
        }
        let made_by = Instant::now() + TOPIC_MADE_MAX;
        for topic in topics {
            loop {
                let metadata = ask(Some(topic.as_str()))?;
                let found = metadata.topics().iter().find(|found| found.name() == topic);
                let Some(error) = found.and_then(MetadataTopic::error).map(Code::from) else {
                    match found.and_then(without_leader) {
                        Some(error) => return Ok(Some(error)),
                        None => break,
                    }
                };
                // A broker that creates topics by itself reports this for a topic that it is creating.
                let begun = matches!(error, Code::UnknownTopicOrPartition | Code::LeaderNotAvailable);
                if begun && Instant::now() < made_by {
                    thread::sleep(ASK_FOR);
                    continue;
                }
                return Ok(Some(match error {
                    Code::UnknownTopicOrPartition | Code::UnknownTopic => {
                        format!("topic `{topic}` does not exist")
                    }
                    error => format!("topic `{topic}`: {error}"),
                }));
            }
        }
        Ok(None)
    }
}

/// Describes the partitions of a topic without a leader, if there are any.
fn without_leader(topic: &MetadataTopic) -> Option<String> {
    let partitions = topic.partitions().iter().filter(|partition| partition.leader() < 0);
    let ids: Vec<_> = partitions.map(|partition| partition.id().to_string()).collect();
    let none = ids.is_empty();
    (!none).then(|| format!("topic `{}` has partitions without a leader: {}", topic.name(), ids.join(", ")))
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
        // Ending a producer waits for its threads, which a send must not do. Until they end, it would go on sending.
        if let Some(inner) = self.inner.take() {
            thread::spawn(move || inner.purge(PurgeConfig::default().queue().inflight()));
        }
    }
}

impl Connect for Connector {
    type Connection = Producer;

    /// Creates a producer and waits until a broker answers.
    async fn connect(&self) -> Result<Producer, String> {
        let producer = Producer::start(&self.config)?;
        let Some(inner) = producer.inner().cloned() else { return Err("the producer has ended".to_owned()) };
        let deadline = Instant::now() + self.connect_timeout;
        let asking = tokio::task::spawn_blocking(move || {
            loop {
                if inner.client().fetch_cluster_id(ASK_FOR).is_some() {
                    return Ok(());
                }
                if let Some(why) = inner.context().over.borrow().clone() {
                    return Err(why);
                }
                if Instant::now() >= deadline {
                    let last =
                        inner.context().last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    return Err(if last.is_empty() { "none answers".to_owned() } else { last });
                }
            }
        });
        let answered = asking.await.unwrap_or_else(|error| Err(error.to_string()));
        answered.map_err(|why| format!("no broker of {} can be reached: {why}", self.brokers))?;
        Ok(producer)
    }

    fn is_open(producer: &Producer) -> bool {
        // A producer stops before it reports that.
        let works = |inner: &Arc<BaseProducer<Context>>| {
            inner.context().over.borrow().is_none() && inner.client().fatal_error().is_none()
        };
        producer.inner().is_some_and(works)
    }
}
