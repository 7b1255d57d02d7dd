//! The verbs that every SQL store answers in the same way: those of operators, and how an instance joins and leaves.

use sqlx::{Database, pool::PoolConnection};

/// What a verb runs on.
pub(crate) trait Ending {
    /// Ends a verb that went well.
    async fn end(self) -> sqlx::Result<()>;
}

impl<DB: Database> Ending for PoolConnection<DB> {
    async fn end(self) -> sqlx::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "mysql")]
impl Ending for crate::connections::Conn<sqlx::MySql> {
    async fn end(self) -> sqlx::Result<()> {
        Ok(())
    }
}

/// Runs a verb of the store's module on a connection, and ends it.
macro_rules! verb {
    ($store:ident.$run:ident, $what:literal, $module:ident::$verb:ident($($argument:expr),*)) => {{
        let inner = &*$store.0;
        $store.$run($what, move |mut conn| async move {
            let done = $module::$verb(inner, &mut conn, $($argument),*).await?;
            $crate::shared_verbs::Ending::end(conn).await?;
            Ok(done)
        })
    }};
}
pub(crate) use verb;

/// These verbs, for an `impl Store`. `$pause` names the method of the store that runs a pause.
macro_rules! shared_verbs {
    (pause: $pause:ident) => {
        fn join<'a>(&'a self, instance: &'a str, ttl: Duration) -> BoxFuture<'a, Result<u32>> {
            self.set_lease(ttl);
            verb!(self.run_keeping, "join", lease::join(instance, ttl))
        }

        fn leave<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, Result<()>> {
            verb!(self.run_keeping, "leave", lease::leave(instance))
        }

        fn dead(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>> {
            verb!(self.run_long, "list dead letters", operate::dead(after, limit))
        }

        fn redrive<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>> {
            verb!(self.run_long, "redrive events", operate::redrive(ids))
        }

        fn discard<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>> {
            verb!(self.run_long, "discard events", operate::discard(ids))
        }

        fn free_orphans<'a>(
            &'a self,
            after: Option<&'a HeldKey>,
            limit: usize,
        ) -> BoxFuture<'a, Result<Orphans>> {
            verb!(self.run_long, "free keys whose head was deleted", orphans::free(after, limit))
        }

        fn purge(&self, retention: Duration, limit: usize) -> BoxFuture<'_, Result<u64>> {
            verb!(self.run_long, "purge delivered events", operate::purge(retention, limit))
        }

        fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
            verb!(self.run_long, "count events", operate::stats())
        }

        fn instances(&self) -> BoxFuture<'_, Result<Option<Instances>>> {
            let instances = verb!(self.run_long, "look for instances", operate::instances());
            Box::pin(async move { instances.await.map(Some) })
        }

        fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Vec<ListedEvent>>> {
            verb!(self.run_long, "list events", list::list(listing))
        }

        fn oldest(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Option<Oldest>>> {
            let oldest = verb!(self.run_long, "look for the oldest events", list::oldest(after, limit));
            Box::pin(async move { oldest.await.map(Some) })
        }

        fn count_by_type(&self, types: usize) -> BoxFuture<'_, Result<Vec<TypeCount>>> {
            verb!(self.run_long, "count events", list::count_by_type(types))
        }

        fn status<'a>(&'a self, id: &'a EventId) -> BoxFuture<'a, Result<EventStatus>> {
            verb!(self.run_long, "look for an event", operate::status(id))
        }

        fn why<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Hold>>> {
            verb!(self.run_long, "look for a hold", operate::why(key))
        }

        fn pause<'a>(&'a self, subject: &'a Subject, reason: &'a str) -> BoxFuture<'a, Result<Paused>> {
            Box::pin(async move {
                subject.check()?;
                let reason = &clean_error(reason);
                let paused = verb!(self.$pause, "pause", pause::pause(subject, reason));
                paused.await?.ok_or_else(too_many_pauses)
            })
        }

        fn resume<'a>(&'a self, subject: &'a Subject) -> BoxFuture<'a, Result<Option<Pause>>> {
            verb!(self.run, "resume", pause::resume(subject))
        }

        fn pauses(&self) -> BoxFuture<'_, Result<Vec<Pause>>> {
            verb!(self.run, "read the pauses", pause::pauses())
        }
    };
}
pub(crate) use shared_verbs;
