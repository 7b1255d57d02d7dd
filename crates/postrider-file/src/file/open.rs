//! Opens the file and repairs its end.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

use crate::line::BEGINNING;

/// How far back to search for the beginning of an unfinished line, in bytes: more than the largest payload at its longest.
const UNFINISHED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Bytes that one read takes.
const CHUNK_BYTES: u64 = 64 * 1024;

/// Opens the file for appending, locked, with no unfinished line at its end.
pub(super) fn open(path: &Path, sync: bool) -> io::Result<File> {
    if let Ok(found) = fs::metadata(path)
        && !found.is_file()
    {
        // Opening a pipe would wait for a reader, and a device cannot be repaired.
        return Err(io::Error::other("it is there and is not a file"));
    }
    let is_new = !path.exists();
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::other("another process or sink writes to it"),
        TryLockError::Error(error) => error,
    })?;
    if is_new && sync {
        sync_folder(path)?;
    }
    mend(&mut file)?;
    Ok(file)
}

/// Whether lines could be appended. Creates, locks and repairs nothing, because the caller may not be the writer.
pub(super) fn look(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => OpenOptions::new().append(true).open(path).map(drop),
        Ok(_) => Err(io::Error::other("it is there and is not a file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match fs::metadata(folder_of(path))?.is_dir() {
                true => Ok(()),
                false => Err(io::Error::other("its folder is not a folder")),
            }
        }
        Err(error) => Err(error),
    }
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the name of a new file durable, which syncing the file does not.
fn sync_folder(path: &Path) -> io::Result<()> {
    // On other systems a folder cannot be opened.
    if cfg!(unix) { File::open(folder_of(path))?.sync_all() } else { Ok(()) }
}

/// Cuts off an unfinished line of ours; ends one that is not ours.
fn mend(file: &mut File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let begins_at = begin_of_last_line(file, length)?;
    if begins_at == Some(length) {
        return Ok(());
    }
    match begins_at {
        Some(at) if begins_like_ours(file, at, length)? => file.set_len(at),
        _ => file.write_all(b"\n"),
    }
}

/// Where the text after the last line break begins: the length if there is none. `None` if no line break is near.
fn begin_of_last_line(file: &mut File, length: u64) -> io::Result<Option<u64>> {
    let mut until = length;
    let mut chunk = Vec::new();
    while until > 0 && length - until < UNFINISHED_BYTES_MAX {
        let from = until.saturating_sub(CHUNK_BYTES);
        chunk.clear();
        file.seek(SeekFrom::Start(from))?;
        file.take(until - from).read_to_end(&mut chunk)?;
        if let Some(at) = chunk.iter().rposition(|byte| *byte == b'\n') {
            return Ok(Some(from + at as u64 + 1));
        }
        until = from;
    }
    Ok((until == 0).then_some(0))
}

fn begins_like_ours(file: &mut File, at: u64, length: u64) -> io::Result<bool> {
    let mut beginning = Vec::new();
    file.seek(SeekFrom::Start(at))?;
    file.take((length - at).min(BEGINNING.len() as u64)).read_to_end(&mut beginning)?;
    Ok(BEGINNING.as_bytes().starts_with(&beginning))
}

/// Whether the file is open but has no name any more: what is written to it would be lost.
pub(super) fn is_deleted(file: &File) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        file.metadata().is_ok_and(|found| found.nlink() == 0)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        false
    }
}
