//! One exchange's part of a batch, on a channel of its own: a missing exchange ends the channel, and must end nothing else.

use std::collections::BTreeMap;

use lapin::options::BasicPublishOptions;
use postrider_core::{Event, Outcome, sink::error_chain};

use crate::{
    RabbitConfig,
    connection::Connection,
    message::{self, Outgoing},
    outcome::{self, Ended},
};

/// Whoever can route it to no queue is to say so.
const MANDATORY: BasicPublishOptions = BasicPublishOptions { mandatory: true, immediate: false };

/// An event, its message until it is sent, and where its outcome goes.
pub(crate) struct Place<'a> {
    pub(crate) event: &'a Event,
    pub(crate) message: Option<Outgoing<'a>>,
    pub(crate) outcome: &'a mut Option<Outcome>,
}

/// Sends all and waits for all. The connection was lost if it says so: what has no outcome then may have arrived.
pub(crate) async fn publish<'a>(
    config: &'a RabbitConfig,
    connection: &Connection,
    mut places: Vec<Place<'a>>,
) -> Result<(), String> {
    match publish_together(connection, &mut places).await {
        None => Ok(()),
        Some(Ended::WithTheConnection(error)) => Err(error),
        Some(Ended::OverTheExchange(error)) => {
            conclude(&mut places, &Outcome::unavailable(error));
            Ok(())
        }
        Some(Ended::OverAMessage(_)) => publish_alone(config, connection, places).await,
    }
}

/// Each of those that have no outcome on its own, so that the one that ends the channel is known.
async fn publish_alone<'a>(
    config: &'a RabbitConfig,
    connection: &Connection,
    places: Vec<Place<'a>>,
) -> Result<(), String> {
    for mut place in places.into_iter().filter(|place| place.outcome.is_none()) {
        place.message = message::outgoing(config, place.event).ok();
        let mut alone = [place];
        match publish_together(connection, &mut alone).await {
            None => {}
            Some(Ended::WithTheConnection(error)) => return Err(error),
            Some(Ended::OverTheExchange(error)) => conclude(&mut alone, &Outcome::unavailable(error)),
            Some(Ended::OverAMessage(error)) => conclude(&mut alone, &Outcome::rejected(error)),
        }
    }
    Ok(())
}

/// Gives what it can an outcome; if the channel ended before that, why.
async fn publish_together(connection: &Connection, places: &mut [Place<'_>]) -> Option<Ended> {
    let channel = match connection.channel().await {
        Ok(channel) => channel,
        Err(error) => return Some(Ended::WithTheConnection(error_chain(&error))),
    };
    let mut confirms = Vec::with_capacity(places.len());
    let mut ended = None;
    for message in places.iter_mut().filter_map(|place| place.message.take()) {
        let Outgoing { exchange, routing_key, properties, body } = message;
        match channel.basic_publish(exchange, routing_key, MANDATORY, &body, properties).await {
            Ok(confirm) => confirms.push(confirm),
            Err(error) => {
                ended = Some(outcome::of_error(&error));
                break;
            }
        }
    }
    // A message that comes back does so before its confirm, but the client may hand it out with the confirm of another message:
    // so all confirms are awaited first, and what came back is told by its id.
    let mut returned = BTreeMap::new();
    for (confirm, place) in confirms.into_iter().zip(places.iter_mut()) {
        match confirm.await {
            Ok(confirmation) => {
                *place.outcome = Some(outcome::of_confirm(&confirmation));
                if let Some(message) = confirmation.take_message() {
                    let id = message.properties.message_id().as_ref().map(ToString::to_string);
                    returned.insert(id.unwrap_or_default(), outcome::of_return(&message));
                }
            }
            Err(error) => ended = Some(outcome::of_error(&error)),
        }
    }
    for place in places.iter_mut().filter(|_| !returned.is_empty()) {
        if let Some(outcome) = returned.get(place.event.id().as_str()) {
            *place.outcome = Some(outcome.clone());
        }
    }
    if ended.is_none() {
        connection.give_back(channel);
    } else if !connection.is_connected() {
        return Some(Ended::WithTheConnection("it ended".to_owned()));
    }
    ended
}

/// What has no outcome has this one.
fn conclude(places: &mut [Place<'_>], outcome: &Outcome) {
    for place in places.iter_mut().filter(|place| place.outcome.is_none()) {
        *place.outcome = Some(outcome.clone());
    }
}
