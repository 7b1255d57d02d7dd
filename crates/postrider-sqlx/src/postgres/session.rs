//! One verb's connection, in a transaction where it needs one, and another try where the last one was lost.

use std::{future::Future, ops, time::Duration};

use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, SqlSafeStr, Transaction, pool::PoolConnection};

use super::error::is_transient;

/// How often a verb is tried in all, and how long to wait after the first try; doubled after each further one.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(20);

/// What a verb runs on. A verb that ends well says [`commit`](Session::commit); one that does not has changed nothing.
pub(super) enum Session {
    /// Each statement stands for itself.
    Plain(PoolConnection<Postgres>),
    /// All statements are one.
    Whole(Transaction<'static, Postgres>),
}

impl Session {
    /// Statements that stand for themselves.
    pub(super) async fn plain(pool: &PgPool) -> sqlx::Result<Self> {
        Ok(Self::Plain(pool.acquire().await?))
    }

    /// One transaction of several statements. The server ends it if one of them, or the client between them, takes longer than
    /// this: it may hold lanes that another is to take over.
    pub(super) async fn whole(pool: &PgPool, limit: Duration) -> sqlx::Result<Self> {
        let limit_ms = limit.as_millis().max(1);
        Self::begin(
            pool,
            format!(
                "BEGIN; SET LOCAL statement_timeout = {limit_ms}; \
                 SET LOCAL idle_in_transaction_session_timeout = {limit_ms}"
            ),
        )
        .await
    }

    /// A transaction around a single statement, which may take its time.
    pub(super) async fn single(pool: &PgPool, limit: Duration) -> sqlx::Result<Self> {
        let limit_ms = limit.as_millis().max(1);
        Self::begin(pool, format!("BEGIN; SET LOCAL idle_in_transaction_session_timeout = {limit_ms}")).await
    }

    async fn begin(pool: &PgPool, begin: String) -> sqlx::Result<Self> {
        // Safe because nothing but a number goes in.
        let begin = AssertSqlSafe(begin).into_sql_str();
        Ok(Self::Whole(Transaction::begin(pool.acquire().await?, Some(begin)).await?))
    }

    pub(super) async fn commit(self) -> sqlx::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Whole(tx) => tx.commit().await,
        }
    }
}

impl ops::Deref for Session {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Self::Plain(conn) => conn,
            Self::Whole(tx) => tx,
        }
    }
}

impl ops::DerefMut for Session {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Plain(conn) => conn,
            Self::Whole(tx) => tx,
        }
    }
}

/// Runs a whole verb, and again if it met a deadlock, a serialisation failure or a lost connection. A try that failed has
/// left nothing behind, or what it left is not changed by another.
pub(super) async fn patiently<T, F>(verb: impl Fn() -> F) -> sqlx::Result<T>
where
    F: Future<Output = sqlx::Result<T>>,
{
    let mut pause = PAUSE;
    for _ in 1..TRIES {
        match verb().await {
            Err(error) if is_transient(&error) && !matches!(error, sqlx::Error::PoolTimedOut) => {
                tracing::debug!(%error, ?pause, "the database could not do it now; trying again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            other => return other,
        }
    }
    verb().await
}
