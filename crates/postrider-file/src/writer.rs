//! Writes lines to standard output, or to any other writer.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use postrider_core::{BoxFuture, Delivery, Event, Outcome, Sink, SinkTraits};
use tokio::{sync::Mutex, task::spawn_blocking};

use crate::{
    BATCH_EVENTS, SEND_TIMEOUT,
    line::{events, write_lines},
    not_written, traits, turn,
};

/// Writes lines of JSON to a writer.
///
/// ```
/// use postrider_file::WriterSink;
/// let errors = WriterSink::new(std::io::stderr());
/// # let _ = errors;
/// ```
pub struct WriterSink<W> {
    output: Arc<Mutex<Output<W>>>,
    send_timeout: Duration,
}

struct Output<W> {
    writer: W,
    /// Whether a write failed in the middle of a line, which must be ended then.
    in_a_line: bool,
}

impl<W> fmt::Debug for WriterSink<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterSink").finish_non_exhaustive()
    }
}

impl<W: Write + Send + 'static> WriterSink<W> {
    /// Writes to this writer. It must not keep what it could not write and try again, as a [`BufWriter`](io::BufWriter) does: that would
    /// repeat lines.
    pub fn new(writer: W) -> Self {
        let output = Arc::new(Mutex::new(Output { writer, in_a_line: false }));
        Self { output, send_timeout: SEND_TIMEOUT }
    }

    /// Timeout of a send. Default [`SEND_TIMEOUT`].
    pub fn send_timeout(mut self, limit: Duration) -> Self {
        self.send_timeout = limit;
        self
    }
}

impl<W: Write> Output<W> {
    fn write(&mut self, events: &[Event]) -> io::Result<()> {
        if self.in_a_line {
            self.add(b"\n")?;
        }
        write_lines(events, |lines| self.add(lines))?;
        self.writer.flush()
    }

    /// Like `write_all`, but reports where it ended.
    fn add(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.writer.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    let (written, rest) = bytes.split_at_checked(count).unwrap_or((bytes, &[]));
                    self.in_a_line = !written.ends_with(b"\n");
                    bytes = rest;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<W: Write + Send + 'static> Sink for WriterSink<W> {
    fn traits(&self) -> SinkTraits {
        traits(BATCH_EVENTS, self.send_timeout)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            if batch.is_empty() {
                return Vec::new();
            }
            let events = events(batch);
            let Some(mut output) = turn(&self.output, self.send_timeout).await else {
                return not_written(batch);
            };
            // A reader that does not read blocks a thread of its own and no task.
            let written = spawn_blocking(move || output.write(&events)).await;
            let outcome = match written {
                Ok(Ok(())) => Outcome::Delivered,
                Ok(Err(error)) => Outcome::unavailable(format!("the lines could not be written: {error}")),
                Err(error) => Outcome::unknown(format!("the writer failed: {error}")),
            };
            vec![outcome; batch.len()]
        })
    }
}

/// Standard output without the standard library's buffer, which keeps what it could not write.
#[derive(Debug, Default)]
struct Stdout(Option<File>);

impl Stdout {
    fn file(&mut self) -> io::Result<&mut File> {
        match &mut self.0 {
            Some(file) => Ok(file),
            nothing => Ok(nothing.insert(own_stdout()?)),
        }
    }
}

#[cfg(unix)]
fn own_stdout() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

#[cfg(windows)]
fn own_stdout() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(io::stdout().as_handle().try_clone_to_owned()?.into())
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file()?.flush()
    }
}

/// Writes lines of JSON to standard output.
///
/// ```
/// use postrider_file::StdoutSink;
/// let sink = StdoutSink::new();
/// # let _ = sink;
/// ```
#[derive(Debug)]
pub struct StdoutSink(WriterSink<Stdout>);

impl StdoutSink {
    /// Writes to standard output.
    pub fn new() -> Self {
        Self(WriterSink::new(Stdout::default()))
    }
}

impl Default for StdoutSink {
    fn default() -> Self {
        Self::new()
    }
}

impl Sink for StdoutSink {
    fn traits(&self) -> SinkTraits {
        self.0.traits()
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        self.0.send(batch)
    }
}
