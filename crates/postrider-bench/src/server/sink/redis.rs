//! The bare Redis client.

use std::sync::Arc;

use postrider::{BoxFuture, Event};
use postrider_relay::Failure;
use redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection};
use serde_json::{Value, json};

use super::{KEPT, Receiver, by_batches, failed, headers};

pub(super) struct Place {
    url: String,
    stream: String,
    connection: MultiplexedConnection,
}

impl Place {
    pub(super) async fn create(url: &str, stream: String) -> Result<Self, Failure> {
        let cannot = |error| failed("connect to Redis")(&error);
        let client = Client::open(url).map_err(cannot)?;
        // No response timeout: a slow server is measured and is not an error.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection =
            client.get_multiplexed_async_connection_with_config(&patient).await.map_err(cannot)?;
        Ok(Self { url: url.to_owned(), stream, connection })
    }
}

impl Receiver for Place {
    fn section(&self) -> Value {
        json!({ "redis": { "url": self.url, "stream": self.stream, "max_len": KEPT } })
    }

    fn produce(&self, events: Arc<Vec<Event>>) -> BoxFuture<'_, Result<(), Failure>> {
        let (stream, connection) = (self.stream.clone(), self.connection.clone());
        let send = move |events: Arc<Vec<Event>>, range: std::ops::Range<usize>| {
            let (stream, mut connection) = (stream.clone(), connection.clone());
            let sent: BoxFuture<'static, _> = Box::pin(async move {
                let mut pipe = redis::pipe();
                for event in events.get(range).into_iter().flatten() {
                    pipe.cmd("XADD").arg(&stream).arg("MAXLEN").arg("~").arg(KEPT).arg("*");
                    for (name, value) in headers(event) {
                        pipe.arg(name).arg(value);
                    }
                    pipe.arg("content-type").arg(event.content_type());
                    pipe.arg("payload").arg(event.payload().as_bytes()).ignore();
                }
                let sent: redis::RedisResult<()> = pipe.query_async(&mut connection).await;
                sent.map_err(|error| failed("add to a stream")(&error))
            });
            sent
        };
        Box::pin(async move { by_batches(&events, send).await })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let mut connection = self.connection.clone();
            let gone: redis::RedisResult<()> =
                redis::cmd("DEL").arg(&self.stream).query_async(&mut connection).await;
            gone.map_err(|error| failed("delete a stream")(&error))
        })
    }
}
