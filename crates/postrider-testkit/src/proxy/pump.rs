//! One connection: two directions, each with one buffer.

use std::{
    io,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

use super::{BUFFER_BYTES, Counts, Direction, Weather};

/// Passes bytes on until both sides have ended, one of them fails, or everything is cut; `opened` is how things were when it was opened.
pub(super) async fn run(
    client: TcpStream,
    server: TcpStream,
    opened: Weather,
    weather: watch::Receiver<Weather>,
    counts: &Counts,
) {
    // Small messages are not kept back: the delays are ours to make.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let _open = Raised::by(&counts.open, 1);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut both = pin!(async {
        tokio::try_join!(
            pump(from_client, to_server, Direction::ToServer, weather.clone(), counts),
            pump(from_server, to_client, Direction::ToClient, weather.clone(), counts),
        )
    });
    let (mut cut, mut silenced) = (weather.clone(), weather.clone());
    let is_silent = tokio::select! {
        biased;
        _ = cut.wait_for(|weather| weather.cuts != opened.cuts) => false,
        _ = silenced.wait_for(|weather| weather.silences != opened.silences) => true,
        _ = &mut both => false,
    };
    if is_silent {
        // Both ends stay open, and nobody reads them.
        _ = weather.clone().wait_for(|weather| weather.cuts != opened.cuts).await;
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    mut weather: watch::Receiver<Weather>,
    counts: &Counts,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let over = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    loop {
        let count = from.read(&mut buffer).await?;
        let _held = Raised::by(direction.of(counts.held.each_ref()), count as u64);
        let delay = direction.of(weather.borrow().delay);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        weather.wait_for(|weather| !direction.of(weather.stalled)).await.map_err(over)?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..count).unwrap_or_default()).await?;
        direction.of(counts.forwarded.each_ref()).fetch_add(count as u64, SeqCst);
    }
}

/// A count that goes down again, however what it counts ends.
struct Raised<'a> {
    count: &'a AtomicU64,
    by: u64,
}

impl<'a> Raised<'a> {
    fn by(count: &'a AtomicU64, by: u64) -> Self {
        count.fetch_add(by, SeqCst);
        Self { count, by }
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(self.by, SeqCst);
    }
}
