//! A file of JSON lines that only grows, and that a crash leaves readable.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

#[derive(Debug)]
pub struct Lines {
    file: File,
}

impl Lines {
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        cut_torn_line(&mut file)?;
        Ok(Self { file })
    }

    /// Adds a line an item, all or none of them: on disk when this returns.
    pub fn append<T: Serialize>(&mut self, items: impl IntoIterator<Item = T>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for item in items {
            serde_json::to_writer(&mut bytes, &item)?;
            bytes.push(b'\n');
        }
        let before = self.file.metadata()?.len();
        if let Err(error) = self.file.write_all(&bytes) {
            self.file.set_len(before)?;
            return Err(error);
        }
        self.file.sync_data()
    }
}

/// Every item in the file, in its order.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
}

/// A line without its end was never reported as written, and would spoil the next one.
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
