//! How every check begins: a fresh store, and one instance that holds its lanes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postrider_core::{
    Event, EventId, Store,
    rng::Rng,
    store::{
        Admission, Change, Claim, Claimed, ClaimedEvent, EventStatus, HoldReason, Keeps, Lane, LaneClaim,
        Lease, LeaseRequest, Position, Seq, Settled, Settlement,
    },
};

use super::{Checked, Failure, StoreHarness};

/// How long leases of the suite hold.
pub const LEASE: Duration = Duration::from_secs(3600);
/// How long failed events of the suite wait.
pub const BACKOFF: Duration = Duration::from_secs(600);
/// Longer than [`BACKOFF`], shorter than [`LEASE`].
pub const PAST_BACKOFF: Duration = Duration::from_secs(601);
/// How long delivered events are kept in the suite, unless it says otherwise.
pub const RETENTION: Duration = Duration::from_secs(86_400);

const LIMIT: usize = 1000;
const BYTES: usize = 64 * 1024 * 1024;

/// One instance that holds lanes, and keeps between claims what an engine keeps.
#[derive(Debug)]
pub struct Owner {
    leases: Vec<Lease>,
    positions: BTreeMap<Lane, Position>,
    again: Vec<(Lane, Seq)>,
    to: Seq,
    admission: Option<Arc<dyn Admission>>,
    /// What it was given and has neither settled nor given back. A store that keeps no places has to be told.
    in_memory: Mutex<BTreeSet<Seq>>,
}

impl Owner {
    /// Takes every lane that is free.
    pub async fn lease(store: &Arc<dyn Store>, name: &str) -> Result<Self, Failure> {
        let request = LeaseRequest {
            owner: name.to_owned(),
            ttl: LEASE,
            nonces: Rng::from_entropy(),
            most: usize::MAX,
        };
        Ok(Self::holding(store.lease(&request).await?.leases()))
    }

    /// An instance that believes to hold these lanes, and stands before everything.
    pub fn holding(leases: Vec<Lease>) -> Self {
        Self {
            leases,
            positions: BTreeMap::new(),
            again: Vec::new(),
            to: Seq::MAX,
            admission: None,
            in_memory: Mutex::default(),
        }
    }

    /// The lanes that it took.
    pub fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// Its lanes as they are given back, with nothing left under way.
    pub fn given_back(&self) -> Vec<(Lease, Seq)> {
        self.leases.iter().map(|lease| (*lease, 0)).collect()
    }

    /// The lease of a lane.
    pub fn lease_of(&self, lane: Lane) -> Option<Lease> {
        self.leases.iter().copied().find(|lease| lease.lane == lane)
    }

    /// The same leases with other positions: before everything.
    #[must_use]
    pub fn at_the_start(&self) -> Self {
        Self::holding(self.leases.clone())
    }

    /// Where its lanes stand: what [`go_back`](Self::go_back) takes.
    pub fn positions(&self) -> BTreeMap<Lane, Position> {
        self.positions.clone()
    }

    /// Has the next claim begin where an earlier one did; before everything in lanes that have no position.
    pub fn go_back(&mut self, positions: BTreeMap<Lane, Position>) {
        self.positions = positions;
    }

    /// Has its claims look at no fresh event beyond this one.
    pub fn look_up_to(&mut self, to: Seq) {
        self.to = to;
    }

    /// Has its claims ask which rows are wanted; with none, all are.
    pub fn admit(&mut self, admission: Option<Arc<dyn Admission>>) {
        self.admission = admission;
    }

    /// Has the next claim look at these once more.
    pub fn give_back(&mut self, events: &[&ClaimedEvent]) {
        self.again.extend(events.iter().map(|event| (event.lane, event.seq)));
        self.let_go(events.iter().map(|event| event.seq));
    }

    fn let_go(&self, seqs: impl Iterator<Item = Seq>) {
        let mut in_memory = self.in_memory.lock().unwrap_or_else(PoisonError::into_inner);
        seqs.for_each(|seq| _ = in_memory.remove(&seq));
    }

    /// Has the next claim look at a row that is not there.
    pub fn ask_for(&mut self, lane: Lane, seq: Seq) {
        self.again.push((lane, seq));
    }

