//! What the suite does not ask: Redis's own errors, its settings, TLS, health, and secrets.

mod support;

use std::{io, time::Duration};

use postrider_core::{
    Delivery, Event, EventBuilder, Health, Outcome, Sink, Source,
    format::{CloudEvents, Format},
};
use postrider_net::TlsFiles;
use postrider_redis::{RedisConfig, RedisSink};
use postrider_testkit::{
    conformance::{
        Checked, Failure,
        sink::{
            SinkHarness,
            line::{fresh_name, server_url},
        },
    },
    proxy::{Direction, tls::TlsFront},
};
use redis::Commands;
use support::{HASTE, RedisHarness, address, client, entries, line, url_by};

const CANARY: &str = "canary-of-a-secret";

fn delivery(event: EventBuilder) -> Result<Delivery, Failure> {
    Ok(Delivery { event: event.build()?, source: Source::Cold, attempt: 1, lane: 0 })
}

fn event(event_type: &str) -> EventBuilder {
    Event::json_text(event_type, "{}")
}

fn config(stream: &str) -> Result<RedisConfig, Failure> {
    Ok(RedisConfig::new(&server_url("POSTRIDER_TEST_REDIS_URL")?, stream)?)
}

#[tokio::test]
async fn a_key_that_is_no_stream_is_an_outage_of_its_events_and_of_no_others() -> Checked {
    let name = fresh_name();
    let _: () = client()?.set(format!("{name}-text"), "no stream")?;
    let mut config = config(&name)?;
    config.stream = config.stream.for_type("Wrong", &format!("{name}-text"))?;
    let sink = RedisSink::new(config)?;
    let batch = [delivery(event("Right"))?, delivery(event("Wrong"))?, delivery(event("Right"))?];
    let outcomes = sink.send(&batch).await;
    let [Outcome::Delivered, Outcome::Unavailable { error }, Outcome::Delivered] = outcomes.as_slice() else {
        return Err(format!("{outcomes:?}").into());
    };
    assert!(error.contains("WRONGTYPE"), "{error}");
    assert_eq!(entries(&name)?.len(), 2);
    Ok(client()?.del(&[&name, &format!("{name}-text")])?)
}

#[tokio::test]
async fn what_cannot_be_said_is_rejected_alone_and_the_rest_is_delivered() -> Checked {
    let name = fresh_name();
    let mut config = config(&name)?;
    config.stream = config.stream.for_type("Tenant", &format!("{name}-{{tenant_id}}"))?;
    let sink = RedisSink::new(config)?;
    let taken = event("Right").header("payload", "another one");
    let batch = [delivery(event("Tenant"))?, delivery(event("Right"))?, delivery(taken)?];
    let outcomes = sink.send(&batch).await;
    let [Outcome::Rejected { error: no_tenant }, Outcome::Delivered, Outcome::Rejected { error: taken }] =
        outcomes.as_slice()
    else {
        return Err(format!("{outcomes:?}").into());
    };
    assert!(no_tenant.contains("tenant_id") && taken.contains("payload_field"), "{outcomes:?}");
    assert_eq!(entries(&name)?.len(), 1);
    Ok(client()?.del(&name)?)
}

