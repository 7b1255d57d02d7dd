//! Which handler an event goes to.

use std::sync::{Arc, Mutex};

use postrider::{
    Backoff, ConfigError, Delivery, Error, Outbox, Outcome, Routes, handler, memory::MemoryStore,
    store::EventStatus,
};
use tracing::Level;

use crate::parts::{Log, Recorder, Site, eventually, keyed, ms, on_every_store, plain, secs};

on_every_store![
    an_exact_route_goes_before_one_for_any_aggregate_and_that_before_the_wildcard,
    a_route_of_one_aggregate_type_takes_no_events_of_another,
    a_list_runs_in_order_and_as_a_whole_again_after_a_failure,
    a_handler_for_every_event_runs_after_that_of_the_route,
    a_wildcard_alone_is_enough,
    an_unroutable_event_is_dead_at_once_and_does_not_block_its_key,
];

type Calls = Arc<Mutex<Vec<String>>>;

fn calls(
    calls: &Calls,
    name: &'static str,
) -> impl Fn(Delivery) -> std::future::Ready<()> + Send + Sync + 'static {
    let calls = calls.clone();
    move |_| {
        calls.lock().unwrap().push(name.to_owned());
        std::future::ready(())
    }
}

fn taken(calls: &Calls) -> Vec<String> {
    std::mem::take(&mut *calls.lock().unwrap())
}

async fn an_exact_route_goes_before_one_for_any_aggregate_and_that_before_the_wildcard(site: Site) {
    // S3-12.2, S3-12.3a, S0-12.2
    let log = Calls::default();
    let outbox = site
        .outbox()
        .on("Placed", calls(&log, "any"))
        .on_aggregate("Order", "Placed", calls(&log, "exact"))
        .otherwise(calls(&log, "otherwise"))
        .start()
        .await
        .unwrap();
    for (event, expected) in [
        (plain("Placed").aggregate("Order", 1), "exact"),
        (plain("Placed").aggregate("Refund", 1), "any"),
        (plain("Placed"), "any"),
        (plain("Shipped").aggregate("Order", 1), "otherwise"),
    ] {
        let id = site.write(&outbox, event).await;
        site.until_done(&id).await;
        assert_eq!(taken(&log), [expected]);
    }
}

async fn a_route_of_one_aggregate_type_takes_no_events_of_another(site: Site) {
    // S3-12.2
    let seen = Recorder::default();
    let outbox = site.outbox().on_aggregate("Order", "Placed", seen.delivers()).start().await.unwrap();
    site.write(&outbox, plain("Placed").aggregate("Refund", 1)).await;
    site.until_dead(1).await;
    assert_eq!(seen.count(), 0);
}

async fn a_list_runs_in_order_and_as_a_whole_again_after_a_failure(site: Site) {
    // S0-10.3
    let log = Calls::default();
    let failing = log.clone();
    let b = move |delivery: Delivery| {
        failing.lock().unwrap().push(format!("b{}", delivery.attempt));
        std::future::ready(if delivery.attempt == 1 { Err("b failed") } else { Ok(()) })
    };
    let outbox = site
        .outbox()
        .on_list("Placed", [handler(calls(&log, "a")), handler(b), handler(calls(&log, "c"))])
        .retry(Backoff::fixed(ms(300)))
        .start()
        .await
        .unwrap();
    let id = site.write(&outbox, plain("Placed")).await;
    eventually("an attempt is counted", async || {
        matches!(site.status(&id).await, EventStatus::Waiting { attempts: 1, .. })
    })
    .await;
    site.until_done(&id).await;
    assert_eq!(taken(&log), ["a", "b1", "a", "b2", "c"]);
}

async fn a_handler_for_every_event_runs_after_that_of_the_route(site: Site) {
    // S0-12.4
    let log = Calls::default();
    let outbox = site
        .outbox()
        .always(calls(&log, "every"))
        .on("Placed", calls(&log, "named"))
        .otherwise(calls(&log, "otherwise"))
        .start()
        .await
        .unwrap();
    let named = site.write(&outbox, plain("Placed")).await;
    site.until_done(&named).await;
    assert_eq!(taken(&log), ["named", "every"]);
    let other = site.write(&outbox, plain("Shipped")).await;
    site.until_done(&other).await;
    assert_eq!(taken(&log), ["otherwise", "every"]);
}

async fn a_wildcard_alone_is_enough(site: Site) {
    // S0-12.4b
    let log = Calls::default();
    for builder in [site.outbox().always(calls(&log, "it")), site.outbox().otherwise(calls(&log, "it"))] {
        let outbox = builder.start().await.unwrap();
        let id = site.write(&outbox, plain("Whatever")).await;
        site.until_done(&id).await;
        assert_eq!(taken(&log), ["it"]);
        outbox.shutdown().await;
    }
}

