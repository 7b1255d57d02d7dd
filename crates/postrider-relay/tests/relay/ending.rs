//! A relay that is asked to end ends in time, whatever clients, readers and receivers do.

use std::{
    io::Write as _,
    process::Stdio,
    time::{Duration, Instant},
};

use sqlx::SqliteConnection;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    place::{Folder, Receiver, Relay, TIMEOUT, eventually, get, insert, run, signal},
    time::ended_within,
};

/// What the relays here are allowed for draining, in seconds.
const DRAIN_S: u64 = 1;

/// How long they may take in all.
const LIMIT: Duration = Duration::from_secs(DRAIN_S + 5);

fn config(folder: &Folder, sink: &str, drain_s: u64) -> std::path::PathBuf {
    let text = format!(
        "log: {{ format: json }}\noperations: {{ listen: \"127.0.0.1:0\" }}\n\
         sources:\n  shop:\n    url: {}\n    poll: {{ max: 50ms }}\n    drain_timeout: {drain_s}s\n    \
         routes: [{{ event_type: \"*\", sink: orders }}]\nsinks:\n  orders: {{ {sink} }}\n",
        folder.path("shop.db").display()
    );
    folder.write("relay.yaml", &text)
}

/// Waits until an event was given to its sink, or is about to be.
async fn until_sent(database: &mut SqliteConnection) {
    eventually("an event is being sent", async || {
        let sent = sqlx::query_scalar("SELECT max(sent_to) FROM postrider_lane").fetch_one(&mut *database);
        sent.await.is_ok_and(|sent: i64| sent > 0)
    })
    .await;
}

/// A receiver that takes connections and never answers, and what its sink is.
async fn hanging() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let sink = format!("http: {{ url: \"http://{}\" }}", listener.local_addr().unwrap());
    (listener, sink)
}

