//! A queue that is shared fairly between routes: a flood of one type does not hold up the others.

use std::collections::VecDeque;

/// One queue for each route, drained in turn.
pub(crate) struct Lineup<T> {
    queues: Vec<VecDeque<T>>,
    /// Routes with something in their queue, in the order of their turns.
    turns: VecDeque<usize>,
}

impl<T> Lineup<T> {
    pub(crate) fn new(routes: usize) -> Self {
        Self { queues: (0..routes).map(|_| VecDeque::new()).collect(), turns: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, route: usize, item: T) {
        if let Some(queue) = self.queues.get_mut(route) {
            if queue.is_empty() {
                self.turns.push_back(route);
            }
            queue.push_back(item);
        }
    }

    /// Whether a route that `open` lets through has something.
    pub(crate) fn has(&self, open: impl Fn(usize) -> bool) -> bool {
        self.turns.iter().any(|&route| open(route))
    }

    /// Takes up to `most(route)` items of the route whose turn it is among those that `open` lets through.
    pub(crate) fn pop(
        &mut self,
        open: impl Fn(usize) -> bool,
        most: impl Fn(usize) -> usize,
    ) -> Option<(usize, Vec<T>)> {
        let turn = self.turns.iter().position(|&route| open(route))?;
        let route = self.turns.remove(turn)?;
        let queue = self.queues.get_mut(route)?;
        let count = most(route).clamp(1, queue.len());
        let items = queue.drain(..count).collect();
        if !queue.is_empty() {
            self.turns.push_back(route);
        }
        Some((route, items))
    }

    /// Takes out what does not satisfy `keep`, in order.
    pub(crate) fn extract(&mut self, keep: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for queue in &mut self.queues {
            let (kept, out): (VecDeque<T>, VecDeque<T>) = queue.drain(..).partition(&keep);
            *queue = kept;
            taken.extend(out);
        }
        self.turns.retain(|&route| self.queues.get(route).is_some_and(|queue| !queue.is_empty()));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_take_turns_whatever_their_backlog() {
        let mut lineup = Lineup::new(2);
        (0..100).for_each(|n| lineup.push(0, n));
        (100..103).for_each(|n| lineup.push(1, n));
        let mut first = Vec::new();
        for _ in 0..6 {
            first.extend(lineup.pop(|_| true, |_| 1).unwrap().1);
        }
        assert_eq!(first, [0, 100, 1, 101, 2, 102]);
    }

    #[test]
    fn a_closed_route_is_passed_over_and_keeps_its_place() {
        let mut lineup = Lineup::new(2);
        lineup.push(0, 'a');
        lineup.push(1, 'b');
        assert_eq!(lineup.pop(|route| route != 0, |_| 9), Some((1, vec!['b'])));
        assert!(!lineup.has(|route| route != 0));
        assert_eq!(lineup.pop(|_| true, |_| 9), Some((0, vec!['a'])));
        assert_eq!(lineup.pop(|_| true, |_| 9), None);
    }

    #[test]
    fn what_is_extracted_leaves_the_rest_in_order() {
        let mut lineup = Lineup::new(1);
        (0..6).for_each(|n| lineup.push(0, n));
        assert_eq!(lineup.extract(|n| n % 2 == 0), [1, 3, 5]);
        assert_eq!(lineup.pop(|_| true, |_| 9), Some((0, vec![0, 2, 4])));
    }
}
