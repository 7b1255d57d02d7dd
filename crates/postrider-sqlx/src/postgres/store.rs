//! The verbs.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use postrider_core::{
    BoxFuture, EventId, Result, Store, StoreError, StoreErrorKind, Target,
    event::limits::clean_error,
    store::{
        Claim, Claimed, DeadLetter, EventStatus, Features, HeldKey, Hold, Instances, Keeps, Lane, Lease,
        LeaseRequest, Leased, ListedEvent, Listing, Marked, Oldest, Orphans, Pause, Paused, Peek, PeekWait,
        Renewed, Seq, Settled, Settlement, Stats, Subject, TypeCount, too_many_pauses,
    },
};

use super::{
    Inner, PgStore, Way, claim, error, lease, list, operate, orphans, pause, rehearse, schema,
    session::Session, settle,
};
use sqlx::AssertSqlSafe;
use tokio::time::Instant;

use crate::{
    connections::{
        Task,
        release::released,
        renewal::{Locked, renewed},
    },
    shared_verbs::{shared_verbs, verb},
};

impl Store for PgStore {
    fn features(&self) -> Features {
        Features {
            lanes: self.0.lanes.load(Relaxed),
            shared_clock: true,
            late_commits: true,
            keeps: Keeps::ALL,
        }
    }

