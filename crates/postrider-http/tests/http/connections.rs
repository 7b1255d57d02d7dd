//! Receivers that close connections.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use postrider_core::Outcome;
use postrider_http::{BatchConfig, Endpoint, HttpBatchSink, WebhookConfig, WebhookSink};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{SECRET, events, send};

/// A receiver that answers so many requests of each connection, and closes it when the next one has come. Returns its address, and how many
/// requests have come.
async fn answers(of_a_connection: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::<AtomicUsize>::default();
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, of_a_connection, count.clone()));
        }
    });
    (url, asked)
}

async fn serve(mut stream: TcpStream, answers: usize, asked: Arc<AtomicUsize>) {
    for answered in 0.. {
        if !request(&mut stream).await {
            return;
        }
        asked.fetch_add(1, SeqCst);
        if answered == answers {
            return;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    }
}

/// Reads one request; false if the connection ended before.
async fn request(stream: &mut TcpStream) -> bool {
    let mut read = Vec::new();
    loop {
        let mut byte = [0];
        if stream.read(&mut byte).await.unwrap_or_default() == 0 {
            return false;
        }
        read.extend(byte);
        let text = String::from_utf8_lossy(&read).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
        if body.len() >= length.parse().unwrap() {
            return true;
        }
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_costs_an_event_nothing() {
    let (url, asked) = answers(1).await;
    let webhook = WebhookSink::new(WebhookConfig::new(Endpoint::new(url.as_str())).secret(SECRET)).unwrap();
    for _ in 0..5 {
        assert_eq!(send(&webhook, &events(&["a"])).await, [Outcome::Delivered]);
    }
    let batch = HttpBatchSink::new(BatchConfig::new(Endpoint::new(url.as_str()))).unwrap();
    for _ in 0..5 {
        assert_eq!(send(&batch, &events(&["a", "b"])).await, [Outcome::Delivered, Outcome::Delivered]);
    }
    assert!(asked.load(SeqCst) > 10, "connections were kept");
}

#[tokio::test]
async fn a_receiver_that_closes_every_connection_without_an_answer_is_asked_twice() {
    let (url, asked) = answers(0).await;
    let webhook = WebhookSink::new(WebhookConfig::new(Endpoint::new(url.as_str())).secret(SECRET)).unwrap();
    let outcomes = send(&webhook, &events(&["a"])).await;
    assert!(matches!(&outcomes[..], [Outcome::Unknown { .. }]), "{outcomes:?}");
    assert_eq!(asked.load(SeqCst), 2);
}
