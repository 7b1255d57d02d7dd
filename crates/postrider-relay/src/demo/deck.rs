//! Deals the shop's stories from a shuffled deck that only the seed decides.

use std::time::Duration;

use postrider::rng::Rng;

use super::story::{Draft, End, Happening, Key, Owner, Step, Story, Treatment};

/// Customers of the shop. All writers and all starts share their keys.
const CUSTOMERS: u64 = 25;

/// The kinds of story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Card {
    Order,
    Points,
    PageView,
    Declined,
    Swallowed,
    Savepoint,
    FailsTwice,
    Poison,
    Reminder,
}

/// How many of a hundred stories are of each kind. A deck, unlike chance, shows all of them soon.
const DECK: [(Card, usize); 9] = [
    (Card::Order, 46),
    (Card::Points, 14),
    (Card::PageView, 15),
    (Card::Declined, 8),
    (Card::Swallowed, 4),
    (Card::Savepoint, 4),
    (Card::FailsTwice, 4),
    (Card::Poison, 1),
    (Card::Reminder, 4),
];

/// Deals stories until enough events will be committed.
pub(crate) struct Stories {
    rng: Rng,
    /// Which start of the demo this is, so that order numbers of different starts differ.
    start: i64,
    dealt: u64,
    left: u64,
    deck: Vec<Card>,
}

impl Stories {
    pub(crate) fn new(seed: u64, start: i64, events: u64) -> Self {
        Self { rng: Rng::seeded(seed), start, dealt: 0, left: events, deck: Vec::new() }
    }

    /// Adds events to commit.
    pub(crate) fn go_on(&mut self, events: u64) {
        self.left = events;
    }

    /// A full deck in random order.
    fn shuffled(&mut self) -> Vec<Card> {
        let mut rest: Vec<Card> = DECK.iter().flat_map(|&(card, count)| vec![card; count]).collect();
        let mut deck = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            let place = self.rng.below(rest.len() as u64) as usize;
            deck.push(rest.swap_remove(place));
        }
        deck
    }

    fn draw(&mut self) -> Card {
        if self.deck.is_empty() {
            self.deck = self.shuffled();
        }
        self.deck.pop().unwrap_or(Card::PageView)
    }

    fn owner(&mut self) -> Owner {
        if self.rng.chance(0.25) { Owner::Shop } else { Owner::Outbox }
    }

    fn step(&mut self, state: &'static str, drafts: Vec<Draft>, end: End) -> Step {
        Step { state, drafts, end, owner: self.owner() }
    }

    fn steps(&mut self, card: Card) -> Vec<Step> {
        use Happening::{
            GiftAdded, OrderPaid, OrderPlaced, OrderShipped, PageViewed, PointsEarned, ReminderDue,
        };
        // A rollback tests most where the event could have taken the hot path.
        let any_key = if self.rng.chance(0.5) { Key::Order } else { Key::None };
        let placed = Draft::new(OrderPlaced, Key::Order);
        let points = Draft::new(PointsEarned, Key::Customer);
        match card {
            Card::Order => self.order(placed),
            Card::Points => vec![self.step("placed", vec![placed, points], End::Commit)],
            Card::PageView => vec![self.step("viewed", vec![Draft::new(PageViewed, Key::None)], End::Commit)],
            Card::Declined => {
                let drafts = vec![Draft::new(OrderPlaced, any_key), points];
                vec![self.step("placed", drafts, End::Declined)]
            }
            Card::Swallowed => {
                vec![self.step("placed", vec![Draft::new(OrderPlaced, any_key)], End::Swallowed)]
            }
            Card::Savepoint => {
                vec![self.step("placed", vec![placed], End::Without(Draft::new(GiftAdded, any_key)))]
            }
            Card::FailsTwice => {
                let key = if self.rng.chance(0.5) { Key::Customer } else { Key::Order };
                let failing = Draft::new(OrderPlaced, key).outcome(Treatment::FailsTwice);
                vec![
                    self.step("placed", vec![failing], End::Commit),
                    self.step("paid", vec![Draft::new(OrderPaid, key)], End::Commit),
                ]
            }
            Card::Poison => {
                let mut steps =
                    vec![self.step("placed", vec![placed.outcome(Treatment::Poison)], End::Commit)];
                for happening in [OrderPaid, OrderShipped].into_iter().take(self.rng.below(3) as usize) {
                    steps.push(self.step("poisoned", vec![Draft::new(happening, Key::Order)], End::Commit));
                }
                steps
            }
            // It has no key, because a delayed event that was never tried does not hold its key.
            Card::Reminder => {
                let delay = Some(Duration::from_millis(100 + self.rng.below(300)));
                let reminder = Draft { delay, ..Draft::new(ReminderDue, Key::None) };
                vec![self.step("reminded", vec![reminder], End::Commit)]
            }
        }
    }

    /// Placed, usually paid, often shipped; now and then paid when it is placed.
    fn order(&mut self, placed: Draft) -> Vec<Step> {
        let paid = Draft::new(Happening::OrderPaid, Key::Order);
        let shipped = Draft::new(Happening::OrderShipped, Key::Order);
        let mut steps = if self.rng.chance(0.2) {
            vec![self.step("paid", vec![placed, paid], End::Commit)]
        } else {
            let placed = self.step("placed", vec![placed], End::Commit);
            vec![placed, self.step("paid", vec![paid], End::Commit)]
        };
        if self.rng.chance(0.6) {
            steps.push(self.step("shipped", vec![shipped], End::Commit));
        }
        steps
    }
}