    fn target(&self) -> &Target {
        &self.0.target
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.server().await?.require_known()?;
            self.require_fitting().await
        })
    }

    fn rehearse(&self, migrate: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.check().await?;
            // Nobody commits the session, so all of it is rolled back.
            let rehearse = move |mut session: Session| async move {
                rehearse::rehearse(&self.0, &mut session, migrate).await
            };
            Ok(self.run_whole("do what delivering does", rehearse).await??)
        })
    }

    fn migrate(&self) -> BoxFuture<'_, Result<()>> {
        let Inner { shape, lanes_wanted, lanes, .. } = &*self.0;
        Box::pin(async move {
            self.check().await?;
            let migrate = move |mut session: Session| async move {
                let migrated = schema::migrate(&mut session, &shape.prefix, *lanes_wanted).await?;
                if migrated.is_ok() {
                    session.commit().await?;
                }
                Ok(migrated)
            };
            lanes.store(self.run_in(Way::Migration, "create the tables", migrate).await??, Relaxed);
            Ok(())
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> BoxFuture<'a, Result<Leased>> {
        self.set_lease(request.ttl);
        let lanes = self.0.lanes.load(Relaxed) as usize;
        verb!(self.run_keeping, "take lanes", lease::lease(request, lanes))
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], ttl: Duration) -> BoxFuture<'a, Result<Renewed>> {
        let Inner { lease: sql, .. } = &*self.0;
        Box::pin(renewed(leases, move |leases, locked| {
            self.run_keeping("renew leases", move |mut session| {
                let leases = Arc::clone(&leases);
                async move {
                    let renewed = lease::renew(sql, &mut session, &leases, ttl, locked).await?;
                    session.commit().await?;
                    Ok(renewed)
                }
            })
        }))
    }

    fn mark_sent<'a>(&'a self, marks: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Marked>> {
        let Inner { lease: sql, locked_lanes, .. } = &*self.0;
        let mark = move |locked| {
            self.run("mark what is under way", move |mut session: Session| async move {
                match lease::mark_sent(sql, &mut session, marks, locked).await {
                    Ok(marked) => session.commit().await.map(|()| Some(marked)),
                    Err(error) if locked == Locked::Wait && error::is_locked(&error) => {
                        session.roll_back().await.map(|()| None)
                    }
                    Err(error) => Err(error),
                }
            })
        };
        Box::pin(async move {
            if !locked_lanes.are_likely()
                && let Some(marked) = mark(Locked::Wait).await?
            {
                return Ok(marked);
            }
            let marked = mark(Locked::Skip).await?.unwrap_or_default();
            locked_lanes.note(&marked.locked);
            Ok(marked)
        })
    }

    fn release<'a>(&'a self, lanes: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Vec<Lane>>> {
        let Inner { lease: sql, .. } = &*self.0;
        Box::pin(released(lanes, move |lanes| {
            self.run_keeping("release lanes", move |mut session| {
                let lanes = Arc::clone(&lanes);
                async move {
                    let locked = lease::release(sql, &mut session, &lanes).await?;
                    session.commit().await?;
                    Ok(locked)
                }
            })
        }))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Claimed>> {
        Box::pin(self.claim_all(claim))
    }

    fn peek(&self) -> BoxFuture<'_, Result<Option<Peek>>> {
        let Inner { peek, verbs, .. } = &*self.0;
        if peek.is_refused() {
            return Box::pin(std::future::ready(Ok(None)));
        }
        if self.is_pooled() {
            let cannot = |error| error::of_sqlx(error, format!("cannot peek at {}", self.0.place));
            let until = Instant::now() + verbs.limits().verb();
            let peek = verbs.attempt(until, Task::Peek, move |mut conn| async move {
                let peeked = peek.pooled(&mut conn).await?;
                conn.give_back();
                Ok(peeked)
            });
            return Box::pin(async move { peek.await.map_err(cannot) });
        }
        self.run_in(Way::Plain(Task::Peek), "peek at the events", move |mut session| async move {
            let peeked = peek.direct(&mut session).await?;
            session.commit().await?;
            Ok(peeked)
        })
    }

    fn peek_from(&self, wait: PeekWait) -> BoxFuture<'_, Result<Option<Peek>>> {
        let peek = &self.0.peek;
        if peek.is_refused() || self.is_pooled() {
            return self.peek();
        }
        self.run_in(Way::Plain(Task::Peek), "peek at the events", move |mut session| async move {
            let peeked = peek.waiting(&mut session, wait).await?;
            session.commit().await?;
            Ok(peeked)
        })
    }

    fn settle<'a>(
        &'a self,
        leases: &'a [Lease],
        settlements: &'a [Settlement],
        retention: Duration,
    ) -> BoxFuture<'a, Result<Settled>> {
        let Inner { settle: sql, lease, locked_lanes, .. } = &*self.0;
        let sql = sql.of(self.watermarks().is_flood());
        let settle = move |mut session: Session| async move {
            match settle::settle(sql, lease, &mut session, leases, settlements, retention).await {
                Ok(settled) => {
                    session.commit().await?;
                    Ok(Some(settled))
                }
                // Its own locks on the lanes would be taken for somebody else's.
                Err(error) if error::is_locked(&error) => session.roll_back().await.map(|()| None),
                Err(error) => Err(error),
            }
        };
        let around = move |mut session: Session| async move {
            let fence = (lease, locked_lanes);
            let settled =
                settle::settle_around(sql, fence, &mut session, leases, settlements, retention).await?;
            session.commit().await?;
            Ok(settled)
        };
        let way =
            if settle::frees(settlements) { Way::Whole(Task::Settle) } else { Way::Plain(Task::Settle) };
        Box::pin(async move {
            let settled = match locked_lanes.are_likely() {
                true => None,
                false => self.run_in(way, "settle events", settle).await?,
            };
            match settled {
                Some(settled) => Ok(settled),
                None => self.run_in(Way::Whole(Task::Settle), "settle events", around).await,
            }
        })
    }

    shared_verbs!(pause: run_whole);

    fn notify_others(&self) {
        let store = self.clone();
        self.0.notifier.ring(move |notify| {
            let store = store.clone();
            async move {
                let verbs = &store.0.verbs;
                // A connection that does not answer in time is closed, and so are the others of its pool.
                let until = Instant::now() + verbs.limits().verb();
                let notify = verbs.attempt(until, Task::Seldom, move |mut conn| async move {
                    // Safe because the channel is made of a plain identifier and the ringer of digits.
                    sqlx::raw_sql(AssertSqlSafe(notify)).execute(&mut *conn).await?;
                    conn.give_back();
                    Ok(())
                });
                notify.await
            }
        });
    }

    fn notified(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let heard = self.0.notifier.heard().await;
            heard.map_err(|error| error::of_sqlx(error, format!("cannot listen to {}", self.0.place)))
        })
    }
}

