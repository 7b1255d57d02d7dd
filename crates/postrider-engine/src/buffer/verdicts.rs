//! Outcomes, in the shape that a settle takes them in.

use postrider_core::{
    Event,
    store::{Change, Lease, Seq, Settlement},
};

use super::KeyOfLane;
use crate::destination::Name;

/// Outcomes of events on their way to the table.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    marks: Vec<Mark>,
    settlements: Vec<Settlement>,
}

/// What is known of an event beside what the table is told.
#[derive(Debug)]
struct Mark {
    lease: Lease,
    key_number: u64,
    /// Where it went.
    destination: Option<Name>,
    /// It was under way together with earlier events of its key.
    along: bool,
    /// How often it was put aside.
    tries: u32,
    event: Option<Event>,
}

/// One outcome.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// The lease that its event was claimed under.
    pub(crate) lease: Lease,
    /// The number of its event's key, or of the event itself.
    pub(crate) key_number: u64,
    /// How often it was put aside, because it could not be written.
    pub(crate) tries: u32,
    /// Its event, unless what is in the row is none.
    pub(crate) event: Option<Event>,
    pub(crate) settlement: Settlement,
}

impl Verdict {
    /// The key that is busy with its event.
    pub(super) fn key_of_lane(&self) -> Option<KeyOfLane> {
        let key = self.settlement.key.clone()?;
        Some(KeyOfLane { lane: self.settlement.lane, key, number: self.key_number })
    }
}

impl Verdicts {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { marks: Vec::with_capacity(count), settlements: Vec::with_capacity(count) }
    }

    pub(crate) fn push(
        &mut self,
        lease: Lease,
        key_number: u64,
        destination: Option<Name>,
        along: bool,
        event: Option<Event>,
        settlement: Settlement,
    ) {
        self.marks.push(Mark { lease, key_number, destination, along, tries: 0, event });
        self.settlements.push(settlement);
    }

    /// Takes one up that could not be written before.
    pub(super) fn push_again(&mut self, verdict: Verdict) {
        let Verdict { lease, key_number, tries, event, settlement } = verdict;
        self.marks.push(Mark { lease, key_number, destination: None, along: false, tries, event });
        self.settlements.push(settlement);
    }

    pub(crate) fn len(&self) -> usize {
        self.settlements.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.settlements.is_empty()
    }

    pub(crate) fn settlements(&self) -> &[Settlement] {
        &self.settlements
    }

    /// Takes all of them out. The room that they had stays, for others.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Verdict> {
        self.marks.drain(..).zip(self.settlements.drain(..)).map(|(mark, settlement)| Verdict {
            lease: mark.lease,
            key_number: mark.key_number,
            tries: mark.tries,
            event: mark.event,
            settlement,
        })
    }

    /// What the first of them says.
    pub(crate) fn first_change(&self) -> Option<&Change> {
        self.settlements.first().map(|settlement| &settlement.change)
    }

    /// Has the first of them say something else.
    pub(crate) fn set_first_change(&mut self, change: Change) {
        self.settlements.first_mut().into_iter().for_each(|settlement| settlement.change = change.clone());
    }

    /// Parts them in the middle. What is in the first half comes before the rest.
    pub(crate) fn halve(mut self) -> (Self, Self) {
        let middle = self.len() / 2;
        let (marks, settlements) = (self.marks.split_off(middle), self.settlements.split_off(middle));
        (self, Self { marks, settlements })
    }

    /// Takes these events out.
    pub(crate) fn take_out(&mut self, seqs: &[Seq]) -> Vec<Verdict> {
        if seqs.is_empty() {
            return Vec::new();
        }
        let mut all = std::mem::take(self);
        let mut out = Vec::with_capacity(seqs.len());
        for (mark, settlement) in all.marks.drain(..).zip(all.settlements.drain(..)) {
            if seqs.contains(&settlement.seq) {
                let Mark { lease, key_number, tries, event, .. } = mark;
                out.push(Verdict { lease, key_number, tries, event, settlement });
            } else {
                self.marks.push(mark);
                self.settlements.push(settlement);
            }
        }
        out
    }

    /// Where the events that were delivered went, and their keys by their numbers.
    pub(super) fn delivered(&self) -> impl Iterator<Item = (Option<Name>, u64)> {
        let all = self.marks.iter().zip(&self.settlements);
        all.filter(|(_, settlement)| settlement.change == Change::Done)
            .map(|(mark, _)| (mark.destination, mark.key_number))
    }

    /// The first event that was delivered.
    pub(super) fn first_delivered(&self) -> Option<Seq> {
        self.settlements.iter().find(|settlement| settlement.change == Change::Done).map(|done| done.seq)
    }

    /// The leases in lane order, each once.
    pub(crate) fn distinct_leases(&self) -> Vec<Lease> {
        let mut leases = Vec::new();
        for Mark { lease, .. } in &self.marks {
            if leases.last() != Some(lease) {
                leases.push(*lease);
            }
        }
        leases.sort_unstable_by_key(|lease| lease.lane);
        leases.dedup();
        leases
    }

    pub(super) fn append(&mut self, other: &mut Self) {
        self.marks.append(&mut other.marks);
        self.settlements.append(&mut other.settlements);
    }

    /// Takes up to so many from the front. What is left goes into `room`.
    ///
    /// An event that holds its key comes in a settle after the one in which earlier events of the key leave: what a settle does to a key is
    /// one thing.
    pub(super) fn take(&mut self, most: usize, mut room: Self) -> Self {
        let mut all = self.marks.iter().zip(&self.settlements).take(most);
        let holds_behind =
            |(mark, settlement): (&Mark, &Settlement)| mark.along && settlement.change != Change::Done;
        let most = match all.position(holds_behind) {
            Some(place) if place > 0 => place,
            _ => most,
        };
        if self.len() > most {
            room.marks.extend(self.marks.drain(most..));
            room.settlements.extend(self.settlements.drain(most..));
        }
        std::mem::replace(self, room)
    }

    /// Parts them by their leases: those that `keep` says, and the others.
    pub(super) fn part(self, keep: impl Fn(Lease) -> bool) -> (Self, Self) {
        // All of them, nearly always.
        if self.distinct_leases().into_iter().all(&keep) {
            return (self, Self::default());
        }
        let (mut kept, mut parted) = (Self::default(), Self::default());
        for (mark, settlement) in self.marks.into_iter().zip(self.settlements) {
            let to = if keep(mark.lease) { &mut kept } else { &mut parted };
            to.marks.push(mark);
            to.settlements.push(settlement);
        }
        (kept, parted)
    }

    pub(super) fn clear(&mut self) {
        self.marks.clear();
        self.settlements.clear();
    }
}
