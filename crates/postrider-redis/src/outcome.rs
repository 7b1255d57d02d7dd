//! Turns Redis's replies into outcomes.

use postrider_core::{Outcome, sink::error_chain};
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

/// Interprets the reply to the `XADD` of one event.
pub(crate) fn of_reply(reply: RedisResult<Value>) -> Outcome {
    match reply {
        Ok(Value::BulkString(_) | Value::SimpleString(_) | Value::VerbatimString { .. }) => {
            Outcome::Delivered
        }
        Ok(other) => Outcome::unknown(format!("Redis answered XADD with {other:?} and not with an id")),
        Err(error) if is_outage(&error) => Outcome::unavailable(error_chain(&error)),
        Err(error) => Outcome::retry(error_chain(&error)),
    }
}

/// Whether the error is about the server, its permissions or the stream, and not about the event: an operator can fix it, after which the
/// same event is accepted.
fn is_outage(error: &RedisError) -> bool {
    let by_kind = matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed
            | ErrorKind::Server(
                ServerErrorKind::BusyLoading
                    | ServerErrorKind::ReadOnly
                    | ServerErrorKind::NoPerm
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::TryAgain
                    | ServerErrorKind::Moved
                    | ServerErrorKind::Ask
            )
    );
    let codes = ["OOM", "MISCONF", "NOAUTH", "WRONGPASS", "NOREPLICAS", "WRONGTYPE", "BUSY", "UNKILLABLE"];
    by_kind || error.code().is_some_and(|code| codes.contains(&code))
}

/// Whether the server is a read-only replica: after a failover the old master answers as one, and only a new connection finds the new
/// master.
pub(crate) fn is_misled(reply: &RedisResult<Value>) -> bool {
    matches!(reply, Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly))
}
