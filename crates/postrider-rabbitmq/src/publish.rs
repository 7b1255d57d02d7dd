//! Publishes one exchange's part of a batch on a channel of its own, so that a missing exchange ends nothing else.

use std::collections::BTreeMap;

use lapin::options::BasicPublishOptions;
use postrider_core::{Event, Outcome, sink::error_chain};
use postrider_net::Deadline;

use crate::{
    RabbitConfig,
    connection::{BLOCKED, Connection},
    message::{self, Outgoing},
    outcome::{self, Ended},
};

/// The broker returns messages that it can route to no queue.
const MANDATORY: BasicPublishOptions = BasicPublishOptions { mandatory: true, immediate: false };

/// An event, its message until it is sent, and the slot of its outcome.
pub(crate) struct Place<'a> {
    pub(crate) event: &'a Event,
    pub(crate) message: Option<Outgoing<'a>>,
    pub(crate) outcome: &'a mut Option<Outcome>,
}

/// Why the rest of a batch cannot be sent.
pub(crate) enum Stopped {
    /// The connection was lost: events without an outcome may have arrived.
    Lost(String),
    /// The time is up. Events that were sent have their outcome.
    Late,
}

/// Publishes all messages and waits for all confirms, unless something stops it.
pub(crate) async fn publish<'a>(
    config: &'a RabbitConfig,
    connection: &Connection,
    deadline: &Deadline,
    mut places: Vec<Place<'a>>,
) -> Result<(), Stopped> {
    let stopped = match publish_together(connection, deadline, &mut places).await {
        Some(Ended::OverAMessage(_)) => publish_alone(config, connection, deadline, &mut places).await,
        ended => note(&mut places, ended),
    };
    if let Err(Stopped::Late) = &stopped {
        let unanswered = match connection.is_blocked() {
            true => Outcome::unavailable(BLOCKED),
            false => Outcome::unknown(deadline.no_answer()),
        };
        conclude(places.iter_mut().filter(|place| place.message.is_none()), &unanswered);
    }
    stopped
}

/// Publishes each message without an outcome alone, to find the one that ends the channel.
async fn publish_alone<'a>(
    config: &'a RabbitConfig,
    connection: &Connection,
    deadline: &Deadline,
    places: &mut [Place<'a>],
) -> Result<(), Stopped> {
    for place in places.iter_mut().filter(|place| place.outcome.is_none()) {
        place.message = message::outgoing(config, place.event).ok();
        let alone = std::slice::from_mut(place);
        match publish_together(connection, deadline, alone).await {
            Some(Ended::OverAMessage(error)) => conclude(alone.iter_mut(), &Outcome::rejected(error)),
            ended => note(alone, ended)?,
        }
    }
    Ok(())
}

/// Applies the end of a channel to the messages that were on it.
fn note(places: &mut [Place<'_>], ended: Option<Ended>) -> Result<(), Stopped> {
    match ended {
        None => Ok(()),
        Some(Ended::WithTheConnection(error)) => Err(Stopped::Lost(error)),
        Some(Ended::Late) => Err(Stopped::Late),
        Some(Ended::OverTheExchange(error) | Ended::OverAMessage(error)) => {
            conclude(places.iter_mut(), &Outcome::unavailable(error));
            Ok(())
        }
    }
}

/// Publishes all messages on one channel. Returns why the channel ended, if it did.
async fn publish_together(
    connection: &Connection,
    deadline: &Deadline,
    places: &mut [Place<'_>],
) -> Option<Ended> {
    let channel = match deadline.before(connection.channel()).await {
        Some(Ok(channel)) => channel,
        Some(Err(error)) => return Some(Ended::WithTheConnection(error_chain(&error))),
        None => return Some(Ended::Late),
    };
    let mut confirms = Vec::with_capacity(places.len());
    let mut ended = None;
    for place in places.iter_mut() {
        if deadline.is_over() {
            ended = Some(Ended::Late);
            break;
        }
        let Some(message) = place.message.take() else { continue };
        let Outgoing { exchange, routing_key, properties, body } = message;
        let publishing = channel.basic_publish(exchange, routing_key, MANDATORY, &body, properties);
        match deadline.before(publishing).await {
            Some(Ok(confirm)) => confirms.push(confirm),
            Some(Err(error)) => {
                ended = Some(outcome::of_error(&error));
                break;
            }
            None => {
                ended = Some(Ended::Late);
                break;
            }
        }
    }
    // A message is returned before its confirm, but the client may hand it out with the confirm of another message. So wait for all confirms
    // first and match returned messages by ID.
    let mut returned = BTreeMap::new();
    for (confirm, place) in confirms.into_iter().zip(places.iter_mut()) {
        match deadline.before(confirm).await {
            Some(Ok(confirmation)) => {
                *place.outcome = Some(outcome::of_confirm(&confirmation));
                if let Some(message) = confirmation.take_message() {
                    let id = message.properties.message_id().as_ref().map(ToString::to_string);
                    returned.insert(id.unwrap_or_default(), outcome::of_return(&message));
                }
            }
            Some(Err(error)) => ended = Some(outcome::of_error(&error)),
            None => ended = Some(Ended::Late),
        }
    }
    take_back(places, &returned);
    if ended.is_none() {
        connection.give_back(channel);
    } else if !connection.is_connected() {
        return Some(Ended::WithTheConnection("it ended".to_owned()));
    }
    ended
}

/// Returned messages were not delivered. The client hands out at most one returned message per confirm. If a message without its own confirm was
/// returned, it took the place of another returned one, which is now among the confirmed messages and unknown.
fn take_back(places: &mut [Place<'_>], returned: &BTreeMap<String, Outcome>) {
    let unconfirmed = |place: &Place<'_>| place.outcome.is_none();
    let came_back = |place: &Place<'_>| returned.get(place.event.id().as_str()).cloned();
    let hidden = places.iter().any(|place| unconfirmed(place) && came_back(place).is_some());
    for place in places {
        if let Some(outcome) = came_back(place) {
            *place.outcome = Some(outcome);
        } else if hidden && *place.outcome == Some(Outcome::Delivered) {
            *place.outcome = Some(Outcome::unknown("it was confirmed, and may have come back"));
        }
    }
}

/// Gives this outcome to all events without one.
fn conclude<'a: 'b, 'b>(places: impl Iterator<Item = &'b mut Place<'a>>, outcome: &Outcome) {
    for place in places.filter(|place| place.outcome.is_none()) {
        *place.outcome = Some(outcome.clone());
    }
}
