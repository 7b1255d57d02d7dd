//! The connections of the operators' endpoint: one request each, with limits of time, size and number.

use std::{sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 64;

/// Timeout for receiving a request's headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Lifetime of a connection, including the response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of a request line with its headers, and number of headers.
const HEADER_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

/// How long responses under way may take at the end.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 21\r\n\r\ntoo many connections\n";

/// Answers requests until stopped, then finishes those under way.
pub(super) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "accepting a connection to the operators' endpoint failed");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = room.clone().try_acquire_owned() else {
            refuse(&stream);
            continue;
        };
        let (router, stop) = (router.clone(), stop.clone());
        connections.spawn(async move {
            if timeout(CONNECTION_TIMEOUT, answer(stream, router, stop)).await.is_err() {
                debug!("closed a connection to the operators' endpoint after {CONNECTION_TIMEOUT:?}");
            }
            drop(place);
        });
    }
    // Dropping the tasks closes the remaining connections.
    _ = timeout(END_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
}

/// Refuses a connection, if that takes no waiting.
fn refuse(stream: &TcpStream) {
    // A partial response is not worth waiting for.
    _ = stream.try_write(NO_ROOM);
}

/// Answers one request.
async fn answer(stream: TcpStream, router: Router, stop: CancellationToken) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false);
    let service = TowerToHyperService::new(router);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let answered = tokio::select! {
        biased;
        answered = &mut connection => answered,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = answered {
        debug!(%error, "a request to the operators' endpoint failed");
    }
}
