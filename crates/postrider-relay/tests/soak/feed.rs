//! The consumer of the Redis streams. Each relay writes to its own, so that it is known who delivered what.

use std::{sync::Arc, time::Duration};

use redis::{AsyncCommands, aio::MultiplexedConnection, streams::StreamRangeReply};
use tokio_util::sync::CancellationToken;

use crate::{
    Failure,
    ledger::{Arrival, Number, RelayId},
    stage::Shared,
    time::{Micros, pass},
    world::FEED,
};

/// Most entries that are read at once.
const PAGE: usize = 500;

/// How often the streams are read. When an entry was added is in its id.
const READ_EVERY: Duration = Duration::from_millis(50);

/// A stream is read for so long after its relay has ended: a proxy may have kept something back.
const READ_AFTER_END: Micros = 120_000_000;

pub(crate) fn stream(run: &str, relay: RelayId) -> String {
    format!("{run}:{relay}")
}

/// One stream, and how far it was read.
struct Cursor {
    relay: RelayId,
    stream: String,
    last: String,
}

/// Reads until it is told to stop, and then what is left.
pub(crate) async fn consume(
    shared: Arc<Shared>,
    url: String,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let client = redis::Client::open(url)?;
    let mut redis = client.get_multiplexed_async_connection().await?;
    let mut cursors: Vec<Cursor> = Vec::new();
    let mut known = 0;
    loop {
        let last_time = stop.is_cancelled();
        for relay in shared.roster.after(known) {
            known += 1;
            cursors.push(Cursor { relay, stream: stream(&shared.run, relay), last: "-".to_owned() });
        }
        let now = shared.clock.now();
        let mut kept = Vec::new();
        for mut cursor in cursors {
            // A server that others stop for a while is no reason to give up.
            if let Err(error) = read(&shared, &mut redis, &mut cursor).await {
                shared.history.note(now, format_args!("the feed cannot be read: {error}"));
                redis = client.get_multiplexed_async_connection().await?;
            }
            let ended = shared.roster.ended_at(cursor.relay);
            if last_time || ended.is_some_and(|at| now > at.saturating_add(READ_AFTER_END)) {
                redis.del::<_, ()>(&cursor.stream).await?;
            } else {
                kept.push(cursor);
            }
        }
        cursors = kept;
        if last_time {
            return Ok(());
        }
        pass(READ_EVERY).await;
    }
}

async fn read(
    shared: &Shared,
    redis: &mut MultiplexedConnection,
    cursor: &mut Cursor,
) -> Result<(), Failure> {
    loop {
        let page: StreamRangeReply = redis.xrange_count(&cursor.stream, &cursor.last, "+", PAGE).await?;
        let count = page.ids.len();
        for entry in page.ids {
            let (ms, sequence) = entry.id.split_once('-').ok_or("an entry without a time")?;
            let (ms, sequence): (u64, u64) = (ms.parse()?, sequence.parse()?);
            let at = shared.clock.of_unix(Duration::from_millis(ms)) + sequence.min(999);
            let id: String = entry.get("event-id").ok_or("an entry without an id")?;
            let number: Number = id.strip_prefix('e').ok_or("a foreign id")?.parse()?;
            shared.arrived(number, Arrival { at, by: cursor.relay, acknowledged: true }, FEED);
            cursor.last = format!("({}", entry.id);
        }
        if count < PAGE {
            break;
        }
    }
    // What was read need not be kept.
    if let Some(last) = cursor.last.strip_prefix('(') {
        let trim = redis::cmd("XTRIM").arg(&cursor.stream).arg("MINID").arg(last).to_owned();
        trim.query_async::<i64>(redis).await?;
    }
    Ok(())
}
