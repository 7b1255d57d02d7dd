//! What runs around every delivery.

use std::sync::{Arc, Mutex};

use postrider::{
    Backoff, BoxFuture, Delivery, Interceptor, Outcome, Source, interceptor, interceptor::InterceptorError,
    store::EventStatus,
};
use tracing::Level;

use crate::parts::{Log, Recorder, Site, eventually, fails, ms, on_every_store, plain, secs};

on_every_store![
    interceptors_run_in_order_before_and_in_reverse_after,
    a_failing_before_is_a_failed_attempt_and_the_handler_is_not_called,
    a_failing_after_changes_nothing,
    interceptors_see_source_attempt_and_lane,
];

type Calls = Arc<Mutex<Vec<String>>>;

struct Named {
    name: &'static str,
    calls: Calls,
    fail_before: bool,
    fail_after: bool,
}

impl Named {
    fn new(name: &'static str, calls: &Calls) -> Self {
        Self { name, calls: calls.clone(), fail_before: false, fail_after: false }
    }

    fn note(&self, what: &str) {
        self.calls.lock().unwrap().push(format!("{what} {}", self.name));
    }
}

impl Interceptor for Named {
    fn before<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Result<(), InterceptorError>> {
        self.note("before");
        Box::pin(async move { if self.fail_before { Err("not today".into()) } else { Ok(()) } })
    }

    fn after<'a>(
        &'a self,
        _: &'a Delivery,
        outcome: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), InterceptorError>> {
        self.note(if outcome.error().is_some() { "after error" } else { "after" });
        Box::pin(async move { if self.fail_after { Err("too late".into()) } else { Ok(()) } })
    }
}

async fn interceptors_run_in_order_before_and_in_reverse_after(site: Site) {
    // S3-10.3b, S3-10.5a, S3-10.5b, S3-10.1
    let calls = Calls::default();
    let handler = calls.clone();
    let outbox = site
        .outbox()
        .interceptor(Arc::new(Named::new("1", &calls)))
        .interceptor(Arc::new(Named::new("2", &calls)))
        .on("A", move |delivery: Delivery| {
            handler.lock().unwrap().push("handler".to_owned());
            std::future::ready(if delivery.attempt == 1 { Err("once") } else { Ok(()) })
        })
        .retry(Backoff::fixed(ms(200)))
        .start()
        .await
        .unwrap();
    let id = site.write(&outbox, plain("A")).await;
    site.until_done(&id).await;
    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls[..5], ["before 1", "before 2", "handler", "after error 2", "after error 1"]);
    assert_eq!(calls[5..], ["before 1", "before 2", "handler", "after 2", "after 1"]);
}

async fn a_failing_before_is_a_failed_attempt_and_the_handler_is_not_called(site: Site) {
    // S3-10.5a
    let (calls, seen) = (Calls::default(), Recorder::default());
    let outbox = site
        .outbox()
        .interceptor(Arc::new(Named::new("1", &calls)))
        .interceptor(Arc::new(Named { fail_before: true, ..Named::new("2", &calls) }))
        .interceptor(Arc::new(Named::new("3", &calls)))
        .on("A", seen.delivers())
        .retry(Backoff::fixed(secs(3600)))
        .start()
        .await
        .unwrap();
    let id = site.write(&outbox, plain("A")).await;
    eventually("an attempt is counted", async || {
        matches!(site.status(&id).await, EventStatus::Waiting { attempts: 1, .. })
    })
    .await;
    let EventStatus::Waiting { attempts: 1, error: Some(error), .. } = site.status(&id).await else {
        panic!("{:?}", site.status(&id).await);
    };
    assert!(error.contains("not today"), "{error}");
    assert_eq!(seen.count(), 0);
    assert_eq!(*calls.lock().unwrap(), ["before 1", "before 2", "after error 1"]);
}

