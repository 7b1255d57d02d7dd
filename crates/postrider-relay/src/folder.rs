//! A folder that is there for one run.

use std::path::{Path, PathBuf};

use postrider::rng::Rng;

use crate::failure::Failure;

/// A new folder among the temporary files of the system; removed, with all that is in it, when this is dropped.
pub(crate) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    pub(crate) fn create(purpose: &str) -> Result<Self, Failure> {
        let random = Rng::from_entropy().below(1 << 24);
        let path = std::env::temp_dir().join(format!("postrider-{purpose}-{random:06x}"));
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(Self(path)),
            Err(error) => {
                Err(Failure::unreachable(format!("cannot create the folder {}", path.display()), &error)
                    .hint("TMPDIR names the folder for temporary files"))
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What stays behind is in the folder for what may stay behind.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
