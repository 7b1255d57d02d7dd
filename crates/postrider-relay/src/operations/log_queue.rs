//! Writes log lines from a thread of its own, so that a reader that stopped reading blocks no thread that logs.
//!
//! The queue is bounded. While it is full, new lines are dropped; when it moves again, a line says how many.

use std::{
    io::{self, Write},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tracing::warn;

/// Most text that waits to be written, in bytes. As much again may be on its way.
const QUEUE_BYTES: usize = 1024 * 1024;

pub(super) struct LogQueue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Whole lines.
    text: Vec<u8>,
    /// Lines that found no room behind it.
    dropped: u64,
    /// Whether text that was taken out is being written.
    writing: bool,
}

impl State {
    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.dropped == 0
    }
}

impl LogQueue {
    pub(super) const fn new() -> Self {
        let state = State { text: Vec::new(), dropped: 0, writing: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Begins to write what is queued.
    pub(super) fn start(&'static self, mut out: impl Write + Send + 'static) -> io::Result<()> {
        let run = move || {
            loop {
                self.write_next(&mut out);
            }
        };
        thread::Builder::new().name("log".to_owned()).spawn(run).map(drop)
    }

    /// Queues a line, or drops it if there is no room.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.state();
        // What comes after a line that was dropped would stand in its place.
        if state.dropped > 0 || state.text.len() + line.len() > QUEUE_BYTES {
            state.dropped += 1;
            return;
        }
        state.text.extend_from_slice(line);
        self.changed.notify_all();
    }

    /// Waits until everything is written, but no longer than this.
    pub(super) fn flush(&self, limit: Duration) {
        let state = self.state();
        let is_left = |state: &mut State| state.writing || !state.is_empty();
        // What is not written in time is lost.
        drop(self.changed.wait_timeout_while(state, limit, is_left));
    }

    /// Waits for lines, and writes them.
    fn write_next(&self, out: &mut impl Write) {
        let (text, dropped) = {
            let waiting = self.changed.wait_while(self.state(), |state| state.is_empty());
            let mut state = waiting.unwrap_or_else(PoisonError::into_inner);
            state.writing = true;
            (std::mem::take(&mut state.text), std::mem::take(&mut state.dropped))
        };
        // If the reader is gone, nobody can receive the error.
        let _ = out.write_all(&text).and_then(|()| out.flush());
        if dropped > 0 {
            warn!(dropped, "log lines dropped: the log was not read in time");
        }
        self.state().writing = false;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing here can be left half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the subscriber writes to. It writes each line whole, in one call.
#[derive(Clone, Copy)]
pub(super) struct LineWriter(pub(super) &'static LogQueue);

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;

    /// A reader that notifies each write and waits for permission.
    struct Reader {
        begins: mpsc::SyncSender<()>,
        may: mpsc::Receiver<()>,
        text: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Reader {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.begins.send(()).unwrap();
            self.may.recv().unwrap();
            self.text.lock().unwrap().extend(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_reader_that_stopped_blocks_nobody_and_is_told_how_many_lines_it_missed() {
        let queue: &'static LogQueue = Box::leak(Box::new(LogQueue::new()));
        let (begins, begun) = mpsc::sync_channel(10);
        let (go_on, may) = mpsc::sync_channel(10);
        let text = Arc::new(Mutex::new(Vec::new()));
        let mut reader = Reader { begins, may, text: text.clone() };
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || LineWriter(queue));
        let write_all = move || (0..3).for_each(|_| queue.write_next(&mut reader));
        let writing =
            thread::spawn(move || tracing::subscriber::with_default(subscriber.finish(), write_all));
        queue.push(b"first\n");
        begun.recv_timeout(LONG).unwrap();
        // The first is being written. The queue takes one more of these, and then nothing.
        let long = [&vec![b'x'; QUEUE_BYTES - 1][..], b"\n"].concat();
        queue.push(&long);
        (0..3).for_each(|_| queue.push(b"too many\n"));
        queue.flush(Duration::from_millis(1));
        assert!(text.lock().unwrap().is_empty(), "nobody has read anything");
        (0..3).for_each(|_| go_on.send(()).unwrap());
        queue.flush(LONG);
        writing.join().unwrap();
        let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[1].len()), (3, "first", QUEUE_BYTES - 1));
        assert!(lines[2].contains("log lines dropped") && lines[2].contains("dropped=3"), "{}", lines[2]);
    }
}
