//! Business transactions, most of which commit.

use std::{sync::Arc, time::Duration};

use postrider_core::{Event, EventId, id::UlidGenerator, rng::Rng};
use postrider_engine::{Outbox, Receipt, Writer, memory::MemoryStore};
use tokio::{sync::Mutex, task::JoinHandle};

use super::{
    commit::{CommitFate, Fated},
    history::{Happening, History},
    instance::Outboxes,
    receiver::To,
    scenario::Scenario,
};

/// Longest that a transaction takes, in microseconds.
const TRANSACTION_US_MAX: u64 = 20_000;
/// The same for one that commits late.
pub(super) const LATE_US_MAX: u64 = 5_000_000;

/// The key that one writer writes very many events of.
pub(super) const LONG_KEY: &str = "key-long";

pub(super) fn start(
    rng: &mut Rng,
    scenario: &Scenario,
    store: &MemoryStore,
    history: &Arc<History>,
    outboxes: Outboxes,
) -> Vec<JoinHandle<()>> {
    // A program locks the aggregate before it writes; concurrent transactions on one key have no order.
    let locks: Arc<Vec<Mutex<()>>> = Arc::new((0..scenario.keys).map(|_| Mutex::new(())).collect());
    let mut writer = || {
        let mut rng = rng.fork();
        let ids = UlidGenerator::seeded(rng.next_u64());
        OneWriter {
            rng,
            ids,
            store: store.clone(),
            history: history.clone(),
            outboxes: outboxes.clone(),
            locks: locks.clone(),
            lose_commit: scenario.faults.lose_commit,
            pause_us_max: scenario.writer_pause.as_micros() as u64,
            commits_late: scenario.commits_late,
        }
    };
    let long =
        scenario.long_key.map(|(event_type, events)| tokio::spawn(writer().run_long(event_type, events)));
    let short = (0..scenario.writers).map(|_| tokio::spawn(writer().run(scenario.transactions_each)));
    long.into_iter().chain(short).collect()
}

struct OneWriter {
    rng: Rng,
    ids: UlidGenerator,
    store: MemoryStore,
    history: Arc<History>,
    outboxes: Outboxes,
    locks: Arc<Vec<Mutex<()>>>,
    lose_commit: f64,
    pause_us_max: u64,
    commits_late: f64,
}

/// An event and what has to be remembered of it.
struct Draft {
    event: Event,
    event_type: &'static str,
    to: To,
    delayed: bool,
}

impl OneWriter {
    async fn run(mut self, transactions: u64) {
        for _ in 0..transactions {
            self.pause(self.pause_us_max).await;
            let lock = self.rng.below(self.locks.len() as u64) as usize;
            let keyed = self.rng.chance(0.7);
            let locks = self.locks.clone();
            let _guard = match locks.get(lock).filter(|_| keyed) {
                Some(lock) => Some(lock.lock().await),
                None => None,
            };
            let key = keyed.then(|| format!("key-{lock}"));
            let draft = |writer: &mut Self| {
                let event_type = To::any_type(&mut writer.rng);
                writer.draft(key.as_deref(), event_type)
            };
            let drafts = (0..1 + self.rng.below(3)).map(|_| draft(&mut self)).collect();
            self.write(drafts).await;
        }
    }

    /// One key, of which nobody else writes.
    async fn run_long(mut self, event_type: &'static str, mut events: u64) {
        self.commits_late = 0.0;
        while events > 0 {
            let some = events.min(1 + self.rng.below(8));
            events -= some;
            let drafts = (0..some).map(|_| self.draft(Some(LONG_KEY), event_type)).collect();
            self.write(drafts).await;
        }
    }

    async fn write(&mut self, drafts: Vec<Draft>) {
        let outbox = self.outboxes.any(&mut self.rng);
        match outbox.filter(|_| self.rng.chance(0.5)) {
            Some(outbox) => self.owned(outbox, drafts).await,
            None => self.foreign(drafts).await,
        }
    }

    /// Between the write and the commit.
    async fn stay_open(&mut self) {
        if self.rng.chance(self.commits_late) {
            self.pause(LATE_US_MAX).await;
        }
    }

    async fn pause(&mut self, most_us: u64) {
        tokio::time::sleep(Duration::from_micros(self.rng.below(most_us))).await;
    }