async fn an_unroutable_event_is_dead_at_once_and_does_not_block_its_key(site: Site) {
    // S3-12.4, S3-16.2
    let (log, _guard) = Log::listen();
    let seen = Recorder::default();
    let outbox = site.outbox().on("Tested", seen.delivers()).start().await.unwrap();
    let lost = site.write(&outbox, plain("Nobody").key("k")).await;
    let next = site.write(&outbox, keyed("k", 1)).await;
    site.until_done(&next).await;
    let EventStatus::Dead { attempts: 0, error } = site.status(&lost).await else {
        panic!("{:?}", site.status(&lost).await);
    };
    assert!(error.contains("unroutable") && error.contains("\"Nobody\""), "{error}");
    assert_eq!(seen.ids(), [next]);
    assert_eq!(outbox.why("k").await.unwrap(), None);
    assert!(!outbox.dead(0, 1).await.unwrap()[0].blocks);
    assert_eq!(log.count(Level::ERROR, "event is dead"), 1);

    let hot = site.write_hot(&outbox, plain("Nobody")).await;
    site.until_dead(2).await;
    assert!(matches!(site.status(&hot).await, EventStatus::Dead { attempts: 0, .. }));
}

async fn refused(builder: postrider::OutboxBuilder) -> ConfigError {
    match builder.start().await {
        Err(Error::Config(error)) => error,
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it started"),
    }
}

fn builder() -> postrider::OutboxBuilder {
    Outbox::builder().store(MemoryStore::new(1))
}

async fn nothing(_: Delivery) {}

#[tokio::test]
async fn a_second_handler_for_the_same_events_is_an_error_that_names_them() {
    // S3-12.3b
    let exact =
        refused(builder().on_aggregate("Order", "Placed", nothing).on_aggregate("Order", "Placed", nothing));
    let text = exact.await.to_string();
    assert!(text.contains("\"Placed\"") && text.contains("\"Order\""), "{text}");
    let any =
        refused(builder().on("Placed", nothing).on_list("Placed", [handler(nothing)])).await.to_string();
    assert!(any.contains("\"Placed\""), "{any}");
    let wildcard = refused(builder().otherwise(nothing).otherwise(nothing)).await.to_string();
    assert!(wildcard.contains("every event"), "{wildcard}");
    // The same type with and without an aggregate type, and several for every event, are no contradiction.
    let fine = builder()
        .on("Placed", nothing)
        .on_aggregate("Order", "Placed", nothing)
        .always(nothing)
        .always(nothing)
        .start()
        .await;
    assert!(fine.is_ok());
}

#[tokio::test]
async fn an_outbox_without_a_store_or_without_routes_does_not_start_and_says_what_is_missing() {
    // S0-10.1, S3-10.1
    let no_store = refused(Outbox::builder().on("A", nothing)).await;
    assert!(matches!(no_store, ConfigError::Missing { what: "store", .. }), "{no_store}");
    let no_routes = refused(builder()).await;
    assert!(matches!(no_routes, ConfigError::Missing { what: "routes", .. }), "{no_routes}");
    assert!(no_routes.to_string().contains("write_only"), "{no_routes}");
    // All else has a default; an outbox that only writes needs no routes.
    assert!(builder().write_only().await.is_ok());
    assert!(Outbox::builder().write_only().await.is_err());
    assert!(builder().on("A", nothing).start().await.is_ok());
}

#[tokio::test]
async fn a_route_needs_a_name_and_a_list_a_handler() {
    for wrong in [
        builder().on(" ", nothing),
        builder().on_aggregate("", "Placed", nothing),
        builder().on_list("Placed", []),
        builder().routes(Routes::new().on("", nothing)),
    ] {
        assert!(matches!(refused(wrong).await, ConfigError::Missing { .. }));
    }
}

#[tokio::test]
async fn a_setting_out_of_its_range_is_told_before_the_database_is_touched() {
    let error = refused(builder().on("A", nothing).workers(0)).await;
    assert!(error.to_string().contains("workers is 0"), "{error}");
    let error = refused(builder().on("A", nothing).poll(secs(2), secs(1))).await;
    assert!(error.to_string().contains("poll_max"), "{error}");
    assert!(builder().payload_max(2 << 20).write_only().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_first_handler_of_a_list_that_does_not_deliver_decides() {
    let site = Site::memory(1);
    let (first, last) = (Recorder::default(), Recorder::default());
    let outbox = site
        .outbox()
        .on_list(
            "A",
            [handler(first.answers(|_| Outcome::rejected("the first said no"))), handler(last.delivers())],
        )
        .always(last.delivers())
        .start()
        .await
        .unwrap();
    site.write(&outbox, plain("A")).await;
    site.until_dead(1).await;
    assert_eq!((first.count(), last.count()), (1, 0));
}
