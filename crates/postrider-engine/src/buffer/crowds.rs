//! Keys with more events than may wait in memory.
//!
//! The rest of such a key stays in the table, like that of a key that is paused: claims pass it over once, and read it from there when half of
//! what is in memory has gone. One long key takes no room from the others.

use super::{behind::Behind, *};

/// Slots of crowded keys have numbers from here on, beyond those of paused ones.
const CROWDS_FROM: usize = usize::MAX / 4 * 3;

#[derive(Debug)]
pub(super) struct Crowds {
    slots: HashMap<KeyOfLane, usize, QuickState>,
    keys: BTreeMap<usize, Crowd>,
    /// Slots are used once: what was passed over on account of one must not be taken for another's.
    next: usize,
    /// Most events that wait behind one key.
    most: usize,
}

/// A key, and most events that wait behind its first one.
#[derive(Debug)]
struct Crowd {
    key: KeyOfLane,
    most: usize,
}

impl Crowds {
    pub(super) fn new(most: usize) -> Self {
        Self { slots: HashMap::default(), keys: BTreeMap::new(), next: CROWDS_FROM, most }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn slot(&mut self, key: &KeyOfLane, most: usize, behind: &mut Behind) -> usize {
        if let Some(slot) = self.slots.get(key) {
            return *slot;
        }
        let slot = self.next;
        self.next += 1;
        self.slots.insert(key.clone(), slot);
        self.keys.insert(slot, Crowd { key: key.clone(), most });
        behind.know_key(slot, key.number);
        slot
    }
}

/// What a claim has to know of crowded keys.
#[derive(Debug, Default)]
pub(super) struct Crowded {
    /// The slots of the keys that have no room, by their numbers.
    full: HashMap<u64, usize, QuickState>,
    /// The key whose rest is read, and how many more of it may come in.
    walked: Option<(u64, usize)>,
}

impl Crowded {
    /// The slot on whose account an event of this key waits.
    pub(super) fn holder(&self, key: Option<u64>) -> Option<usize> {
        self.full.get(&key?).copied()
    }

    /// Whether the rest of this key is what is read.
    pub(super) fn is_walked(&self, key: Option<u64>) -> bool {
        self.walked.is_some_and(|(walked, _)| Some(walked) == key)
    }

    /// Whether there is room for one more of the key that is read.
    pub(super) fn has_room(&self) -> bool {
        self.walked.is_none_or(|(_, room)| room > 0)
    }

    /// One of the key that is read comes in.
    pub(super) fn enter(&mut self) {
        self.walked.iter_mut().for_each(|(_, room)| *room = room.saturating_sub(1));
    }
}

impl Buffer {
    /// Passes an event over whose key has as many in memory as it may. False if there is room for it.
    pub(super) fn is_crowded_out(&mut self, item: &Item, walked: Option<usize>) -> bool {
        if item.held || broken::is(Variant::FollowersUnbounded) {
            return false;
        }
        let Some(key) = item.key_of_lane() else { return false };
        let slot = self.crowds.slots.get(&key).copied();
        if slot.is_some() && slot == walked {
            // The claim knew how many there is room for.
            return false;
        }
        let most = self.most_behind(item.slot);
        let full = self.followers(&key) >= most;
        let mut behind = lock(&self.behind);
        // What lies before this one in its key may have been passed over just now.
        if full || slot.is_some_and(|slot| behind.begins_before(slot, key.lane, Some(item.seq))) {
            let slot = self.crowds.slot(&key, most, &mut behind);
            behind.note_probe(slot, key.lane, item.seq, Some(key.number));
            return true;
        }
        false
    }

    /// Most events that wait behind one of this slot: no less than its receiver takes of one key at a time.
    fn most_behind(&self, slot: usize) -> usize {
        self.crowds.most.max(self.receiver(slot).map_or(0, |receiver| receiver.key_max))
    }

    fn followers(&self, key: &KeyOfLane) -> usize {
        self.keys.get(key).map_or(0, Followers::len)
    }

    /// Whether this is the slot of a key that has no room yet.
    pub(super) fn is_crowded(&self, slot: usize) -> bool {
        self.crowds.keys.get(&slot).is_some_and(|crowd| self.followers(&crowd.key) > crowd.most / 2)
    }

    /// What a claim has to know, which may be one that reads the rest of a key.
    pub(super) fn crowded(&self, backlog: Option<usize>) -> Crowded {
        let walked = backlog.and_then(|slot| self.crowds.keys.get(&slot));
        let full =
            self.crowds.keys.iter().filter(|(slot, _)| Some(**slot) != backlog && self.is_crowded(**slot));
        Crowded {
            full: full.map(|(slot, crowd)| (crowd.key.number, *slot)).collect(),
            walked: walked.map(|crowd| {
                (crowd.key.number, crowd.most.saturating_sub(self.followers(&crowd.key)).max(1))
            }),
        }
    }

    /// A key of which nothing is left in the table is crowded no more. Between claims, like pauses.
    pub(super) fn forget_crowds(&mut self) {
        if self.crowds.is_empty() {
            return;
        }
        let mut behind = lock(&self.behind);
        let gone: Vec<usize> = self.crowds.keys.keys().copied().filter(|slot| !behind.has(*slot)).collect();
        for slot in gone {
            if let Some(crowd) = self.crowds.keys.remove(&slot) {
                self.crowds.slots.remove(&crowd.key);
                behind.forget_key(slot, crowd.key.number);
            }
        }
    }
}
