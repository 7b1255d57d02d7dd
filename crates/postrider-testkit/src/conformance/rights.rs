//! Rights: every verb of the relay and of an operator works under exactly the rights that are printed for them.
//!
//! These are functions and no checks of the suite: only databases with users have rights.

use std::{fmt::Display, sync::Arc, time::Duration};

use postrider_core::{
    Result, Store,
    store::{Change, HoldReason, ListScope, Listing, Subject},
};

use super::{
    Checked, Failure,
    scene::{Owner, id_of, settlement},
};

const KEPT: Duration = Duration::from_secs(3600);

/// Verbs that were refused, with the reason.
#[derive(Debug, Default)]
struct Refused(Vec<String>);

impl Refused {
    fn note<T, E: Display>(&mut self, verb: &str, done: Result<T, E>) {
        if let Err(error) = done {
            self.0.push(format!("{verb}: {error}"));
        }
    }

    fn assert_none(self, role: &str) {
        assert!(self.0.is_empty(), "the {role} lacks rights: {:#?}", self.0);
    }
}

/// Runs every verb that an engine uses. Needs six events that are due, and leaves at least two dead.
pub async fn the_relay_can_deliver(store: &Arc<dyn Store>) -> Checked {
    let mut refused = Refused::default();
    refused.note("check", store.check().await);
    refused.note("migrate", store.migrate().await);
    refused.note("rehearse", store.rehearse(false).await);
    refused.note("join", store.join("relay", KEPT).await);
    refused.note("pauses", store.pauses().await);
    refused.note("peek", store.peek().await);
    let mut owner = Owner::lease(store, "relay").await?;
    let claimed = owner.claim(store, 100, 1 << 20, &[]).await?.events;
    let [first, second, third, fourth, fifth, sixth, ..] = claimed.as_slice() else {
        return Err(Failure::from(format!("only {} events are due", claimed.len())));
    };
    let marks: Vec<_> = owner
        .leases()
        .iter()
        .map(|lease| {
            (*lease, claimed.iter().filter(|e| e.lane == lease.lane).map(|e| e.seq).max().unwrap_or(0))
        })
        .collect();
    refused.note("mark_sent", store.mark_sent(&marks).await);
    let wait = |error: Option<&str>| Change::Wait {
        after: Duration::ZERO,
        attempts: 1,
        error: error.map(str::to_owned),
        reason: HoldReason::Retry,
    };
    let dead = |block| Change::Dead { attempts: 1, error: "no".to_owned(), block };
    for (verb, event, change, retention) in [
        ("count an attempt", first, Change::Attempt { attempts: 1 }, KEPT),
        ("settle as done", first, Change::Done, KEPT),
        ("settle as done and keep nothing", second, Change::Done, Duration::ZERO),
        ("settle as waiting", third, wait(Some("busy")), KEPT),
        ("settle as dead", fourth, dead(false), KEPT),
        ("settle as dead and block the key", fifth, dead(true), KEPT),
        ("settle as waiting without an error", sixth, wait(None), KEPT),
    ] {
        refused.note(verb, owner.settle(store, &[settlement(event, change)], retention).await);
    }
    refused.note("claim what waits", owner.claim(store, 100, 1 << 20, &[]).await);
    refused.note("renew", store.renew(owner.leases(), KEPT).await);
    refused.note("recover", store.recover(Duration::ZERO).await);
    refused.note("purge", store.purge(Duration::ZERO, 10).await);
    refused.note("stats", store.stats().await);
    refused.note("oldest", store.oldest(0, 10).await);
    refused.note("count_by_type", store.count_by_type(10).await);
    refused.note("status", store.status(id_of(first)).await);
    refused.note("why", store.why("k").await);
    // A receiver that rejects everything is told of by a pause, and the brake ends by itself.
    let rejected = Subject::Rejected("shop".to_owned());
    refused.note("tell that a sink rejects everything", store.pause(&rejected, "it took none").await);
    refused.note("tell that it is over", store.resume(&rejected).await);
    refused.note("put the brake back", store.resume(&Subject::Brake("shop".to_owned())).await);
    refused.note("release", store.release(&owner.given_back()).await);
    refused.note("leave", store.leave("relay").await);
    refused.assert_none("relay");
    Ok(())
}

/// Runs every verb that the commands of an operator use. Needs two dead events.
pub async fn the_operator_can_operate(store: &Arc<dyn Store>) -> Checked {
    let mut refused = Refused::default();
    refused.note("stats", store.stats().await);
    refused.note("instances", store.instances().await);
    refused.note("pauses", store.pauses().await);
    refused.note("count_by_type", store.count_by_type(10).await);
    for scope in [ListScope::Undelivered, ListScope::Dead, ListScope::Delivered] {
        let listing = Listing { payloads: true, ..Listing::newest(scope, 10) };
        refused.note(&format!("list {scope:?}"), store.list(&listing).await);
    }
    let letters = store.dead(0, 10).await?;
    let [one, two, ..] = letters.as_slice() else {
        return Err(Failure::from(format!("only {} events are dead", letters.len())));
    };
    refused.note("status", store.status(&one.id).await);
    refused.note("why", store.why("k").await);
    refused.note("redrive", store.redrive(std::slice::from_ref(&one.id)).await);
    refused.note("discard", store.discard(std::slice::from_ref(&two.id)).await);
    let sink = || "shop".to_owned();
    for subject in [Subject::Sink(sink()), Subject::Rejected(sink()), Subject::Brake(sink())] {
        refused.note(&format!("pause {subject}"), store.pause(&subject, "to look at it").await);
        refused.note(&format!("pause {subject} again"), store.pause(&subject, "").await);
        refused.note(&format!("resume {subject}"), store.resume(&subject).await);
    }
    refused.assert_none("operator");
    Ok(())
}
