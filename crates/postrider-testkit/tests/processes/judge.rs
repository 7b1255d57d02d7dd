//! The promises, held against the history of all processes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use crate::{
    history::{Entry, What},
    writers::{TxOutcome, Written},
};

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Conclusion {
    pub(crate) committed: usize,
    pub(crate) rolled_back: usize,
    pub(crate) unknown: usize,
    pub(crate) discarded: usize,
    pub(crate) deliveries: usize,
    pub(crate) failed: usize,
    pub(crate) duplicates: usize,
    /// Those of them whose lane was lost although nothing was done to who held it: the machine was too slow.
    pub(crate) of_slowness: usize,
    pub(crate) unclean_takes: usize,
    pub(crate) fenced: u64,
    pub(crate) refused: usize,
    /// Most deliveries without a fault in between.
    pub(crate) calm_max: usize,
    pub(crate) lost: Vec<String>,
    pub(crate) out_of_order: Vec<String>,
    pub(crate) phantoms: Vec<String>,
    pub(crate) unexplained: Vec<String>,
}

impl fmt::Display for Conclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { committed, rolled_back, unknown, discarded, deliveries, failed, duplicates, .. } = self;
        let Self { of_slowness, unclean_takes, fenced, refused, calm_max, .. } = self;
        write!(
            f,
            "{committed} committed ({unknown} of them without an answer), {rolled_back} rolled back, {discarded} discarded; \
             {deliveries} deliveries, {failed} failed attempts; {unclean_takes} lanes taken over unclean, {refused} settles \
             refused, {fenced} outcomes fenced; {duplicates} duplicates ({of_slowness} of slowness); at most {calm_max} \
             deliveries from one fault to the next; \
             {} lost, {} out of order, {} phantom, {} unexplained",
            self.lost.len(),
            self.out_of_order.len(),
            self.phantoms.len(),
            self.unexplained.len()
        )
    }
}

/// Holds the history against what was written and against what the database says is delivered.
pub(crate) fn judge(entries: &[Entry], written: &[Written], done: &BTreeSet<String>) -> Conclusion {
    let mut conclusion = Conclusion::default();
    let mut delivered: HashMap<&str, usize> = HashMap::new();
    let mut discarded: HashMap<&str, usize> = HashMap::new();
    let mut calm = 0;
    for (moment, entry) in entries.iter().enumerate() {
        match &entry.what {
            What::Fault { .. } => calm = 0,
            What::Delivered { id, .. } => {
                conclusion.deliveries += 1;
                calm += 1;
                conclusion.calm_max = conclusion.calm_max.max(calm);
                delivered.entry(id).or_insert(moment);
            }
            What::Discarding { id } => _ = discarded.entry(id).or_insert(moment),
            What::Failed { .. } => conclusion.failed += 1,
            What::Fenced { events } => conclusion.fenced += events,
            What::Refused { .. } => conclusion.refused += 1,
            What::AcquiredLane { suspect_to: 1.., .. } => conclusion.unclean_takes += 1,
            _ => {}
        }
    }
    conclusion.discarded = discarded.len();

    // A commit whose answer was lost happened if the event is, or was, in the table.
    let is_written = |event: &&Written| match event.outcome {
        TxOutcome::Committed => true,
        TxOutcome::RolledBack => false,
        TxOutcome::Unknown => done.contains(&event.id) || discarded.contains_key(event.id.as_str()),
    };
    let mut keys: BTreeMap<&str, Vec<&Written>> = BTreeMap::new();
    for event in written.iter().filter(is_written) {
        let id = event.id.as_str();
        conclusion.committed += 1;
        conclusion.unknown += usize::from(event.outcome == TxOutcome::Unknown);
        let over = discarded.contains_key(id);
        if !over && (!delivered.contains_key(id) || !done.contains(id)) {
            conclusion.lost.push(format!("{event:?}"));
        }
        keys.entry(&event.key).or_default().push(event);
    }
    conclusion.rolled_back = written.iter().filter(|event| event.outcome == TxOutcome::RolledBack).count();
    let known: BTreeSet<&str> = written.iter().filter(is_written).map(|event| event.id.as_str()).collect();
    conclusion.phantoms.extend(delivered.keys().filter(|id| !known.contains(*id)).map(|id| (*id).to_owned()));

    for (key, mut events) in keys {
        events.sort_by_key(|event| event.number);
        // An event is over when it arrived first, or when somebody said that it need not.
        let over = |event: &Written| {
            let moments = [delivered.get(event.id.as_str()), discarded.get(event.id.as_str())];
            moments.into_iter().flatten().min().copied()
        };
        let moments: Vec<_> = events.iter().filter_map(|event| over(event)).collect();
        if !moments.is_sorted() {
            conclusion.out_of_order.push(format!("{key}: {moments:?}"));
        }
    }
    duplicates(entries, &mut conclusion);
    conclusion
}

/// A lease of a lane: who holds it, and since when.
#[derive(Clone, Copy)]
struct Held<'a> {
    by: &'a str,
    epoch: u64,
    since: usize,
}

