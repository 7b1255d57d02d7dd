//! Appends to a file so that a batch is there whole or not at all.

use std::{
    fs::File,
    io::{self, Write},
};

/// The operations on a file; a test has one that is full.
pub(super) trait Disk {
    fn length(&self) -> io::Result<u64>;
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Disk for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// A failed write.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: io::Error,
    /// Whether what was written of it was removed.
    pub(super) taken_back: bool,
}

/// A file that is appended to.
#[derive(Debug)]
pub(super) struct Journal<D> {
    disk: D,
    length: u64,
    sync: bool,
}

impl<D: Disk> Journal<D> {
    pub(super) fn new(disk: D, sync: bool) -> io::Result<Self> {
        let length = disk.length()?;
        Ok(Self { disk, length, sync })
    }

    pub(super) fn file(&self) -> &D {
        &self.disk
    }

    /// Appends what `write` writes. If that or the sync fails, it is removed again: a write that was not synced may be lost later although the
    /// next sync succeeds, so it is repeated.
    pub(super) fn append(&mut self, write: impl FnOnce(&mut D) -> io::Result<()>) -> Result<(), Failed> {
        let sync = self.sync;
        let written = write(&mut self.disk)
            .and_then(|()| if sync { self.disk.sync() } else { Ok(()) })
            .and_then(|()| self.disk.length());
        match written {
            Ok(length) => {
                self.length = length;
                Ok(())
            }
            Err(error) => Err(Failed { error, taken_back: self.disk.cut(self.length).is_ok() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full file: has room for this many bytes.
    #[derive(Debug, Default)]
    struct Small {
        bytes: Vec<u8>,
        room: usize,
        syncs: usize,
        sync_fails: bool,
        cut_fails: bool,
    }

    impl Disk for Small {
        fn length(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }

        fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
            let room = self.room - self.bytes.len();
            self.bytes.extend(bytes.iter().take(room));
            if bytes.len() > room { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }

        fn sync(&mut self) -> io::Result<()> {
            self.syncs += 1;
            if self.sync_fails { Err(io::Error::other("a bad block")) } else { Ok(()) }
        }

        fn cut(&mut self, length: u64) -> io::Result<()> {
            if self.cut_fails {
                return Err(io::Error::other("no"));
            }
            self.bytes.truncate(length as usize);
            Ok(())
        }
    }

    fn journal(sync: bool) -> io::Result<Journal<Small>> {
        let mut journal = Journal::new(Small { room: 10, ..Small::default() }, sync)?;
        assert!(journal.append(|disk| disk.write_all(b"1234\n")).is_ok());
        Ok(journal)
    }

    #[test]
    fn of_a_batch_that_does_not_fit_nothing_is_left() -> io::Result<()> {
        let mut journal = journal(true)?;
        let failed = journal.append(|disk| disk.write_all(b"12\n4567\n")).err();
        assert!(
            failed
                .is_some_and(|failed| failed.taken_back && failed.error.kind() == io::ErrorKind::StorageFull)
        );
        assert_eq!(journal.disk.bytes, b"1234\n");
        assert!(journal.append(|disk| disk.write_all(b"678\n")).is_ok(), "what fits is written");
        assert_eq!(journal.disk.bytes, b"1234\n678\n");
        Ok(())
    }

    #[test]
    fn of_a_batch_that_was_not_synced_nothing_is_left() -> io::Result<()> {
        let mut journal = journal(true)?;
        journal.disk.sync_fails = true;
        assert!(journal.append(|disk| disk.write_all(b"678\n")).is_err_and(|failed| failed.taken_back));
        assert_eq!(journal.disk.bytes, b"1234\n");
        Ok(())
    }

    #[test]
    fn what_cannot_be_taken_back_is_said() -> io::Result<()> {
        let mut journal = journal(true)?;
        journal.disk.cut_fails = true;
        assert!(journal.append(|disk| disk.write_all(b"12\n4567\n")).is_err_and(|failed| !failed.taken_back));
        Ok(())
    }

    #[test]
    fn every_batch_is_synced_unless_that_is_switched_off() -> io::Result<()> {
        for (sync, expected) in [(true, 2), (false, 0)] {
            let mut journal = journal(sync)?;
            assert!(journal.append(|disk| disk.write_all(b"678\n")).is_ok());
            assert_eq!(journal.disk.syncs, expected);
        }
        Ok(())
    }
}
