//! A broker tells its clients where it listens, and they go there: past a line that was laid to it. So this stands between the line
//! and the broker, and says the line's port wherever the broker says its own.

use std::{
    io,
    sync::{Arc, OnceLock},
};

use postrider_testkit::conformance::{Failure, sink::Line};
#[cfg(feature = "tls")]
use postrider_testkit::proxy::tls::TlsFront;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// More than any answer to these tests has.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What stands before a broker. It ends when it is dropped.
pub(crate) struct Front(JoinHandle<()>);

impl Front {
    /// A line to a broker that is named by `host:port`, on which the broker is never named.
    pub(crate) async fn with_line(broker: String) -> Result<(Self, Line), Failure> {
        Self::with(broker, async |address| {
            let line = Line::to(address).await?;
            let port = line.address().port();
            Ok((line, port))
        })
        .await
    }

    /// The same with TLS on the line.
    #[cfg(feature = "tls")]
    pub(crate) async fn with_tls(broker: String) -> Result<(Self, TlsFront), Failure> {
        Self::with(broker, async |address| {
            let line = TlsFront::start(address).await?;
            let port = line.port();
            Ok((line, port))
        })
        .await
    }

    /// Something that leads to a broker, and the port that it listens on.
    async fn with<T>(
        broker: String,
        lay: impl AsyncFnOnce(String) -> Result<(T, u16), Failure>,
    ) -> Result<(Self, T), Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (host, port) = broker.split_once(':').ok_or("a host and a port")?;
        let own = named(host, port.parse()?);
        let instead = Arc::new(OnceLock::new());
        let accepting = tokio::spawn(accept(listener, broker.clone(), own, Arc::clone(&instead)));
        let front = Self(accepting);
        let (line, port) = lay(address.to_string()).await?;
        instead.set(named(host, port.into())).map_err(|_| "a line is laid once")?;
        Ok((front, line))
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How a broker is named in an answer: its host, and its port in four bytes.
fn named(host: &str, port: u32) -> Vec<u8> {
    [host.as_bytes(), &port.to_be_bytes()].concat()
}

async fn accept(listener: TcpListener, broker: String, own: Vec<u8>, instead: Arc<OnceLock<Vec<u8>>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (broker, own, instead) = (broker.clone(), own.clone(), Arc::clone(&instead));
        connections.spawn(async move {
            let broker = TcpStream::connect(broker).await?;
            let (mut from_client, to_client) = client.into_split();
            let (from_broker, mut to_broker) = broker.into_split();
            let requests = async {
                tokio::io::copy(&mut from_client, &mut to_broker).await?;
                to_broker.shutdown().await
            };
            tokio::try_join!(requests, answers(from_broker, to_client, &own, &instead)).map(|_| ())
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Passes on whole answers: a name is never cut in two.
async fn answers(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    own: &[u8],
    instead: &OnceLock<Vec<u8>>,
) -> io::Result<()> {
    loop {
        let bytes = from.read_u32().await? as usize;
        if bytes > FRAME_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut frame = vec![0; bytes];
        from.read_exact(&mut frame).await?;
        if let Some(instead) = instead.get() {
            let places: Vec<_> =
                frame.windows(own.len()).enumerate().filter(|(_, bytes)| *bytes == own).collect();
            let places: Vec<usize> = places.into_iter().map(|(place, _)| place).collect();
            for place in places {
                if let Some(name) = frame.get_mut(place..place + own.len()) {
                    name.copy_from_slice(instead);
                }
            }
        }
        to.write_u32(bytes as u32).await?;
        to.write_all(&frame).await?;
    }
}
