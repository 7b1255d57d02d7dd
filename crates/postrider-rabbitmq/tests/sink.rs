//! What the suite does not ask: the broker's own errors, what a message holds, TLS, health, and secrets.

mod support;

use std::{io, time::Duration};

use lapin::types::{AMQPValue, FieldTable};
use postrider_core::{
    Delivery, Event, EventBuilder, Health, Outcome, Sink, Source, Timestamp,
    format::{CloudEvents, Destination, Format},
};
use postrider_net::TlsFiles;
use postrider_rabbitmq::{RabbitConfig, RabbitSink};
use postrider_testkit::{
    conformance::{
        Checked, Failure,
        sink::line::{fresh_name, server_url},
    },
    proxy::{Direction, tls::TlsFront},
};
use support::{HASTE, Queue, VARIABLE, address, headers, line, url_by};

const CANARY: &str = "canary-of-a-secret";

fn delivery(event: EventBuilder) -> Result<Delivery, Failure> {
    Ok(Delivery { event: event.build()?, source: Source::Cold, attempt: 1, lane: 0 })
}

fn event(event_type: &str) -> EventBuilder {
    Event::json_text(event_type, "{}")
}

fn config(queue: &Queue) -> Result<RabbitConfig, Failure> {
    Ok(RabbitConfig::new(&server_url(VARIABLE)?, "events")?.exchange(&queue.name)?)
}

#[tokio::test]
async fn each_message_that_no_queue_takes_is_the_one_that_is_rejected() -> Checked {
    let queue = Queue::new(FieldTable::default()).await?;
    let mut config = config(&queue)?;
    config.routing_key = config.routing_key.for_type("Lost", "to-nobody")?;
    let sink = RabbitSink::new(config)?;
    // The broker confirms many at once, and the client tells of a returned message with any of their confirms.
    let types = (0..100).map(|number| if number % 3 == 1 { "Lost" } else { "Found" });
    let batch = types.clone().map(|name| delivery(event(name))).collect::<Result<Vec<_>, _>>()?;
    for round in 0..5 {
        let outcomes = sink.send(&batch).await;
        for (number, (name, outcome)) in types.clone().zip(&outcomes).enumerate() {
            match (name, outcome) {
                ("Found", Outcome::Delivered) => {}
                ("Lost", Outcome::Rejected { error }) if error.contains("to-nobody") => {}
                wrong => return Err(format!("round {round}, {number}: {wrong:?}").into()),
            }
        }
    }
    assert_eq!(queue.count().await?, 5 * 67);
    Ok(())
}

#[tokio::test]
async fn a_missing_exchange_is_an_outage_of_its_events_and_of_no_others() -> Checked {
    let queue = Queue::new(FieldTable::default()).await?;
    let mut config = config(&queue)?;
    let missing = fresh_name();
    config.exchange = config.exchange.map(|exchange| exchange.for_type("Nowhere", &missing)).transpose()?;
    let sink = RabbitSink::new(config)?;
    let batch = [delivery(event("Right"))?, delivery(event("Nowhere"))?, delivery(event("Right"))?];
    let outcomes = sink.send(&batch).await;
    let [Outcome::Delivered, Outcome::Unavailable { error }, Outcome::Delivered] = outcomes.as_slice() else {
        return Err(format!("{outcomes:?}").into());
    };
    assert!(error.contains(&missing), "{error}");
    assert_eq!(queue.count().await?, 2);
    Ok(())
}

#[tokio::test]
async fn a_message_that_ends_its_channel_is_rejected_alone() -> Checked {
    let queue = Queue::new(FieldTable::default()).await?;
    let sink = RabbitSink::new(config(&queue)?)?;
    let batch =
        [delivery(event("Right"))?, delivery(event("Copied").header("CC", "x"))?, delivery(event("Right"))?];
    let outcomes = sink.send(&batch).await;
    let [Outcome::Delivered, Outcome::Rejected { error }, Outcome::Delivered] = outcomes.as_slice() else {
        return Err(format!("{outcomes:?}").into());
    };
    assert!(error.contains("PRECONDITION"), "{error}");
    // What stood before it may have come twice.
    assert!((2..=3).contains(&queue.count().await?));
    Ok(())
}

