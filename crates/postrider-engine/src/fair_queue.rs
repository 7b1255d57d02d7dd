//! Shares a queue fairly between routes: a flood of one type does not delay the others.

use std::collections::VecDeque;

use crate::slots::RouteSlot;

/// One queue for each route, drained in turn.
pub(crate) struct FairQueue<T> {
    queues: Vec<VecDeque<T>>,
    /// Routes with something in their queues, in the order of their turns.
    turns: VecDeque<RouteSlot>,
}

impl<T> FairQueue<T> {
    pub(crate) fn new(routes: usize) -> Self {
        Self { queues: (0..routes).map(|_| VecDeque::new()).collect(), turns: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, route: RouteSlot, item: T) {
        if let Some(queue) = self.queues.get_mut(route.index()) {
            if queue.is_empty() {
                self.turns.push_back(route);
            }
            queue.push_back(item);
        }
    }

    /// Puts an item before all others of its route. A route whose queue was empty has had its turn and goes
    /// last, or it would keep its turn for as long as it puts items back.
    pub(crate) fn push_front(&mut self, route: RouteSlot, item: T) {
        if let Some(queue) = self.queues.get_mut(route.index()) {
            if queue.is_empty() {
                self.turns.push_back(route);
            }
            queue.push_front(item);
        }
    }

    /// All items.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.queues.iter().flatten()
    }

    /// Takes all items of a route, in order.
    pub(crate) fn take_all(&mut self, route: RouteSlot) -> VecDeque<T> {
        self.turns.retain(|turn| *turn != route);
        self.queues.get_mut(route.index()).map(std::mem::take).unwrap_or_default()
    }

    /// Whether a route that `open` lets through has an item.
    pub(crate) fn has(&self, open: impl Fn(RouteSlot) -> bool) -> bool {
        self.turns.iter().any(|&route| open(route))
    }

    /// Returns the next route that `open` lets through, and how many items it has.
    pub(crate) fn turn(&self, open: impl Fn(RouteSlot) -> bool) -> Option<(RouteSlot, usize)> {
        let route = self.turns.iter().copied().find(|&route| open(route))?;
        Some((route, self.queues.get(route.index())?.len()))
    }

    /// Returns how many routes have an item.
    pub(crate) fn waiting(&self) -> usize {
        self.turns.len()
    }

    /// Takes items of a route and ends its turn.
    pub(crate) fn take(&mut self, route: RouteSlot, most: usize) -> VecDeque<T> {
        let Some(queue) = self.queues.get_mut(route.index()) else { return VecDeque::new() };
        let count = most.min(queue.len());
        let items = queue.drain(..count).collect();
        let place = self.turns.iter().position(|&turn| turn == route);
        place.into_iter().for_each(|place| _ = self.turns.remove(place));
        if !queue.is_empty() {
            self.turns.push_back(route);
        }
        items
    }

    /// Takes out the items that do not satisfy `keep`, in order.
    pub(crate) fn extract(&mut self, keep: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for queue in &mut self.queues {
            let (kept, out): (VecDeque<T>, VecDeque<T>) = queue.drain(..).partition(&keep);
            *queue = kept;
            taken.extend(out);
        }
        self.turns.retain(|&route| self.queues.get(route.index()).is_some_and(|queue| !queue.is_empty()));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pop<T>(
        queue: &mut FairQueue<T>,
        open: impl Fn(RouteSlot) -> bool,
        most: usize,
    ) -> Option<(RouteSlot, Vec<T>)> {
        let (route, _) = queue.turn(open)?;
        Some((route, queue.take(route, most).into()))
    }

    #[test]
    fn routes_take_turns_whatever_their_backlog() {
        let mut queue = FairQueue::new(2);
        (0..100).for_each(|n| queue.push(RouteSlot::at(0), n));
        (100..103).for_each(|n| queue.push(RouteSlot::at(1), n));
        let mut first = Vec::new();
        for _ in 0..6 {
            first.extend(pop(&mut queue, |_| true, 1).unwrap().1);
        }
        assert_eq!(first, [0, 100, 1, 101, 2, 102]);
    }

    #[test]
    fn a_closed_route_is_skipped_and_keeps_its_place() {
        let mut queue = FairQueue::new(2);
        queue.push(RouteSlot::at(0), 'a');
        queue.push(RouteSlot::at(1), 'b');
        assert_eq!(
            pop(&mut queue, |route| route != RouteSlot::at(0), 9),
            Some((RouteSlot::at(1), vec!['b']))
        );
        assert!(!queue.has(|route| route != RouteSlot::at(0)));
        assert_eq!(pop(&mut queue, |_| true, 9), Some((RouteSlot::at(0), vec!['a'])));
        assert_eq!(pop(&mut queue, |_| true, 9), None);
    }

    #[test]
    fn what_was_put_back_comes_first() {
        let mut queue = FairQueue::new(1);
        queue.push(RouteSlot::at(0), 2);
        queue.push_front(RouteSlot::at(0), 1);
        assert_eq!(queue.take_all(RouteSlot::at(0)), [1, 2]);
        assert!(!queue.has(|_| true));
    }

    #[test]
    fn a_route_that_was_taken_whole_and_put_back_waits_for_its_next_turn() {
        let mut queue = FairQueue::new(2);
        (0..3).for_each(|n| queue.push(RouteSlot::at(0), n));
        (10..13).for_each(|n| queue.push(RouteSlot::at(1), n));
        let mut first = Vec::new();
        for _ in 0..4 {
            let (route, taken) = pop(&mut queue, |_| true, 9).unwrap();
            taken.iter().skip(1).rev().for_each(|n| queue.push_front(route, *n));
            first.push(taken[0]);
        }
        assert_eq!(first, [0, 10, 1, 11]);
    }
}