#[tokio::test]
async fn a_batch_larger_than_what_is_written_at_once_arrives_whole_and_in_order() -> Checked {
    let harness = RedisHarness::fresh().await?;
    let payload = |number: usize| format!("\"{number} {}\"", "x".repeat(900_000));
    let events = (0..12).map(|number| delivery(Event::json_text("Large", payload(number))));
    let batch = events.collect::<Result<Vec<_>, _>>()?;
    assert_eq!(harness.sink().send(&batch).await, vec![Outcome::Delivered; 12]);
    let received = harness.received().await?;
    assert_eq!(received.len(), 12);
    for (number, received) in received.iter().enumerate() {
        assert!(received.payload == payload(number).as_bytes(), "{number}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_that_stalls_half_way_says_which_parts_were_delivered() -> Checked {
    let (line, url) = line().await?;
    let name = fresh_name();
    let sink = RedisSink::new(RedisConfig::new(&url, &name)?.send_timeout(HASTE))?;
    // Five of them are written at once.
    let events = (0..40).map(|_| delivery(Event::json_text("Large", format!("\"{}\"", "x".repeat(900_000)))));
    let batch = events.collect::<Result<Vec<_>, _>>()?;
    let watched = name.clone();
    let first_part = tokio::task::spawn_blocking(move || {
        let mut client = client()?;
        while client.xlen::<_, usize>(&watched)? < 5 {}
        Ok::<_, Failure>(())
    });
    let stalling = async {
        first_part.await??;
        line.stall(Direction::ToServer);
        Ok::<_, Failure>(())
    };
    let (outcomes, stalled) = tokio::join!(tokio::time::timeout(HASTE, sink.send(&batch)), stalling);
    stalled?;
    let outcomes = outcomes.map_err(|_| "the sink does not end the send")?;
    let letter = |outcome: &Outcome| match outcome {
        Outcome::Delivered => 'd',
        Outcome::Unknown { .. } => '?',
        Outcome::Deferred { after } if after.is_zero() => '-',
        _ => '!',
    };
    let letters: String = outcomes.iter().map(letter).collect();
    let delivered = letters.matches('d').count();
    assert!((5..=35).contains(&delivered) && delivered.is_multiple_of(5), "{letters}");
    let rest = 40 - delivered - 5;
    assert_eq!(letters, format!("{}?????{}", "d".repeat(delivered), "-".repeat(rest)));
    assert!(entries(&name)?.len() >= delivered);
    Ok(client()?.del(&name)?)
}

#[test]
fn an_event_names_its_stream_where_streams_differ() -> Checked {
    let destination = |stream: &str| -> Result<Option<String>, Failure> {
        let sink = RedisSink::new(RedisConfig::new("redis://:secret@host", stream)?)?;
        Ok(sink.destination(&event("Placed").build()?))
    };
    assert_eq!(destination("shop")?, None);
    assert_eq!(destination("shop:{event_type}")?.as_deref(), Some("shop:Placed"));
    assert_eq!(destination("shop:{tenant_id}")?, None, "it goes nowhere");
    Ok(())
}

#[tokio::test]
async fn a_stream_stays_about_as_long_as_it_may_be() -> Checked {
    let name = fresh_name();
    let sink = RedisSink::new(config(&name)?.stream_len_max(100).batch_max(1000))?;
    let batch = (0..1000).map(|_| delivery(event("Tested"))).collect::<Result<Vec<_>, _>>()?;
    assert_eq!(sink.send(&batch).await, vec![Outcome::Delivered; 1000]);
    // Redis drops whole nodes, of 100 entries by default.
    let length: usize = client()?.xlen(&name)?;
    assert!((100..=200).contains(&length), "{length}");
    Ok(client()?.del(&name)?)
}

#[tokio::test]
async fn a_cloud_event_has_its_attributes_in_fields() -> Checked {
    let name = fresh_name();
    let format = Format::CloudEventsBinary(CloudEvents::new("/shop"));
    let sink = RedisSink::new(config(&name)?.format(format).payload_field("data"))?;
    let sent = delivery(event("OrderPlaced").id("order-1").header("Content-Type", "forged"))?;
    assert_eq!(sink.send_one(sent).await, Outcome::Delivered);
    let entries = entries(&name)?;
    let entry = entries.first().ok_or("an entry")?;
    for (field, value) in [
        ("ce-id", "order-1"),
        ("ce-type", "OrderPlaced"),
        ("content-type", "application/json"),
        ("data", "{}"),
    ] {
        assert_eq!(entry.get(field).map(Vec::as_slice), Some(value.as_bytes()), "{field}");
    }
    assert!(!entry.contains_key("Content-Type"));
    Ok(client()?.del(&name)?)
}

#[tokio::test]
async fn tls_proves_who_both_are() -> Checked {
    let address = address()?;
    let front = TlsFront::start(format!("{}:{}", address.host, address.port)).await?;
    let name = fresh_name();
    let config = RedisConfig::new(&url_by("rediss", "localhost", front.port())?, &name)?;
    let files = TlsFiles {
        ca_file: Some(front.ca_file()),
        certificate_file: Some(front.certificate_file()),
        key_file: Some(front.key_file()),
    };
    let sink = RedisSink::new(config.clone().tls(files.clone()))?;
    assert_eq!(sink.send_one(delivery(event("Tested"))?).await, Outcome::Delivered);
    assert_eq!(entries(&name)?.len(), 1);

    let stranger = TlsFiles { certificate_file: None, key_file: None, ..files };
    for (files, why) in [(TlsFiles::default(), "UnknownIssuer"), (stranger, "CertificateRequired")] {
        let outcome = RedisSink::new(config.clone().tls(files))?.send_one(delivery(event("Tested"))?).await;
        assert!(matches!(&outcome, Outcome::Unavailable { error } if error.contains(why)), "{outcome:?}");
    }
    Ok(client()?.del(&name)?)
}

#[tokio::test]
async fn health_follows_the_server_down_and_up_again() -> Checked {
    let (line, url) = line().await?;
    let sink = RedisSink::new(RedisConfig::new(&url, "unused")?)?;
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
    let sink = RedisSink::new(RedisConfig::new(&format!("redis://{free}"), "unused")?)?;
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
    let url = format!("redis://:{CANARY}@{}:{}", address.host, address.port);
    let config = RedisConfig::new(&url, "unused")?;
    let sink = RedisSink::new(config.clone())?;
    let outcome = sink.send_one(delivery(event("Tested"))?).await;
    let health = sink.health().await;
    assert!(matches!(outcome, Outcome::Unavailable { .. }), "a wrong password is an outage: {outcome:?}");
    let said = format!("{config:?} {sink:?} {outcome:?} {health:?}");
    assert!(!said.contains(CANARY), "{said}");
    Ok(())
}

#[test]
fn what_is_set_wrongly_is_named_with_what_it_may_be() -> Checked {
    let good = || RedisConfig::new("redis://host/3", "s");
    for (config, words) in [
        (good()?.batch_max(0), "batch_max is 0; it must be from 1 to 10000"),
        (good()?.send_timeout(Duration::ZERO), "send_timeout is 0ns"),
        (good()?.connect_timeout(Duration::ZERO), "connect_timeout is 0ns"),
        (good()?.stream_len_max(0), "stream_len_max is 0"),
        (good()?.payload_field("event-id"), "payload_field is \"event-id\""),
        (good()?.payload_field(""), "payload_field is \"\""),
    ] {
        let error = RedisSink::new(config).err().ok_or_else(|| io::Error::other(words))?.to_string();
        assert!(error.contains(words), "{error}");
    }
    let error =
        RedisConfig::new("redis://host/three", "s").err().ok_or("a database is a number")?.to_string();
    assert!(error.contains("\"three\""), "{error}");
    Ok(())
}
