//! Turns the broker's answers into outcomes.

use lapin::{Confirmation, Error, ErrorKind, message::BasicReturnMessage, protocol::AMQPErrorKind};
use postrider_core::{Outcome, sink::error_chain};

/// The code with which a channel ends because of a message that is too large or otherwise wrong.
const PRECONDITION_FAILED: u16 = 406;

/// Interprets a confirm. A returned message is handled apart, because it may come with the confirm of another.
pub(crate) fn of_confirm(confirmation: &Confirmation) -> Outcome {
    match confirmation {
        Confirmation::Ack(_) => Outcome::Delivered,
        // A queue that is full and set to refuse, or that lost its node; the event is not at fault.
        Confirmation::Nack(_) => {
            Outcome::unavailable("the broker refused it: a queue that takes it is full, or has failed")
        }
        Confirmation::NotRequested => Outcome::unknown("the channel does not confirm"),
    }
}

/// Interprets a returned message.
pub(crate) fn of_return(message: &BasicReturnMessage) -> Outcome {
    Outcome::rejected(format!(
        "no queue takes it: {} {} for the exchange {:?} and the routing key {:?}; bind a queue",
        message.reply_code,
        message.reply_text,
        message.delivery.exchange.as_str(),
        message.delivery.routing_key.as_str(),
    ))
}

/// Why a channel ended before everything on it was confirmed.
pub(crate) enum Ended {
    /// One of the messages was wrong; only sending them alone shows which.
    OverAMessage(String),
    /// The exchange is missing, or access to it is refused.
    OverTheExchange(String),
    /// The connection was lost.
    WithTheConnection(String),
    /// It did not end: the time of the send was up.
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