impl Iterator for Stories {
    type Item = Story;

    fn next(&mut self) -> Option<Story> {
        if self.left == 0 {
            return None;
        }
        let card = self.draw();
        let mut steps = self.steps(card);
        // The last story ends where the events do.
        let mut left = self.left;
        steps.retain_mut(|step| {
            step.drafts.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= step.commits();
            !step.drafts.is_empty()
        });
        self.left = left;
        self.dealt += 1;
        Some(Story {
            order: format!("{}-{}", self.start, self.dealt),
            customer: 1 + self.rng.below(CUSTOMERS),
            cents: 100 + self.rng.below(100_000),
            steps,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_tells_the_same_stories() {
        let deal = |seed| Stories::new(seed, 1, 500).collect::<Vec<_>>();
        assert_eq!(deal(7), deal(7));
        assert_ne!(deal(7), deal(8));
    }

    #[test]
    fn exactly_as_many_events_are_committed_as_were_asked_for() {
        for events in [0, 1, 2, 3, 10, 99, 1000] {
            for seed in 0..20 {
                let steps: Vec<Step> = Stories::new(seed, 1, events).flat_map(|story| story.steps).collect();
                assert_eq!(steps.iter().map(Step::commits).sum::<u64>(), events);
                assert!(steps.iter().all(|step| !step.drafts.is_empty()));
            }
        }
    }

    #[test]
    fn a_hundred_stories_hold_every_kind() {
        let stories: Vec<Story> = Stories::new(3, 1, u64::MAX).take(100).collect();
        let steps = || stories.iter().flat_map(|story| &story.steps);
        let drafts = || steps().flat_map(|step| &step.drafts);
        assert_eq!(steps().filter(|step| step.end == End::Declined).count(), 8);
        assert_eq!(steps().filter(|step| step.end == End::Swallowed).count(), 4);
        assert_eq!(steps().filter(|step| matches!(step.end, End::Without(_))).count(), 4);
        assert_eq!(drafts().filter(|draft| draft.outcome == Treatment::FailsTwice).count(), 4);
        assert_eq!(drafts().filter(|draft| draft.outcome == Treatment::Poison).count(), 1);
        assert_eq!(drafts().filter(|draft| draft.delay.is_some()).count(), 4);
        for owner in [Owner::Outbox, Owner::Shop] {
            assert!(steps().any(|step| step.owner == owner));
        }
    }
}
