//! The verbs.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use postrider_core::{
    BoxFuture, EventId, Result, Store, Target, Timestamp,
    event::limits::clean_error,
    store::{
        Claim, Claimed, DeadLetter, Defaults, EventStatus, Features, Hold, Instances, Lane, Lease,
        LeaseRequest, Leased, ListedEvent, Listing, Marked, Oldest, Pause, Paused, Recovery, Renewed, Seq,
        Settled, Settlement, Stats, Subject, TypeCount, too_many_pauses,
    },
};

use crate::connections::{
    release::released,
    renewal::{Locked, renewed},
};

use tokio::time::Instant;

use super::{
    Inner, ProfileStore, claim::Claiming, db::Use, lane, lane::LANE, list, operate, pause, recover, rights,
    settle::Settle, take::Taken,
};

/// Runs a verb as one transaction, and again if another try may help. A macro, because the futures of closures that borrow cannot be
/// shown to cross threads.
macro_rules! run {
    ($store:ident, $what:literal, |$tx:ident| $verb:expr) => {
        run!($store, Use::Verb, $what, |$tx| $verb)
    };
    ($store:ident, $for:expr, $what:literal, |$tx:ident| $verb:expr) => {{
        let mut tries = $store.0.db.tries($for);
        loop {
            let done = async {
                let mut tx = $store.0.db.begin($for).await?;
                let $tx = &mut tx;
                let done = $verb.await?;
                tx.commit().await?;
                sqlx::Result::Ok(done)
            };
            let done = $store.0.db.in_time($for, tries.until(), done).await;
            if let Some(end) = $store.ended($what, &mut tries, done).await {
                break end;
            }
        }
    }};
}

impl Store for ProfileStore {
    fn features(&self) -> Features {
        Features { lanes: 1, shared_clock: true, late_commits: true, keeps: self.0.shape.profile.keeps() }
    }

    fn defaults(&self) -> Option<Defaults> {
        Some(self.0.shape.profile.defaults())
    }

    fn target(&self) -> &Target {
        &self.0.target
    }

