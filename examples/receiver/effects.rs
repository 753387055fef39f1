//! The outside world: a file of what the handler did, one line an effect.
//!
//! It stands for the bank, the mail server, the other team's service. The store knows nothing of
//! it, and it can be asked "has this been done?".

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::event::Source;
use crate::lines::{self, Lines};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    pub source: Source,
    pub id: String,
    pub entity: String,
    pub kind: String,
}

#[derive(Debug)]
pub struct Effects {
    path: PathBuf,
    lines: Mutex<Lines>,
}

impl Effects {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), lines: Mutex::new(Lines::open(path)?) })
    }

    /// Does it: the effect is on disk when this returns.
    pub fn apply(&self, effect: &Effect) -> io::Result<()> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).append([effect])
    }

    /// Asks whether it was done. Only retries after a crash or a failure ask, so reading all of it will do.
    pub fn contains(&self, source: Source, id: &str) -> io::Result<bool> {
        // The lock keeps a line that is half written from being read.
        let _lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(read(&self.path)?.iter().any(|e| e.source == source && e.id == id))
    }
}

/// Every effect in the file, in the order of acting.
pub fn read(path: &Path) -> io::Result<Vec<Effect>> {
    lines::read(path)
}
