//! A receiver that is down, or a type that is paused, while another is up, on a table of somebody else's.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider::{
    Delivery, Outbox, Outcome, Store,
    store::{Admission, Change, HoldReason, RowSummary, Subject},
};
use postrider_sqlx::profile::{Profile, ProfileStore};
use postrider_testkit::conformance::{
    Checked, Owner,
    scene::{claimed_ids, settlement},
};

use super::{
    flowcatalyst,
    server::{BOTH, Database},
};

/// Two groups: one has items for both receivers in turn, the other for the one that is up.
fn items() -> String {
    let mut sql = String::new();
    for n in 0..60 {
        let (group, of) =
            if n < 40 { ("both", if n % 2 == 0 { "DOWN" } else { "UP" }) } else { ("up", "UP") };
        sql += &format!(
            "INSERT INTO outbox_events (id, type, message_group, payload, status, created_at) VALUES \
             ('I{n:02}', '{of}', '{group}', '{{}}', 'PENDING', '2026-01-01 10:00:{n:02}');"
        );
    }
    sql
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_is_down_holds_up_its_own_keys_only_costs_no_attempt_and_no_order() -> Checked {
    for kind in BOTH {
        let database = Database::new(kind, &(flowcatalyst::DDL.to_owned() + &items())).await?;
        let store = ProfileStore::connect(&database.url, Profile::flowcatalyst_events()).await?;
        let came: Arc<Mutex<Vec<String>>> = Arc::default();
        let is_up = Arc::new(AtomicBool::new(false));
        let note = {
            let came = Arc::clone(&came);
            move |delivery: &Delivery| {
                if delivery.key() == Some("both") {
                    came.lock().unwrap_or_else(PoisonError::into_inner).push(delivery.id().to_string());
                }
            }
        };
        let (note_down, up) = (note.clone(), Arc::clone(&is_up));
        let outbox = Outbox::builder()
            .store(store.clone())
            .poll(Duration::from_millis(10), Duration::from_millis(100))
            .on("UP", move |delivery: Delivery| {
                note(&delivery);
                async {}
            })
            .on("DOWN", move |delivery: Delivery| {
                let is_up = up.load(Relaxed);
                if is_up {
                    note_down(&delivery);
                }
                async move { if is_up { Outcome::Delivered } else { Outcome::unavailable("it is down") } }
            })
            .start()
            .await?;
        let done = |group: &str| {
            format!(
                "SELECT CONCAT(COUNT(*), ' ', SUM(retry_count)) FROM outbox_events WHERE status = 'COMPLETED' AND message_group = '{group}'"
            )
        };
        database.until(&done("up"), &["20 0"]).await?;
        assert!(
            came.lock().unwrap_or_else(PoisonError::into_inner).is_empty(),
            "{kind:?}: the head is for the one that is down"
        );
        is_up.store(true, Relaxed);
        database.until(&done("both"), &["40 0"]).await?;
        outbox.shutdown().await;
        let expected: Vec<String> = (0..40).map(|n| format!("I{n:02}")).collect();
        assert_eq!(*came.lock().unwrap_or_else(PoisonError::into_inner), expected, "{kind:?}");
        store.close().await;
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_type_holds_up_its_own_keys_only_and_comes_in_order_when_it_is_resumed() -> Checked {
    for kind in BOTH {
        let database = Database::new(kind, &(flowcatalyst::DDL.to_owned() + &items())).await?;
        let store = ProfileStore::connect(&database.url, Profile::flowcatalyst_events()).await?;
        store.migrate().await?;
        let operator = ProfileStore::connect(&database.url, Profile::flowcatalyst_events()).await?;
        operator.pause(&Subject::event_type("DOW*"), "a test").await?;
        let came: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&came);
        let outbox = Outbox::builder()
            .store(store.clone())
            .poll(Duration::from_millis(10), Duration::from_millis(100))
            .otherwise(move |delivery: Delivery| {
                if delivery.key() == Some("both") {
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push(delivery.id().to_string());
                }
                async {}
            })
            .start()
            .await?;
        let done = |group: &str| {
            format!(
                "SELECT CONCAT(COUNT(*), ' ', SUM(retry_count)) FROM outbox_events WHERE status = 'COMPLETED' AND message_group = '{group}'"
            )
        };
        database.until(&done("up"), &["20 0"]).await?;
        assert!(
            came.lock().unwrap_or_else(PoisonError::into_inner).is_empty(),
            "{kind:?}: its head is paused"
        );
        let pauses = outbox.pauses().await?;
        assert_eq!(pauses.iter().map(|pause| &*pause.reason).collect::<Vec<_>>(), ["a test"]);
        operator.resume(&Subject::event_type("DOW*")).await?;
        database.until(&done("both"), &["40 0"]).await?;
        outbox.shutdown().await;
        let expected: Vec<String> = (0..40).map(|n| format!("I{n:02}")).collect();
        assert_eq!(*came.lock().unwrap_or_else(PoisonError::into_inner), expected, "{kind:?}");
        operator.close().await;
        store.close().await;
        database.drop().await?;
    }
    Ok(())
}

/// Wants what is for the receiver that is up, and counts what it was asked about.
#[derive(Debug, Default)]
struct OnlyUp(AtomicUsize);

impl Admission for OnlyUp {
    fn admits(&self, row: &RowSummary<'_>) -> bool {
        self.0.fetch_add(1, Relaxed);
        row.event_type == "UP"
    }
}

#[tokio::test]
async fn rows_that_wait_and_are_not_wanted_take_no_room_from_those_behind_them() -> Checked {
    let row = |n: usize| {
        let of = if n < 8 { "DOWN" } else { "UP" };
        format!(
            "INSERT INTO outbox_events (id, type, message_group, payload, status, created_at) VALUES \
             ('I{n}', '{of}', 'group-{n}', '{{}}', 'PENDING', '2026-01-01 10:00:0{n}');"
        )
    };
    for kind in BOTH {
        let ddl = flowcatalyst::DDL.to_owned() + &(0..10).map(row).collect::<String>();
        let database = Database::new(kind, &ddl).await?;
        let store = ProfileStore::connect(&database.url, Profile::flowcatalyst_events()).await?;
        store.migrate().await?;
        let store: Arc<dyn Store> = Arc::new(store);
        let mut owner = Owner::lease(&store, "owner").await?;
        let events = owner.claim(&store, 100, 1 << 20, &[]).await?.events;
        let retry =
            || Change::Wait { after: Duration::ZERO, attempts: 1, error: None, reason: HoldReason::Retry };
        let settlements: Vec<_> = events.iter().map(|event| settlement(event, retry())).collect();
        owner.settle(&store, &settlements, Duration::ZERO).await?;
        let admission = Arc::new(OnlyUp::default());
        owner.admit(Some(admission.clone()));
        let claimed = owner.claim(&store, 2, 1 << 20, &[]).await?;
        assert_eq!(claimed_ids(&claimed.events), ["I8", "I9"], "{kind:?}");
        assert_eq!(admission.0.load(Relaxed), 10, "{kind:?}: each is asked about once");
        database.drop().await?;
    }
    Ok(())
}
