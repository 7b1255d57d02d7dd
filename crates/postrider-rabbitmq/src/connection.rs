//! How a connection is made, and its channels.
//!
//! A send has a channel to itself: the client tells which message came back as unroutable only by what it looks like, so that two
//! sends on one channel could take each other's. Channels are used again when all that was sent on them was confirmed.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use lapin::{
    Channel, ConnectionProperties,
    options::ConfirmSelectOptions,
    runtime::default_runtime,
    tcp::{AMQPUriTcpExt, RustlsConnector},
    uri::{AMQPAuthority, AMQPScheme, AMQPUri, AMQPUserInfo},
};
use postrider_core::{ConfigError, sink::error_chain};
use postrider_net::{Address, Connect};
use secrecy::ExposeSecret;

use crate::RabbitConfig;

/// What is said while the broker takes nothing from anybody.
pub(crate) const BLOCKED: &str = "the broker blocks publishers: it is short of memory or disk";
/// The name that the broker lists the connection by.
const NAME: &str = "postrider";
/// Whom a broker knows that nobody has set up, with a password of the same name.
const GUEST: &str = "guest";
/// How many channels are kept for later.
const IDLE_CHANNELS_MAX: usize = 16;
const DEFAULT_VHOST: &str = "/";

/// What is known of the broker.
pub struct Connector {
    address: Address,
    tls: Option<RustlsConnector>,
}

impl Connector {
    pub(crate) fn new(config: &RabbitConfig) -> Result<Self, ConfigError> {
        let encrypted = config.address.scheme.tls;
        let tls = if encrypted { Some(config.tls.client_config()?.into()) } else { None };
        Ok(Self { address: config.address.clone(), tls })
    }

    fn uri(&self) -> AMQPUri {
        let Address { host, port, username, password, path, .. } = &self.address;
        let password = password.as_ref().map_or(GUEST, |password| password.expose_secret());
        AMQPUri {
            // TLS is ours to begin.
            scheme: AMQPScheme::AMQP,
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo {
                    username: username.as_deref().unwrap_or(GUEST).to_owned(),
                    password: password.to_owned(),
                },
                host: host.clone(),
                port: *port,
            },
            vhost: path.as_deref().unwrap_or(DEFAULT_VHOST).to_owned(),
            query: Default::default(),
        }
    }
}

/// A connection; many can send through it at once, each on a channel of its own.
pub struct Connection {
    connection: lapin::Connection,
    idle: Mutex<Vec<Channel>>,
}

impl Connection {
    /// A channel that confirms, and that nobody else uses.
    pub(crate) async fn channel(&self) -> lapin::Result<Channel> {
        loop {
            match self.idle().pop() {
                Some(channel) if channel.status().connected() => return Ok(channel),
                Some(_) => {}
                None => break,
            }
        }
        self.new_channel().await
    }

    /// A channel that confirms and was never used.
    pub(crate) async fn new_channel(&self) -> lapin::Result<Channel> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// Everything that was sent on this channel was confirmed: somebody else may use it.
    pub(crate) fn give_back(&self, channel: Channel) {
        let mut idle = self.idle();
        // The others are closed, so that health checks do not add up.
        if channel.status().connected() && idle.len() < IDLE_CHANNELS_MAX {
            idle.push(channel);
        }
    }

    /// Whether it can be used at all: a channel that fails does not end it.
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.status().connected()
    }

    /// Whether the broker takes nothing now, since it is short of memory or disk.
    pub(crate) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Channel>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connect for Connector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let failed =
            |error: lapin::Error| format!("cannot connect to {}: {}", self.address, error_chain(&error));
        let (tls, host) = (self.tls.clone(), self.address.host.clone());
        let dial = async move |uri: AMQPUri, runtime| {
            let stream = uri.connect_async(&runtime).await?;
            let encrypted: io::Result<_> = match &tls {
                Some(tls) => stream.into_rustls(tls, &host).await,
                None => Ok(stream),
            };
            Ok(encrypted?)
        };
        let properties = ConnectionProperties::default().with_connection_name(NAME.into());
        let runtime = default_runtime().map_err(failed)?;
        let connection =
            lapin::Connection::connector(self.uri(), runtime, dial, properties).await.map_err(failed)?;
        Ok(Connection { connection, idle: Mutex::default() })
    }

    fn is_open(connection: &Connection) -> bool {
        connection.is_connected()
    }
}
