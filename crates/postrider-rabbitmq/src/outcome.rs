//! What the broker answered as an outcome.

use lapin::{Confirmation, Error, ErrorKind, message::BasicReturnMessage, protocol::AMQPErrorKind};
use postrider_core::{Outcome, sink::error_chain};

/// The code with which a channel ends over a message that is too large, or over anything else that is wrong with one message.
const PRECONDITION_FAILED: u16 = 406;

/// What a confirm says, but for what came back; whose that is, is told by the id in it.
pub(crate) fn of_confirm(confirmation: &Confirmation) -> Outcome {
    match confirmation {
        Confirmation::Ack(_) => Outcome::Delivered,
        // A queue that is full and set to refuse, or one that lost its node: it is the queue's state and not the event's fault.
        Confirmation::Nack(_) => {
            Outcome::unavailable("the broker refused it: a queue that takes it is full, or has failed")
        }
        Confirmation::NotRequested => Outcome::unknown("the channel does not confirm"),
    }
}

/// Of a message that came back.
pub(crate) fn of_return(message: &BasicReturnMessage) -> Outcome {
    Outcome::rejected(format!(
        "no queue takes it: {} {} for the exchange {:?} and the routing key {:?}; bind a queue",
        message.reply_code,
        message.reply_text,
        message.delivery.exchange.as_str(),
        message.delivery.routing_key.as_str(),
    ))
}

/// Why a channel ended with what was on it.
pub(crate) enum Ended {
    /// One of the messages was wrong; which one, only sending them alone will tell.
    OverAMessage(String),
    /// The exchange is missing, or closed to us.
    OverTheExchange(String),
    /// The connection is lost.
    WithTheConnection(String),
    /// It did not: the send was over first.
    Late,
}

pub(crate) fn of_error(error: &Error) -> Ended {
    let text = error_chain(error);
    match error.kind() {
        ErrorKind::ProtocolError(error) if error.get_id() == PRECONDITION_FAILED => Ended::OverAMessage(text),
        ErrorKind::ProtocolError(error) if matches!(error.kind(), AMQPErrorKind::Soft(_)) => {
            Ended::OverTheExchange(text)
        }
        _ => Ended::WithTheConnection(text),
    }
}
