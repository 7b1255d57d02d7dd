//! A writer that takes a little at a time, and then no more.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use postrider_core::Outcome;
use postrider_file::WriterSink;

use crate::{deliver, ids, send, unavailable};

/// Takes so many bytes, seven at a time.
#[derive(Clone)]
struct Narrow(Arc<Mutex<(Vec<u8>, usize)>>);

impl Narrow {
    fn with_room(room: usize) -> Self {
        Self(Arc::new(Mutex::new((Vec::new(), room))))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap()
    }
}

impl Write for Narrow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (taken, room) = &mut *self.0.lock().unwrap();
        let count = bytes.len().min(7).min(*room - taken.len());
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        taken.extend(bytes.iter().take(count));
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn wherever_a_write_ends_the_next_line_begins_anew_and_no_empty_line_is_left() {
    let whole = Narrow::with_room(usize::MAX);
    deliver(&WriterSink::new(whole.clone()), &["1", "2"]).await;
    let whole = whole.text();
    for room in 0..whole.len() {
        let narrow = Narrow::with_room(room);
        let sink = WriterSink::new(narrow.clone());
        unavailable(&send(&sink, &["1", "2"]).await);
        narrow.0.lock().unwrap().1 = usize::MAX;
        deliver(&sink, &["1", "2"]).await;
        let text = narrow.text();
        // All but the line that was cut are whole.
        let first_line = whole.find('\n').unwrap() + 1;
        let cut = [0, first_line].contains(&room);
        let lines: Vec<_> = text.lines().collect();
        let expected = if room < first_line { 2 } else { 3 } + usize::from(!cut);
        assert_eq!(lines.len(), expected, "room for {room}: {text}");
        assert!(lines.iter().all(|line| !line.is_empty()), "room for {room}: {text}");
        assert!(text.ends_with(&whole), "room for {room}: {text}");
        assert_eq!(ids(&whole), ["1", "2"]);
    }
}

/// Takes nothing before it is let go.
struct Held(mpsc::Receiver<()>, Vec<u8>);

impl Write for Held {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Once nobody holds it, it takes everything.
        let _ = self.0.recv();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_batch_whose_turn_does_not_come_was_not_written_and_is_deferred() {
    let (hold, held) = mpsc::channel();
    let sink = WriterSink::new(Held(held, Vec::new())).send_timeout(Duration::from_millis(200));
    let (first, second) = tokio::join!(biased; send(&sink, &["a", "b"]), async {
        let outcomes = send(&sink, &["c"]).await;
        drop(hold);
        outcomes
    });
    assert_eq!(first, vec![Outcome::Delivered; 2]);
    assert_eq!(second, [Outcome::deferred(Duration::ZERO)]);
    deliver(&sink, &["c"]).await;
}
