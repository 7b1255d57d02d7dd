//! Several outboxes in one program: one for each database.

use std::sync::Arc;

use postrider::{Outbox, handler, store::EventStatus};

use crate::parts::{Recorder, Site, plain};

async fn outbox(site: &Site, shared: &Recorder) -> Outbox {
    let audit = Arc::new(Recorder::default());
    let seen = audit.clone();
    site.outbox()
        .on_list("A", [handler(shared.delivers())])
        .interceptor(postrider::interceptor::before(move |delivery: postrider::Delivery| {
            seen.note(&delivery);
            std::future::ready(Ok(()))
        }))
        .start()
        .await
        .unwrap()
}

async fn two_databases_share_a_handler(one: Site, two: Site) {
    // S2-8
    let seen = Recorder::default();
    let (first, second) = (outbox(&one, &seen).await, outbox(&two, &seen).await);
    let of_one = one.write_hot(&first, plain("A")).await;
    let of_two = two.write(&second, plain("A")).await;
    one.until_done(&of_one).await;
    two.until_done(&of_two).await;
    assert_eq!(seen.count(), 2);
    assert_eq!(two.status(&of_one).await, EventStatus::Absent);

    first.shutdown().await;
    let stays = one.write(&first, plain("A")).await;
    let goes = two.write_hot(&second, plain("A")).await;
    two.until_done(&goes).await;
    assert_eq!(one.status(&stays).await, EventStatus::New);
    assert_eq!(seen.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn stopping_one_of_two_outboxes_in_memory_leaves_the_other_running() {
    two_databases_share_a_handler(Site::memory(1), Site::memory(8)).await;
}

#[tokio::test]
async fn stopping_one_of_two_outboxes_in_sqlite_leaves_the_other_running() {
    two_databases_share_a_handler(Site::sqlite().await, Site::sqlite_in_memory().await).await;
}

#[tokio::test]
async fn an_outbox_in_sqlite_and_one_in_memory_run_side_by_side() {
    two_databases_share_a_handler(Site::sqlite().await, Site::memory(8)).await;
}
