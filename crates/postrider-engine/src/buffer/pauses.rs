//! Owns what an operator has paused, as this engine knows it.
//!
//! Each pause has a backlog of its own. While it holds, claims skip its events once, and those in memory go
//! back to the table. When it ends, its backlog is scanned like that of a receiver that is up again, and then
//! it is forgotten. A paused source needs no backlog: nothing is claimed or sent.

use postrider_core::store::{Pause, Subject};

use super::{backlog_id::BacklogId, gate::Gate, *};

/// The pauses that hold, and those that have ended and still have a backlog.
#[derive(Debug, Clone)]
pub(super) struct Pauses {
    /// Whether the pauses were ever read. Nothing is sent before.
    known: bool,
    /// Whether everything is paused.
    source: bool,
    rules: BTreeMap<BacklogId, PauseRule>,
    /// The backlogs of paused keys.
    keys: BTreeMap<String, BacklogId>,
    /// Numbers are used once, because the filter of skipped keys does not forget.
    next: u64,
}

#[derive(Debug, Clone)]
struct PauseRule {
    subject: Subject,
    /// The receivers of a paused sink.
    receivers: Vec<ReceiverSlot>,
    holds: bool,
}

/// What is paused, shared with the running claim, and how often something was.
#[derive(Debug, Default)]
pub(super) struct PauseState {
    rules: Arc<Pauses>,
    begun: Arc<AtomicU64>,
}

impl PauseState {
    /// Returns the pauses for a claim to keep while they may change.
    pub(super) fn shared(&self) -> Arc<Pauses> {
        self.rules.clone()
    }

    /// Whether nothing at all may be sent.
    pub(super) fn stop(&self) -> bool {
        self.rules.stop()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether this is the backlog of a pause that holds.
    pub(super) fn holds(&self, id: BacklogId) -> bool {
        self.rules.holds(id)
    }

    /// Returns the backlog of the pause that holds an event back.
    pub(super) fn of(&self, attributes: EventAttributes<'_>) -> Option<BacklogId> {
        self.rules.of(attributes)
    }

    /// Returns how often something was paused.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// Records a new pause. Workers check again what they are about to send.
    fn begins(&self) {
        self.begun.fetch_add(1, Relaxed);
    }

    fn rules_mut(&mut self) -> &mut Pauses {
        Arc::make_mut(&mut self.rules)
    }
}

/// The attributes of an event that pauses look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventAttributes<'a> {
    pub(super) event_type: Option<&'a str>,
    pub(super) key: Option<&'a str>,
    pub(super) receiver: ReceiverSlot,
}

/// The difference to the last list of pauses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PauseChanges {
    pub(crate) began: Vec<Subject>,
    pub(crate) ended: Vec<Subject>,
}

impl Default for Pauses {
    fn default() -> Self {
        let (rules, keys) = (BTreeMap::new(), BTreeMap::new());
        Self { known: true, source: false, rules, keys, next: 0 }
    }
}

impl PauseRule {
    fn fits(&self, attributes: EventAttributes<'_>) -> bool {
        match &self.subject {
            Subject::Source | Subject::Rejected(_) | Subject::Brake(_) => false,
            Subject::Type(pattern) => attributes.event_type.is_some_and(|name| pattern.matches(name)),
            Subject::Key(key) => attributes.key == Some(key),
            Subject::Sink(_) => self.receivers.contains(&attributes.receiver),
        }
    }
}

impl Pauses {
    /// Whether nothing at all may be sent.
    pub(super) fn stop(&self) -> bool {
        self.source || !self.known
    }

    /// Whether no single event can be paused.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether this is the backlog of a pause that holds.
    pub(super) fn holds(&self, id: BacklogId) -> bool {
        self.rules.get(&id).is_some_and(|rule| rule.holds)
    }

    /// Returns the backlog of the pause that holds an event back.
    pub(super) fn of(&self, attributes: EventAttributes<'_>) -> Option<BacklogId> {
        if self.rules.is_empty() {
            return None;
        }
        let of_key = attributes.key.and_then(|key| self.keys.get(key)).copied().filter(|id| self.holds(*id));
        of_key.or_else(|| {
            let mut others = self.rules.range(..BacklogId::FIRST_KEY);
            others.find(|(_, rule)| rule.holds && rule.fits(attributes)).map(|(id, _)| *id)
        })
    }

    /// Whether an event belongs to this pause, which may have ended.
    pub(super) fn fits(&self, id: BacklogId, attributes: EventAttributes<'_>) -> bool {
        self.rules.get(&id).is_some_and(|rule| rule.fits(attributes))
    }

