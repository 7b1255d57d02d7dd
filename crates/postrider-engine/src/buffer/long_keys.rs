//! Owns the keys that have more events than may wait in memory.
//!
//! The rest of a long key stays in the table: claims skip it once, and read it when half of what is in memory
//! has gone. One long key takes no room from the others.
//!
//! Each long key has a backlog of its own. There may be a million, so each route has a limited number of them.
//! The keys beyond that share one backlog of the route, its *overflow*. It is read when half of the long keys
//! are gone, and its keys become long keys then.

use super::{backlog::Backlogs, backlog_id::BacklogId, *};

/// Most long keys of one route; fewer where little fits into memory.
const LONG_KEYS_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct LongKeys {
    ids: HashMap<LaneKey, BacklogId, QuickState>,
    keys: BTreeMap<BacklogId, LongKey>,
    /// How many each route has.
    counts: BTreeMap<RouteSlot, usize>,
    /// Keys that may have room. Anyone who reads one checks.
    ready: BTreeSet<BacklogId>,
    /// The keys that went to an overflow since the running claim began, by their numbers.
    overflowed: HashMap<u64, BacklogId, QuickState>,
    /// Numbers are used once: what was skipped for one key must not be taken for another's.
    next: u64,
    /// Most events that wait behind one key.
    most: usize,
    /// Most long keys of one route.
    most_keys: usize,
}

/// A key, its route, and most events that wait behind its head.
#[derive(Debug)]
struct LongKey {
    key: LaneKey,
    route: RouteSlot,
    most: usize,
}

impl LongKeys {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            ids: HashMap::default(),
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

    /// Whether no key is known to be long.
    fn is_quiet(&self) -> bool {
        self.keys.is_empty() && self.overflowed.is_empty()
    }

    fn count(&self, route: RouteSlot) -> usize {
        self.counts.get(&route).copied().unwrap_or(0)
    }

    /// Adds a long key, unless its route has as many as it may.
    fn add(&mut self, long_key: LongKey, backlogs: &mut Backlogs) -> Option<BacklogId> {
        if self.count(long_key.route) >= self.most_keys {
            return None;
        }
        let id = BacklogId::LongKey(self.next);
        self.next += 1;
        *self.counts.entry(long_key.route).or_default() += 1;
        backlogs.add_key(id, long_key.key.number);
        self.ids.insert(long_key.key.clone(), id);
        self.keys.insert(id, long_key);
        Some(id)
    }

    fn remove(&mut self, id: BacklogId, backlogs: &mut Backlogs) {
        self.ready.remove(&id);
        let Some(long_key) = self.keys.remove(&id) else { return };
        let left = self.counts.remove(&long_key.route).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            self.counts.insert(long_key.route, left);
        }
        self.ids.remove(&long_key.key);
        backlogs.remove_key(id, long_key.key.number);
    }

    /// Whether this is the overflow of a route that has too many long keys to take another one in.
    fn is_overflow_shut(&self, id: BacklogId) -> bool {
        matches!(id, BacklogId::Overflow(route) if self.count(route) > self.most_keys / 2)
    }

    /// Records that a claim has ended.
    pub(super) fn claim_ended(&mut self) {
        self.overflowed.clear();
    }
}

/// What a claim has to know of long keys.
#[derive(Debug, Default)]
pub(super) struct LongKeyRoom {
    /// The backlogs of the keys that have no room, by the numbers of the keys.
    full: HashMap<u64, BacklogId, QuickState>,
    /// The key whose rest is read, and how many more of its events may come in.
    scanned: Option<(u64, usize)>,
}

impl LongKeyRoom {
    /// Returns the backlog that an event of this key waits in.
    pub(super) fn holder(&self, key: Option<u64>) -> Option<BacklogId> {
        self.full.get(&key?).copied()
    }

    /// Whether the rest of this key is read.
    pub(super) fn is_scanned(&self, key: Option<u64>) -> bool {
        self.scanned.is_some_and(|(scanned, _)| Some(scanned) == key)
    }

    /// Whether there is room for one more event of the key that is read.
    pub(super) fn has_room(&self) -> bool {
        self.scanned.is_none_or(|(_, room)| room > 0)
    }

    /// Records that an event of the key that is read comes in.
    pub(super) fn enter(&mut self) {
        self.scanned.iter_mut().for_each(|(_, room)| *room = room.saturating_sub(1));
    }
}

impl Buffer {
    /// Skips an event whose key has as many in memory as it may. Returns false if there is room for it.
    pub(super) fn exceeds_key_queue(
        &mut self,
        item: &Item,
        key: Option<&LaneKey>,
        scanned: Option<BacklogId>,
    ) -> bool {
        let Some(key) = key.filter(|_| !item.held && !mutations::active(Mutation::FollowersUnbounded)) else {
            return false;
        };
        let followers = self.followers(key);
        if followers == 0 && self.long_keys.is_quiet() {
            return false;
        }
        let long_key = self.long_keys.ids.get(key).copied();
        if long_key.is_some() && long_key == scanned {
            // The claim knew how many there is room for.
            return false;
        }
        let most = self.max_followers(item.slot);
        let full = followers >= most;
        if !full && self.long_keys.is_quiet() {
            return false;
        }
        // An earlier event of this key may have been skipped just now.
        let overflowed = self.long_keys.overflowed.get(&key.number).copied();
        let mut backlogs = lock(&self.backlogs);
        let begins_earlier = |id: BacklogId| backlogs.begins_before(id, key.lane, Some(item.seq));
        if !full && overflowed.is_none() && !long_key.is_some_and(begins_earlier) {
            return false;
        }
        let route = item.slot;
        let id = overflowed
            .or(long_key)
            .or_else(|| self.long_keys.add(LongKey { key: key.clone(), route, most }, &mut backlogs))
            .unwrap_or(BacklogId::Overflow(route));
        if matches!(id, BacklogId::Overflow(_)) {
            self.long_keys.overflowed.insert(key.number, id);
        }
        backlogs.note_probe(id, key.lane, item.seq, Some(key.number));
        true
    }