async fn a_failing_after_changes_nothing(site: Site) {
    // S3-10.5b
    let (log, _guard) = Log::listen();
    let (calls, seen) = (Calls::default(), Recorder::default());
    let outbox = site
        .outbox()
        .interceptor(Arc::new(Named::new("1", &calls)))
        .interceptor(Arc::new(Named { fail_after: true, ..Named::new("2", &calls) }))
        .on("A", seen.delivers())
        .start()
        .await
        .unwrap();
    let id = site.write(&outbox, plain("A")).await;
    site.until_done(&id).await;
    assert_eq!(*calls.lock().unwrap(), ["before 1", "before 2", "after 2", "after 1"]);
    assert_eq!(log.count(Level::WARN, "too late"), 1);
    assert_eq!(seen.count(), 1);
}

async fn interceptors_see_source_attempt_and_lane(site: Site) {
    // S3-10.8
    let (seen, handled) = (Recorder::default(), Recorder::default());
    let notes = seen.clone();
    let outbox = site
        .outbox()
        .interceptor(interceptor::before(move |delivery: Delivery| {
            notes.note(&delivery);
            std::future::ready(Ok(()))
        }))
        .on(
            "A",
            handled
                .answers(|delivery| if delivery.attempt < 3 { fails(delivery) } else { Outcome::Delivered }),
        )
        .retry(Backoff::fixed(ms(5)))
        .start()
        .await
        .unwrap();
    let id = site.write_hot(&outbox, plain("A")).await;
    site.until_done(&id).await;
    for seen in [seen.seen(), handled.seen()] {
        let met: Vec<_> = seen.iter().map(|delivery| (delivery.source, delivery.attempt)).collect();
        assert_eq!(met, [(Source::Hot, 1), (Source::Cold, 2), (Source::Cold, 3)]);
        assert!(seen.iter().all(|delivery| delivery.lane < site.store.features().lanes));
        assert!(seen.iter().all(|delivery| delivery.lane == seen[0].lane));
    }
}

#[tokio::test(start_paused = true)]
async fn closures_are_interceptors() {
    // S3-10.5c
    let site = Site::memory(1);
    let (before, after) = (Calls::default(), Calls::default());
    let (first, last) = (before.clone(), after.clone());
    let outbox = site
        .outbox()
        .interceptor(interceptor::before(move |delivery: Delivery| {
            first.lock().unwrap().push(delivery.event_type().to_owned());
            std::future::ready(Ok(()))
        }))
        .interceptor(interceptor::after(move |_: Delivery, outcome: Outcome| {
            last.lock().unwrap().push(format!("{outcome:?}"));
            std::future::ready(Ok(()))
        }))
        .on("A", async |_: Delivery| ())
        .start()
        .await
        .unwrap();
    let id = site.write(&outbox, plain("A")).await;
    site.until_done(&id).await;
    assert_eq!(*before.lock().unwrap(), ["A"]);
    assert_eq!(*after.lock().unwrap(), ["Delivered"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_interceptor_is_an_error_of_it() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let outbox = site
        .outbox()
        .workers(1)
        .interceptor(interceptor::before(|delivery: Delivery| {
            assert!(delivery.attempt > 1, "before");
            std::future::ready(Ok(()))
        }))
        .interceptor(interceptor::after(|_: Delivery, _: Outcome| -> std::future::Ready<_> {
            panic!("after")
        }))
        .on("A", seen.delivers())
        .retry(Backoff::fixed(ms(10)))
        .start()
        .await
        .unwrap();
    let ids = site.write_all(&outbox, [plain("A"), plain("A")]).await;
    for id in &ids {
        site.until_done(id).await;
    }
    assert_eq!(seen.count(), 2);
    assert!(seen.seen().iter().all(|delivery| delivery.attempt == 2));
}

#[tokio::test(start_paused = true)]
async fn interceptors_see_unroutable_events_too() {
    let site = Site::memory(1);
    let calls = Calls::default();
    let outbox = site
        .outbox()
        .interceptor(Arc::new(Named::new("1", &calls)))
        .on("A", async |_: Delivery| ())
        .start()
        .await
        .unwrap();
    site.write(&outbox, plain("B")).await;
    site.until_dead(1).await;
    assert_eq!(*calls.lock().unwrap(), ["before 1", "after error 1"]);
}
