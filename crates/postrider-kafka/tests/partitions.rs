//! A topic of which one partition works and another does not.

use std::{collections::BTreeSet, time::Duration};

use postrider_core::{Delivery, Event, Health, Outcome, Sink, Source};
use postrider_kafka::{KafkaConfig, KafkaSink};
use postrider_testkit::conformance::{Checked, Failure};
use rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};

const TOPIC: &str = "events";
/// Enough for some to lie in each of two partitions.
const KEYS: usize = 20;
const SEND_TIMEOUT: Duration = Duration::from_secs(6);
/// Longer than any send lasts.
const SILENCE: Duration = Duration::from_secs(120);

/// Two brokers, each with a partition.
fn cluster() -> Result<MockCluster<'static, DefaultProducerContext>, Failure> {
    let cluster = MockCluster::new(2)?;
    cluster.create_topic(TOPIC, 2, 2)?;
    cluster.partition_leader(TOPIC, 0, Some(1))?;
    cluster.partition_leader(TOPIC, 1, Some(2))?;
    Ok(cluster)
}

fn sink(cluster: &MockCluster<'_, DefaultProducerContext>) -> Result<KafkaSink, Failure> {
    let config = KafkaConfig::new(&cluster.bootstrap_servers(), TOPIC)?.send_timeout(SEND_TIMEOUT);
    Ok(KafkaSink::new(config)?)
}

/// Two events of each key: all the first ones, then all the second ones.
fn batch() -> Result<Vec<Delivery>, Failure> {
    let event = |number: usize| {
        let event = Event::json_text("Tested", number.to_string()).key(format!("key {}", number % KEYS));
        Ok(Delivery { event: event.build()?, source: Source::Cold, attempt: 1, lane: 0 })
    };
    (0..2 * KEYS).map(event).collect()
}

/// What became of the two events of each key: both kinds of keys are there, and nothing else.
async fn send(sink: &KafkaSink, broken: fn(&Outcome, &Outcome) -> bool) -> Checked {
    let batch = batch()?;
    let outcomes = tokio::time::timeout(SEND_TIMEOUT, sink.send(&batch)).await;
    let outcomes = outcomes.map_err(|_| "the sink does not end the send")?;
    let (first, second) = outcomes.split_at(KEYS);
    let mut kinds = BTreeSet::new();
    for pair in first.iter().zip(second) {
        kinds.insert(match pair {
            (Outcome::Delivered, Outcome::Delivered) => "works",
            (first, second) if broken(first, second) => "is broken",
            _ => return Err(format!("{pair:?} of {outcomes:?}").into()),
        });
    }
    assert_eq!(kinds.len(), 2, "{outcomes:?}");
    Ok(())
}

fn is_deferred(outcome: &Outcome) -> bool {
    *outcome == Outcome::deferred(Duration::ZERO)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_without_a_leader_is_an_outage_of_its_events_and_of_no_others() -> Checked {
    let cluster = cluster()?;
    cluster.partition_leader(TOPIC, 1, None)?;
    let sink = sink(&cluster)?;
    send(&sink, |first, second| {
        let why = format!("topic `{TOPIC}` has partitions without a leader: 1");
        *first == Outcome::unavailable(why) && is_deferred(second)
    })
    .await?;
    let health = sink.health().await;
    assert!(matches!(&health, Health::Down { error } if error.contains("without a leader: 1")), "{health:?}");
    cluster.partition_leader(TOPIC, 1, Some(2))?;
    assert_eq!(sink.health().await, Health::Up);
    assert_eq!(sink.send(&batch()?).await, vec![Outcome::Delivered; 2 * KEYS]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_does_not_answer_leaves_its_events_in_doubt_and_no_others() -> Checked {
    let cluster = cluster()?;
    let sink = sink(&cluster)?;
    assert_eq!(sink.send(&batch()?).await, vec![Outcome::Delivered; 2 * KEYS]);
    cluster.broker_round_trip_time(2, SILENCE)?;
    send(&sink, |first, second| matches!(first, Outcome::Unknown { .. }) && is_deferred(second)).await
}
