//! Sequential writing in pieces.

use std::io;
use std::sync::Arc;

use crate::disk::{DiskFile, sync, write_all_at};
use crate::sabotage::{self, Break};

/// Small enough that a write to the journal never waits long behind one in the background, large
/// enough that the calls cost nothing.
const PIECE: usize = 256 << 10;

/// How much is left unsynced at most, because a sync of the journal waits behind it. Measured beside
/// a journal that syncs without pause: its slowest sync took 9 to 34 ms without this bound and 2 to
/// 4 ms with it while runs of 8 MB were written four times a second, and 57 to 62 against 12 to
/// 31 ms beside runs of 110 MB. The price in the second case: one in a hundred mostly took 4 ms, not 0.2.
const UNSYNCED: u64 = 1 << 20;

/// Appends to a file from its start. After an error the file is of no use.
#[derive(Debug)]
pub(super) struct Output {
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    written: u64,
    synced: u64,
}

impl Output {
    pub(super) fn new(file: Arc<dyn DiskFile>) -> Self {
        Self { file, buffer: Vec::with_capacity(PIECE), written: 0, synced: 0 }
    }

    /// Where the next byte will lie.
    pub(super) fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    pub(super) fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            if self.buffer.len() == PIECE {
                self.write()?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Makes everything durable and gives the length of the file.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.write()?;
        if !sabotage::is(Break::SkipRunSync) {
            sync(&*self.file)?;
        }
        Ok(self.written)
    }

    fn write(&mut self) -> io::Result<()> {
        write_all_at(&*self.file, &self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        if self.written - self.synced >= UNSYNCED {
            sync(&*self.file)?;
            self.synced = self.written;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;
    use crate::disk::{Disk, read_exact_at};
    use std::path::Path;

    #[test]
    fn pieces_of_every_size_arrive_in_order_and_are_durable() {
        let disk = MemoryDisk::new(0);
        let file = disk.create(Path::new("d/file")).unwrap();
        disk.sync_dir(Path::new("d")).unwrap();
        let mut output = Output::new(file);
        let mut expected = Vec::new();
        for len in [0, 1, PIECE - 1, 1, PIECE, 3 * PIECE + 5, 17 * PIECE, 7] {
            let bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
            assert_eq!(output.offset(), expected.len() as u64);
            output.put(&bytes).unwrap();
            expected.extend_from_slice(&bytes);
        }
        assert_eq!(output.finish().unwrap(), expected.len() as u64);
        disk.crash();
        let mut found = vec![0; expected.len()];
        read_exact_at(&*disk.open(Path::new("d/file")).unwrap(), &mut found, 0).unwrap();
        assert!(found == expected);
    }
}