    /// Forgets the pauses that have ended and have no backlog left.
    fn forget(&mut self, backlogs: &mut Backlogs) {
        let left = |id: BacklogId, rule: &PauseRule| rule.holds || backlogs.has(id);
        let gone: Vec<BacklogId> =
            self.rules.iter().filter(|(id, rule)| !left(**id, rule)).map(|(id, _)| *id).collect();
        for id in gone {
            if let Some(PauseRule { subject: Subject::Key(key), .. }) = self.rules.remove(&id) {
                self.keys.remove(&key);
                backlogs.remove_key(id, hash::of_key(&key));
            }
        }
    }

    /// Replaces the list of pauses.
    fn update(&mut self, list: &[Pause], routes: &RouteTable, backlogs: &mut Backlogs) -> PauseChanges {
        let mut changes = PauseChanges::default();
        self.known = true;
        let source = list.iter().any(|pause| pause.subject == Subject::Source);
        match (self.source, source) {
            (false, true) => changes.began.push(Subject::Source),
            (true, false) => changes.ended.push(Subject::Source),
            _ => {}
        }
        self.source = source;
        let wanted: BTreeSet<&Subject> = list.iter().map(|pause| &pause.subject).collect();
        let mut met = BTreeSet::new();
        for rule in self.rules.values_mut() {
            let holds = wanted.contains(&rule.subject);
            match (rule.holds, holds) {
                (false, true) => changes.began.push(rule.subject.clone()),
                (true, false) => changes.ended.push(rule.subject.clone()),
                _ => {}
            }
            rule.holds = holds;
            met.insert(rule.subject.clone());
        }
        for subject in wanted.into_iter().filter(|subject| !met.contains(*subject)) {
            if self.add(subject.clone(), routes, backlogs) {
                changes.began.push(subject.clone());
            }
        }
        changes
    }

    /// Adds a pause. Returns false if it concerns nothing here.
    fn add(&mut self, subject: Subject, routes: &RouteTable, backlogs: &mut Backlogs) -> bool {
        let (mut receivers, mut id) = (Vec::new(), BacklogId::Pause(self.next));
        match &subject {
            Subject::Source | Subject::Rejected(_) | Subject::Brake(_) => return false,
            Subject::Sink(name) => {
                receivers.extend(routes.receivers_named(name).map(|id| ReceiverSlot::of(Some(id))));
                if receivers.is_empty() {
                    return false;
                }
            }
            Subject::Key(key) => {
                id = BacklogId::PausedKey(self.next);
                self.keys.insert(key.clone(), id);
                backlogs.add_key(id, hash::of_key(key));
            }
            Subject::Type(_) => {}
        }
        self.rules.insert(id, PauseRule { subject, receivers, holds: true });
        self.next += 1;
        true
    }
}

impl Buffer {
    /// Stops sending until the pauses are read.
    pub(crate) fn wait_for_pauses(&mut self) {
        if self.pauses.rules.known {
            self.pauses.rules_mut().known = false;
            self.pauses.begins();
        }
    }

    /// Returns the counter of pauses, which workers compare.
    pub(crate) fn pauses_begun(&self) -> Arc<AtomicU64> {
        self.pauses.begun.clone()
    }

    /// Whether the pauses are known.
    pub(crate) fn knows_pauses(&self) -> bool {
        self.pauses.rules.known
    }

    /// Whether anything is paused.
    pub(crate) fn has_pauses(&self) -> bool {
        !self.pauses.is_empty() || self.pauses.rules.source
    }

    /// Whether the whole source is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.pauses.rules.source
    }

    /// Replaces the pauses. Returns the difference; none if nothing has changed.
    pub(crate) fn set_pauses(&mut self, list: &[Pause], routes: &RouteTable) -> Option<PauseChanges> {
        let was_known = self.pauses.rules.known;
        let changes = self.pauses.rules_mut().update(list, routes, &mut lock(&self.backlogs));
        if !changes.began.is_empty() {
            self.pauses.begins();
            self.shed_paused();
        }
        (!was_known || changes != PauseChanges::default()).then_some(changes)
    }

    /// Forgets pauses that have ended. Between claims only: a running claim may still skip something for them.
    pub(super) fn forget_pauses(&mut self) {
        if !self.pauses.is_empty() {
            self.pauses.rules_mut().forget(&mut lock(&self.backlogs));
        }
    }

    /// Leaves paused events to the table. Followers of busy keys are left when their turn comes.
    fn shed_paused(&mut self) {
        if self.pauses.is_empty() || mutations::active(Mutation::PausedInMemorySent) {
            return;
        }
        let (pauses, receivers) = (&self.pauses, &self.receivers);
        let keep = |item: &Item| pauses.of(item.attributes(receivers)).is_none();
        let mut shed = self.queues.extract(keep);
        for lane in self.lanes.values_mut() {
            let (kept, paused): (VecDeque<Item>, VecDeque<Item>) = lane.suspects.drain(..).partition(keep);
            lane.suspects = kept;
            shed.extend(paused);
        }
        shed.into_iter().for_each(|item| self.release(item));
    }

    /// Whether an event in memory is paused, or its route is stopped.
    pub(super) fn is_held_back(&self, item: &Item) -> bool {
        match self.gate_of_event(item.slot, item.attributes(&self.receivers)) {
            Gate::Paused => !mutations::active(Mutation::PausedInMemorySent),
            gate => gate == Gate::Stopped,
        }
    }
}

