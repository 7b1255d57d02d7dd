//! The NATS sink: sends batches through one connection at a time.

use std::{borrow::Cow, time::Duration};

use async_nats::jetstream::context::PublishAckFuture;
use postrider_core::{
    BatchOrder, BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits, sink::error_chain,
};
use postrider_net::{Deadline, Link, destination::varies, health};

use crate::{
    NatsConfig,
    connection::{Connection, Connector, Over},
    message,
    outcome::{self, Failed},
};

/// Events as JetStream messages. The crate's documentation lists its promises.
#[derive(Debug)]
pub struct NatsSink {
    config: NatsConfig,
    link: Link<Connector>,
}

/// An event that was sent: its outcome, or the acknowledgement to wait for.
enum Sent {
    Known(Outcome),
    Lost(String),
    Waiting(String, PublishAckFuture),
}

/// Why an acknowledgement did not come.
enum Unanswered {
    Lost(String),
    Late,
}

impl NatsSink {
    /// Checks the configuration and reads the files of TLS and of credentials. The first event connects.
    pub fn new(config: NatsConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let link = Link::new(Connector::new(&config)?, config.limits.connect_timeout);
        Ok(Self { config, link })
    }

    /// Sends all events, then waits for all acknowledgements.
    async fn send_batch(&self, batch: &[Delivery]) -> Vec<Outcome> {
        if batch.is_empty() {
            return Vec::new();
        }
        let deadline = Deadline::within(self.config.limits.send_timeout);
        let connection = match self.link.get_before(&deadline).await {
            Ok(connection) => connection,
            Err(down) => return vec![Outcome::unavailable(down); batch.len()],
        };
        let watch = self.link.watch(&connection);
        let mut over = connection.over();
        let mut sent = Vec::with_capacity(batch.len());
        for delivery in batch {
            sent.push(self.publish(&connection, &mut over, &deadline, delivery).await);
        }
        let (mut lost, mut late) = (None, false);
        let mut outcomes = Vec::with_capacity(batch.len());
        for sent in sent {
            outcomes.push(match acknowledged(&mut over, &deadline, sent).await {
                Ok(outcome) => Some(outcome),
                Err(Unanswered::Late) => {
                    late = true;
                    Some(Outcome::unknown(deadline.no_answer()))
                }
                Err(Unanswered::Lost(error)) => {
                    lost = Some(error);
                    None
                }
            });
        }
        if lost.is_none() && !late {
            watch.answered();
        } else {
            drop(watch);
        }
        let lost = match lost {
            Some(error) => self.link.lost("the acknowledgement", &error, &deadline).await,
            None => Outcome::missing(),
        };
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| lost.clone())).collect()
    }

    async fn publish(
        &self,
        connection: &Connection,
        over: &mut Over,
        deadline: &Deadline,
        delivery: &Delivery,
    ) -> Sent {
        let (subject, message) = match message::publish(&self.config, delivery) {
            Ok(message) => message,
            Err(reason) => return Sent::Known(Outcome::rejected(reason)),
        };
        let not_sent = || Sent::Known(Outcome::deferred(Duration::ZERO));
        if deadline.is_over() {
            return not_sent();
        }
        let publishing = deadline.before(async {
            tokio::select! {
                biased;
                published = connection.jetstream().send_publish(subject.clone(), message) => Some(published),
                // A client that reconnects accepts nothing once its queue is full.
                () = over.wait() => None,
            }
        });
        let published = match publishing.await {
            Some(Some(published)) => published,
            Some(None) => return Sent::Lost("it ended".to_owned()),
            None => return not_sent(),
        };
        match published {
            Ok(acknowledgement) => Sent::Waiting(subject, acknowledgement),
            Err(error) => match outcome::of_error(&subject, &error) {
                Failed::Event(outcome) => Sent::Known(outcome),
                Failed::Connection(error) => Sent::Lost(error),
            },
        }
    }

    async fn ask(&self) -> Result<(), String> {
        let connection = self.link.get().await?;
        let watch = self.link.watch(&connection);
        let mut over = connection.over();
        let answer = tokio::select! {
            biased;
            answer = connection.jetstream().query_account() => answer,
            () = over.wait() => return Err("the connection was lost".to_owned()),
        };
        watch.answered();
        answer.map(|_| ()).map_err(|error| format!("JetStream does not answer: {}", error_chain(&error)))
    }
}

/// Waits for the outcome of an event.
async fn acknowledged(over: &mut Over, deadline: &Deadline, sent: Sent) -> Result<Outcome, Unanswered> {
    let (subject, acknowledgement) = match sent {
        Sent::Known(outcome) => return Ok(outcome),
        Sent::Lost(error) => return Err(Unanswered::Lost(error)),
        Sent::Waiting(subject, acknowledgement) => (subject, acknowledgement),
    };
    let waiting = deadline.before(async {
        tokio::select! {
            // An acknowledgement that came before the end of the connection counts.
            biased;
            acknowledged = acknowledgement.into_future() => Some(acknowledged),
            () = over.wait() => None,
        }
    });
    match waiting.await {
        Some(Some(Ok(_))) => Ok(Outcome::Delivered),
        Some(Some(Err(error))) => match outcome::of_error(&subject, &error) {
            Failed::Event(outcome) => Ok(outcome),
            Failed::Connection(error) => Err(Unanswered::Lost(error)),
        },
        Some(None) => Err(Unanswered::Lost("it ended".to_owned())),
        None => Err(Unanswered::Late),
    }
}

impl Sink for NatsSink {
    fn traits(&self) -> SinkTraits {
        self.config.limits.traits(BatchOrder::Independent)
    }

    /// The subject, if subjects differ from event to event: each may belong to another stream.
    fn destination(&self, event: &Event) -> Option<String> {
        varies(&self.config.subject).then(|| message::subject(&self.config, event).ok())?.map(Cow::into_owned)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(self.send_batch(batch))
    }

    /// Asks JetStream for its account.
    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(health::ask_twice(|| self.ask()))
    }
}
