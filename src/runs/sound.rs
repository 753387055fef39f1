//! What is sound in a run file that is not: every block whose checksum holds, wherever it lies.
//!
//! The index, the filter and the footer are not needed for it. Behind a damaged block every byte is
//! tried as the beginning of the next one.

use super::block::{BLOCK_LEN, HEADER_LEN as BLOCK_HEADER, entries};
use super::layout::{HEADER_LEN, decode};
use crate::codec::Reader;
use crate::disk::DiskFile;
use crate::error::Result;
use crate::key::KeyHasher;
use crate::lenient::read_what_can_be;
use crate::record::StoredRecord;

/// How much is read at a time.
const PIECE: usize = 256 << 10;

/// The fewest bytes an entry takes.
const SHORTEST_ENTRY: usize = 8 + 1 + 1 + 12;

/// A record in a sound block.
#[derive(Clone, Copy, Debug)]
pub(super) struct SoundRecord<'a> {
    pub(super) hash: u64,
    pub(super) seq: u64,
    pub(super) bytes: &'a [u8],
    pub(super) record: StoredRecord<'a>,
}

/// Gives every record in a sound block of `file` to `visit`, in the order of the file. Its hash is
/// that of its key, so it is one of this store's.
pub(super) fn sound_records(
    file: &dyn DiskFile,
    hasher: &KeyHasher,
    visit: &mut dyn FnMut(SoundRecord<'_>) -> Result<()>,
) -> Result<()> {
    let mut window = Window { file, len: file.len().unwrap_or(0), buffer: Vec::new(), start: 0 };
    let mut at = HEADER_LEN as u64;
    while at < window.len {
        match sound_block(&mut window, at, hasher) {
            None => at += 1,
            Some(block) => {
                for entry in entries(block).into_iter().flatten().flatten() {
                    let Some(record) = decode(entry.record) else { continue };
                    visit(SoundRecord { hash: entry.hash, seq: entry.seq, bytes: entry.record, record })?;
                }
                at += block.len() as u64;
            }
        }
    }
    Ok(())
}

/// The block that begins at `at`, if a sound one does.
fn sound_block<'a>(window: &'a mut Window<'_>, at: u64, hasher: &KeyHasher) -> Option<&'a [u8]> {
    let mut header = Reader::new(window.get(at, BLOCK_HEADER));
    let (_, len, records) = (header.u32()?, header.u32()?, header.u32()?);
    let (len, records) = (usize::try_from(len).ok()?, usize::try_from(records).ok()?);
    let total = BLOCK_HEADER.checked_add(len)?;
    // Few bytes that are no block come as far as the checksum.
    let plausible = records > 0
        && records.checked_mul(SHORTEST_ENTRY).is_some_and(|fewest| fewest <= len)
        && (total <= BLOCK_LEN || records == 1)
        && total as u64 <= window.len - at;
    if !plausible {
        return None;
    }
    let block = window.get(at, total);
    let sound = entries(block).ok()?.all(|entry| {
        entry.is_ok_and(|entry| {
            decode(entry.record).is_some_and(|record| hasher.hash(record.key) == entry.hash)
        })
    });
    (sound && block.len() == total).then_some(block)
}

/// A part of a file in memory. What the device fails to read is zeros.
struct Window<'a> {
    file: &'a dyn DiskFile,
    len: u64,
    buffer: Vec<u8>,
    start: u64,
}

impl Window<'_> {
    /// `count` bytes from `at` on, or fewer at the end of the file.
    fn get(&mut self, at: u64, count: usize) -> &[u8] {
        let held = self.start..self.start + self.buffer.len() as u64;
        let end = (at + count as u64).min(self.len);
        if !held.contains(&at) || end > held.end {
            let rest = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
            self.buffer.clear();
            self.buffer.resize(rest.min(count.max(PIECE)), 0);
            self.start = at;
            read_what_can_be(self.file, &mut self.buffer, at);
        }
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        self.buffer.get(from..).map_or(&[], |rest| &rest[..rest.len().min(count)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::memory::MemoryDisk;
    use crate::runs::writer::tests::{done, write_run};

    const PATH: &str = "d/run";

    /// A run of many blocks, one of them long, and how many records it has.
    fn written() -> (MemoryDisk, KeyHasher, Vec<Vec<u8>>) {
        let (disk, hasher) = (MemoryDisk::new(0), KeyHasher::new(7));
        let mut records: Vec<_> = (0_u64..200)
            .map(|number| {
                let key = number.to_le_bytes();
                let len = if number == 77 { 9_000 } else { 200 };
                (hasher.hash(&key), number + 1, done(&key, 80, &vec![7; len]))
            })
            .collect();
        records.sort();
        write_run(&disk, PATH.as_ref(), &records);
        (disk, hasher, records.into_iter().map(|(_, _, record)| record).collect())
    }

    fn sound(disk: &MemoryDisk, hasher: &KeyHasher) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let file = disk.open(PATH.as_ref()).unwrap();
        sound_records(&*file, hasher, &mut |record| {
            found.push(record.bytes.to_vec());
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn every_sound_block_is_found_and_only_damaged_ones_are_left_out() {
        let (disk, hasher, records) = written();
        assert_eq!(sound(&disk, &hasher), records);
        assert_eq!(sound(&disk, &KeyHasher::new(8)), Vec::<Vec<u8>>::new(), "another store's");
        let bytes = disk.contents(PATH).unwrap();
        for place in (0..bytes.len()).step_by(97) {
            let mut changed = bytes.clone();
            changed[place] ^= 0x41;
            disk.replace(PATH, &changed);
            let found = sound(&disk, &hasher);
            let lost = records.iter().filter(|record| !found.contains(record)).count();
            assert!(found.iter().all(|record| records.contains(record)), "byte {place}");
            assert!(lost <= 20, "{lost} records lost by byte {place}");
        }
        disk.replace(PATH, &bytes[..bytes.len() / 2]);
        assert!(sound(&disk, &hasher).len() > records.len() / 3);
    }
}
