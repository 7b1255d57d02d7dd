//! A proxy that stands before a server and does to its connections what networks do.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
//! use postrider_testkit::proxy::{Direction, Proxy};
//!
//! # let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let proxy = Proxy::start(server.local_addr()?.to_string()).await?;
//! let url = format!("postgres://user@{}/shop", proxy.address()); // for the program under test
//!
//! proxy.stall(Direction::ToClient); // a commit arrives, and nobody hears of it
//! proxy.cut();                      // and now nobody ever will
//! proxy.flow(Direction::ToClient);  // the next connection is a good one
//! # Ok(()) }
//! ```
//!
//! Each connection has one buffer of [`BUFFER_BYTES`] for each direction. While a direction is stalled, nothing more than that
//! is taken from who sends; the rest waits where it would wait behind any slow network.

mod pump;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
pub mod tls;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};
use tracing::debug;

/// Most bytes that are held back of one direction of one connection.
pub const BUFFER_BYTES: usize = 16 * 1024;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Replies.
    ToClient,
}

impl Direction {
    /// This direction's of two things.
    fn of<T>(self, [to_server, to_client]: [T; 2]) -> T {
        match self {
            Self::ToServer => to_server,
            Self::ToClient => to_client,
        }
    }

    fn place<T>(self, [to_server, to_client]: &mut [T; 2]) -> &mut T {
        match self {
            Self::ToServer => to_server,
            Self::ToClient => to_client,
        }
    }
}

/// What is done to connections now.
#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    refusing: bool,
    stalled: [bool; 2],
    delay: [Duration; 2],
    /// How often everything was cut: a connection of an earlier count is over.
    cuts: u64,
    /// How often everything fell silent: a connection of an earlier count passes nothing on.
    silences: u64,
}

/// What has happened so far, for each direction.
#[derive(Debug, Default)]
struct Counts {
    open: AtomicU64,
    /// Bytes that were passed on.
    forwarded: [AtomicU64; 2],
    /// Bytes that are in a buffer.
    held: [AtomicU64; 2],
}

/// A proxy before one server, on a port of its own of this host. It ends, and cuts what is open, when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    counts: Arc<Counts>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port, and forwards to a server that is named by `host:port`.
    pub async fn start(server: impl Into<String>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (weather, seen) = watch::channel(Weather::default());
        let counts = Arc::<Counts>::default();
        let accepting = tokio::spawn(accept(listener, server.into(), seen, Arc::clone(&counts)));
        Ok(Self { address, weather, counts, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends every open connection. What is held back is lost. New ones are let in, unless they are [refused](Self::refuse).
    pub fn cut(&self) {
        self.weather.send_modify(|weather| weather.cuts += 1);
    }

    /// From now on every open connection passes nothing on, both ways, and stays open until it is cut: nobody is told. New ones are good.
    pub fn silence(&self) {
        self.weather.send_modify(|weather| weather.silences += 1);
    }

    /// From now on a new connection ends as soon as it is opened. Open ones stay.
    pub fn refuse(&self) {
        self.weather.send_modify(|weather| weather.refusing = true);
    }

    /// Lets new connections in again.
    pub fn admit(&self) {
        self.weather.send_modify(|weather| weather.refusing = false);
    }

    /// From now on nothing is passed on in this direction, on open and on new connections.
    pub fn stall(&self, direction: Direction) {
        self.weather.send_modify(|weather| *direction.place(&mut weather.stalled) = true);
    }

    /// Ends a stall. What was held back is passed on.
    pub fn flow(&self, direction: Direction) {
        self.weather.send_modify(|weather| *direction.place(&mut weather.stalled) = false);
    }

    /// From now on whatever is read at once in this direction is passed on so much later; zero ends it.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.weather.send_modify(|weather| *direction.place(&mut weather.delay) = delay);
    }

    /// How many connections are open.
    pub fn connections(&self) -> u64 {
        self.counts.open.load(SeqCst)
    }

    /// How many bytes were passed on in this direction, over all connections.
    pub fn forwarded_bytes(&self, direction: Direction) -> u64 {
        direction.of(self.counts.forwarded.each_ref()).load(SeqCst)
    }

    /// How many bytes came and are not passed on in this direction, over all connections that are open.
    pub fn held_bytes(&self, direction: Direction) -> u64 {
        direction.of(self.counts.held.each_ref()).load(SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Ends with its task, and every connection with it.
async fn accept(
    listener: TcpListener,
    server: String,
    weather: watch::Receiver<Weather>,
    counts: Arc<Counts>,
) {
    let server: Arc<str> = server.into();
    let mut connections = JoinSet::new();
    loop {
        let client = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        // What fails here is over before it began; the next one may come through.
        let Ok((client, _)) = client else { continue };
        let now = *weather.borrow();
        if now.refusing {
            continue;
        }
        let (server, weather, counts) = (Arc::clone(&server), weather.clone(), Arc::clone(&counts));
        connections.spawn(async move {
            match TcpStream::connect(&*server).await {
                Ok(server) => pump::run(client, server, now, weather, &counts).await,
                Err(error) => debug!(%error, %server, "the proxy cannot reach the server"),
            }
        });
    }
}
