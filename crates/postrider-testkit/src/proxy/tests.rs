//! The proxy before a server that sends back what it gets.

use std::{
    io,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

use super::{BUFFER_BYTES, Direction, Proxy};

const TIMEOUT: Duration = Duration::from_secs(10);

/// A server that sends back what it gets and says how many bytes of it came.
async fn echo() -> (String, mpsc::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (came, coming) = mpsc::channel(1024);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let came = came.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    if came.send(count).await.is_err() || stream.write_all(&buffer[..count]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, coming)
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIMEOUT, "it did not come about: {what}");
        tokio::task::yield_now().await;
    }
}

async fn says(client: &mut TcpStream, word: &[u8]) -> io::Result<Vec<u8>> {
    client.write_all(word).await?;
    hears(client, word.len()).await
}

async fn hears(client: &mut TcpStream, bytes: usize) -> io::Result<Vec<u8>> {
    let mut answer = vec![0; bytes];
    timeout(TIMEOUT, client.read_exact(&mut answer)).await.expect("an answer or an end in time")?;
    Ok(answer)
}

#[tokio::test]
async fn it_passes_on_both_ways_and_passes_on_the_end() {
    let (server, _came) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(says(&mut client, b"hello").await.unwrap(), b"hello");
    assert_eq!((proxy.connections(), proxy.forwarded_bytes(Direction::ToClient)), (1, 5));
    client.shutdown().await.unwrap();
    assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
    until("nothing is open", || proxy.connections() == 0).await;
}

#[tokio::test]
async fn a_cut_ends_what_is_open_and_lets_new_connections_in() {
    let (server, _came) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    says(&mut client, b"hello").await.unwrap();
    proxy.cut();
    assert!(matches!(client.read(&mut [0; 8]).await, Ok(0) | Err(_)));
    let mut next = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(says(&mut next, b"again").await.unwrap(), b"again");
}

#[tokio::test]
async fn refused_connections_end_and_open_ones_stay() {
    let (server, _came) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    says(&mut client, b"hello").await.unwrap();
    proxy.refuse();
    let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
    assert!(says(&mut refused, b"hello").await.is_err());
    assert_eq!(says(&mut client, b"still").await.unwrap(), b"still");
    proxy.admit();
    let mut admitted = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(says(&mut admitted, b"hello").await.unwrap(), b"hello");
}

#[tokio::test]
async fn a_request_arrives_and_its_reply_is_lost() {
    let (server, mut came) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    proxy.stall(Direction::ToClient);
    client.write_all(b"commit").await.unwrap();
    assert_eq!(came.recv().await, Some(6));
    until("the reply is held", || proxy.held_bytes(Direction::ToClient) == 6).await;
    proxy.cut();
    assert!(matches!(client.read(&mut [0; 8]).await, Ok(0) | Err(_)));
    until("nothing is held", || proxy.held_bytes(Direction::ToClient) == 0).await;
    assert_eq!(proxy.forwarded_bytes(Direction::ToClient), 0);
}

#[tokio::test]
async fn what_was_stalled_comes_whole_and_in_order_when_it_flows_again() {
    let (server, mut came) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    proxy.stall(Direction::ToServer);
    client.write_all(b"one ").await.unwrap();
    until("the request is held", || proxy.held_bytes(Direction::ToServer) == 4).await;
    client.write_all(b"two").await.unwrap();
    assert!(came.try_recv().is_err());
    proxy.flow(Direction::ToServer);
    assert_eq!(hears(&mut client, 7).await.unwrap(), b"one two");
}

#[tokio::test]
async fn a_stall_holds_no_more_than_a_buffer() {
    let (server, _came) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    proxy.stall(Direction::ToServer);
    // Until the sockets on the way are full as well.
    let chunk = [7; 64 * 1024];
    let mut sent = 0;
    while timeout(Duration::from_millis(200), client.writable()).await.is_ok() {
        sent += client.try_write(&chunk).unwrap_or(0);
    }
    let held = proxy.held_bytes(Direction::ToServer);
    assert!(sent > BUFFER_BYTES && held > 0 && held <= BUFFER_BYTES as u64, "{held} of {sent}");
}

#[tokio::test]
async fn a_delay_is_kept_and_ends() {
    let (server, _came) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    let delay = Duration::from_millis(50);
    proxy.delay(Direction::ToClient, delay);
    let started = Instant::now();
    says(&mut client, b"slow").await.unwrap();
    assert!(started.elapsed() >= delay);
    proxy.delay(Direction::ToClient, Duration::ZERO);
    assert_eq!(says(&mut client, b"quick").await.unwrap(), b"quick");
}

#[tokio::test]
async fn it_ends_with_its_connections_when_it_is_dropped() {
    let (server, _came) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    says(&mut client, b"hello").await.unwrap();
    drop(proxy);
    assert!(matches!(timeout(TIMEOUT, client.read(&mut [0; 8])).await, Ok(Ok(0) | Err(_))));
}

#[tokio::test]
async fn a_silent_connection_stays_open_and_new_ones_are_good() {
    let (server, mut came) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    says(&mut client, b"hello").await.unwrap();
    assert_eq!(came.recv().await, Some(5));
    proxy.silence();
    let mut next = TcpStream::connect(proxy.address()).await.unwrap();
    client.write_all(b"unheard").await.unwrap();
    assert_eq!(says(&mut next, b"again").await.unwrap(), b"again");
    assert_eq!((came.recv().await, proxy.connections()), (Some(5), 2));
    proxy.cut();
    assert!(matches!(client.read(&mut [0; 8]).await, Ok(0) | Err(_)));
}
