//! Those who write: plain `INSERT`s, as a program in any language makes them.
//!
//! Nobody else writes to the keys of a writer, so the order of its inserts is the order of each key.

use std::{sync::Arc, time::Duration};

use sqlx::{Executor, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::{
    Failure,
    ledger::{Event, Number, TxOutcome},
    rng::Rng,
    stage::Stage,
    time::{pass, until},
    world::{Destination, Kind},
};

/// Writers that commit at once, and those that keep their transactions open.
const SWIFT: usize = 6;
const LATE: usize = 3;

/// How the sessions of writers are called.
pub(crate) const APPLICATION: &str = "soak-writer";

const INSERT: &str = "INSERT INTO postrider_event (event_id, event_type, ordering_key, tenant_id, payload)
    VALUES ($1, $2, $3, $4, $5) RETURNING lane";

const IS_THERE: &str = "SELECT EXISTS (SELECT FROM postrider_event WHERE event_id = $1)
    OR EXISTS (SELECT FROM postrider_done WHERE event_id = $1)";

/// Keys of one writer.
const KEYS: usize = 32;

/// The key that has the most events of all.
const LONG_KEY: u32 = 1;

/// One event in so many is poisoned.
const POISONED: usize = 500;

/// How long it may take to find out what became of a commit without an answer.
const FATE: Duration = Duration::from_secs(60);

pub(crate) fn id(number: Number) -> String {
    format!("e{number}")
}

pub(crate) fn key_name(key: u32) -> String {
    format!("k{key}")
}

/// A key of a writer, for anyone who wants to do something to one.
pub(crate) fn some_key(rng: &mut Rng) -> u32 {
    let (writer, key) = (rng.below(SWIFT), rng.below(KEYS));
    key_of(writer, key)
}

fn key_of(writer: usize, key: usize) -> u32 {
    u32::try_from(writer * 1000 + key).unwrap_or(0) + 1
}

/// All writers. They end when they are told to, each at the end of its transaction.
pub(crate) fn start(stage: &Arc<Stage>, seed: u64, stop: &CancellationToken) -> tokio::task::JoinSet<()> {
    (0..SWIFT + LATE)
        .map(|number| {
            let rng = Rng::of_part(seed, &format!("writer {number}"));
            let writer = Writer { stage: Arc::clone(stage), number, is_late: number >= SWIFT, rng };
            writer.run(stop.clone())
        })
        .collect()
}

struct Writer {
    stage: Arc<Stage>,
    number: usize,
    /// It keeps its transactions open for seconds.
    is_late: bool,
    rng: Rng,
}

/// The events of a transaction that is open.
#[derive(Default)]
struct Written {
    kept: Vec<Number>,
    /// Those behind a savepoint that is taken back.
    undone: Vec<Number>,
}

impl Writer {
    async fn run(mut self, stop: CancellationToken) {
        let mut conn = None;
        while !stop.is_cancelled() {
            if let Err(error) = self.transaction(&mut conn, &stop).await {
                let shared = &self.stage.shared;
                shared.history.note(shared.clock.now(), format_args!("writer {}: {error}", self.number));
                conn = None;
            }
            let (from, to) = if self.is_late { (200, 2000) } else { (20, 330) };
            pass(Duration::from_millis(u64::try_from(self.rng.between(from, to)).unwrap_or(0))).await;
        }
    }

    async fn transaction(
        &mut self,
        conn: &mut Option<PgConnection>,
        stop: &CancellationToken,
    ) -> Result<(), Failure> {
        let conn = match conn {
            Some(conn) => conn,
            None => conn.insert(self.stage.database.connect(APPLICATION).await?),
        };
        let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *conn).await?;
        let mut written = Written::default();
        let inserted = self.insert_all(conn, &mut written).await;
        let stage = Arc::clone(&self.stage);
        let ended = |numbers: &[Number], outcome| stage.shared.ended(numbers, outcome);
        if inserted.is_ok() && self.is_late {
            tokio::select! {
                () = stop.cancelled() => {}
                () = pass(self.rng.seconds(2, 20)) => {}
            }
        }
        ended(&written.undone, TxOutcome::RolledBack);
        if inserted.is_err() || self.rng.once_in(20) {
            ended(&written.kept, TxOutcome::RolledBack);
            inserted?;
            conn.execute("ROLLBACK").await?;
            return Ok(());
        }
        let committed = conn.execute("COMMIT").await;
        let outcome = match (&committed, written.kept.first()) {
            (Ok(_), _) => TxOutcome::Committed,
            (Err(_), Some(first)) => self.outcome(pid, *first).await?,
            (Err(_), None) => TxOutcome::RolledBack,
        };
        ended(&written.kept, outcome);
        committed?;
        Ok(())
    }

    async fn insert_all(&mut self, conn: &mut PgConnection, written: &mut Written) -> Result<(), Failure> {
        let is_burst = !self.is_late && self.rng.once_in(150);
        let count = if is_burst { self.rng.between(200, 400) } else { self.rng.between(1, 6) };
        let long = is_burst && self.number == 0;
        conn.execute("BEGIN").await?;
        for _ in 0..count {
            let is_undone = self.rng.once_in(40);
            if is_undone {
                conn.execute("SAVEPOINT part").await?;
            }
            let (event, tenant) = self.event(long);
            let (key, kind, poisoned) = (event.key, event.kind, event.poisoned);
            let number = self.stage.shared.ledger.insert(event);
            if is_undone { &mut written.undone } else { &mut written.kept }.push(number);
            let padding = "x".repeat(self.rng.below(400));
            let poison = if poisoned { r#""poison":true,"# } else { "" };
            let lane: i32 = sqlx::query_scalar(INSERT)
                .bind(id(number))
                .bind(kind.name())
                .bind((key != 0).then(|| key_name(key)))
                .bind(tenant.name())
                .bind(format!(r#"{{"no":{number},{poison}"padding":"{padding}"}}"#))
                .fetch_one(&mut *conn)
                .await?;
            self.stage.shared.ledger.lane(number, lane);
            if is_undone {
                conn.execute("ROLLBACK TO part").await?;
            }
        }
        Ok(())
    }

    /// An event, and its tenant. A quarter of the keys go to each of the three sinks, and a quarter to all of them.
    fn event(&mut self, long: bool) -> (Event, Destination) {
        let rng = &mut self.rng;
        let any_tenant = Destination::tenant(rng.below(usize::MAX));
        let number = rng.below(KEYS);
        let (key, kind, tenant) = if long || (self.number == 0 && rng.once_in(4)) {
            (LONG_KEY, Kind::HookOrder, Destination::tenant(0))
        } else if rng.below(10) < 3 {
            (0, rng.pick(Kind::ALL), any_tenant)
        } else {
            let key = key_of(self.number, number);
            let own_tenant = Destination::tenant(number / 4 + self.number);
            match number % 4 {
                // The long key is of these.
                0 => (key, rng.pick([Kind::HookOrder, Kind::HookNote]), own_tenant),
                1 => (key, rng.pick([Kind::BatchAudit, Kind::BatchStat]), any_tenant),
                2 => (key, rng.pick([Kind::FeedPrice, Kind::FeedTrade]), any_tenant),
                _ => (key, rng.pick(Kind::ALL), any_tenant),
            }
        };
        let poisoned = kind.can_be_poisoned() && key != LONG_KEY && rng.once_in(POISONED);
        (Event::new(key, kind, kind.destination(tenant), poisoned), tenant)
    }

    /// Finds out what became of a commit that was not answered: the event is there or it is not, once its session is gone.
    async fn outcome(&self, pid: i32, first: Number) -> Result<TxOutcome, Failure> {
        until("the session of a lost commit ends", FATE, || async {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND application_name = $2";
            let asked = sqlx::query_scalar::<_, i64>(sql).bind(pid).bind(APPLICATION);
            // This question may meet a session that was ended as well.
            let sessions = asked.fetch_one(&self.stage.database.pool).await.ok();
            let Some(0) = sessions else { return Ok(None) };
            let there = sqlx::query_scalar::<_, bool>(IS_THERE).bind(id(first));
            let there = there.fetch_one(&self.stage.database.pool).await.ok();
            Ok(there.map(|there| if there { TxOutcome::Committed } else { TxOutcome::RolledBack }))
        })
        .await
    }
}
