//! Batches through one connection.

use std::{borrow::Cow, fmt, time::Duration};

use async_nats::jetstream::context::PublishAckFuture;
use postrider_core::{
    BatchOrder, BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits, sink::error_chain,
};
use postrider_net::{Deadline, Link, destination::varies};

use crate::{
    NatsConfig,
    connection::{Connection, Connector, Over},
    message,
    outcome::{self, Failed},
};

/// Events as messages of JetStream. See the documentation of this crate for what it promises.
pub struct NatsSink {
    config: NatsConfig,
    link: Link<Connector>,
}

impl fmt::Debug for NatsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSink").field("config", &self.config).field("link", &self.link).finish()
    }
}

/// An event on its way: its outcome, or what will tell it.
enum Sent {
    Known(Outcome),
    Lost(String),
    Waiting(String, PublishAckFuture),
}

/// Why there is no answer of the stream's.
enum Unanswered {
    Lost(String),
    Late,
}

impl NatsSink {
    /// Checks the configuration and reads the files of TLS and of credentials. Nothing is connected before the first event.
    pub fn new(config: NatsConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let link = Link::new(Connector::new(&config)?, config.connect_timeout);
        Ok(Self { config, link })
    }

    /// All are sent, and then all are waited for.
    async fn send_batch(&self, batch: &[Delivery]) -> Vec<Outcome> {
        if batch.is_empty() {
            return Vec::new();
        }
        let deadline = Deadline::within(self.config.send_timeout);
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
            Some(error) => self.lost(&error, &deadline).await,
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
                // A client that connects again takes nothing once its queue is full.
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

    /// The connection was lost under what was sent. If a server is there, nobody knows what was stored; if none is, it is down.
    async fn lost(&self, error: &str, deadline: &Deadline) -> Outcome {
        match deadline.before(self.link.get()).await {
            Some(Ok(_)) | None => {
                Outcome::unknown(format!("the connection was lost before the acknowledgement: {error}"))
            }
            Some(Err(down)) => {
                Outcome::unavailable(format!("{down}; the connection before was lost: {error}"))
            }
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

/// What became of an event; or why nobody has told.
async fn acknowledged(over: &mut Over, deadline: &Deadline, sent: Sent) -> Result<Outcome, Unanswered> {
    let (subject, acknowledgement) = match sent {
        Sent::Known(outcome) => return Ok(outcome),
        Sent::Lost(error) => return Err(Unanswered::Lost(error)),
        Sent::Waiting(subject, acknowledgement) => (subject, acknowledgement),
    };
    let waiting = deadline.before(async {
        tokio::select! {
            // What was acknowledged before the end counts.
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
        SinkTraits {
            batch_max: self.config.batch_max,
            order: BatchOrder::Independent,
            send_timeout: Some(self.config.send_timeout),
            ..SinkTraits::SINK
        }
    }

    /// The subject, where it differs from event to event: each may belong to another stream.
    fn destination(&self, event: &Event) -> Option<String> {
        varies(&self.config.subject).then(|| message::subject(&self.config, event).ok())?.map(Cow::into_owned)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(self.send_batch(batch))
    }

    /// Asks JetStream for the account; twice, if the connection turns out to have ended while nobody used it.
    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(async {
            let asked = match self.ask().await {
                Ok(()) => Ok(()),
                Err(_) => self.ask().await,
            };
            asked.map_or_else(|error| Health::Down { error }, |()| Health::Up)
        })
    }
}
