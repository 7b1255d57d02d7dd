//! Turns an event into an `XADD` command.

use postrider_core::Event;
use redis::Cmd;

use crate::{RedisConfig, config::CONTENT_TYPE};

/// The prefix of CloudEvents attributes in fields.
const ATTRIBUTE_PREFIX: &str = "ce-";

/// The `XADD` of an event, or why it has none.
pub(crate) fn command(config: &RedisConfig, event: &Event) -> Result<Cmd, String> {
    let stream = config.stream.resolve(event)?;
    let message = config.format.message(event, ATTRIBUTE_PREFIX);
    if message.headers.iter().any(|(name, _)| *name == *config.payload_field) {
        let field = &config.payload_field;
        return Err(format!(
            "the event has a header {field:?}, which is the field of the payload: rename the header, or set payload_field where the sink is built"
        ));
    }
    // The names and values are known, so only the lengths between them are estimated.
    let headers: usize = message.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let mut command = Cmd::with_capacity(
        2 * message.headers.len() + 10,
        headers + message.body.len() + stream.len() + message.content_type.len() + 64,
    );
    command.arg("XADD").arg(&*stream);
    if let Some(entries) = config.stream_len_max {
        command.arg("MAXLEN").arg("~").arg(entries);
    }
    command.arg("*");
    for (name, value) in &message.headers {
        // The event's own content type follows below.
        if !name.eq_ignore_ascii_case(CONTENT_TYPE) {
            command.arg(&**name).arg(&**value);
        }
    }
    command.arg(CONTENT_TYPE).arg(&*message.content_type);
    command.arg(&config.payload_field).arg(&*message.body);
    Ok(command)
}
