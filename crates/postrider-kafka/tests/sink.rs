//! What the suite does not ask: Kafka's own errors, order around a record that is refused, properties, health, and secrets.

mod support;

use std::{collections::BTreeMap, io, time::Duration};

use postrider_core::{
    Delivery, Event, EventBuilder, Health, Outcome, Sink, Source,
    format::{CloudEvents, Destination, Format},
    rng::Rng,
};
use postrider_kafka::{KafkaConfig, KafkaSink};
use postrider_testkit::conformance::{Checked, Failure, sink::line::fresh_name};
#[cfg(feature = "tls")]
use postrider_testkit::proxy::tls::TlsFront;
use rdkafka::Message;
use support::{Topic, broker, front::Front, headers};

const CANARY: &str = "canary-of-a-secret";

fn delivery(event: EventBuilder) -> Result<Delivery, Failure> {
    Ok(Delivery { event: event.build()?, source: Source::Cold, attempt: 1, lane: 0 })
}

fn event(event_type: &str) -> EventBuilder {
    Event::json_text(event_type, "{}")
}

fn config(topic: &str) -> Result<KafkaConfig, Failure> {
    Ok(KafkaConfig::new(&broker()?, topic)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_key_is_applied_behind_a_record_that_the_broker_refuses() -> Checked {
    for seed in 0..4 {
        let topic = Topic::new(&[("max.message.bytes", "6000")]).await?;
        // Small requests, so that several are on their way when one is refused.
        let config = config(&topic.name)?.property("batch.num.messages", "4").property("linger.ms", "0");
        let sink = KafkaSink::new(config)?;
        let mut rng = Rng::seeded(seed);
        let mut batch = Vec::new();
        for number in 0..100 {
            let size = if rng.below(20) == 0 { 8_000 } else { 100 };
            let payload = format!("\"{number} {}\"", "x".repeat(size));
            batch.push(delivery(Event::json_text("Tested", payload).key(format!("key {}", rng.below(8))))?);
        }
        let outcomes = sink.send(&batch).await;
        let applied: Vec<Vec<u8>> = topic
            .records()
            .await?
            .iter()
            .map(|record| record.payload().unwrap_or_default().to_vec())
            .collect();
        let place =
            |delivery: &Delivery| applied.iter().position(|record| record == delivery.payload().as_bytes());
        let mut failed: BTreeMap<Option<&str>, bool> = BTreeMap::new();
        let mut furthest: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        for (delivery, outcome) in batch.iter().zip(&outcomes) {
            let (key, large) = (delivery.key(), delivery.payload().len() > 6_000);
            match (failed.get(&key), outcome, place(delivery)) {
                (None, Outcome::Delivered, Some(place)) if !large => {
                    let before = furthest.insert(key, place);
                    assert!(before.is_none_or(|before| before < place), "seed {seed}: out of order");
                }
                (None, Outcome::Rejected { .. }, None) if large => _ = failed.insert(key, true),
                (Some(_), Outcome::Deferred { .. }, None) => {}
                wrong => return Err(format!("seed {seed}, {key:?}, large {large}: {wrong:?}").into()),
            }
        }
        assert!(!failed.is_empty(), "seed {seed} has no large record");
    }
    Ok(())
}

#[tokio::test]
async fn events_of_a_key_that_go_to_different_topics_wait_for_each_other() -> Checked {
    let (one, two) = (Topic::new(&[]).await?, Topic::new(&[]).await?);
    let mut config = config(&one.name)?;
    config.topic = config.topic.for_type("Second", &two.name)?.for_type("Nowhere", "no-{tenant_id}")?;
    let sink = KafkaSink::new(config)?;
    let batch = [
        delivery(event("First").key("a"))?,
        delivery(event("Second").key("a"))?,
        delivery(event("First").key("a"))?,
        delivery(event("Nowhere").key("b").tenant("a/b"))?,
        delivery(event("First").key("b"))?,
        delivery(event("First"))?,
    ];
    let outcomes = sink.send(&batch).await;
    let expected = |outcomes: &[Outcome]| {
        use Outcome::{Deferred, Delivered, Rejected};
        matches!(outcomes, [Delivered, Delivered, Delivered, Rejected { .. }, Deferred { .. }, Delivered])
    };
    assert!(expected(&outcomes), "{outcomes:?}");
    assert_eq!((one.records().await?.len(), two.records().await?.len()), (3, 1));
    Ok(())
}

#[tokio::test]
async fn a_record_larger_than_the_producer_takes_is_rejected_alone() -> Checked {
    let topic = Topic::new(&[]).await?;
    let sink = KafkaSink::new(config(&topic.name)?.property("message.max.bytes", "2000"))?;
    let large = Event::json_text("Large", format!("\"{}\"", "x".repeat(3000)));
    let outcomes = sink.send(&[delivery(event("Right"))?, delivery(large)?, delivery(event("Right"))?]).await;
    let [Outcome::Delivered, Outcome::Rejected { error }, Outcome::Delivered] = outcomes.as_slice() else {
        return Err(format!("{outcomes:?}").into());
    };
    assert!(error.contains("message.max.bytes"), "{error}");
    assert_eq!(topic.records().await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_record_holds_key_headers_and_payload() -> Checked {
    let topic = Topic::new(&[]).await?;
    let format = Format::CloudEventsBinary(CloudEvents::new("/shop"));
    let sink = KafkaSink::new(config(&topic.name)?.format(format))?;
    let sent = event("OrderPlaced").id("order-1").aggregate("Order", 7).header("Content-Type", "forged");
    assert_eq!(sink.send_one(delivery(sent)?).await, Outcome::Delivered);
    let records = topic.records().await?;
    let record = records.first().ok_or("a record")?;
    assert_eq!((record.key(), record.payload()), (Some(&b"Order:7"[..]), Some(&b"{}"[..])));
    let headers = headers(record);
    for (name, value) in
        [("ce_id", "order-1"), ("ce_type", "OrderPlaced"), ("content-type", "application/json")]
    {
        assert_eq!(headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!headers.contains_key("Content-Type"));
    Ok(())
}

#[tokio::test]
async fn health_follows_the_brokers_down_and_up_again() -> Checked {
    let (_front, line) = Front::with_line(broker()?).await?;
    let topic = Topic::new(&[]).await?;
    let sink = KafkaSink::new(KafkaConfig::new(&line.address().to_string(), &topic.name)?)?;
    assert_eq!(sink.health().await, Health::Up);
    line.refuse();
    line.cut();
    assert!(matches!(sink.health().await, Health::Down { error } if !error.is_empty()));
    line.admit();
    assert_eq!(sink.health().await, Health::Up);
    Ok(())
}

#[tokio::test]
async fn a_topic_that_does_not_exist_is_not_well_unless_the_event_names_it() -> Checked {
    let (topic, missing) = (Topic::new(&[]).await?, fresh_name());
    let with = |other: &str| -> Result<KafkaSink, Failure> {
        let both = Destination::new(&topic.name)?.for_type("Other", other)?;
        Ok(KafkaSink::new(config(&topic.name)?.topic(both))?)
    };
    let error = format!("topic `{missing}` does not exist");
    assert_eq!(with(&missing)?.health().await, Health::Down { error });
    assert_eq!(with("{event_type}")?.health().await, Health::Up);
    assert_eq!(KafkaSink::new(config("{event_type}")?)?.health().await, Health::Up);
    Ok(())
}

#[tokio::test]
async fn a_topic_that_is_missing_says_nothing_of_what_goes_to_another() -> Checked {
    let (topic, missing) = (Topic::new(&[]).await?, fresh_name());
    let topics =
        Destination::new("{event_type}")?.for_type("Fixed", &missing)?.for_type("Right", &topic.name)?;
    let sink = KafkaSink::new(config(&topic.name)?.topic(topics))?;
    let (right, fixed, named) = (event("Right"), event("Fixed"), event(&fresh_name()));
    assert_eq!(sink.health_for(&right.build()?).await, Health::Up);
    for event in [fixed, named] {
        let health = sink.health_for(&event.build()?).await;
        assert!(matches!(&health, Health::Down { error } if error.contains("does not exist")), "{health:?}");
    }
    Ok(())
}

#[tokio::test]
async fn brokers_that_are_not_there_do_not_keep_a_sink_from_being_made() -> Checked {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let sink = KafkaSink::new(KafkaConfig::new(&free.to_string(), "unused")?)?;
    let outcome = sink.send_one(delivery(event("Tested"))?).await;
    assert!(
        matches!(&outcome, Outcome::Unavailable { error } if error.contains(&free.to_string())),
        "{outcome:?}"
    );
    Ok(())
}

#[tokio::test]
async fn no_secret_is_said_anywhere() -> Checked {
    let config = config("unused")?
        .connect_timeout(Duration::from_secs(3))
        .property("security.protocol", "sasl_plaintext")
        .property("sasl.mechanism", "PLAIN")
        .property("sasl.username", "user")
        .property("sasl.password", CANARY);
    let sink = KafkaSink::new(config.clone())?;
    let outcome = sink.send_one(delivery(event("Tested"))?).await;
    let health = sink.health().await;
    assert!(matches!(outcome, Outcome::Unavailable { .. }), "a wrong password is an outage: {outcome:?}");
    let said = format!("{config:?} {sink:?} {outcome:?} {health:?}");
    assert!(!said.contains(CANARY) && said.contains("sasl.password"), "{said}");
    // librdkafka quotes what it does not understand.
    let error = KafkaSink::new(config.property("sasl.mechanism", CANARY).property("linger.ms", CANARY));
    let error = error.err().ok_or("this is no number")?;
    assert!(!format!("{error} {error:?}").contains(CANARY), "{error}");
    Ok(())
}

#[test]
fn what_is_set_wrongly_is_named_with_what_it_may_be() -> Checked {
    let good = || KafkaConfig::new("host:9092", "topic");
    for (config, words) in [
        (good()?.batch_max(0), "batch_max is 0; it must be from 1 to 1000"),
        (good()?.send_timeout(Duration::ZERO), "send_timeout is 0ns"),
        (good()?.connect_timeout(Duration::ZERO), "connect_timeout is 0ns"),
        (good()?.property("acks", "1"), "with acks"),
        (good()?.property("transactional.id", "x"), "with transactional.id"),
        (good()?.property("no.such.property", "x"), "no.such.property"),
    ] {
        let error = KafkaSink::new(config).err().ok_or_else(|| io::Error::other(words))?.to_string();
        assert!(error.contains(words), "{error}");
    }
    for (brokers, topic, words) in
        [("kafka://user@host", "t", "host:port"), ("", "t", "host:port"), ("host", "a b", "letters, digits")]
    {
        let error =
            KafkaConfig::new(brokers, topic).err().ok_or_else(|| io::Error::other(words))?.to_string();
        assert!(error.contains(words), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn a_topic_that_is_missing_is_an_outage_of_its_events_and_of_no_others() -> Checked {
    let topic = Topic::new(&[]).await?;
    let mut config = config(&topic.name)?.property("topic.metadata.propagation.max.ms", "500");
    let missing = fresh_name();
    config.topic = config.topic.for_type("Nowhere", &missing)?;
    let sink = KafkaSink::new(config)?;
    let outcomes = sink.send(&[delivery(event("Right"))?, delivery(event("Nowhere"))?]).await;
    let [Outcome::Delivered, Outcome::Unavailable { error }] = outcomes.as_slice() else {
        return Err(format!("{outcomes:?}").into());
    };
    assert!(error.contains("topic"), "{error}");
    assert_eq!(topic.records().await?.len(), 1);
    Ok(())
}

#[test]
fn an_event_names_its_topic_where_topics_differ() -> Checked {
    let sink = |topic: Destination| KafkaSink::new(KafkaConfig::new("host:9092", "t")?.topic(topic));
    let event = event("Placed").aggregate("Order", 7).build()?;
    assert_eq!(sink(Destination::new("orders")?)?.destination(&event), None);
    let named = sink(Destination::new("shop.{aggregate_type}")?)?.destination(&event);
    assert_eq!(named.as_deref(), Some("shop.Order"));
    let by_type = sink(Destination::new("orders")?.for_type("Paid", "invoices")?)?.destination(&event);
    assert_eq!(by_type.as_deref(), Some("orders"));
    Ok(())
}

/// A client goes where the broker says that it listens, by its address: so it is told not to look for that in the certificate.
#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_goes_to_the_broker_and_trusts_no_other_authority() -> Checked {
    let (_front, line) = Front::with_tls(broker()?).await?;
    let stranger = TlsFront::start(broker()?).await?;
    let topic = Topic::new(&[]).await?;
    for (authority, trusted) in [(&line, true), (&stranger, false)] {
        let config = KafkaConfig::new(&format!("localhost:{}", line.port()), &topic.name)?
            .property("security.protocol", "ssl")
            .property("ssl.endpoint.identification.algorithm", "none")
            .property("ssl.ca.location", authority.ca_file().to_string_lossy().into_owned())
            .property("ssl.certificate.location", line.certificate_file().to_string_lossy().into_owned())
            .property("ssl.key.location", line.key_file().to_string_lossy().into_owned())
            .connect_timeout(Duration::from_secs(5));
        let outcome = KafkaSink::new(config)?.send_one(delivery(event("Tested"))?).await;
        match outcome {
            Outcome::Delivered if trusted => {}
            Outcome::Unavailable { error } if !trusted => {
                assert!(error.contains("certificate verify failed"), "{error}");
            }
            outcome => return Err(format!("trusted: {trusted}, and yet: {outcome:?}").into()),
        }
    }
    assert_eq!(topic.records().await?.len(), 1);
    Ok(())
}
