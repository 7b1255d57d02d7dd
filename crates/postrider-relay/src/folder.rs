//! Temporary folders.

use std::path::{Path, PathBuf};

use postrider::rng::Rng;

use crate::failure::Failure;

/// A new folder in the system's folder for temporary files. Dropping it removes the folder and all that is in it.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Creates a folder whose name contains `purpose`.
    pub fn create(purpose: &str) -> Result<Self, Failure> {
        let random = Rng::from_entropy().below(1 << 24);
        let path = std::env::temp_dir().join(format!("postrider-{purpose}-{random:06x}"));
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(Self(path)),
            Err(error) => {
                Err(Failure::unreachable(format!("cannot create the folder {}", path.display()), &error)
                    .hint("set TMPDIR to a folder that can be written to"))
            }
        }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // The system cleans up what cannot be removed here.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
