//! Sends one batch: plans, posts and splits.

use std::{collections::HashMap, time::Duration};

use postrider_core::{Delivery, Outcome};
use tokio::time::Instant;

use super::{plan::plan, results};
use crate::{
    Acknowledgement, BatchConfig,
    client::{Client, Request},
    hold_off::HoldOffs,
    limits,
    outcome::{Interpreted, Meaning, interpret},
};

/// Sends a batch and returns the outcome of each event.
pub(super) async fn send(config: &BatchConfig, client: &Client, batch: &[Delivery]) -> Vec<Outcome> {
    let begin_until = Instant::now() + config.endpoint.request_timeout;
    let mut sending = Sending {
        config,
        client,
        batch,
        outcomes: vec![None; batch.len()],
        stopped: HashMap::new(),
        begin_until,
        hold_offs: HoldOffs::default(),
        no_connection: None,
    };
    sending.run().await;
    sending.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(Outcome::missing)).collect()
}

struct Sending<'a> {
    config: &'a BatchConfig,
    client: &'a Client,
    batch: &'a [Delivery],
    outcomes: Vec<Option<Outcome>>,
    /// The keys with an event that was not delivered, and the outcome of its followers.
    stopped: HashMap<&'a str, Outcome>,
    /// No request begins after this. Remaining events are deferred.
    begin_until: Instant,
    hold_offs: HoldOffs,
    /// Why nothing can be sent at all.
    no_connection: Option<Outcome>,
}

impl<'a> Sending<'a> {
    async fn run(&mut self) {
        let mut paths = Vec::with_capacity(self.batch.len());
        for (place, delivery) in self.batch.iter().enumerate() {
            if self.is_stopped(place) {
                continue;
            }
            let fit = self.config.body.takes(&delivery.event);
            match fit.and_then(|()| self.config.endpoint.path_of(&delivery.event)) {
                Ok(path) => paths.push((place, path)),
                Err(error) => self.note(place, Outcome::rejected(error)),
            }
        }
        for planned in plan(self.batch, paths) {
            // A stack of parts, the first on top. A refused part is replaced by its halves.
            let mut parts = vec![planned.places];
            while let Some(part) = parts.pop() {
                if let Some([first, second]) = self.deliver(&planned.path, part).await {
                    parts.push(second);
                    parts.push(first);
                }
            }
        }
    }

    /// Sends a part of the batch and records its outcomes, or returns its halves if an event in it was refused.
    async fn deliver(&mut self, path: &str, mut part: Vec<usize>) -> Option<[Vec<usize>; 2]> {
        part.retain(|place| !self.is_stopped(*place));
        if part.is_empty() {
            return None;
        }
        if let Some(outcome) = self.not_now(path) {
            self.note_all(&part, &outcome);
            return None;
        }
        let interpreted = match self.client.base.url(path) {
            Ok(url) => {
                let answer_bytes = match self.config.acknowledgement {
                    Acknowledgement::Whole => limits::ANSWER_BYTES_MAX,
                    Acknowledgement::EachItem => limits::RESULTS_BYTES_MAX,
                };
                let body = self.config.body.build(self.batch, &part);
                let content_type = self.config.body.content_type();
                let request = Request { url, content_type, headers: Default::default(), body, answer_bytes };
                let answer = self.client.post(request).await;
                interpret(self.client, &mut self.hold_offs, path, (part.len(), answer))
            }
            Err(error) => {
                self.note_all(&part, &Outcome::rejected(format!("the path {path:?} is none: {error}")));
                return None;
            }
        };
        self.take(part, interpreted)
    }

    /// The outcome of events for this path without a request, if there is one.
    fn not_now(&self, path: &str) -> Option<Outcome> {
        if let Some(outcome) = &self.no_connection {
            return Some(outcome.clone());
        }
        // Splitting a large batch takes many requests; this ends the send before the engine would.
        if Instant::now() >= self.begin_until {
            return Some(Outcome::deferred(Duration::ZERO));
        }
        self.hold_offs.outcome(path)
    }

    fn take(&mut self, part: Vec<usize>, interpreted: Interpreted) -> Option<[Vec<usize>; 2]> {
        if interpreted.no_connection {
            self.no_connection = Some(interpreted.outcome.clone());
        }
        match (interpreted.meaning, interpreted.received) {
            (Meaning::Refused, _) if part.len() > 1 => {
                let mut first = part;
                let second = first.split_off(first.len() / 2);
                return Some([first, second]);
            }
            (Meaning::Delivered, Some(received))
                if self.config.acknowledgement == Acknowledgement::EachItem =>
            {
                let outcomes = results::read(self.client, &received, self.batch, &part);
                for (place, outcome) in part.into_iter().zip(outcomes) {
                    self.note(place, outcome);
                }
            }
            _ => self.note_all(&part, &interpreted.outcome),
        }
        None
    }

    fn note_all(&mut self, part: &[usize], outcome: &Outcome) {
        for place in part {
            self.note(*place, outcome.clone());
        }
    }

    fn note(&mut self, place: usize, outcome: Outcome) {
        if outcome != Outcome::Delivered
            && let Some(key) = self.key(place)
        {
            // A follower was not tried, so it costs no attempt; but it shows no life of the receiver either.
            let behind = match &outcome {
                Outcome::Unavailable { .. } => outcome.clone(),
                _ => Outcome::deferred(Duration::ZERO),
            };
            self.stopped.entry(key).or_insert(behind);
        }
        if let Some(slot) = self.outcomes.get_mut(place) {
            slot.get_or_insert(outcome);
        }
    }

    /// Whether an earlier event of the same key was not delivered; then this one waits.
    fn is_stopped(&mut self, place: usize) -> bool {
        let behind = self.key(place).and_then(|key| self.stopped.get(key)).cloned();
        let stopped = behind.is_some();
        if let (Some(behind), Some(slot)) = (behind, self.outcomes.get_mut(place)) {
            slot.get_or_insert(behind);
        }
        stopped
    }

    fn key(&self, place: usize) -> Option<&'a str> {
        self.batch.get(place)?.event.key()
    }
}
