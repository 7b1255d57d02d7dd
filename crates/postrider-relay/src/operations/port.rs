//! Connections to the operators' endpoint: each has one request, a time and a size, and there are only so many of them.

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

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 64;

/// How long a client may take to say what it wants.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may last, the answer included.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Most bytes of a request line with its headers, and most headers.
const HEADER_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

/// How long answers that are under way have at the end.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// A pause after a connection could not be accepted, for example because there are no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 21\r\n\r\ntoo many connections\n";

/// Answers until it is stopped, and then for a moment longer.
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
                warn!(%error, "a connection to the operators' endpoint was not accepted");
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
                debug!("a connection to the operators' endpoint was closed after {CONNECTION_TIMEOUT:?}");
            }
            drop(place);
        });
    }
    // Those that are left are closed.
    _ = timeout(END_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
}

/// Says that there is no room, if that can be said without waiting.
fn refuse(stream: &TcpStream) {
    // What was not written at once is not worth waiting for.
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
        debug!(%error, "a request to the operators' endpoint was not answered");
    }
}
