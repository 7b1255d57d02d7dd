//! Reads the small files that a configuration names (secrets, keys, certificates) with limits on size and time.

use std::{
    fs::File,
    io::{Error, ErrorKind, Read, Result},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

/// The largest file with a password, a token, a key or credentials.
pub const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// The largest file of certificates; a system's list of authorities takes a quarter of a mebibyte.
pub const CERTIFICATES_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// How long the writer of a pipe may take.
const PIPE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads a file of at most `bytes_max` bytes. It may be a pipe, such as a shell's `<(command)`, if its writer is quick.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    read_within(path, bytes_max, PIPE_TIMEOUT)
}

fn read_within(path: &Path, bytes_max: u64, timeout: Duration) -> Result<Vec<u8>> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_file() {
        return read_all(path, bytes_max);
    }
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    // Opening a pipe blocks until it has a writer and cannot be interrupted. A thread that blocks forever costs nothing more.
    let (sender, receiver) = mpsc::sync_channel(1);
    let path = PathBuf::from(path);
    thread::Builder::new().name("postrider-file".to_owned()).spawn(move || {
        let _ = sender.send(read_all(&path, bytes_max));
    })?;
    receiver.recv_timeout(timeout).unwrap_or_else(|_| {
        let what =
            format!("it is no regular file, and nothing was written to it for {} s", timeout.as_secs());
        Err(Error::new(ErrorKind::TimedOut, what))
    })
}

fn read_all(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("it has more than {bytes_max} bytes"))),
        false => Ok(bytes),
    }
}

/// Reads a text file of at most `bytes_max` bytes.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String> {
    String::from_utf8(read(path, bytes_max)?)
        .map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("postrider-files-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_file_is_read_up_to_its_limit_and_refused_beyond() {
        let path = path("limit");
        std::fs::write(&path, "12345678").unwrap();
        assert_eq!(read(&path, 8).unwrap(), b"12345678");
        let error = read(&path, 7).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.to_string(), "it has more than 7 bytes");
        assert_eq!(read(&path, 7).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[cfg(unix)]
    #[test]
    fn what_never_ends_is_refused() {
        let error = read(Path::new("/dev/zero"), SECRET_BYTES_MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(read(Path::new("/"), 1).unwrap_err().kind(), ErrorKind::IsADirectory);
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_read_if_somebody_writes_to_it_and_waited_for_no_longer_than_a_while() {
        let path = path("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = read_within(&path, 10, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        std::fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let writer = path.clone();
        let writing = thread::spawn(move || std::fs::write(writer, "canary").unwrap());
        assert_eq!(read_within(&path, 10, Duration::from_secs(30)).unwrap(), b"canary");
        std::fs::remove_file(&path).unwrap();
        writing.join().unwrap();
    }
}