    /// Returns how many events may wait behind one of this route: at least what its receiver takes of one key
    /// at a time.
    fn max_followers(&self, slot: RouteSlot) -> usize {
        self.long_keys.most.max(self.receivers.get(slot).map_or(0, |receiver| receiver.key_max))
    }

    fn followers(&self, key: &LaneKey) -> usize {
        self.keys.get(key).map_or(0, Followers::len)
    }

    /// Whether this is the backlog of a key that has no room yet.
    pub(super) fn is_long_key_full(&self, id: BacklogId) -> bool {
        self.long_keys.keys.get(&id).is_some_and(|long_key| self.followers(&long_key.key) > long_key.most / 2)
    }

    /// Returns what a claim has to know; it may be one that reads the rest of a key.
    pub(super) fn long_key_room(&self, backlog: Option<BacklogId>) -> LongKeyRoom {
        let scanned = backlog.and_then(|id| self.long_keys.keys.get(&id));
        let full =
            self.long_keys.keys.iter().filter(|(id, _)| Some(**id) != backlog && self.is_long_key_full(**id));
        LongKeyRoom {
            full: full.map(|(id, long_key)| (long_key.key.number, *id)).collect(),
            scanned: scanned.map(|long_key| {
                (long_key.key.number, long_key.most.saturating_sub(self.followers(&long_key.key)).max(1))
            }),
        }
    }

    /// Whether a backlog waits until fewer events wait behind its keys in memory.
    pub(super) fn waits_for_its_keys(&self, id: BacklogId) -> bool {
        self.is_long_key_full(id) || self.long_keys.is_overflow_shut(id)
    }

    /// Records that fewer events wait behind a key: there may be room for its rest.
    pub(super) fn key_drained(&mut self, key: &LaneKey) {
        if self.long_keys.is_empty() {
            return;
        }
        if let Some(id) = self.long_keys.ids.get(key).copied().filter(|id| !self.is_long_key_full(*id)) {
            self.long_keys.ready.insert(id);
        }
    }

    /// Returns the backlogs to read, those after `id` first. Long keys are included only if they have room,
    /// so that no settle searches through the others.
    pub(super) fn backlogs_to_read(&self, id: BacklogId) -> Vec<BacklogId> {
        let backlogs = lock(&self.backlogs);
        let others = || backlogs.ids().take_while(|id| !matches!(id, BacklogId::LongKey(_)));
        let ready = || self.long_keys.ready.iter().copied().filter(|id| backlogs.has(*id));
        let after = others().chain(ready()).filter(|other| *other > id);
        after.chain(others().chain(ready()).filter(|other| *other <= id)).collect()
    }

    /// Forgets the keys of which nothing is left in the table. Between claims, as for pauses.
    pub(super) fn forget_long_keys(&mut self) {
        if self.long_keys.is_empty() {
            return;
        }
        let mut backlogs = lock(&self.backlogs);
        let gone: Vec<BacklogId> =
            self.long_keys.keys.keys().copied().filter(|id| !backlogs.has(*id)).collect();
        gone.into_iter().for_each(|id| self.long_keys.remove(id, &mut backlogs));
        drop(backlogs);
        let ready = self.long_keys.keys.keys().copied().filter(|id| !self.is_long_key_full(*id));
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

    /// Brings an event as a claim does. Returns false if it stays in the table.
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
        assert_eq!((buffer.long_keys.keys.len(), buffer.long_keys.ids.len()), (250, 250));
        assert_eq!(lock(&buffer.backlogs).ids().count(), 251, "one of them has all others");
        // Each route has long keys of its own.
        (0..40).for_each(|place| _ = bring(&mut buffer, "other", seq + 1 + place, 2));
        assert_eq!(buffer.long_keys.keys.len(), 251);
    }

    #[test]
    fn an_overflow_is_read_when_half_of_the_long_keys_are_gone() {
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
            lock(&buffer.backlogs).scanned(slot, LANE, None, None);
        }
        buffer.forget_long_keys();
        assert_eq!(buffer.next_backlog(&settings), Some(BacklogId::Overflow(RouteSlot::at(1))));
    }

    #[test]
    fn a_long_key_is_read_as_soon_as_half_of_its_events_have_gone_and_no_other_is_looked_at() {
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
        assert!(buffer.backlogs_to_read(FIRST).is_empty());
        _ = buffer.keys.get_mut(&key).unwrap().pop_front();
        buffer.key_drained(&key);
        assert_eq!(buffer.next_backlog(&settings), buffer.long_keys.ids.get(&key).copied());
        assert_eq!(buffer.backlogs_to_read(FIRST).len(), 1);
    }

    #[test]
    fn what_follows_in_a_key_that_was_left_to_an_overflow_does_not_overtake_it() {
        let mut buffer = buffer();
        buffer.long_keys.most_keys = 0;
        (1..=40).for_each(|seq| _ = bring(&mut buffer, "a", seq, 1));
        let key = test_item("a", 0, 1).lane_key().unwrap();
        _ = buffer.keys.get_mut(&key).unwrap().take();
        assert!(!bring(&mut buffer, "a", 41, 2), "34 stands before it");
        assert_eq!(lock(&buffer.backlogs).ids().collect::<Vec<_>>(), [BacklogId::Overflow(RouteSlot::at(1))]);
    }
}
