//! The outside world: a file of what the handler did, one line an effect.
//!
//! It stands for the bank, the mail server, the other team's service. The store knows nothing of
//! it, and it can be asked "has this been done?".

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::event::Source;

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
    file: Mutex<File>,
}

impl Effects {
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        cut_torn_line(&mut file)?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Does it: the effect is on disk when this returns.
    pub fn apply(&self, effect: &Effect) -> io::Result<()> {
        let mut line = serde_json::to_vec(effect)?;
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let before = file.metadata()?.len();
        if let Err(error) = file.write_all(&line) {
            file.set_len(before)?;
            return Err(error);
        }
        file.sync_data()
    }

    /// Asks whether it was done. Only retries after a crash or a failure ask, so reading all of it will do.
    pub fn contains(&self, source: Source, id: &str) -> io::Result<bool> {
        // The lock keeps a line that is half written from being read.
        let _file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(read(&self.path)?.iter().any(|e| e.source == source && e.id == id))
    }
}

/// Every effect in the file, in the order of acting.
pub fn read(path: &Path) -> io::Result<Vec<Effect>> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
}

/// A line without its end was never reported as done, and would spoil the next one.
fn cut_torn_line(file: &mut File) -> io::Result<()> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    if whole < bytes.len() {
        file.set_len(u64::try_from(whole).map_err(io::Error::other)?)?;
        file.sync_data()?;
    }
    Ok(())
}
