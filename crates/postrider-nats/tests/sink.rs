//! What the suite does not ask: JetStream's own errors, its settings, TLS, health, and secrets.

mod support;

use std::{io, time::Duration};

use async_nats::jetstream::stream;
use postrider_core::{
    Delivery, Event, EventBuilder, Health, Outcome, Sink, Source, Timestamp,
    format::{CloudEvents, Format},
};
use postrider_nats::{NatsConfig, NatsSink};
use postrider_net::TlsFiles;
use postrider_testkit::{
    conformance::{
        Checked, Failure,
        sink::line::{fresh_name, server_url},
    },
    proxy::tls::TlsFront,
};
use support::{Stream, address, line, url_by};

const CANARY: &str = "canary-of-a-secret";

fn delivery(event: EventBuilder) -> Result<Delivery, Failure> {
    Ok(Delivery { event: event.build()?, source: Source::Cold, attempt: 1, lane: 0 })
}

fn event(event_type: &str) -> EventBuilder {
    Event::json_text(event_type, "{}")
}

fn config(subject: &str) -> Result<NatsConfig, Failure> {
    Ok(NatsConfig::new(&server_url("POSTRIDER_TEST_NATS_URL")?, subject)?)
}

#[tokio::test]
async fn a_subject_that_no_stream_takes_is_an_outage_of_its_events_and_of_no_others() -> Checked {
    let stream = Stream::new(stream::Config::default()).await?;
    let mut config = config(&stream.subject())?;
    let nowhere = fresh_name();
    config.subject = config.subject.for_type("Nowhere", &nowhere)?;
    let sink = NatsSink::new(config)?;
    let batch = [delivery(event("Right"))?, delivery(event("Nowhere"))?, delivery(event("Right"))?];
    let outcomes = sink.send(&batch).await;
    let [Outcome::Delivered, Outcome::Unavailable { error }, Outcome::Delivered] = outcomes.as_slice() else {
        return Err(format!("{outcomes:?}").into());
    };
    assert!(error.contains(&nowhere) && error.contains("make a stream"), "{error}");
    assert_eq!(stream.messages().await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_stream_that_is_full_is_an_outage() -> Checked {
    let full = stream::Config { max_messages: 1, discard: stream::DiscardPolicy::New, ..Default::default() };
    let stream = Stream::new(full).await?;
    let sink = NatsSink::new(config(&stream.subject())?)?;
    let outcomes = sink.send(&[delivery(event("First"))?, delivery(event("Second"))?]).await;
    assert!(matches!(outcomes.as_slice(), [Outcome::Delivered, Outcome::Unavailable { .. }]), "{outcomes:?}");
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_said_is_rejected_alone_and_the_rest_is_delivered() -> Checked {
    let stream = Stream::new(stream::Config::default()).await?;
    let mut config = config(&stream.subject())?;
    config.subject = config.subject.for_type("Tenant", &format!("{}.{{tenant_id}}", stream.name))?;
    let sink = NatsSink::new(config)?;
    let cases = [
        (event("Tenant"), "tenant_id"),
        (event("Tenant").tenant("any.>"), "'>'"),
        (event("Tenant").tenant("a..b"), "dots between"),
        (event("Right").header("Nats-Rollup", "all"), "command the server"),
        (event("Right").header("two words", "x"), "two words"),
        (event("Right").header("padded", " x"), "space"),
    ];
    let mut batch = vec![delivery(event("Right"))?];
    for (event, _) in &cases {
        batch.push(delivery(event.clone())?);
    }
    let outcomes = sink.send(&batch).await;
    assert_eq!(outcomes.first(), Some(&Outcome::Delivered));
    for ((_, why), outcome) in cases.iter().zip(outcomes.iter().skip(1)) {
        assert!(matches!(outcome, Outcome::Rejected { error } if error.contains(why)), "{why}: {outcome:?}");
    }
    assert_eq!(stream.messages().await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn an_event_that_is_sent_again_is_stored_once() -> Checked {
    let stream = Stream::new(stream::Config::default()).await?;
    let sink = NatsSink::new(config(&stream.subject())?)?;
    let again = delivery(event("Tested"))?;
    assert_eq!(sink.send_one(again.clone()).await, Outcome::Delivered);
    assert_eq!(sink.send_one(again).await, Outcome::Delivered);
    assert_eq!(stream.messages().await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn two_events_that_share_an_id_are_both_stored() -> Checked {
    // Tables that count their events, and an id that is used again.
    let stream = Stream::new(stream::Config::default()).await?;
    let sink = NatsSink::new(config(&stream.subject())?)?;
    for micros in [1, 2] {
        let sent = event("Tested").id("17").occurred_at(Timestamp::from_micros(micros));
        assert_eq!(sink.send_one(delivery(sent)?).await, Outcome::Delivered);
    }
    assert_eq!(stream.messages().await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_cloud_event_has_its_attributes_in_headers() -> Checked {
    let stream = Stream::new(stream::Config::default()).await?;
    let format = Format::CloudEventsBinary(CloudEvents::new("/shop"));
    let subject = format!("{}.{{event_type}}", stream.name);
    let sink = NatsSink::new(config(&subject)?.format(format))?;
    let at = Timestamp::from_micros(1_700_000_000_000_000);
    let sent = event("order.placed").id("order-1").occurred_at(at).header("Content-Type", "forged");
    assert_eq!(sink.send_one(delivery(sent)?).await, Outcome::Delivered);
    let messages = stream.messages().await?;
    let message = messages.first().ok_or("a message")?;
    assert_eq!(message.subject.as_str(), format!("{}.order.placed", stream.name));
    for (name, value) in [
        ("ce-id", "order-1"),
        ("ce-type", "order.placed"),
        ("content-type", "application/json"),
        ("Nats-Msg-Id", "order-1@1700000000000000"),
    ] {
        assert_eq!(message.headers.get(name).map(|value| value.as_str()), Some(value), "{name}");
    }
    assert!(message.headers.get("Content-Type").is_none());
    Ok(())
}

#[test]
fn an_event_names_its_subject_where_subjects_differ() -> Checked {
    let destination = |subject: &str, event: EventBuilder| -> Result<Option<String>, Failure> {
        Ok(NatsSink::new(NatsConfig::new("nats://user:secret@host", subject)?)?.destination(&event.build()?))
    };
    assert_eq!(destination("shop.events", event("Placed"))?, None);
    assert_eq!(destination("shop.{event_type}", event("Placed"))?.as_deref(), Some("shop.Placed"));
    assert_eq!(destination("shop.{event_type}", event("*"))?, None, "it goes nowhere");
    Ok(())
}

#[tokio::test]
async fn tls_proves_who_both_are() -> Checked {
    let address = address()?;
    let front = TlsFront::start(format!("{}:{}", address.host, address.port)).await?;
    let stream = Stream::new(stream::Config::default()).await?;
    let config =
        NatsConfig::new(&url_by("tls", "localhost", front.port())?, &stream.subject())?.tls_first(true);
    let files = TlsFiles {
        ca_file: Some(front.ca_file()),
        certificate_file: Some(front.certificate_file()),
        key_file: Some(front.key_file()),
    };
    let sink = NatsSink::new(config.clone().tls(files.clone()))?;
    assert_eq!(sink.send_one(delivery(event("Tested"))?).await, Outcome::Delivered);
    assert_eq!(stream.messages().await?.len(), 1);

    let stranger = TlsFiles { certificate_file: None, key_file: None, ..files };
    for (files, why) in [(TlsFiles::default(), "UnknownIssuer"), (stranger, "CertificateRequired")] {
        let outcome = NatsSink::new(config.clone().tls(files))?.send_one(delivery(event("Tested"))?).await;
        assert!(matches!(&outcome, Outcome::Unavailable { error } if error.contains(why)), "{outcome:?}");
    }
    Ok(())
}

#[tokio::test]
async fn health_follows_the_server_down_and_up_again() -> Checked {
    let (line, url) = line().await?;
    let sink = NatsSink::new(NatsConfig::new(&url, "unused")?)?;
    assert_eq!(sink.health().await, Health::Up);
    line.cut();
    assert_eq!(sink.health().await, Health::Up);
    line.refuse();
    line.cut();
    assert!(matches!(sink.health().await, Health::Down { error } if !error.is_empty()));
    line.admit();
    assert_eq!(sink.health().await, Health::Up);
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_not_there_does_not_keep_a_sink_from_being_made() -> Checked {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let sink = NatsSink::new(NatsConfig::new(&format!("nats://{free}"), "unused")?)?;
    let outcome = sink.send_one(delivery(event("Tested"))?).await;
    assert!(
        matches!(&outcome, Outcome::Unavailable { error } if error.contains(&free.to_string())),
        "{outcome:?}"
    );
    Ok(())
}

#[tokio::test]
async fn no_secret_is_said_anywhere() -> Checked {
    let address = address()?;
    for who in [format!("user:{CANARY}"), CANARY.to_owned()] {
        let config = NatsConfig::new(&format!("nats://{who}@{}:{}", address.host, address.port), "unused")?;
        let sink = NatsSink::new(config.clone())?;
        let outcome = sink.send_one(delivery(event("Tested"))?).await;
        let health = sink.health().await;
        assert!(matches!(outcome, Outcome::Unavailable { .. }), "a wrong password is an outage: {outcome:?}");
        let said = format!("{config:?} {sink:?} {outcome:?} {health:?}");
        assert!(!said.contains(CANARY), "{said}");
    }
    let file = std::env::temp_dir().join(fresh_name());
    std::fs::write(&file, CANARY)?;
    let error =
        NatsSink::new(config("unused")?.credentials_file(&file)).err().ok_or("these are no credentials")?;
    assert!(!format!("{error} {error:?}").contains(CANARY), "{error}");
    Ok(std::fs::remove_file(file)?)
}

#[test]
fn what_is_set_wrongly_is_named_with_what_it_may_be() -> Checked {
    let good = || NatsConfig::new("nats://one, nats://two:4333", "s");
    for (config, words) in [
        (good()?.batch_max(0), "batch_max is 0; it must be from 1 to 1000"),
        (good()?.send_timeout(Duration::ZERO), "send_timeout is 0ns"),
        (good()?.connect_timeout(Duration::ZERO), "connect_timeout is 0ns"),
    ] {
        let error = NatsSink::new(config).err().ok_or_else(|| io::Error::other(words))?.to_string();
        assert!(error.contains(words), "{error}");
    }
    for (urls, subject, words) in [
        ("nats://one, tls://two", "s", "of one kind"),
        ("nats://one/path", "s", "without anything behind"),
        ("nats://one", "a.*", "without spaces and wildcards"),
        ("nats://one", "a..b", "with dots between them"),
    ] {
        let error = NatsConfig::new(urls, subject).err().ok_or_else(|| io::Error::other(words))?.to_string();
        assert!(error.contains(words), "{error}");
    }
    Ok(())
}