/// A connection to the port of health and metrics.
async fn connect(relay: &mut Relay) -> TcpStream {
    let address = relay.operations();
    TcpStream::connect(address.strip_prefix("http://").unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_sent_request_keeps_no_relay_alive() {
    let folder = Folder::new();
    folder.database().await;
    let mut relay = Relay::start(&config(&folder, "stdout: {}", DRAIN_S), &[]);
    let mut client = connect(&mut relay).await;
    client.write_all(b"GET /metr").await.unwrap();
    relay.until_logged("delivering");
    relay.signal("TERM");
    assert_eq!(relay.ended_within(LIMIT), Some(0), "{:#?}", relay.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_stdout_that_stopped_keeps_no_relay_alive() {
    let folder = Folder::new();
    let mut database = folder.database().await;
    // More than a pipe takes.
    insert(&mut database, "OrderPlaced", "Order:1", &format!("\"{}\"", "x".repeat(200_000))).await;
    let mut relay = Relay::start_with_stdout_unread(&config(&folder, "stdout: {}", DRAIN_S));
    until_sent(&mut database).await;
    relay.signal("TERM");
    assert_eq!(relay.ended_within(LIMIT), Some(0), "{:#?}", relay.log);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_the_log_that_stopped_keeps_no_relay_alive() {
    let folder = Folder::new();
    folder.database().await;
    let (_reader, mut writer) = std::io::pipe().unwrap();
    // As much as a pipe takes: the first line of the log finds no room.
    writer.write_all(&[b'\n'; 65_536]).unwrap();
    let mut command = run(&config(&folder, "stdout: {}", DRAIN_S));
    let mut child = command.stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    eventually("it listens for signals", async || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        // SIGHUP, SIGINT and SIGTERM.
        [1, 2, 15].iter().all(|signal| caught >> (signal - 1) & 1 == 1)
    })
    .await;
    signal(&child, "TERM");
    let ended = ended_within(&mut child, LIMIT);
    _ = child.kill();
    assert_eq!(ended, Some(0), "it drains and ends");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_stops_no_delivery_and_no_health_check() {
    const EVENTS: usize = 300;
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    for n in 0..EVENTS {
        insert(&mut database, "OrderPlaced", &format!("Order:{n}"), &n.to_string()).await;
    }
    // Its log cannot say which port it has.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let file = config(&folder, &format!("http: {{ url: \"{}\" }}", receiver.url), DRAIN_S);
    let text = std::fs::read_to_string(&file).unwrap().replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    let file = folder.write("relay.yaml", &text);
    let (_reader, mut writer) = std::io::pipe().unwrap();
    // As much as a pipe takes: the first line of the log finds no room.
    writer.write_all(&[b'\n'; 65_536]).unwrap();
    let mut command = run(&file);
    command.env("POSTRIDER_LOG", "debug").stdout(Stdio::null()).stderr(writer);
    let mut child = command.spawn().unwrap();
    let delivering = eventually("all events arrive", async || receiver.payloads().len() == EVENTS);
    let in_time = tokio::time::timeout(TIMEOUT / 2, delivering).await;
    if in_time.is_err() {
        _ = child.kill();
        panic!("{} of {EVENTS} events arrived", receiver.payloads().len());
    }
    let (status, _) = get(&format!("http://127.0.0.1:{port}/health/live"), None).await;
    signal(&child, "TERM");
    let ended = ended_within(&mut child, LIMIT);
    _ = child.kill();
    assert_eq!((status, ended), (200, Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_hangs_keeps_no_relay_alive() {
    let folder = Folder::new();
    let mut database = folder.database().await;
    insert(&mut database, "OrderPlaced", "Order:1", "1").await;
    let (_receiver, sink) = hanging().await;
    let mut relay = Relay::start(&config(&folder, &sink, DRAIN_S), &[]);
    until_sent(&mut database).await;
    relay.signal("TERM");
    assert_eq!(relay.ended_within(LIMIT), Some(0), "{:#?}", relay.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_a_relay_at_once_and_says_why() {
    for (first, second) in [("TERM", "TERM"), ("TERM", "INT"), ("INT", "TERM")] {
        let folder = Folder::new();
        let mut database = folder.database().await;
        insert(&mut database, "OrderPlaced", "Order:1", "1").await;
        let (_receiver, sink) = hanging().await;
        let mut relay = Relay::start(&config(&folder, &sink, 60), &[]);
        until_sent(&mut database).await;
        relay.signal(first);
        relay.until_logged("shutting down");
        let began = Instant::now();
        relay.signal(second);
        assert_eq!(relay.ended(), 1, "{:#?}", relay.log);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let said = relay.log.iter().any(|line| line.to_string().contains("second signal"));
        assert!(said, "{:#?}", relay.log);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operations_port_lets_no_client_wait_for_ever_or_send_without_end() {
    let folder = Folder::new();
    folder.database().await;
    let mut relay = Relay::start(&config(&folder, "stdout: {}", DRAIN_S), &[]);
    let address = relay.operations();
    let connect = async || TcpStream::connect(address.strip_prefix("http://").unwrap()).await.unwrap();
    let answer = async |mut client: TcpStream| {
        let mut answer = Vec::new();
        // Whether it is closed with or without a word is open; that it is closed is not.
        let read = tokio::time::timeout(TIMEOUT, client.read_to_end(&mut answer)).await;
        _ = read.unwrap();
        String::from_utf8(answer).unwrap()
    };

    let mut large = connect().await;
    let header = format!("GET /health/live HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "x".repeat(100_000));
    _ = large.write_all(header.as_bytes()).await;
    let told = answer(large).await;
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 431 "), "{told}");

    let mut slow = Vec::new();
    for _ in 0..64 {
        let mut client = connect().await;
        client.write_all(b"GET /metr").await.unwrap();
        slow.push(client);
    }
    let told = answer(connect().await).await;
    assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    for client in slow {
        let told = answer(client).await;
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 408 "), "{told}");
    }
    assert_eq!(get(&format!("{address}/health/live"), None).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operations_port_reads_no_body_of_a_request() {
    /// More than the buffers of two sockets hold.
    const BODY_MAX: usize = 64 * 1024 * 1024;
    let folder = Folder::new();
    folder.database().await;
    let mut relay = Relay::start(&config(&folder, "stdout: {}", DRAIN_S), &[]);
    let address = relay.operations();
    for (request, status) in [("GET /health/live", "200"), ("GET /metrics", "200"), ("POST /metrics", "405")]
    {
        for length in ["content-length: 99999999999", "transfer-encoding: chunked"] {
            let client = TcpStream::connect(address.strip_prefix("http://").unwrap()).await.unwrap();
            let (mut reading, mut writing) = client.into_split();
            let head = format!("{request} HTTP/1.1\r\nhost: x\r\n{length}\r\n\r\n");
            writing.write_all(head.as_bytes()).await.unwrap();
            // A chunk of 4096 bytes; as a body of a known length it is as good as any other.
            let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096));
            let sending = tokio::spawn(async move {
                let mut sent = 0;
                while sent < BODY_MAX && writing.write_all(chunk.as_bytes()).await.is_ok() {
                    sent += chunk.len();
                }
                sent
            });
            let mut answer = [0; 12];
            reading.read_exact(&mut answer).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"), "{request}, {length}");
            let sent = tokio::time::timeout(TIMEOUT, sending).await.expect("it is closed").unwrap();
            assert!(sent < BODY_MAX, "{request}, {length}: {sent} bytes were taken");
        }
    }
    assert_eq!(get(&format!("{address}/health/live"), None).await.0, 200);
}