#[tokio::test]
async fn a_queue_that_is_full_and_refuses_is_an_outage() -> Checked {
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(1));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    let queue = Queue::new(arguments).await?;
    let sink = RabbitSink::new(config(&queue)?)?;
    assert_eq!(sink.send_one(delivery(event("First"))?).await, Outcome::Delivered);
    let mut outcome = sink.send_one(delivery(event("Next"))?).await;
    // The queue tells the channel that it is full a moment after it is.
    if outcome == Outcome::Delivered {
        outcome = sink.send_one(delivery(event("Last"))?).await;
    }
    assert!(matches!(&outcome, Outcome::Unavailable { .. }), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn a_send_that_stalls_half_way_says_what_was_confirmed() -> Checked {
    let (line, url) = line().await?;
    let mut queues = Vec::new();
    for _ in 0..3 {
        queues.push(Queue::new(FieldTable::default()).await?);
    }
    // Exchanges are sent to one after the other, by their names.
    queues.sort_by(|one, other| one.name.cmp(&other.name));
    let [first, second, third] = queues.as_slice() else { return Err("three queues".into()) };
    let exchanges = Destination::new(&first.name)?.for_type("B", &second.name)?.for_type("C", &third.name)?;
    let mut config = RabbitConfig::new(&url, "events")?.send_timeout(HASTE);
    config.exchange = Some(exchanges);
    let sink = RabbitSink::new(config)?;
    assert_eq!(sink.send_one(delivery(event("A"))?).await, Outcome::Delivered);
    line.delay(Direction::ToServer, Duration::from_millis(500));
    let batch = [delivery(event("C"))?, delivery(event("B"))?, delivery(event("A"))?];
    let stalling = async {
        // What goes to the second exchange is on its way for half a second.
        while first.count().await? < 2 {}
        line.stall(Direction::ToServer);
        Ok::<_, Failure>(())
    };
    let (outcomes, stalled) = tokio::join!(tokio::time::timeout(HASTE, sink.send(&batch)), stalling);
    stalled?;
    let outcomes = outcomes.map_err(|_| "the sink does not end the send")?;
    let [Outcome::Deferred { after: Duration::ZERO }, Outcome::Unknown { error }, Outcome::Delivered] =
        outcomes.as_slice()
    else {
        return Err(format!("{outcomes:?}").into());
    };
    assert!(error.contains("no answer within 2.7s"), "{error}");
    assert_eq!((second.count().await?, third.count().await?), (0, 0));
    Ok(())
}

#[test]
fn an_event_names_its_exchange_and_routing_key_where_they_differ() -> Checked {
    let destination = |exchange: Option<&str>, key: &str| -> Result<Option<String>, Failure> {
        let mut config = RabbitConfig::new("amqp://user:secret@host", key)?;
        if let Some(exchange) = exchange {
            config = config.exchange(exchange)?;
        }
        Ok(RabbitSink::new(config)?.destination(&event("Placed").aggregate("Order", 7).build()?))
    };
    assert_eq!(destination(None, "queue")?, None);
    assert_eq!(destination(Some("shop"), "key")?, None);
    assert_eq!(destination(None, "{event_type}")?.as_deref(), Some("Placed"));
    assert_eq!(destination(Some("shop"), "{event_type}")?.as_deref(), Some("shop/Placed"));
    assert_eq!(destination(Some("{aggregate_type}"), "key")?.as_deref(), Some("Order/key"));
    assert_eq!(destination(Some("shop"), "{tenant_id}")?, None, "it goes nowhere");
    Ok(())
}

#[tokio::test]
async fn a_message_says_what_it_is_in_properties_and_headers() -> Checked {
    let queue = Queue::new(FieldTable::default()).await?;
    let sink = RabbitSink::new(config(&queue)?.format(Format::CloudEventsBinary(CloudEvents::new("/shop"))))?;
    let sent = event("OrderPlaced")
        .id("order-1")
        .header("shop", "north")
        .occurred_at(Timestamp::from_micros(1_700_000_000_123_456));
    assert_eq!(sink.send_one(delivery(sent)?).await, Outcome::Delivered);
    queue
        .with_messages(|messages| {
            let message = messages.first().ok_or("a message")?;
            let said = |text: &Option<lapin::types::ShortString>| text.as_ref().map(ToString::to_string);
            let properties = &message.properties;
            assert_eq!(said(properties.message_id()).as_deref(), Some("order-1"));
            assert_eq!(said(properties.kind()).as_deref(), Some("OrderPlaced"));
            assert_eq!(said(properties.content_type()).as_deref(), Some("application/json"));
            assert_eq!(
                (*properties.timestamp(), *properties.delivery_mode()),
                (Some(1_700_000_000), Some(2))
            );
            let headers = headers(message);
            for (name, value) in
                [("cloudEvents_id", "order-1"), ("cloudEvents_type", "OrderPlaced"), ("shop", "north")]
            {
                assert_eq!(headers.get(name).map(String::as_str), Some(value), "{name}");
            }
            Ok::<_, Failure>(())
        })
        .await?
}

#[tokio::test]
async fn what_does_not_fit_is_rejected_alone_and_the_rest_is_delivered() -> Checked {
    let queue = Queue::new(FieldTable::default()).await?;
    let mut config = config(&queue)?;
    config.routing_key = config.routing_key.for_type("Long", "x{tenant_id}")?;
    let sink = RabbitSink::new(config)?;
    let wide = "\u{1F980}".repeat(64);
    let batch = [
        delivery(event("Right"))?,
        delivery(event("Long").tenant(wide))?,
        delivery(event("Right").header("h".repeat(256), "x"))?,
        delivery(event(&"\u{1F980}".repeat(128)))?,
    ];
    let outcomes = sink.send(&batch).await;
    let [
        Outcome::Delivered,
        Outcome::Rejected { error: key },
        Outcome::Rejected { error: header },
        Outcome::Delivered,
    ] = outcomes.as_slice()
    else {
        return Err(format!("{outcomes:?}").into());
    };
    assert!(
        key.contains("the routing key has 257 bytes") && header.contains("the name of a header"),
        "{outcomes:?}"
    );
    assert_eq!(queue.count().await?, 2);
    Ok(())
}

#[tokio::test]
async fn without_an_exchange_the_routing_key_is_a_queue() -> Checked {
    let queue = Queue::new(FieldTable::default()).await?;
    let sink = RabbitSink::new(RabbitConfig::new(&server_url(VARIABLE)?, &queue.name)?)?;
    assert_eq!(sink.send_one(delivery(event("Tested"))?).await, Outcome::Delivered);
    assert_eq!(queue.count().await?, 1);
    queue.delete().await?;
    let outcome = sink.send_one(delivery(event("Tested"))?).await;
    assert!(matches!(&outcome, Outcome::Rejected { error } if error.contains(&queue.name)), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn tls_proves_who_both_are() -> Checked {
    let address = address()?;
    let front = TlsFront::start(format!("{}:{}", address.host, address.port)).await?;
    let queue = Queue::new(FieldTable::default()).await?;
    let config =
        RabbitConfig::new(&url_by("amqps", "localhost", front.port())?, "events")?.exchange(&queue.name)?;
    let files = TlsFiles {
        ca_file: Some(front.ca_file()),
        certificate_file: Some(front.certificate_file()),
        key_file: Some(front.key_file()),
    };
    let sink = RabbitSink::new(config.clone().tls(files.clone()))?;
    assert_eq!(sink.send_one(delivery(event("Tested"))?).await, Outcome::Delivered);
    assert_eq!(queue.count().await?, 1);

    let stranger = TlsFiles { certificate_file: None, key_file: None, ..files };
    for (files, why) in [(TlsFiles::default(), "UnknownIssuer"), (stranger, "CertificateRequired")] {
        let outcome = RabbitSink::new(config.clone().tls(files))?.send_one(delivery(event("Tested"))?).await;
        assert!(matches!(&outcome, Outcome::Unavailable { error } if error.contains(why)), "{outcome:?}");
    }
    Ok(())
}

#[tokio::test]
async fn health_follows_the_broker_down_and_up_again() -> Checked {
    let (line, url) = line().await?;
    let sink = RabbitSink::new(RabbitConfig::new(&url, "unused")?)?;
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
async fn a_broker_that_is_not_there_does_not_keep_a_sink_from_being_made() -> Checked {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let sink = RabbitSink::new(RabbitConfig::new(&format!("amqp://{free}"), "unused")?)?;
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
    let config =
        RabbitConfig::new(&format!("amqp://user:{CANARY}@{}:{}", address.host, address.port), "unused")?;
    let sink = RabbitSink::new(config.clone())?;
    let outcome = sink.send_one(delivery(event("Tested"))?).await;
    let health = sink.health().await;
    assert!(matches!(outcome, Outcome::Unavailable { .. }), "a wrong password is an outage: {outcome:?}");
    let said = format!("{config:?} {sink:?} {outcome:?} {health:?}");
    assert!(!said.contains(CANARY), "{said}");
    Ok(())
}

#[test]
fn what_is_set_wrongly_is_named_with_what_it_may_be() -> Checked {
    let good = || RabbitConfig::new("amqp://host/orders", "key");
    for (config, words) in [
        (good()?.batch_max(0), "batch_max is 0; it must be from 1 to 1000"),
        (good()?.send_timeout(Duration::ZERO), "send_timeout is 0ns"),
        (good()?.connect_timeout(Duration::ZERO), "connect_timeout is 0ns"),
    ] {
        let error = RabbitSink::new(config).err().ok_or_else(|| io::Error::other(words))?.to_string();
        assert!(error.contains(words), "{error}");
    }
    Ok(())
}