impl PgStore {
    /// Looks, chooses, reads what was not read yet, and writes down what was met. Only the look is always there.
    async fn claim_all(&self, claim: &Claim) -> Result<Claimed> {
        self.check_identity().await?;
        let Inner { claim: sql, lanes, .. } = &*self.0;
        let sql = sql.of(self.watermarks().is_flood());
        let scale = claim::Scale { lanes: lanes.load(Relaxed), reads_log: self.reads_log().await? };
        let begun = self.watermarks().begin(&claim.lanes);
        let begun = &begun;
        let look = self.run_in(Way::Plain(Task::Claim), "claim events", move |mut session| async move {
            let look = claim::look(sql, &mut session, claim, begun, scale).await;
            if look.as_ref().is_err_and(error::is_out_of_time) {
                self.watermarks().ran_out_of_time(begun);
            }
            let look = look?;
            session.commit().await?;
            Ok(look)
        });
        let look = look.await?;
        if let Some(went_back) = claim::notice(&mut self.watermarks(), begun, &look) {
            self.0.peek.forget();
            let what = format!("cannot claim events in {}", self.0.place);
            return Err(StoreError::new(StoreErrorKind::WentBack, what, went_back).into());
        }
        let claim::Chosen { mut claimed, unread, writes } =
            claim::choose(&mut self.watermarks(), claim, begun, look, self.0.peek.identity().known());
        self.note_scan(sql, begun, &claimed).await;

        if !unread.is_empty() {
            let unread = &unread;
            let read = self.run("read events", move |mut session| async move {
                let read = claim::read(sql, &mut session, unread).await?;
                session.commit().await?;
                Ok(read)
            });
            claimed.events.extend(read.await?);
        }
        claimed.events.sort_unstable_by_key(|event| event.seq);

        if let Some(writes) = &writes {
            let written = self.write_back(sql, writes).await?;
            claimed.more |= !written.missed.is_empty();
            claimed.again.extend(written.missed.into_iter().chain(written.locked));
            claimed.lost.extend(written.lost);
        }
        let lost = &claimed.lost;
        claimed.events.retain(|event| !lost.contains(&event.lane));
        claimed.positions.retain(|(lane, _)| !lost.contains(lane));
        claimed.again.retain(|(lane, _)| !lost.contains(lane));
        Ok(claimed)
    }

    /// Tells once that the sequence of the events was set back, and then forgets all positions.
    async fn check_identity(&self) -> Result<()> {
        let identity = self.0.peek.identity();
        // One that is not answered tells nothing: what is wrong is told by the statements that follow.
        if identity.is_time()
            && let Err(error) = self.peek().await
        {
            tracing::debug!(%error, "could not ask whether the sequence of the events was set back");
        }
        let Some(set_back) = identity.take_set_back() else { return Ok(()) };
        self.watermarks().forget();
        let what = format!("cannot claim events in {}", self.0.place);
        Err(StoreError::new(StoreErrorKind::WentBack, what, set_back).into())
    }

    /// Writes down what a claim met. Lanes are waited for, since it is mostly a settle of ours that has them, but not for long: a lane that
    /// another session keeps locked is gone around.
    async fn write_back(&self, sql: &claim::Statements, writes: &claim::Writes) -> Result<claim::Written> {
        let Inner { lease, locked_lanes, .. } = &*self.0;
        let write = |locked| {
            self.run_whole("write down what a claim met", move |mut session| async move {
                match claim::write(sql, lease, &mut session, writes, locked).await {
                    Ok(written) => session.commit().await.map(|()| Some(written)),
                    // Its own locks on the lanes would be taken for somebody else's.
                    Err(error) if error::is_locked(&error) => session.roll_back().await.map(|()| None),
                    Err(error) => Err(error),
                }
            })
        };
        if !locked_lanes.are_likely()
            && let Some(written) = write(Locked::Wait).await?
        {
            return Ok(written);
        }
        let written = write(Locked::Skip).await?.unwrap_or_else(|| claim::Written::nothing(writes));
        locked_lanes.note(&written.locked_lanes);
        Ok(written)
    }

    /// Where a claim could not finish its scan for late commits: asks which transactions the next ones have to go on with.
    async fn note_scan(
        &self,
        sql: &claim::Statements,
        begun: &claim::watermarks::Begun<'_>,
        claimed: &Claimed,
    ) {
        let scan = self.watermarks().begun_scan(begun, &claimed.positions);
        let Some(scan) = &scan else { return };
        let late = self.run("name late transactions", move |mut session| async move {
            let late = claim::late_transactions(sql, &mut session, scan).await?;
            session.commit().await?;
            Ok(late)
        });
        match late.await {
            Ok(late) => self.watermarks().note_scan(scan, &late),
            Err(error) => {
                tracing::debug!(%error, "could not ask which transactions have committed late: reading from the bottom");
                self.watermarks().drop_scan();
            }
        }
    }

    /// Whether the server says where its log ends. Some that are hosted refuse to.
    async fn reads_log(&self) -> Result<bool> {
        if let Some(reads) = self.0.reads_log.get() {
            return Ok(*reads);
        }
        let sql = self.0.claim.of(false);
        let asked = self.run("read the position of the log", move |mut session| async move {
            match claim::probe(sql, &mut session).await {
                Err(error) if error::is_refusal(&error) => return Ok(false),
                asked => asked?,
            }
            session.commit().await?;
            Ok(true)
        });
        let reads = asked.await?;
        Ok(*self.0.reads_log.get_or_init(|| reads))
    }

    fn watermarks(&self) -> std::sync::MutexGuard<'_, claim::watermarks::Watermarks> {
        // A panic of somebody who held the lock was not in the middle of a change that others could not read.
        self.0.watermarks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