    /// Claims at most so many events and bytes, and remembers how far it came.
    pub async fn claim(
        &mut self,
        store: &Arc<dyn Store>,
        limit: usize,
        bytes: usize,
        in_flight: &[Seq],
    ) -> Result<Claimed, Failure> {
        let again = std::mem::take(&mut self.again);
        let lane = |lease: &Lease| LaneClaim {
            lease: *lease,
            from: self.positions.get(&lease.lane).copied().unwrap_or(Position::START),
            to: self.to,
            again: again.iter().filter(|(lane, _)| *lane == lease.lane).map(|(_, seq)| *seq).collect(),
        };
        let mut in_flight = in_flight.to_vec();
        if !store.features().keeps.places {
            in_flight.extend(self.in_memory.lock().unwrap_or_else(PoisonError::into_inner).iter());
        }
        in_flight.sort_unstable();
        in_flight.dedup();
        let lanes = self.leases.iter().map(lane).collect();
        let admission = self.admission.clone();
        let claim = Claim { in_flight, bytes, admission, ..Claim::new(lanes, limit) };
        let claimed = store.claim(&claim).await?;
        self.positions.extend(claimed.positions.iter().copied());
        self.again.extend(claimed.again.iter().copied());
        let mut in_memory = self.in_memory.lock().unwrap_or_else(PoisonError::into_inner);
        in_memory.extend(claimed.events.iter().map(|event| event.seq));
        drop(in_memory);
        Ok(claimed)
    }

    /// Writes outcomes under the leases of their lanes.
    pub async fn settle(
        &self,
        store: &Arc<dyn Store>,
        settlements: &[Settlement],
        retention: Duration,
    ) -> Result<Settled, Failure> {
        let concerned = |lease: &&Lease| settlements.iter().any(|settlement| settlement.lane == lease.lane);
        let leases: Vec<Lease> = self.leases.iter().filter(concerned).copied().collect();
        let settled = store.settle(&leases, settlements, retention).await?;
        // What could not be written is still to be settled.
        let written = |seq: &Seq| !settled.locked.contains(seq);
        self.let_go(settlements.iter().map(|settlement| settlement.seq).filter(written));
        Ok(settled)
    }
}

/// A fresh store with one owner of all its lanes.
pub struct Scene<H: StoreHarness> {
    /// The harness.
    pub harness: H,
    /// Its store.
    pub store: Arc<dyn Store>,
    /// Who holds the lanes.
    pub owner: Owner,
}

impl<H: StoreHarness> Scene<H> {
    /// A fresh store, and its lanes taken.
    pub async fn fresh() -> Result<Self, Failure> {
        let harness = H::fresh().await?;
        let store = harness.store();
        let owner = Owner::lease(&store, "suite").await?;
        let lanes = store.features().lanes as usize;
        assert_eq!(owner.leases().len(), lanes, "every lane of a fresh store is free");
        Ok(Self { harness, store, owner })
    }

    /// What the store has room for. A check that needs more than that ends before it begins.
    pub fn keeps(&self) -> Keeps {
        self.store.features().keeps
    }

    /// Commits so many events of one key, in one transaction.
    pub async fn keyed<const N: usize>(&self, key: &str) -> Result<[Event; N], Failure> {
        let events = keyed(key)?;
        self.harness.write(&events).await?;
        Ok(events)
    }

    /// Commits one event.
    pub async fn write(&self, event: &Event) -> Checked {
        self.harness.write(std::slice::from_ref(event)).await
    }

    /// Claims all that is due.
    pub async fn claim(&mut self) -> Result<Claimed, Failure> {
        self.owner.claim(&self.store, LIMIT, BYTES, &[]).await
    }

    /// Claims at most so many.
    pub async fn claim_at_most(&mut self, limit: usize) -> Result<Claimed, Failure> {
        self.owner.claim(&self.store, limit, BYTES, &[]).await
    }

    /// Claims all that is due, which must be exactly so many events; in the order of `seq`.
    pub async fn claim_exactly<const N: usize>(&mut self) -> Result<[ClaimedEvent; N], Failure> {
        let mut events = self.claim().await?.events;
        events.sort_by_key(|event| event.seq);
        <[ClaimedEvent; N]>::try_from(events)
            .map_err(|events| format!("a claim returned {} events where {N} were due", events.len()).into())
    }

    /// Claims and settles as done until nothing comes any more. Gives the ids in the order in which they came.
    pub async fn drain(&mut self) -> Result<Vec<EventId>, Failure> {
        let (mut ids, mut empty) = (Vec::new(), 0);
        // Once more after an empty claim: it may have had to put something right first.
        while empty < 3 {
            let claimed = self.claim().await?.events;
            empty = if claimed.is_empty() { empty + 1 } else { 0 };
            ids.extend(claimed.iter().map(|event| id_of(event).clone()));
            self.done(&claimed).await?;
        }
        Ok(ids)
    }

