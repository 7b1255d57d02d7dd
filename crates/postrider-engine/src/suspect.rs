//! Suspects: events that may have been under way when the last owner of their lane ended without giving it back.
//!
//! One of them may be what ended it. Each goes alone, and its attempt is written before it is sent: if it ends this process
//! too, the attempt is counted, and after `max_attempts` the event is dead. Its neighbours are not counted. A clean outcome
//! takes the attempt back, since it is settled with the number that it stands for.

use postrider_core::store::{Change, Settlement};
use tokio::time::Instant;
use tracing::warn;

use crate::{
    buffer::Item,
    claim::source,
    deliver::deliver as send,
    engine::Shared,
    hand::InHand,
    judge::{give_up, max_attempts},
    lock,
    patience::answer,
};

pub(crate) async fn deliver(mut hand: InHand<'_>) {
    let shared = hand.shared;
    let Some(item) = hand.first() else { return };
    if item.attempts >= max_attempts(shared, item) {
        return give_up(hand);
    }
    let (lease, counted) = (item.lease, count(shared, item).await);
    // Counting takes time, and the lease may have run out meanwhile.
    let until = lock(&shared.buffer).may_send_until(lease, Instant::now()).filter(|_| counted);
    if let Some(until) = until {
        hand.counted = true;
        hand.extend(until);
        _ = send(hand).await;
    } else {
        drop(hand);
        tokio::time::sleep(shared.settings.poll_min).await;
    }
}

/// Writes the attempt. False if it was not written, and the event must not be sent.
async fn count(shared: &Shared, item: &Item) -> bool {
    let attempt = Settlement {
        lane: item.lease.lane,
        seq: item.seq,
        event_id: item.id().clone(),
        key: None,
        held: false,
        change: Change::Attempt { attempts: item.attempts.saturating_add(1) },
    };
    let (leases, attempts) = ([item.lease], [attempt]);
    let settling = shared.store.settle(&leases, &attempts, shared.settings.retention);
    match answer(shared, settling).await {
        Ok(settled) if settled.lost.is_empty() => true,
        Ok(_) => {
            lock(&shared.buffer).lose(item.lease);
            shared.lanes.notify_one();
            false
        }
        Err(error) => {
            warn!(%error, source = source(&error), "could not count an attempt beforehand: the event waits");
            false
        }
    }
}