    fn draft(&mut self, key: Option<&str>, event_type: &'static str) -> Draft {
        let id = EventId::from(self.ids.next_at(self.store.now()));
        let delayed = self.rng.chance(0.05);
        let to = To::TYPES.iter().find(|(name, _)| *name == event_type).map_or(To::Handler, |(_, to)| *to);
        let mut builder = Event::json_text(event_type, "{}").id(id.clone()).occurred_at(self.store.now());
        if let Some(key) = key {
            builder = builder.key(key);
        }
        if delayed {
            builder = builder.deliver_after(Duration::from_millis(1 + self.rng.below(300)));
        }
        match builder.build() {
            Ok(event) => Draft { event, event_type, to, delayed },
            // Every field is well within its limit.
            Err(error) => std::panic::resume_unwind(Box::new(error.to_string())),
        }
    }

    fn note(&self, drafts: &[Draft], committed: bool) {
        for Draft { event, event_type, to, delayed } in drafts {
            self.history.note(if committed {
                Happening::Committed {
                    id: event.id().clone(),
                    event_type,
                    key: event.key().map(str::to_owned),
                    to: *to,
                    delayed: *delayed,
                }
            } else {
                Happening::RolledBack(event.id().clone())
            });
        }
    }

    /// A commit failed: if the database went back since the transaction began, it had ended before.
    fn note_lost(&self, drafts: &[Draft], times_back: u64) {
        if self.store.times_back() != times_back {
            drafts.iter().for_each(|draft| self.history.note(Happening::Lost(draft.event.id().clone())));
        }
    }

    /// In a transaction that Postrider owns.
    async fn owned(&mut self, outbox: Outbox, mut drafts: Vec<Draft>) {
        let reply_after = if self.rng.chance(0.3) { self.rng.below(10_000) } else { 0 };
        let commit = CommitFate {
            reply_after: Duration::from_micros(reply_after),
            lose_reply: self.rng.chance(self.lose_commit),
        };
        let times_back = self.store.times_back();
        let Ok(mut tx) = outbox.begin(Fated(&self.store, commit)).await else { return };
        let outcome = self.rng.next_f64();
        let undo_last = drafts.len() > 1 && self.rng.chance(0.2);
        let last = drafts.len() - 1;
        for (n, draft) in drafts.iter().enumerate() {
            if undo_last && n == last {
                tx.conn().savepoint();
            }
            if tx.write(&draft.event).await.is_err() {
                return;
            }
            self.pause(TRANSACTION_US_MAX).await;
        }
        self.stay_open().await;
        if undo_last {
            tx.conn().rollback_to_savepoint();
            let undone = drafts.split_off(last);
            self.note(&undone, false);
        }
        if outcome < 0.15 {
            self.note(&drafts, false);
            drop(tx);
        } else {
            // Noted first: the commit hands over in memory, and the receiver may be quicker than this task. Nothing
            // in here can fail between the note and the commit.
            self.note(&drafts, true);
            if tx.commit().await.is_err() {
                self.history.note(Happening::CommitReplyLost);
                self.note_lost(&drafts, times_back);
            }
        }
    }

    /// In the caller's own transaction; the engine may never hear of its commit.
    async fn foreign(&mut self, drafts: Vec<Draft>) {
        let writer = Writer::new(Arc::new(self.store.clone()));
        let outbox = self.outboxes.any(&mut self.rng);
        let times_back = self.store.times_back();
        let mut tx = self.store.begin();
        let mut receipts = Vec::new();
        for draft in &drafts {
            let written = match &outbox {
                Some(outbox) => outbox.write(&mut tx, &draft.event).await,
                None => writer.write(&mut tx, &draft.event).await,
            };
            match written {
                Ok(receipt) => receipts.push(receipt),
                Err(_) => return,
            }
            self.pause(TRANSACTION_US_MAX).await;
        }
        self.stay_open().await;
        if self.rng.chance(0.15) {
            self.note(&drafts, false);
            // A receipt that lies: the table is the truth.
            receipts.into_iter().for_each(Receipt::committed);
            drop(tx);
            return;
        }
        self.note(&drafts, true);
        if tx.commit().await.is_err() {
            self.note_lost(&drafts, times_back);
        }
        if self.rng.chance(0.7) {
            receipts.into_iter().for_each(Receipt::committed);
        }
    }
}
