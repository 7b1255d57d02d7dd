//! Decides which events share a request.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use postrider_core::Delivery;

/// One request before it is split: a path, and the positions of its events in the batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Planned<'a> {
    pub(super) path: Cow<'a, str>,
    pub(super) places: Vec<usize>,
}

/// Groups events into as few requests as possible, to be sent one after the other. Events of one key with different paths are in different
/// rounds, so that the order of the key holds.
pub(super) fn plan<'a>(batch: &'a [Delivery], paths: Vec<(usize, Cow<'a, str>)>) -> Vec<Planned<'a>> {
    let mut numbers: HashMap<Cow<'a, str>, usize> = HashMap::new();
    let mut last_of_key: HashMap<&str, (usize, usize)> = HashMap::new();
    let mut requests: BTreeMap<(usize, usize), Planned<'a>> = BTreeMap::new();
    for (place, path) in paths {
        let next = numbers.len();
        let number = *numbers.entry(path.clone()).or_insert(next);
        let mut round = 0;
        if let Some(key) = batch.get(place).and_then(|delivery| delivery.event.key()) {
            round = match last_of_key.get(key) {
                None => 0,
                Some((last, same)) if *same == number => *last,
                Some((last, _)) => last + 1,
            };
            last_of_key.insert(key, (round, number));
        }
        let request = requests.entry((round, number)).or_insert_with(|| Planned { path, places: Vec::new() });
        request.places.push(place);
    }
    requests.into_values().collect()
}

#[cfg(test)]
mod tests {
    use postrider_core::{Event, EventError, Source};

    use super::*;

    /// Events with these keys and paths.
    fn planned(events: &[(&str, &str)]) -> Result<Vec<(String, Vec<usize>)>, EventError> {
        let mut batch = Vec::new();
        for (key, _) in events {
            let mut event = Event::json_text("Tested", "{}");
            if !key.is_empty() {
                event = event.key(*key);
            }
            batch.push(Delivery { event: event.build()?, source: Source::Cold, attempt: 1, lane: 0 });
        }
        let paths = events.iter().enumerate().map(|(place, (_, path))| (place, Cow::from(*path))).collect();
        let plan = plan(&batch, paths);
        Ok(plan.into_iter().map(|request| (request.path.into_owned(), request.places)).collect())
    }

    fn expected(plan: &[(&str, &[usize])]) -> Vec<(String, Vec<usize>)> {
        plan.iter().map(|(path, places)| ((*path).to_owned(), places.to_vec())).collect()
    }

    #[test]
    fn one_path_is_one_request() -> Result<(), EventError> {
        let found = planned(&[("a", "/x"), ("b", "/x"), ("a", "/x"), ("", "/x")])?;
        assert_eq!(found, expected(&[("/x", &[0, 1, 2, 3])]));
        Ok(())
    }

    #[test]
    fn different_paths_are_different_requests_that_keys_do_not_hold_apart() -> Result<(), EventError> {
        let found = planned(&[("a", "/x"), ("b", "/y"), ("a", "/x"), ("", "/y"), ("", "/x")])?;
        assert_eq!(found, expected(&[("/x", &[0, 2, 4]), ("/y", &[1, 3])]));
        Ok(())
    }

    #[test]
    fn a_key_that_changes_its_path_goes_one_request_after_the_other() -> Result<(), EventError> {
        let found = planned(&[("a", "/x"), ("a", "/y"), ("a", "/x"), ("b", "/x"), ("b", "/y")])?;
        assert_eq!(found, expected(&[("/x", &[0, 3]), ("/y", &[1, 4]), ("/x", &[2])]));
        let found = planned(&[("b", "/y"), ("a", "/x"), ("a", "/y")])?;
        assert_eq!(found, expected(&[("/y", &[0]), ("/x", &[1]), ("/y", &[2])]));
        Ok(())
    }
}
