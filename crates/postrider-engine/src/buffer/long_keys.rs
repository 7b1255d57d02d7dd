//! Keys with more events than may wait in memory.
//!
//! The rest of such a key stays in the table, like that of a key that is paused: claims skip it once, and read it from there when half of
//! what is in memory has gone. One long key takes no room from the others.
//!
//! Each such key is a *crowd* with a backlog of its own. There may be a million long keys, so a route has a limited number of crowds. The keys
//! beyond that share one backlog of the route, its *overflow*. It is read when half of the crowds are gone, and its keys become crowds then.

use super::{backlog::Backlogs, backlog_id::BacklogId, *};

/// Most crowds of one route; fewer where little fits into memory.
const LONG_KEYS_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct LongKeys {
    slots: HashMap<LaneKey, BacklogId, QuickState>,
    keys: BTreeMap<BacklogId, LongKey>,
    /// How many each route has.
    counts: BTreeMap<RouteSlot, usize>,
    /// Those that may have room; whoever reads one looks.
    ready: BTreeSet<BacklogId>,
    /// The keys that were left to an overflow while a claim came in, by their numbers, and which one that was.
    overflowed: HashMap<u64, BacklogId, QuickState>,
    /// Slots are used once: what was skipped on account of one must not be taken for another's.
    next: u64,
    /// Most events that wait behind one key.
    most: usize,
    /// Most crowds of one route.
    most_keys: usize,
}

/// A key, the slot of its route, and most events that wait behind its first one.
#[derive(Debug)]
struct LongKey {
    key: LaneKey,
    route: RouteSlot,
    most: usize,
}

impl LongKeys {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            slots: HashMap::default(),
            keys: BTreeMap::new(),
            counts: BTreeMap::new(),
            ready: BTreeSet::new(),
            overflowed: HashMap::default(),
            next: 0,
            most: settings.key_queue,
            most_keys: (settings.cold_queue / 4).clamp(1, LONG_KEYS_MAX),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether no key is known to have more than may wait.
    fn is_quiet(&self) -> bool {
        self.keys.is_empty() && self.overflowed.is_empty()
    }

    fn count(&self, route: RouteSlot) -> usize {
        self.counts.get(&route).copied().unwrap_or(0)
    }

    /// Adds a crowd, unless its route has as many as it may.
    fn add(&mut self, crowd: LongKey, backlogs: &mut Backlogs) -> Option<BacklogId> {
        if self.count(crowd.route) >= self.most_keys {
            return None;
        }
        let slot = BacklogId::LongKey(self.next);
        self.next += 1;
        *self.counts.entry(crowd.route).or_default() += 1;
        backlogs.know_key(slot, crowd.key.number);
        self.slots.insert(crowd.key.clone(), slot);
        self.keys.insert(slot, crowd);
        Some(slot)
    }

    fn remove(&mut self, slot: BacklogId, backlogs: &mut Backlogs) {
        self.ready.remove(&slot);
        let Some(crowd) = self.keys.remove(&slot) else { return };
        let left = self.counts.remove(&crowd.route).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            self.counts.insert(crowd.route, left);
        }
        self.slots.remove(&crowd.key);
        backlogs.forget_key(slot, crowd.key.number);
    }

    /// Whether this is the overflow of a route that has too many crowds to take keys of it in.
    fn is_overflow_shut(&self, slot: BacklogId) -> bool {
        matches!(slot, BacklogId::Overflow(route) if self.count(route) > self.most_keys / 2)
    }

    /// A claim has come in.
    pub(super) fn claim_ended(&mut self) {
        self.overflowed.clear();
    }
}

/// What a claim has to know of crowded keys.
#[derive(Debug, Default)]
pub(super) struct LongKeyRoom {
    /// The slots of the keys that have no room, by their numbers.
    full: HashMap<u64, BacklogId, QuickState>,
    /// The key whose rest is read, and how many more of it may come in.
    walked: Option<(u64, usize)>,
}

