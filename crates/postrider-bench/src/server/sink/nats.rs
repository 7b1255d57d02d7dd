//! The bare NATS JetStream client.

use std::sync::Arc;

use async_nats::{
    ConnectOptions, HeaderMap, ServerAddr,
    jetstream::{self, Context, message::PublishMessage, stream},
};
use postrider::{BoxFuture, Event};
use postrider_relay::Failure;
use serde_json::{Value, json};

use super::{KEPT, Receiver, by_batches, failed, headers};

pub(super) struct Place {
    url: String,
    subject: String,
    context: Context,
}

impl Place {
    pub(super) async fn create(url: &str, subject: String) -> Result<Self, Failure> {
        let address: ServerAddr =
            url.parse().map_err(|error: std::io::Error| failed("use the URL")(&error))?;
        let options = match (address.username(), address.password()) {
            (Some(user), Some(password)) => {
                ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned())
            }
            _ => ConnectOptions::new(),
        };
        let client = options.connect(address).await.map_err(|error| failed("connect to NATS")(&error))?;
        let context = jetstream::new(client);
        let wanted = stream::Config {
            name: subject.clone(),
            subjects: vec![subject.clone()],
            max_messages: KEPT,
            ..stream::Config::default()
        };
        context.create_stream(wanted).await.map_err(|error| failed("create a stream")(&error))?;
        Ok(Self { url: url.to_owned(), subject, context })
    }
}

impl Receiver for Place {
    fn section(&self) -> Value {
        json!({ "nats": { "url": self.url, "subject": self.subject } })
    }

    fn produce(&self, events: Arc<Vec<Event>>) -> BoxFuture<'_, Result<(), Failure>> {
        let (subject, context) = (self.subject.clone(), self.context.clone());
        let send = move |events: Arc<Vec<Event>>, range: std::ops::Range<usize>| {
            let (subject, context) = (subject.clone(), context.clone());
            let sent: BoxFuture<'static, _> = Box::pin(async move {
                let mut acknowledgements = Vec::new();
                for event in events.get(range).into_iter().flatten() {
                    let mut map = HeaderMap::new();
                    for (name, value) in headers(event) {
                        map.insert(name, value);
                    }
                    map.insert("content-type", event.content_type());
                    let payload = event.payload().as_bytes().to_vec().into();
                    let message = PublishMessage::build().headers(map).payload(payload);
                    let sent = context.send_publish(subject.clone(), message).await;
                    acknowledgements.push(sent.map_err(|error| failed("publish")(&error))?);
                }
                for acknowledgement in acknowledgements {
                    acknowledgement.await.map_err(|error| failed("publish")(&error))?;
                }
                Ok(())
            });
            sent
        };
        Box::pin(async move { by_batches(&events, send).await })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let gone = self.context.delete_stream(&self.subject).await;
            gone.map(|_| ()).map_err(|error| failed("delete a stream")(&error))
        })
    }
}
