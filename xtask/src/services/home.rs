//! The files of the services, and the locks on them.
//!
//! All checkouts of a user share one folder: `services` in the cache folder has the state file, the locks, the logs and a
//! record of each process. It also has the data of the servers, unless their accounts cannot reach it there.

use super::state::State;
use crate::place::Place;
use crate::tools::is_root;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A socket's path may have 107 bytes. This leaves room for the names of a server's folder and socket.
const DATA_PATH_BYTES_MAX: usize = 64;

pub(crate) struct Home {
    folder: PathBuf,
    /// Packages from pip and Maven. They outlive `down`.
    pub(crate) packages: PathBuf,
}

impl Home {
    pub(crate) fn open(place: &Place) -> Result<Self, String> {
        let folder = place.cache.join("services");
        let home = Self { packages: place.cache.join("packages"), folder };
        make_folder(&home.packages, 0o755)?;
        // It holds passwords.
        make_folder(&home.folder, 0o700)?;
        make_folder(&home.processes(), 0o700)?;
        make_folder(&home.folder.join("log"), 0o700)?;
        Ok(home)
    }

    /// A process that changes something holds this lock; it ends with the process at the latest.
    pub(crate) fn lock(&self) -> Result<File, String> {
        let file = self.open_lock("lock")?;
        if file.try_lock().is_err() {
            eprintln!("Another xtask is at work on the services; waiting for it.");
            file.lock().map_err(|error| format!("The services cannot be locked: {error}"))?;
        }
        Ok(file)
    }

    /// Test runs share a lock on this file for as long as they use the services.
    pub(crate) fn in_use(&self) -> Result<File, String> {
        self.open_lock("in-use")
    }

    fn open_lock(&self, name: &str) -> Result<File, String> {
        let path = self.folder.join(name);
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
        file.map_err(|error| format!("Cannot open {}: {error}", path.display()))
    }

    /// The folder with a record for each process that was started.
    pub(crate) fn processes(&self) -> PathBuf {
        self.folder.join("process")
    }

    /// The folder with programs that speak to servers.
    pub(crate) fn clients(&self) -> PathBuf {
        self.folder.join("clients")
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder.join("log").join(format!("{name}.log"))
    }

    pub(crate) fn read_state(&self) -> Result<Option<State>, String> {
        let path = self.folder.join("state");
        match fs::read_to_string(&path) {
            Ok(text) => State::parse(&text).map(Some).ok_or_else(|| {
                format!("{} is not understood; end its servers by hand and delete it.", path.display())
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("Cannot read {}: {error}", path.display())),
        }
    }

    /// Renamed when it is complete, so that a reader never sees half of it.
    pub(crate) fn write_state(&self, state: &State) -> Result<(), String> {
        let (path, part) = (self.folder.join("state"), self.folder.join("state.part"));
        write_private(&part, &state.text())?;
        fs::rename(&part, &path).map_err(|error| format!("Cannot write {}: {error}", path.display()))
    }

    pub(crate) fn remove_state(&self) -> Result<(), String> {
        let path = self.folder.join("state");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("Cannot remove {}: {error}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Chooses the folder for the data of all servers. The caller makes it.
    ///
    /// Root's home folder is closed to the accounts of the servers. `/var/tmp` is open to all and, unlike `/tmp`, never in
    /// memory, where `fsync` would cost nothing.
    pub(crate) fn choose_data(&self) -> Result<PathBuf, String> {
        let below = self.folder.join("data");
        if !is_root() && below.as_os_str().len() <= DATA_PATH_BYTES_MAX {
            return Ok(below);
        }
        Ok(Path::new("/var/tmp").join(format!("postrider-services-{}", random_hex(8)?)))
    }
}

/// Makes the folder and its parents, if they are not there.
pub(crate) fn make_folder(path: &Path, mode: u32) -> Result<(), String> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(|error| format!("Cannot make {}: {error}", path.display()))
}

/// Removes a folder and its contents, if it exists.
pub(crate) fn remove_folder(path: &Path) -> Result<(), String> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("Cannot remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

/// A new file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), String> {
    let written = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("Cannot write {}: {error}", path.display()))
}

/// Random bytes as hexadecimal text, which needs no quotes in a shell, a URL or SQL.
pub(crate) fn random_hex(bytes: usize) -> Result<String, String> {
    let mut random = vec![0; bytes];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(|error| format!("/dev/urandom gives no random bytes: {error}"))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
