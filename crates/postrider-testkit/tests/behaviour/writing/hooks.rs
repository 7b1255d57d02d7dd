//! What runs before an insert, and hears what became of it.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
};

use postrider::{Error, Event, EventId, Receipt, TxOutcome, WriteHook, store::EventStatus};

use crate::parts::{Recorder, Site, on_every_store, plain};

on_every_store![
    a_hook_changes_and_suppresses_events,
    a_hook_that_refuses_fails_the_write,
    a_hook_observes_the_fate_of_each_write_once,
    the_id_of_a_receipt_is_the_id_of_the_row,
];

/// What became of the events of one write.
pub(super) type Told = (Vec<EventId>, TxOutcome);

/// A hook that marks, suppresses and refuses events by their type, and remembers their outcomes.
#[derive(Clone, Default)]
pub(super) struct Hook {
    outcomes: Arc<Mutex<Vec<Told>>>,
}

impl Hook {
    pub(super) fn taken(&self) -> Vec<Told> {
        std::mem::take(&mut *self.outcomes.lock().unwrap())
    }
}

impl WriteHook for Hook {
    fn before_write(&self, event: Event) -> Result<Option<Event>, Error> {
        match event.event_type() {
            "Secret" => Ok(None),
            "Forbidden" => Err(Error::Hook("it is forbidden".into())),
            _ => Ok(Some(event.to_builder().header("seen-by", "hook").build()?)),
        }
    }

    fn after(&self, ids: &[EventId], outcome: TxOutcome) {
        self.outcomes.lock().unwrap().push((ids.to_vec(), outcome));
    }
}

async fn a_hook_changes_and_suppresses_events(site: Site) {
    let (seen, hook) = (Recorder::default(), Hook::default());
    let outbox = site.outbox().on("A", seen.delivers()).write_hook(hook.clone()).start().await.unwrap();
    let receipt = in_transaction!(site, |tx| {
        outbox.write_all(tx, [plain("A"), plain("Secret"), plain("A")]).await.unwrap()
    });
    assert_eq!((receipt.ids().len(), receipt.inserted()), (3, 2));
    let suppressed = receipt.ids()[1].clone();
    receipt.committed();
    let hot = site.write_hot(&outbox, plain("A")).await;
    site.until_all_done(3).await;
    assert!(seen.seen().iter().all(|delivery| delivery.headers()["seen-by"] == "hook"));
    assert_eq!(site.status(&suppressed).await, EventStatus::Absent);
    assert!(seen.ids().contains(&hot));
    let only_suppressed = site.write_hot(&outbox, plain("Secret")).await;
    assert_eq!(site.status(&only_suppressed).await, EventStatus::Absent);
}

async fn a_hook_that_refuses_fails_the_write(site: Site) {
    let outbox = site.outbox().write_hook(Hook::default()).write_only().await.unwrap();
    let refused =
        in_transaction!(site, |tx| outbox.write_all(tx, [plain("A"), plain("Forbidden")]).await.unwrap_err());
    assert!(matches!(refused, Error::Hook(_)));
    assert_eq!(std::error::Error::source(&refused).unwrap().to_string(), "it is forbidden");
    assert_eq!(site.store.stats().await.unwrap().pending, 0);
}

async fn a_hook_observes_the_fate_of_each_write_once(site: Site) {
    // S3-4.1c
    let hook = Hook::default();
    let outbox = site.outbox().write_hook(hook.clone()).write_only().await.unwrap();
    // Where the outbox owns the commit.
    let id = site.write_hot(&outbox, plain("A")).await;
    assert_eq!(hook.taken(), [(vec![id], TxOutcome::Committed)]);
    let failed: Result<(), Error> = owned!(site, outbox, async |tx| {
        tx.write(plain("A").id("failed")).await?;
        tx.write(plain("A").id("failed too")).await?;
        Err(Error::Hook("no".into()))
    });
    failed.unwrap_err();
    assert_eq!(hook.taken(), [(vec!["failed".into(), "failed too".into()], TxOutcome::RolledBack)]);
    let caught = {
        let work = AssertUnwindSafe(async {
            let _: Result<(), Error> = owned!(site, outbox, async |tx| {
                tx.write(plain("A").id("panicked")).await?;
                panic!("in the middle")
            });
        });
        catch(work).await
    };
    assert!(caught.is_err());
    assert_eq!(hook.taken(), [(vec!["panicked".into()], TxOutcome::RolledBack)]);

    // Where it does not, the receipt says.
    let told = |receipt: Receipt, tell: fn(Receipt)| tell(receipt);
    for (tell, outcome) in [
        (Receipt::committed as fn(Receipt), TxOutcome::Committed),
        (Receipt::rolled_back, TxOutcome::RolledBack),
        (drop, TxOutcome::Unknown),
    ] {
        let receipt = in_transaction!(site, |tx| outbox.write(tx, plain("A")).await.unwrap());
        let id = receipt.id().clone();
        assert_eq!(hook.taken(), []);
        told(receipt, tell);
        assert_eq!(hook.taken(), [(vec![id], outcome)]);
    }
}

/// Runs a future, and catches its panic.
async fn catch<T>(future: AssertUnwindSafe<impl Future<Output = T>>) -> std::thread::Result<T> {
    let mut future = Box::pin(future.0);
    std::future::poll_fn(move |context| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// A hook that gives events ids of its own.
struct Renumber;

impl WriteHook for Renumber {
    fn before_write(&self, event: Event) -> Result<Option<Event>, Error> {
        Ok(Some(event.to_builder().id(format!("x-{}", event.event_type())).build()?))
    }
}

async fn the_id_of_a_receipt_is_the_id_of_the_row(site: Site) {
    // S0-8.1, S3-8.1a, S3-6.1a
    let outbox = site.outbox().write_only().await.unwrap();
    let given = site.write(&outbox, plain("A").id("my own")).await;
    assert_eq!(given.as_str(), "my own");
    let drawn = site.write_hot(&outbox, plain("A")).await;
    for id in [given, drawn] {
        assert_eq!(site.status(&id).await, EventStatus::New);
    }
    // Also where a hook has changed it.
    let outbox = site.outbox().write_hook(Renumber).write_only().await.unwrap();
    for id in [site.write(&outbox, plain("B")).await, site.write_hot(&outbox, plain("C")).await] {
        assert_eq!(site.status(&id).await, EventStatus::New, "no row has the id {id}");
    }
}
