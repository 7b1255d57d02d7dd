//! The conformance suite.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    sync::{Arc, Mutex},
};

use postrider_core::Sink;
use postrider_file::{FileSink, WriterSink};
use postrider_testkit::{
    conformance::{
        Checked, Failure,
        sink::{Received, Receiver, SinkFeatures, SinkHarness},
    },
    sink_conformance,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Folder;

#[derive(Deserialize)]
struct Line {
    id: String,
    r#type: String,
    key: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    payload: Option<Box<RawValue>>,
    payload_text: Option<String>,
    payload_base64: Option<String>,
}

fn received(text: &str) -> Result<Vec<Received>, Failure> {
    let line = |line: &str| {
        let line: Line = serde_json::from_str(line)?;
        let payload = match (line.payload, line.payload_text, line.payload_base64) {
            (Some(json), None, None) => json.get().into(),
            (None, Some(text), None) => text.into_bytes(),
            (None, None, Some(bytes)) => base64::Engine::decode(&base64::prelude::BASE64_STANDARD, bytes)?,
            _ => return Err("one payload".into()),
        };
        let (id, event_type) = (Some(line.id), Some(line.r#type));
        Ok(Received { id, event_type, key: line.key, headers: line.headers, payload })
    };
    text.lines().map(line).collect()
}

/// A file takes everything, and its folder can go away.
struct InAFile {
    folder: Folder,
    sink: Arc<FileSink>,
}

impl SinkHarness for InAFile {
    const FEATURES: SinkFeatures =
        SinkFeatures { refuse: false, stall: false, ignore: false, ..SinkFeatures::ALL };

    async fn fresh() -> Result<Self, Failure> {
        let folder = Folder::new();
        let sink = Arc::new(folder.sink());
        Ok(Self { folder, sink })
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn received(&self) -> Result<Vec<Received>, Failure> {
        received(&fs::read_to_string(self.folder.path()).unwrap_or_default())
    }

    async fn set_receiver(&self, receiver: Receiver) -> Checked {
        let away = self.folder.0.with_extension("away");
        match receiver {
            Receiver::Down => fs::rename(&self.folder.0, away)?,
            _ => fs::rename(away, &self.folder.0)?,
        }
        self.sink.reopen();
        Ok(())
    }
}

mod a_file {
    use super::*;
    sink_conformance!(InAFile);
}

/// A writer that keeps what it gets, unless it is closed.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<(Vec<u8>, bool)>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (kept, closed) = &mut *self.0.lock().unwrap();
        if *closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        kept.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct InAWriter {
    kept: Kept,
    sink: Arc<dyn Sink>,
}

impl SinkHarness for InAWriter {
    const FEATURES: SinkFeatures =
        SinkFeatures { refuse: false, stall: false, ignore: false, ..SinkFeatures::ALL };

    async fn fresh() -> Result<Self, Failure> {
        let kept = Kept::default();
        Ok(Self { sink: Arc::new(WriterSink::new(kept.clone())), kept })
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn received(&self) -> Result<Vec<Received>, Failure> {
        let text = String::from_utf8(self.kept.0.lock().unwrap().0.clone())?;
        received(&text)
    }

    async fn set_receiver(&self, receiver: Receiver) -> Checked {
        self.kept.0.lock().unwrap().1 = matches!(receiver, Receiver::Down);
        Ok(())
    }
}

mod a_writer {
    use super::*;
    sink_conformance!(InAWriter);
}