    /// Settles these as delivered.
    pub async fn done(&self, events: &[ClaimedEvent]) -> Result<Settled, Failure> {
        let settlements: Vec<_> = events.iter().map(|event| settlement(event, Change::Done)).collect();
        self.owner.settle(&self.store, &settlements, RETENTION).await
    }

    /// Settles one event.
    pub async fn settle(&self, event: &ClaimedEvent, change: Change) -> Result<Settled, Failure> {
        self.owner.settle(&self.store, &[settlement(event, change)], RETENTION).await
    }

    /// Where an event is.
    pub async fn status(&self, event: &Event) -> Result<EventStatus, Failure> {
        Ok(self.store.status(event.id()).await?)
    }

    /// Asserts that an event stands behind a held key, as far as the store tells such events from others.
    pub async fn assert_parked(&self, event: &Event) -> Checked {
        let expected = if self.keeps().parked { EventStatus::Parked } else { EventStatus::New };
        assert_eq!(self.status(event).await?, expected);
        Ok(())
    }

    /// Asserts that an event was delivered.
    pub async fn assert_done(&self, event: &Event) -> Checked {
        let status = self.status(event).await?;
        match self.keeps().delivered {
            true => assert!(matches!(status, EventStatus::Done { .. }), "{status:?}"),
            false => assert_eq!(status, EventStatus::Absent),
        }
        Ok(())
    }

    /// Lets time pass. A harness may do it by moving stored times, which the cursors over waiting events point into: they
    /// go back to the start.
    pub async fn pass(&mut self, time: Duration) -> Checked {
        self.harness.pass(time).await?;
        for position in self.owner.positions.values_mut() {
            (position.due_at, position.due_seq) = (Position::START.due_at, Position::START.due_seq);
        }
        Ok(())
    }
}

/// So many events of one key, not written yet.
pub fn keyed<const N: usize>(key: &str) -> Result<[Event; N], Failure> {
    let mut events = Vec::with_capacity(N);
    for n in 0..N {
        events.push(Event::json_text("Tested", format!("{{\"n\":{n}}}")).key(key).build()?);
    }
    <[Event; N]>::try_from(events).map_err(|_| "an array of another length".into())
}

/// So many events without a key, not written yet.
pub fn unkeyed(count: usize) -> Result<Vec<Event>, Failure> {
    (0..count).map(|n| Ok(Event::json_text("Tested", n.to_string()).build()?)).collect()
}

/// The ids of events that were written.
pub fn ids(events: &[Event]) -> Vec<EventId> {
    events.iter().map(|event| event.id().clone()).collect()
}

/// The ids of events that were claimed.
pub fn claimed_ids(events: &[ClaimedEvent]) -> Vec<EventId> {
    events.iter().map(|event| id_of(event).clone()).collect()
}

/// The same ids, sorted: ULIDs of one process sort as they were made.
#[must_use]
pub fn sorted(mut ids: Vec<EventId>) -> Vec<EventId> {
    ids.sort();
    ids
}

/// The id of an event that was claimed, whether or not it could be decoded.
pub fn id_of(event: &ClaimedEvent) -> &EventId {
    match &event.event {
        Ok(event) => event.id(),
        Err(undecodable) => &undecodable.id,
    }
}

/// What the engine would settle of an event whose order is kept.
pub fn settlement(event: &ClaimedEvent, change: Change) -> Settlement {
    let key = match &event.event {
        Ok(event) => event.shared_key().cloned(),
        Err(undecodable) => undecodable.key.clone(),
    };
    Settlement {
        lane: event.lane,
        seq: event.seq,
        event_id: event.id().clone(),
        key,
        held: event.held,
        change,
    }
}

/// A failed attempt, to be repeated after [`BACKOFF`].
pub fn retry(attempts: u32) -> Change {
    let error = Some(format!("attempt {attempts} failed"));
    Change::Wait { after: BACKOFF, attempts, error, reason: HoldReason::Retry }
}

/// Dead; its key waits for it, or does not.
pub fn dead(block: bool) -> Change {
    Change::Dead { attempts: 3, error: "it is of no use".to_owned(), block }
}
