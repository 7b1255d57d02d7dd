//! What happened, in the order in which it happened, over all processes.
//!
//! There is one file. Every process has it open for appending and writes each line with one call, so that the file's own order is
//! that of all of them and needs no clock, and so that a SIGKILL loses no line that was written.

use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
    time::Instant,
};

use postrider_testkit::conformance::Failure;

/// One line. Words are apart by blanks, and none of them has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) by: String,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// An instance has begun, and its host's clock says this.
    Started { unix_s: u64 },
    /// A receiver that takes its time has begun with an event.
    Begun { id: String },
    /// An event arrived.
    Delivered { id: String, key: String, number: u32, lane: u32, attempt: u32, at_ms: u128 },
    /// An attempt failed.
    Failed { id: String, attempt: u32 },
    /// A lane was taken; zero if it had been given back clean.
    AcquiredLane { lane: u32, epoch: u64, suspect_to: u64 },
    /// A settle is on its way, with this as one of its delivered events.
    Settling { call: u64, lane: u32, seq: u64 },
    /// Its answer came.
    Settled { call: u64 },
    /// Its answer was that lanes are lost.
    Refused { call: u64, lanes: usize },
    /// The engine counted outcomes that came to nothing because the lane was lost.
    Fenced { events: u64 },
    /// An operator is about to discard a dead letter.
    Discarding { id: String },
    /// Something was done to a process or its connections.
    Fault { what: String },
}

impl What {
    fn line(&self, by: &str) -> String {
        let mut line = format!("{by} ");
        let written = match self {
            Self::Started { unix_s } => write!(line, "started {unix_s}"),
            Self::Begun { id } => write!(line, "begun {id}"),
            Self::Delivered { id, key, number, lane, attempt, at_ms } => {
                write!(line, "delivered {id} {key} {number} {lane} {attempt} {at_ms}")
            }
            Self::Failed { id, attempt } => write!(line, "failed {id} {attempt}"),
            Self::AcquiredLane { lane, epoch, suspect_to } => {
                write!(line, "taken {lane} {epoch} {suspect_to}")
            }
            Self::Settling { call, lane, seq } => write!(line, "settling {call} {lane} {seq}"),
            Self::Settled { call } => write!(line, "settled {call}"),
            Self::Refused { call, lanes } => write!(line, "refused {call} {lanes}"),
            Self::Fenced { events } => write!(line, "fenced {events}"),
            Self::Discarding { id } => write!(line, "discarding {id}"),
            Self::Fault { what } => write!(line, "fault {what}"),
        };
        debug_assert!(written.is_ok());
        line.push('\n');
        line
    }

    fn read(words: &[&str]) -> Result<Self, Failure> {
        Ok(match *words {
            ["started", unix_s] => Self::Started { unix_s: unix_s.parse()? },
            ["begun", id] => Self::Begun { id: id.into() },
            ["delivered", id, key, number, lane, attempt, at_ms] => Self::Delivered {
                id: id.into(),
                key: key.into(),
                number: number.parse()?,
                lane: lane.parse()?,
                attempt: attempt.parse()?,
                at_ms: at_ms.parse()?,
            },
            ["failed", id, attempt] => Self::Failed { id: id.into(), attempt: attempt.parse()? },
            ["taken", lane, epoch, suspect_to] => Self::AcquiredLane {
                lane: lane.parse()?,
                epoch: epoch.parse()?,
                suspect_to: suspect_to.parse()?,
            },
            ["settling", call, lane, seq] => {
                Self::Settling { call: call.parse()?, lane: lane.parse()?, seq: seq.parse()? }
            }
            ["settled", call] => Self::Settled { call: call.parse()? },
            ["refused", call, lanes] => Self::Refused { call: call.parse()?, lanes: lanes.parse()? },
            ["fenced", events] => Self::Fenced { events: events.parse()? },
            ["discarding", id] => Self::Discarding { id: id.into() },
            ["fault", what] => Self::Fault { what: what.into() },
            _ => return Err(format!("a line that nobody writes: {words:?}").into()),
        })
    }
}

/// The pen of one process.
#[derive(Debug)]
pub(crate) struct Pen {
    file: File,
    by: String,
    since: Instant,
}

impl Pen {
    pub(crate) fn open(path: &Path, by: impl Into<String>) -> Result<Self, Failure> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { file, by: by.into(), since: Instant::now() })
    }

    /// Since this process opened the history.
    pub(crate) fn elapsed_ms(&self) -> u128 {
        self.since.elapsed().as_millis()
    }

    /// Appends one line, with one call.
    pub(crate) fn note(&self, what: &What) -> Result<(), Failure> {
        let line = what.line(&self.by);
        let written = (&self.file).write(line.as_bytes())?;
        if written == line.len() { Ok(()) } else { Err("a line was written in part".into()) }
    }
}

/// Reads the history while it grows.
#[derive(Debug)]
pub(crate) struct Reader {
    file: File,
    at: u64,
    pub(crate) entries: Vec<Entry>,
}

impl Reader {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        Ok(Self { file: File::open(path)?, at: 0, entries: Vec::new() })
    }

    /// Reads what was added, as far as it is whole lines.
    pub(crate) fn read_on(&mut self) -> Result<&[Entry], Failure> {
        let mut text = String::new();
        self.file.seek(SeekFrom::Start(self.at))?;
        self.file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text.get(..whole).unwrap_or_default().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (by, rest) = words.split_first().ok_or("an empty line")?;
            self.entries.push(Entry { by: (*by).to_owned(), what: What::read(rest)? });
        }
        self.at += whole as u64;
        Ok(&self.entries)
    }

    /// What was added after so many entries.
    pub(crate) fn after(&mut self, entries: usize) -> Result<&[Entry], Failure> {
        Ok(self.read_on()?.get(entries..).unwrap_or_default())
    }
}
