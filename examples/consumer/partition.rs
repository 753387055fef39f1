//! A partition as a broker would deliver it: in order, from the offset that was committed last.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

use crate::args::Consume;
use crate::event::Event;

/// What is read at once; a batch ends where nothing more has arrived.
const BUFFER: usize = 1 << 20;
/// A line that is longer is not an event.
const LONGEST_LINE: u64 = 64 << 10;

pub struct Partition {
    reader: BufReader<Box<dyn Read>>,
    /// Bytes up to the end of the line that was read last.
    offset: u64,
    /// `None` for a pipe: what was read from it is gone.
    file: Option<Committed>,
}

struct Committed {
    path: PathBuf,
    len: u64,
}

/// One line: an event, or what is wrong with it.
pub type Delivery = Result<Event, String>;

impl Partition {
    pub fn open(options: &Consume) -> io::Result<Self> {
        let Some(path) = &options.file else {
            let reader = BufReader::with_capacity(BUFFER, Box::new(io::stdin()) as Box<dyn Read>);
            return Ok(Self { reader, offset: 0, file: None });
        };
        let mut file = File::open(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let len = file.metadata()?.len();
        let offset = if options.from_start { 0 } else { committed(&options.offsets)?.min(len) };
        file.seek(SeekFrom::Start(offset))?;
        Ok(Self {
            reader: BufReader::with_capacity(BUFFER, Box::new(file)),
            offset,
            file: Some(Committed { path: options.offsets.clone(), len }),
        })
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes in all, where that is known.
    pub fn len(&self) -> Option<u64> {
        self.file.as_ref().map(|file| file.len)
    }

    /// Waits for a line, and takes those that arrived with it. Empty at the end.
    pub fn batch(&mut self, at_most: usize) -> io::Result<Vec<Delivery>> {
        let mut batch = Vec::new();
        while batch.len() < at_most && (batch.is_empty() || self.reader.buffer().contains(&b'\n')) {
            let mut line = Vec::new();
            self.reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                if line.len() as u64 == LONGEST_LINE {
                    return Err(io::Error::other(format!(
                        "the line at byte {} is longer than {LONGEST_LINE} bytes",
                        self.offset
                    )));
                }
                break; // the end, or a line that is still being written
            }
            let at = self.offset;
            self.offset += line.len() as u64;
            batch.push(serde_json::from_slice(&line).map_err(|error| format!("byte {at}: {error}")));
        }
        Ok(batch)
    }

    /// From here on the next process goes on. It need not be durable: an older offset is right, too.
    pub fn commit(&self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let new = file.path.with_extension("new");
        fs::write(&new, self.offset.to_string())?;
        fs::rename(&new, &file.path)
    }
}

fn committed(path: &PathBuf) -> io::Result<u64> {
    match fs::read_to_string(path) {
        Ok(text) => text.trim().parse().map_err(|_| {
            io::Error::other(format!("{} holds no offset; delete it to begin again", path.display()))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}
