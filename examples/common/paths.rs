//! Names of files that belong to a store.

use std::path::{Path, PathBuf};

/// A file beside the store: the store owns its directory.
pub fn beside(data: &Path, ending: &str) -> PathBuf {
    // By components, so that "./dedupe/" does not put the file into the directory.
    let mut name = data.components().as_path().as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}