impl LongKeyRoom {
    /// The slot on whose account an event of this key waits.
    pub(super) fn holder(&self, key: Option<u64>) -> Option<BacklogId> {
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
    /// Skips an event whose key has as many in memory as it may. False if there is room for it.
    pub(super) fn exceeds_key_queue(
        &mut self,
        item: &Item,
        key: Option<&LaneKey>,
        walked: Option<BacklogId>,
    ) -> bool {
        let Some(key) = key.filter(|_| !item.held && !mutations::active(Mutation::FollowersUnbounded)) else {
            return false;
        };
        let followers = self.followers(key);
        if followers == 0 && self.long_keys.is_quiet() {
            return false;
        }
        let crowd = self.long_keys.slots.get(key).copied();
        if crowd.is_some() && crowd == walked {
            // The claim knew how many there is room for.
            return false;
        }
        let most = self.most_behind(item.slot);
        let full = followers >= most;
        if !full && self.long_keys.is_quiet() {
            return false;
        }
        // What lies before this one in its key may have been skipped just now.
        let overflowed = self.long_keys.overflowed.get(&key.number).copied();
        let mut backlogs = lock(&self.backlogs);
        let begins_earlier = |slot: BacklogId| backlogs.begins_before(slot, key.lane, Some(item.seq));
        if !full && overflowed.is_none() && !crowd.is_some_and(begins_earlier) {
            return false;
        }
        let route = item.slot;
        let slot = overflowed
            .or(crowd)
            .or_else(|| self.long_keys.add(LongKey { key: key.clone(), route, most }, &mut backlogs))
            .unwrap_or(BacklogId::Overflow(route));
        if matches!(slot, BacklogId::Overflow(_)) {
            self.long_keys.overflowed.insert(key.number, slot);
        }
        backlogs.note_probe(slot, key.lane, item.seq, Some(key.number));
        true
    }

    /// Most events that wait behind one of this slot: no less than its receiver takes of one key at a time.
    fn most_behind(&self, slot: RouteSlot) -> usize {
        self.long_keys.most.max(self.receivers.get(slot).map_or(0, |receiver| receiver.key_max))
    }

    fn followers(&self, key: &LaneKey) -> usize {
        self.keys.get(key).map_or(0, Followers::len)
    }

    /// Whether this is the slot of a key that has no room yet.
    pub(super) fn is_crowded(&self, slot: BacklogId) -> bool {
        self.long_keys.keys.get(&slot).is_some_and(|crowd| self.followers(&crowd.key) > crowd.most / 2)
    }

    /// What a claim has to know, which may be one that reads the rest of a key.
    pub(super) fn crowded(&self, backlog: Option<BacklogId>) -> LongKeyRoom {
        let walked = backlog.and_then(|slot| self.long_keys.keys.get(&slot));
        let full =
            self.long_keys.keys.iter().filter(|(slot, _)| Some(**slot) != backlog && self.is_crowded(**slot));
        LongKeyRoom {
            full: full.map(|(slot, crowd)| (crowd.key.number, *slot)).collect(),
            walked: walked.map(|crowd| {
                (crowd.key.number, crowd.most.saturating_sub(self.followers(&crowd.key)).max(1))
            }),
        }
    }

    /// Whether what was skipped on account of this slot waits until fewer events wait behind their keys in memory.
    pub(super) fn waits_for_its_keys(&self, slot: BacklogId) -> bool {
        self.is_crowded(slot) || self.long_keys.is_overflow_shut(slot)
    }

    /// Fewer events wait behind a key: there may be room for the rest of it.
    pub(super) fn key_drained(&mut self, key: &LaneKey) {
        if self.long_keys.is_empty() {
            return;
        }
        if let Some(slot) = self.long_keys.slots.get(key).copied().filter(|slot| !self.is_crowded(*slot)) {
            self.long_keys.ready.insert(slot);
        }
    }

    /// The slots whose backlogs may be read, those after `slot` first. Of the crowds only those that have room: nobody has to look through the
    /// others with each settle.
    pub(super) fn slots_to_read(&self, slot: BacklogId) -> Vec<BacklogId> {
        let backlogs = lock(&self.backlogs);
        let others = || backlogs.slots().take_while(|slot| !matches!(slot, BacklogId::LongKey(_)));
        let ready = || self.long_keys.ready.iter().copied().filter(|slot| backlogs.has(*slot));
        let after = others().chain(ready()).filter(|other| *other > slot);
        after.chain(others().chain(ready()).filter(|other| *other <= slot)).collect()
    }

    /// A key of which nothing is left in the table is crowded no more. Between claims, like pauses.
    pub(super) fn forget_long_keys(&mut self) {
        if self.long_keys.is_empty() {
            return;
        }
        let mut backlogs = lock(&self.backlogs);
        let gone: Vec<BacklogId> =
            self.long_keys.keys.keys().copied().filter(|slot| !backlogs.has(*slot)).collect();
        gone.into_iter().for_each(|slot| self.long_keys.remove(slot, &mut backlogs));
        drop(backlogs);
        let ready = self.long_keys.keys.keys().copied().filter(|slot| !self.is_crowded(*slot));
        self.long_keys.ready = ready.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Routes;

    const LANE: Lane = 0;
    const FIRST: BacklogId = BacklogId::Route(RouteSlot::at(0));

    fn buffer() -> Buffer {
        let routes = Routes::new().on("A", async |_| ()).on("B", async |_| ()).build().unwrap();
        Buffer::new(&routes, &Settings::default())
    }

    /// As a claim brings it. False if it stays in the table.
    fn bring(buffer: &mut Buffer, key: &str, seq: Seq, slot: usize) -> bool {
        let item = test_item(key, seq, slot);
        let key = item.lane_key();
        let stays = buffer.exceeds_key_queue(&item, key.as_ref(), None);
        if !stays {
            buffer.enter(item, key);
        }
        !stays
    }

    #[test]
    fn however_many_long_keys_there_are_their_number_in_memory_is_bounded() {
        let (mut buffer, mut seq) = (buffer(), 0);
        for key in 0..5000 {
            for place in 0..40 {
                seq += 1;
                assert_eq!(bring(&mut buffer, &format!("k{key}"), seq, 1), place < 33);
            }
            buffer.long_keys.claim_ended();
        }
        assert_eq!((buffer.long_keys.keys.len(), buffer.long_keys.slots.len()), (250, 250));
        assert_eq!(lock(&buffer.backlogs).slots().count(), 251, "one of them has all others");
        // Those of another route have crowds of their own.
        (0..40).for_each(|place| _ = bring(&mut buffer, "other", seq + 1 + place, 2));
        assert_eq!(buffer.long_keys.keys.len(), 251);
    }

    #[test]
    fn an_overflow_is_read_when_half_of_the_crowds_are_gone() {
        let (mut buffer, settings, mut seq) = (buffer(), Settings::default(), 0);
        for key in 0..251 {
            for _ in 0..40 {
                seq += 1;
                bring(&mut buffer, &format!("k{key}"), seq, 1);
            }
        }
        buffer.long_keys.claim_ended();
        assert_eq!(buffer.next_backlog(&settings), None, "every key has as much as it may");
        let slots: Vec<BacklogId> = buffer.long_keys.keys.keys().copied().take(125).collect();
        for slot in slots {
            lock(&buffer.backlogs).walked(slot, LANE, None, None);
        }
        buffer.forget_long_keys();
        assert_eq!(buffer.next_backlog(&settings), Some(BacklogId::Overflow(RouteSlot::at(1))));
    }

    #[test]
    fn a_crowd_is_read_as_soon_as_half_of_its_events_have_gone_and_no_other_is_looked_at() {
        let (mut buffer, settings) = (buffer(), Settings::default());
        for seq in 1..=40 {
            bring(&mut buffer, "a", seq, 1);
            bring(&mut buffer, "b", 100 + seq, 1);
        }
        let key = test_item("b", 0, 1).lane_key().unwrap();
        for _ in 0..15 {
            _ = buffer.keys.get_mut(&key).unwrap().pop_front();
            buffer.key_drained(&key);
        }
        assert!(buffer.slots_to_read(FIRST).is_empty());
        _ = buffer.keys.get_mut(&key).unwrap().pop_front();
        buffer.key_drained(&key);
        assert_eq!(buffer.next_backlog(&settings), buffer.long_keys.slots.get(&key).copied());
        assert_eq!(buffer.slots_to_read(FIRST).len(), 1);
    }

    #[test]
    fn what_follows_in_a_key_that_was_left_to_an_overflow_does_not_overtake_it() {
        let mut buffer = buffer();
        buffer.long_keys.most_keys = 0;
        (1..=40).for_each(|seq| _ = bring(&mut buffer, "a", seq, 1));
        let key = test_item("a", 0, 1).lane_key().unwrap();
        _ = buffer.keys.get_mut(&key).unwrap().take();
        assert!(!bring(&mut buffer, "a", 41, 2), "34 stands before it");
        assert_eq!(
            lock(&buffer.backlogs).slots().collect::<Vec<_>>(),
            [BacklogId::Overflow(RouteSlot::at(1))]
        );
    }
}