impl Item {
    /// Returns the attributes that pauses look at.
    pub(super) fn attributes(&self, receivers: &ReceiverTable) -> EventAttributes<'_> {
        let (event_type, key) = match &self.content {
            Ok(event) => (Some(event.event_type()), event.key()),
            Err(row) => (None, row.key.as_deref()),
        };
        EventAttributes { event_type, key, receiver: receivers.of(self.slot) }
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::{Delivery, handler, named};

    use super::*;
    use crate::Routes;

    fn routes() -> RouteTable {
        let (audit, shop) = (handler(async |_: Delivery| ()), handler(async |_: Delivery| ()));
        Routes::new().sink("A", named("audit", audit)).sink("B", named("shop", shop)).build().unwrap()
    }

    fn list(subjects: &[Subject]) -> Vec<Pause> {
        let pause = |subject: &Subject| Pause {
            subject: subject.clone(),
            since: Timestamp::EPOCH,
            reason: String::new(),
        };
        subjects.iter().map(pause).collect()
    }

    fn attributes<'a>(event_type: &'a str, key: Option<&'a str>, receiver: usize) -> EventAttributes<'a> {
        EventAttributes {
            event_type: Some(event_type),
            key,
            receiver: ReceiverSlot::of(receiver.checked_sub(1)),
        }
    }

    #[test]
    fn an_event_is_paused_by_its_type_its_key_or_its_sink_and_by_nothing_else() {
        let (mut pauses, mut backlogs) = (Pauses::default(), Backlogs::default());
        let subjects = [Subject::event_type("Order*"), Subject::key("k"), Subject::sink("audit")];
        let changes = pauses.update(&list(&subjects), &routes(), &mut backlogs);
        assert_eq!(changes.began.len(), 3);
        assert!(pauses.of(attributes("OrderPlaced", None, 2)).is_some());
        assert!(pauses.of(attributes("B", Some("k"), 2)).is_some_and(|slot| slot.has_one_key()));
        assert!(pauses.of(attributes("A", None, 1)).is_some());
        assert_eq!(pauses.of(attributes("B", Some("other"), 2)), None);
        assert_eq!(pauses.update(&list(&subjects), &routes(), &mut backlogs), PauseChanges::default());
    }

    #[test]
    fn a_sink_that_is_not_here_and_a_source_have_no_backlog() {
        let (mut pauses, mut backlogs) = (Pauses::default(), Backlogs::default());
        let changes =
            pauses.update(&list(&[Subject::sink("elsewhere"), Subject::Source]), &routes(), &mut backlogs);
        assert_eq!(changes.began, [Subject::Source]);
        assert!(pauses.is_empty() && pauses.stop());
        assert_eq!(pauses.update(&[], &routes(), &mut backlogs).ended, [Subject::Source]);
        assert!(!pauses.stop());
    }

    #[test]
    fn a_pause_that_has_ended_is_known_until_its_backlog_is_empty() {
        let (mut pauses, mut backlogs) = (Pauses::default(), Backlogs::default());
        pauses.update(&list(&[Subject::key("k"), Subject::event_type("T")]), &routes(), &mut backlogs);
        let slot = pauses.of(attributes("B", Some("k"), 2)).unwrap();
        backlogs.note_probe(slot, 0, 5, None);
        pauses.update(&[], &routes(), &mut backlogs);
        pauses.forget(&mut backlogs);
        assert!(pauses.fits(slot, attributes("B", Some("k"), 2)) && !pauses.holds(slot));
        assert_eq!(pauses.rules.len(), 1, "the type is gone");
        // Paused again, it keeps its backlog.
        pauses.update(&list(&[Subject::key("k")]), &routes(), &mut backlogs);
        assert_eq!(pauses.of(attributes("B", Some("k"), 2)), Some(slot));
        pauses.update(&[], &routes(), &mut backlogs);
        backlogs.scanned(slot, 0, None, None);
        pauses.forget(&mut backlogs);
        assert!(pauses.is_empty() && pauses.keys.is_empty());
    }
}
