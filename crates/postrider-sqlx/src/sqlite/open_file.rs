//! Which file the connections lead to, and whether its path still does.
//!
//! A connection keeps the file that it has opened, whatever lies at the path later. Files are told apart by device and inode, so this sees nothing
//! where there are none.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How often the path is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// One file among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

#[cfg(unix)]
fn id_of(path: &Path) -> io::Result<FileId> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path)?;
    Ok(FileId { device: found.dev(), inode: found.ino() })
}

#[cfg(not(unix))]
fn id_of(path: &Path) -> io::Result<FileId> {
    fs::metadata(path).map(|_| FileId { device: 0, inode: 0 })
}

/// Who opens the connections that write events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writers {
    /// The store itself: they can be opened anew.
    OfTheStore,
    /// The program: nobody else can open them anew.
    OfTheProgram,
}

/// What lies at the path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The file that was opened.
    Same,
    /// Another file, just now. Connections that are opened from now on lead to it.
    Another,
    /// Something that cannot be delivered from; says why, and what to do.
    Wrong(String),
}

/// A file that is open.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// None for a database in memory.
    path: Option<PathBuf>,
    writers: Writers,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    file: Option<FileId>,
    /// The write-ahead log and its index, as they were last seen beside the file.
    beside: [Option<FileId>; 2],
    looked: Option<Instant>,
    wrong: bool,
    /// Connections that are older lead to another file.
    opened_anew: Option<Instant>,
}

impl OpenFile {
    pub(super) fn new(path: Option<PathBuf>, writers: Writers) -> Self {
        Self { path, writers, state: Mutex::default() }
    }

    /// Whether a connection of this age leads to the file at the path.
    pub(super) fn is_current(&self, age: Duration) -> bool {
        self.state().opened_anew.is_none_or(|at| age < at.elapsed())
    }

    /// Looks at the path if it is time to. What is wrong is said until it is right again.
    pub(super) fn look(&self) -> Found {
        let Some(path) = &self.path else { return Found::Same };
        let mut state = self.state();
        // What lies beside the file is made with the first transaction. Until then there is nothing to tell old ones from new ones by.
        let knows_all = state.beside.iter().all(Option::is_some) && !state.wrong;
        if knows_all && state.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return Found::Same;
        }
        state.looked = Some(Instant::now());
        let found = state.compare(path, self.writers);
        state.wrong = matches!(found, Found::Wrong(_));
        found
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn compare(&mut self, path: &Path, writers: Writers) -> Found {
        let side_paths = ["-wal", "-shm"].map(|suffix| with_suffix(path, suffix));
        let beside = side_paths.each_ref().map(|side| id_of(side).ok());
        let file = match id_of(path) {
            Ok(file) => file,
            // Nothing was opened yet.
            Err(_) if self.file.is_none() => return Found::Same,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Found::Wrong(
                    "the file was removed: put it back, or start the program again to begin with a new one"
                        .to_owned(),
                );
            }
            Err(error) => return Found::Wrong(format!("the file cannot be looked at: {error}")),
        };
        if self.file.is_none_or(|known| known == file) {
            self.file = Some(file);
            for (known, seen) in self.beside.iter_mut().zip(beside) {
                *known = seen.or(*known);
            }
            return Found::Same;
        }
        if writers == Writers::OfTheProgram {
            return Found::Wrong(
                "another file was put in its place, and the program's own connections lead to the old one: start the program again"
                    .to_owned(),
            );
        }
        let stale = self.beside.iter().zip(&beside).zip(&side_paths);
        let stale: Vec<String> = stale
            .filter(|((known, seen), _)| seen.is_some() && known == seen)
            .map(|(_, path)| path.display().to_string())
            .collect();
        if !stale.is_empty() {
            let stale = stale.join(" and ");
            return Found::Wrong(format!(
                "another file was put in its place, and {stale} of the old one stayed: who opens them reads a mixture of both; stop \
                 all who write to it, remove {stale} and put the file there once more"
            ));
        }
        *self = Self { file: Some(file), beside, opened_anew: Some(Instant::now()), ..Self::default() };
        Found::Another
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
