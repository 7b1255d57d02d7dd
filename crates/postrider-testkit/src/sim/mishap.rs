//! What happens to the database itself: it goes back in time, rows of it are locked by somebody else, it refuses outcomes.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postrider_core::{
    EventId,
    rng::Rng,
    store::{Change, Settlement},
};
use postrider_engine::memory::MemoryStore;
use tokio::task::JoinHandle;

use super::history::{Happening, History};

/// Most events that stay locked, and most that are refused, until all else is delivered.
const FOR_GOOD_MAX: usize = 3;

/// Which of them happen in a run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mishaps {
    /// How often the database loses its last transactions.
    pub(super) times_back: u64,
    /// For each look at a row: it is locked, for a while or, if it has no key, for good.
    pub(super) lock: f64,
    /// One of so many events without a key is refused whatever its outcome is, and one of so many outcomes because of its text; zero for none.
    pub(super) refuse_one_of: u64,
}

impl Mishaps {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self {
            times_back: if rng.chance(0.2) { 1 + rng.below(6) } else { 0 },
            lock: if rng.chance(0.2) { 0.02 } else { 0.0 },
            refuse_one_of: if rng.chance(0.2) { 8 } else { 0 },
        }
    }

    /// Whether outcomes stay in memory because they cannot be written.
    pub(super) fn leave_unsettled(&self) -> bool {
        self.lock > 0.0 || self.refuse_one_of > 0
    }
}

/// The mishaps of a run.
pub(super) struct Database {
    memory: MemoryStore,
    history: Arc<History>,
    locked: Mutex<BTreeSet<EventId>>,
    refused: Arc<Mutex<BTreeSet<EventId>>>,
}

impl Database {
    /// Begins the mishaps. The tasks end by themselves.
    pub(super) fn start(
        rng: &mut Rng,
        mishaps: Mishaps,
        memory: &MemoryStore,
        history: &Arc<History>,
    ) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        let refused = Arc::<Mutex<BTreeSet<EventId>>>::default();
        if mishaps.refuse_one_of > 0 {
            let (salt, of, refused, history) =
                (rng.next_u64(), mishaps.refuse_one_of, refused.clone(), history.clone());
            memory.refuse_settles(move |settlement| refuses(settlement, salt, of, &refused, &history));
        }
        let database = Arc::new(Self {
            memory: memory.clone(),
            history: history.clone(),
            locked: Mutex::default(),
            refused,
        });
        let mut tasks = Vec::new();
        if mishaps.times_back > 0 {
            tasks.push(tokio::spawn(database.clone().go_back(rng.fork(), mishaps.times_back)));
        }
        if mishaps.lock > 0.0 {
            tasks.push(tokio::spawn(database.clone().lock(rng.fork(), mishaps.lock)));
        }
        (database, tasks)
    }

    /// Events whose outcomes cannot be written.
    pub(super) fn unsettled(&self) -> BTreeSet<EventId> {
        let locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        locked.union(&refused).cloned().collect()
    }

    /// No row is locked and nothing is refused any more.
    pub(super) fn forgive(&self) {
        for id in std::mem::take(&mut *self.locked.lock().unwrap_or_else(PoisonError::into_inner)) {
            self.memory.unlock_row(&id);
        }
        self.memory.accept_settles();
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Loses what was committed in the last moments, as a standby does that had not got it when it was promoted.
    async fn go_back(self: Arc<Self>, mut rng: Rng, times: u64) {
        for _ in 0..times {
            pause(&mut rng, 400).await;
            let then = self.memory.snapshot();
            pause(&mut rng, 200).await;
            let before = self.memory.rows();
            self.memory.restore(&then);
            let after: BTreeSet<EventId> = self.memory.rows().into_iter().map(|row| row.id).collect();
            let lost = before.into_iter().map(|row| row.id).filter(|id| !after.contains(id));
            self.history.note(Happening::WentBack);
            lost.for_each(|id| self.history.note(Happening::Lost(id)));
        }
    }

    /// Locks a row now and then, as somebody does who looks at it with `FOR UPDATE` and then goes to lunch.
    async fn lock(self: Arc<Self>, mut rng: Rng, rate: f64) {
        for _ in 0..100 {
            pause(&mut rng, 40).await;
            for row in self.memory.rows() {
                if !rng.chance(rate) {
                    continue;
                }
                let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
                // What stands behind a row that is locked for good would never be delivered.
                let for_good = row.key.is_none() && locked.len() < FOR_GOOD_MAX;
                if locked.contains(&row.id) || (for_good && !locked.insert(row.id.clone())) {
                    continue;
                }
                drop(locked);
                self.history.note(Happening::Locked(row.id.clone()));
                self.memory.lock_row(&row.id);
                if !for_good {
                    let (memory, lasts) = (self.memory.clone(), Duration::from_millis(rng.below(2000)));
                    tokio::spawn(async move {
                        tokio::time::sleep(lasts).await;
                        memory.unlock_row(&row.id);
                    });
                }
            }
        }
    }
}

async fn pause(rng: &mut Rng, most_ms: u64) {
    tokio::time::sleep(Duration::from_millis(rng.below(most_ms))).await;
}

/// Whether an outcome is refused: because of its text, or because of its event.
fn refuses(
    settlement: &Settlement,
    salt: u64,
    of: u64,
    refused: &Mutex<BTreeSet<EventId>>,
    history: &History,
) -> bool {
    let mut hasher = DefaultHasher::new();
    (salt, &settlement.event_id).hash(&mut hasher);
    let drawn = hasher.finish() % of;
    let text = match &settlement.change {
        Change::Wait { error, .. } => error.as_deref(),
        Change::Dead { error, .. } => Some(error.as_str()),
        Change::Done | Change::Attempt { .. } => None,
    };
    if drawn == 1 && text.is_some_and(|text| !text.is_empty()) {
        history.note(Happening::Refused(settlement.event_id.clone()));
        return true;
    }
    let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
    if refused.contains(&settlement.event_id) {
        return true;
    }
    // An attempt that is counted names no key.
    let is_keyless = settlement.key.is_none() && !matches!(settlement.change, Change::Attempt { .. });
    if drawn != 0 || !is_keyless || refused.len() == FOR_GOOD_MAX {
        return false;
    }
    history.note(Happening::Refused(settlement.event_id.clone()));
    refused.insert(settlement.event_id.clone())
}