    fn migrate(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let shape = &self.0.shape;
            run!(
                self,
                Use::Migration,
                "create our tables (schema_sql prints them, to be applied by anyone who may)",
                |tx| { lane::migrate(shape, tx) }
            )
        })
    }

    fn rehearse(&self, migrate: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let Inner { db, place, shape, .. } = &*self.0;
            rights::check(db, place, shape).await?;
            rights::rehearse(db, place, shape, migrate).await
        })
    }

    fn join<'a>(&'a self, _instance: &'a str, _ttl: Duration) -> BoxFuture<'a, Result<u32>> {
        // There is one lane, and anyone who has it keeps it: how many stand by makes no difference.
        Box::pin(std::future::ready(Ok(1)))
    }

    fn leave<'a>(&'a self, _instance: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> BoxFuture<'a, Result<Leased>> {
        Box::pin(async move {
            let shape = &self.0.shape;
            self.0.db.set_lease(request.ttl);
            let mut mind = self.0.mind.lock().await;
            run!(self, Use::Keeping, "take the lane", |tx| lane::lease(shape, tx, &mut mind, request))
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], ttl: Duration) -> BoxFuture<'a, Result<Renewed>> {
        Box::pin(async move {
            let shape = &self.0.shape;
            let Some(&lease) = leases.iter().find(|lease| lease.lane == LANE) else {
                return Ok(Renewed::default());
            };
            let renew = move |_: Arc<[Lease]>, locked: Locked| async move {
                run!(self, Use::Keeping, "renew the lease", |tx| lane::renew(shape, tx, lease, ttl, locked))
            };
            let renewed = renewed(&[lease], renew).await?;
            if renewed == Renewed::default() {
                // Anyone who has it asks the database with it: the loss is not to wait for that, and it finds out by itself.
                if let Ok(mut mind) = self.0.mind.try_lock() {
                    mind.lease = mind.lease.filter(|known| *known != lease);
                }
            }
            Ok(renewed)
        })
    }

    fn mark_sent<'a>(&'a self, _marks: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Marked>> {
        // The claim has marked each row, or nothing could.
        Box::pin(std::future::ready(Ok(Marked::default())))
    }

    fn release<'a>(&'a self, lanes: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Vec<Lane>>> {
        Box::pin(async move {
            let shape = &self.0.shape;
            let mut mind = self.0.mind.lock().await;
            let ours = lanes.iter().find(|(lease, _)| mind.lease == Some(*lease));
            let Some(&(lease, suspects)) = ours else { return Ok(Vec::new()) };
            let known = &*mind;
            let release = move |_: Arc<[(Lease, Seq)]>| async move {
                run!(self, Use::Keeping, "release the lane", |tx| lane::release(
                    shape, tx, known, lease, suspects
                ))
            };
            let locked = released(&[(lease, suspects)], release).await?;
            if locked.is_empty() {
                mind.lease = None;
            }
            Ok(locked)
        })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Claimed>> {
        Box::pin(async move {
            let shape = &self.0.shape;
            let mut mind = self.0.mind.lock().await;
            let lost = || Claimed {
                lost: claim.lanes.iter().map(|lane| lane.lease.lane).collect(),
                ..Claimed::default()
            };
            let ours = claim.lanes.iter().find(|lane| mind.lease == Some(lane.lease));
            let Some(lane) = ours else { return Ok(lost()) };
            let claiming =
                Claiming { shape, claim, lease: lane.lease, from: lane.from, due: OnceLock::new() };

            let back = mind.given_back(&claim.in_flight);
            if !back.is_empty() || !mind.uncertain.is_empty() {
                let taken_back = run!(self, "take events back", |tx| claiming.take_back(tx, &mind, &back))?;
                let Some((unmarked, uncertain)) = taken_back else { return Ok(lost()) };
                (mind.uncertain, mind.window) = (uncertain, None);
                unmarked.into_iter().for_each(|seq| mind.let_go(seq));
            }
            let mut looked = None;
            if claiming.has_to_look(&mind) {
                let found = run!(self, "look for events", |tx| claiming.look(tx, &mind))?;
                let Some(found) = found else { return Ok(lost()) };
                looked = Some(found.remember(&mut mind));
            }
            let (now, due, just_read) =
                looked.map_or((None, Vec::new(), false), |(now, due, read)| (Some(now), due, read));
            let chosen = claiming.choose(&mut mind, due, just_read);
            let taken = match now.filter(|_| chosen.is_empty()) {
                Some(now) => Taken::nothing(now),
                None => {
                    let taken = run!(self, "claim events", |tx| claiming.take(tx, &mut mind, &chosen))?;
                    let Some(taken) = taken else { return Ok(lost()) };
                    taken
                }
            };
            Ok(claiming.end(&mut mind, &chosen, taken))
        })
    }

    fn settle<'a>(
        &'a self,
        leases: &'a [Lease],
        settlements: &'a [Settlement],
        retention: Duration,
    ) -> BoxFuture<'a, Result<Settled>> {
        Box::pin(async move {
            let shape = &self.0.shape;
            let mut mind = self.0.mind.lock().await;
            let Some(&lease) = leases.first() else { return Ok(Settled::default()) };
            let until = Instant::now() + self.0.db.limits().verb() / 2;
            let settle = Settle { shape, lease, retention, until };
            let (settled, then) =
                run!(self, Use::Settling, "settle events", |tx| settle.settle(tx, &mind, settlements))?;
            then.into_iter().for_each(|then| then.apply(shape, &mut mind));
            Ok(settled)
        })
    }

    fn recovery(&self) -> Option<Recovery> {
        let profile = &self.0.shape.profile;
        Some(Recovery { every: profile.recover_every, after: profile.recover_after })
    }

    fn recover(&self, older_than: Duration) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let shape = &self.0.shape;
            let mut mind = self.0.mind.lock().await;
            // An instance that stands by cannot tell what is abandoned.
            let Some(lease) = mind.lease else { return Ok(0) };
            run!(self, "recover events", |tx| recover::recover(shape, tx, &mut mind, lease, older_than))
        })
    }

    fn dead(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>> {
        Box::pin(async move {
            run!(self, Use::Operating, "list dead letters", |tx| operate::dead(
                &self.0.shape,
                tx,
                after,
                limit
            ))
        })
    }

    fn redrive<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            run!(self, Use::Operating, "redrive events", |tx| operate::redrive(&self.0.shape, tx, ids))
        })
    }

    fn discard<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            run!(self, Use::Operating, "discard events", |tx| operate::discard(&self.0.shape, tx, ids))
        })
    }

    fn purge(&self, retention: Duration, limit: usize) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            run!(self, Use::Operating, "purge delivered events", |tx| operate::purge(
                &self.0.shape,
                tx,
                retention,
                limit
            ))
        })
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
        Box::pin(async move {
            let mind = &self.0.mind;
            run!(self, Use::Operating, "count events", |tx| operate::stats(&self.0.shape, tx, mind))
        })
    }

    fn instances(&self) -> BoxFuture<'_, Result<Option<Instances>>> {
        Box::pin(async move {
            let shape = &self.0.shape;
            run!(self, Use::Operating, "look for the instance that delivers", |tx| operate::instances(
                shape, tx
            ))
            .map(Some)
        })
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Vec<ListedEvent>>> {
        Box::pin(async move {
            let mind = &self.0.mind;
            run!(self, Use::Operating, "list events", |tx| list::list(&self.0.shape, tx, mind, listing))
        })
    }

    fn oldest(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Option<Oldest>>> {
        Box::pin(async move {
            if after > 0 {
                return Ok(None);
            }
            let shape = &self.0.shape;
            run!(self, Use::Operating, "look for the oldest events", |tx| list::oldest(shape, tx, limit))
        })
    }

    fn count_by_type(&self, types: usize) -> BoxFuture<'_, Result<Vec<TypeCount>>> {
        Box::pin(async move {
            run!(self, Use::Operating, "count events", |tx| list::count_by_type(&self.0.shape, tx, types))
        })
    }

    fn status<'a>(&'a self, id: &'a EventId) -> BoxFuture<'a, Result<EventStatus>> {
        Box::pin(async move {
            let mind = &self.0.mind;
            run!(self, Use::Operating, "look for an event", |tx| operate::status(&self.0.shape, tx, mind, id))
        })
    }

    fn why<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Hold>>> {
        Box::pin(async move {
            let mind = self.0.mind.lock().await;
            Ok(mind.lease.and_then(|_| mind.holds.get(key)).map(|held| Hold {
                lane: LANE,
                key: key.to_owned(),
                seq: held.head,
                reason: held.reason,
                until: Some(held.until).filter(|until| *until > Timestamp::EPOCH),
                parked: 0,
            }))
        })
    }

    fn pause<'a>(&'a self, subject: &'a Subject, reason: &'a str) -> BoxFuture<'a, Result<Paused>> {
        Box::pin(async move {
            subject.check()?;
            let reason = &clean_error(reason);
            let paused = run!(self, "pause", |tx| pause::pause(&self.0.shape, tx, subject, reason))?;
            paused.ok_or_else(too_many_pauses)
        })
    }

    fn resume<'a>(&'a self, subject: &'a Subject) -> BoxFuture<'a, Result<Option<Pause>>> {
        Box::pin(async move { run!(self, "resume", |tx| pause::resume(&self.0.shape, tx, subject)) })
    }

    fn pauses(&self) -> BoxFuture<'_, Result<Vec<Pause>>> {
        Box::pin(async move { run!(self, "read the pauses", |tx| pause::pauses(&self.0.shape, tx)) })
    }
}
