//! One connection for many sends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use postrider_net::{
    Connect, Link,
    link::{PAUSE_MAX, PAUSE_MIN},
};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(10);

#[derive(Default, Clone)]
struct Server {
    attempts: Arc<AtomicUsize>,
    down: Arc<AtomicBool>,
    hangs: Arc<AtomicBool>,
}

struct Line {
    number: usize,
    open: AtomicBool,
}

impl Connect for Server {
    type Connection = Line;

    async fn connect(&self) -> Result<Line, String> {
        let number = self.attempts.fetch_add(1, SeqCst) + 1;
        tokio::task::yield_now().await;
        if self.hangs.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.down.load(SeqCst) {
            return Err(format!("attempt {number} was refused"));
        }
        Ok(Line { number, open: true.into() })
    }

    fn is_open(line: &Line) -> bool {
        line.open.load(SeqCst)
    }
}

fn link() -> (Server, Link<Server>) {
    let server = Server::default();
    (server.clone(), Link::new(server, LIMIT))
}

#[tokio::test(start_paused = true)]
async fn many_sends_share_one_connection() {
    let (server, link) = link();
    let (one, two) = tokio::join!(link.get(), link.get());
    assert_eq!((one.unwrap().number, two.unwrap().number, link.get().await.unwrap().number), (1, 1, 1));
    assert_eq!(server.attempts.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ended_is_replaced() {
    let (_, link) = link();
    link.get().await.unwrap().open.store(false, SeqCst);
    assert_eq!(link.get().await.unwrap().number, 2);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_was_given_up_takes_its_connection_with_it_and_no_newer_one() {
    let (_, link) = link();
    let first = link.get().await.unwrap();
    link.watch(&first).answered();
    assert_eq!(link.get().await.unwrap().number, 1);
    drop(link.watch(&first));
    assert_eq!(link.get().await.unwrap().number, 2);
    // Another send on the old connection ends late.
    drop(link.watch(&first));
    assert_eq!(link.get().await.unwrap().number, 2);
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_an_attempt_takes_what_came_of_it() {
    let (server, link) = link();
    server.hangs.store(true, SeqCst);
    let begun = Instant::now();
    let (one, two, three) = tokio::join!(link.get(), link.get(), link.get());
    for failed in [one, two, three] {
        assert_eq!(failed.err().unwrap(), "no connection within 10s");
    }
    assert_eq!((server.attempts.load(SeqCst), begun.elapsed()), (1, LIMIT));
}

#[tokio::test(start_paused = true)]
async fn the_pause_before_an_attempt_doubles_up_to_a_limit_and_ends_with_a_connection() {
    let (server, link) = link();
    server.down.store(true, SeqCst);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let begun = Instant::now();
        let Err(error) = link.get().await else { panic!("a connection to a server that is down") };
        assert!(error.contains("refused"), "{error}");
        pauses.push(begun.elapsed());
    }
    assert_eq!(pauses[..3], [Duration::ZERO, PAUSE_MIN, PAUSE_MIN * 2]);
    assert_eq!(pauses[8], PAUSE_MAX);
    server.down.store(false, SeqCst);
    let line = link.get().await.unwrap();
    link.forget(&line);
    let begun = Instant::now();
    link.get().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_while_connecting_does_not_hold_up_the_next() {
    let (server, link) = link();
    server.hangs.store(true, SeqCst);
    assert!(tokio::time::timeout(Duration::from_secs(1), link.get()).await.is_err());
    server.hangs.store(false, SeqCst);
    assert_eq!(link.get().await.unwrap().number, 2);
}