/// An event arrives again only under another lease than before, and one of the leases in between ended unclean. A lane that was
/// given back clean leaves nothing to come again.
fn duplicates(entries: &[Entry], conclusion: &mut Conclusion) {
    let mut holds: HashMap<(&str, u32), Held<'_>> = HashMap::new();
    let mut unclean: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut before: HashMap<&str, Held<'_>> = HashMap::new();
    let mut faults: Vec<(usize, &str)> = Vec::new();
    for (moment, entry) in entries.iter().enumerate() {
        let by = entry.by.as_str();
        match &entry.what {
            What::Fault { what } => faults.push((moment, what)),
            What::AcquiredLane { lane, epoch, suspect_to } => {
                holds.insert((by, *lane), Held { by, epoch: *epoch, since: moment });
                if *suspect_to > 0 {
                    unclean.entry(*lane).or_default().push(*epoch);
                }
            }
            What::Delivered { id, lane, .. } => {
                let Some(now) = holds.get(&(by, *lane)).copied() else {
                    conclusion
                        .unexplained
                        .push(format!("{id} was delivered by {by}, which never took lane {lane}"));
                    continue;
                };
                let Some(first) = before.insert(id, now) else { continue };
                conclusion.duplicates += 1;
                let (low, high) = if first.epoch < now.epoch { (first, now) } else { (now, first) };
                let mut takes = unclean.get(lane).into_iter().flatten();
                if !takes.any(|epoch| *epoch > low.epoch && *epoch <= high.epoch) {
                    conclusion.unexplained.push(format!(
                        "{id} of lane {lane}: by {} under epoch {}, and by {by} under epoch {}",
                        first.by, first.epoch, now.epoch
                    ));
                }
                let hurt = |what: &str| what.ends_with(":all") || what.ends_with(&format!(":{}", low.by));
                if !faults.iter().any(|(at, what)| *at > low.since && hurt(what)) {
                    conclusion.of_slowness += 1;
                }
            }
            _ => {}
        }
    }
}

/// The judge, tried on histories that are wrong in one way each.
pub(crate) fn sees_every_kind_of_wrong() -> Result<(), String> {
    let written = |id: &str, number, outcome| Written { id: id.into(), key: "k".into(), number, outcome };
    let taken = |by: &str, epoch, suspect_to| Entry {
        by: by.into(),
        what: What::AcquiredLane { lane: 1, epoch, suspect_to },
    };
    let delivered = |by: &str, id: &str| Entry {
        by: by.into(),
        what: What::Delivered { id: id.into(), key: "k".into(), number: 0, lane: 1, attempt: 1, at_ms: 0 },
    };
    let discarding = |id: &str| Entry { by: "operator".into(), what: What::Discarding { id: id.into() } };
    let two = [written("one", 1, TxOutcome::Committed), written("two", 2, TxOutcome::Committed)];
    let ghost = [written("one", 1, TxOutcome::Committed), written("two", 2, TxOutcome::RolledBack)];
    let lost_answer = [written("one", 1, TxOutcome::Committed), written("two", 2, TxOutcome::Unknown)];
    let done = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
    let (one, both) = (done(&["one"]), done(&["one", "two"]));
    let take = || taken("a", 1, 0);
    let well = [take(), delivered("a", "one"), delivered("a", "two")];

    type Case<'a> = (&'a str, Vec<Entry>, &'a [Written], &'a BTreeSet<String>, [usize; 4]);
    let cases: [Case<'_>; 10] = [
        ("all is well", well.to_vec(), &two, &both, [0, 0, 0, 0]),
        ("one never came", vec![take(), delivered("a", "one")], &two, &both, [1, 0, 0, 0]),
        ("one was sent and is not done", well.to_vec(), &two, &one, [1, 0, 0, 0]),
        (
            "one was discarded",
            vec![take(), discarding("one"), delivered("a", "two")],
            &two,
            &both,
            [0, 0, 0, 0],
        ),
        (
            "the second came first",
            vec![take(), delivered("a", "two"), delivered("a", "one")],
            &two,
            &both,
            [0, 1, 0, 0],
        ),
        ("it was rolled back", well.to_vec(), &ghost, &one, [0, 0, 1, 0]),
        ("an unknown commit happened", well.to_vec(), &lost_answer, &both, [0, 0, 0, 0]),
        ("an unknown commit did not happen", well.to_vec(), &lost_answer, &one, [0, 0, 1, 0]),
        (
            "again under the same lease",
            [well.as_slice(), &[delivered("a", "two")]].concat(),
            &two,
            &both,
            [0, 0, 0, 1],
        ),
        (
            "again after a clean hand-over",
            [well.as_slice(), &[taken("b", 2, 0), delivered("b", "two")]].concat(),
            &two,
            &both,
            [0, 0, 0, 1],
        ),
    ];
    let crossed =
        [well.as_slice(), &[taken("b", 2, 9), delivered("b", "two"), delivered("a", "two")]].concat();
    let cases =
        cases.into_iter().chain([("again after a take-over, by both", crossed, &two[..], &both, [0; 4])]);
    for (what, entries, written, done, expected) in cases {
        let found = judge(&entries, written, done);
        let counts = [&found.lost, &found.out_of_order, &found.phantoms, &found.unexplained].map(Vec::len);
        if counts != expected {
            return Err(format!("{what}: {counts:?} instead of {expected:?}, {found:?}"));
        }
    }
    Ok(())
}
