//! Connects to RabbitMQ and manages the channels of a connection.
//!
//! Each send has a channel of its own: the client matches returned messages only by their contents, so two sends on one channel could take each
//! other's. A channel is reused once everything that was sent on it is confirmed.

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

/// The error while the broker accepts nothing from anybody.
pub(crate) const BLOCKED: &str = "the broker blocks publishers: it is short of memory or disk";
/// The name of the connection in the broker's list.
const NAME: &str = "postrider";
/// The default user of a new broker; the password is the same.
const GUEST: &str = "guest";
/// Idle channels that are kept.
const IDLE_CHANNELS_MAX: usize = 16;
const DEFAULT_VHOST: &str = "/";

/// Connects to the broker.
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
            // This crate adds TLS itself.
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

/// A connection that many sends can use at once, each on a channel of its own.
pub struct Connection {
    connection: lapin::Connection,
    idle: Mutex<Vec<Channel>>,
}

impl Connection {
    /// A channel in confirm mode that nobody else uses.
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

    /// A new channel in confirm mode.
    pub(crate) async fn new_channel(&self) -> lapin::Result<Channel> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// Takes back a channel on which everything was confirmed.
    pub(crate) fn give_back(&self, channel: Channel) {
        let mut idle = self.idle();
        // Channels beyond the limit are closed, so that health checks do not add up.
        if channel.status().connected() && idle.len() < IDLE_CHANNELS_MAX {
            idle.push(channel);
        }
    }

    /// Whether the connection is open; a failed channel does not close it.
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.status().connected()
    }

    /// Whether the broker accepts nothing now because it is short of memory or disk.
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
