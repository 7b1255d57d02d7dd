//! One exchange's part of a batch, on a channel of its own: a missing exchange ends the channel, and must end nothing else.

use std::collections::BTreeMap;

use lapin::{Confirmation, options::BasicPublishOptions};
use postrider_core::{Outcome, sink::error_chain};

use crate::{
    connection::Connection,
    message::Outgoing,
    outcome::{self, Ended},
};

/// Whoever can route it to no queue is to say so.
const MANDATORY: BasicPublishOptions = BasicPublishOptions { mandatory: true, immediate: false };

/// A message, and where its outcome goes.
pub(crate) type Place<'a> = (Outgoing<'a>, &'a mut Option<Outcome>);

/// Sends all and waits for all. The connection was lost if it says so: what has no outcome then may have arrived.
pub(crate) async fn publish(connection: &Connection, mut places: Vec<Place<'_>>) -> Result<(), String> {
    match publish_together(connection, &mut places).await {
        None => Ok(()),
        Some(Ended::WithTheConnection(error)) => Err(error),
        Some(Ended::OverTheExchange(error)) => {
            unconfirmed(&mut places).for_each(|(_, place)| **place = Some(Outcome::unavailable(&error)));
            Ok(())
        }
        Some(Ended::OverAMessage(_)) => publish_alone(connection, places).await,
    }
}

/// Each of those that have no outcome on its own, so that the one that ends the channel is known.
async fn publish_alone(connection: &Connection, places: Vec<Place<'_>>) -> Result<(), String> {
    for (message, place) in places {
        if place.is_some() {
            continue;
        }
        let mut alone = vec![(message, place)];
        match publish_together(connection, &mut alone).await {
            None => {}
            Some(Ended::WithTheConnection(error)) => return Err(error),
            Some(Ended::OverTheExchange(error)) => {
                unconfirmed(&mut alone).for_each(|(_, place)| **place = Some(Outcome::unavailable(&error)));
            }
            Some(Ended::OverAMessage(error)) => {
                unconfirmed(&mut alone).for_each(|(_, place)| **place = Some(Outcome::rejected(&error)));
            }
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
    for (message, _) in places.iter() {
        let (exchange, routing_key) = (message.exchange.clone(), message.routing_key.clone());
        let properties = message.properties.clone();
        match channel.basic_publish(exchange, routing_key, MANDATORY, &message.body, properties).await {
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
    for (confirm, (_, place)) in confirms.into_iter().zip(places.iter_mut()) {
        match confirm.await {
            Ok(confirmation) => {
                **place = Some(outcome::of_confirm(&confirmation));
                if let Confirmation::Ack(Some(message)) | Confirmation::Nack(Some(message)) = confirmation {
                    let id = message.properties.message_id().as_ref().map(ToString::to_string);
                    returned.insert(id, outcome::of_return(&message));
                }
            }
            Err(error) => ended = Some(outcome::of_error(&error)),
        }
    }
    if !returned.is_empty() {
        for (message, place) in places.iter_mut() {
            let id = message.properties.message_id().as_ref().map(ToString::to_string);
            if let Some(outcome) = returned.remove(&id) {
                **place = Some(outcome);
            }
        }
    }
    if ended.is_none() {
        connection.give_back(channel);
    } else if !connection.is_connected() {
        return Some(Ended::WithTheConnection("it ended".to_owned()));
    }
    ended
}

fn unconfirmed<'a, 'b>(places: &'a mut [Place<'b>]) -> impl Iterator<Item = &'a mut Place<'b>> {
    places.iter_mut().filter(|(_, place)| place.is_none())
}
