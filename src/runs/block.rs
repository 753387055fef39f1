//! Data blocks of a run: about [`BLOCK_LEN`] bytes of records, read and checked as a whole.
//!
//! | bytes | a block |
//! |---|---|
//! | 0..4 | CRC-32 of everything behind it |
//! | 4..8 | length of the entries |
//! | 8..12 | how many entries there are |
//! | 12.. | the entries |
//!
//! An entry is the hash (8 bytes), the sequence number (v), the length of the record (v) and the
//! record (see [`crate::record`]). v: a variable-length integer. A record that does not fit into
//! [`BLOCK_LEN`] has a block of its own.

use crate::codec::{Reader, put_bytes, put_varint};

pub(super) const BLOCK_LEN: usize = 4096;

/// So that the length of a block fits its 32 bits.
pub(super) const MAX_RECORD: usize = 1 << 30;

const HEADER: u32 = 12;
pub(super) const HEADER_LEN: usize = HEADER as usize;

/// The most an entry takes beside its record.
const ENTRY_OVERHEAD: usize = 8 + 10 + 5;

#[derive(Debug)]
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    records: u32,
    first_hash: u64,
}

impl BlockBuilder {
    pub(super) fn new() -> Self {
        let mut bytes = Vec::with_capacity(BLOCK_LEN);
        bytes.resize(HEADER_LEN, 0);
        Self { bytes, records: 0, first_hash: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    pub(super) fn has_room_for(&self, record: &[u8]) -> bool {
        self.is_empty() || self.bytes.len() + ENTRY_OVERHEAD + record.len() <= BLOCK_LEN
    }

    /// Adds a record of at most [`MAX_RECORD`] bytes for which [there is room](Self::has_room_for).
    pub(super) fn push(&mut self, hash: u64, seq: u64, record: &[u8]) {
        debug_assert!(self.has_room_for(record) && record.len() <= MAX_RECORD);
        if self.is_empty() {
            self.first_hash = hash;
        }
        self.records += 1;
        self.bytes.extend_from_slice(&hash.to_le_bytes());
        put_varint(&mut self.bytes, seq);
        put_bytes(&mut self.bytes, record);
    }

    /// The hash the block begins with, its length and its bytes.
    pub(super) fn seal(&mut self) -> (u64, u32, &[u8]) {
        let len = u32::try_from(self.bytes.len()).expect("a block is BLOCK_LEN or one MAX_RECORD long");
        self.bytes[4..8].copy_from_slice(&(len - HEADER).to_le_bytes());
        self.bytes[8..12].copy_from_slice(&self.records.to_le_bytes());
        let crc = crc32fast::hash(&self.bytes[4..]);
        self.bytes[..4].copy_from_slice(&crc.to_le_bytes());
        (self.first_hash, len, &self.bytes)
    }

    pub(super) fn clear(&mut self) {
        self.bytes.truncate(HEADER_LEN);
        self.bytes.shrink_to(BLOCK_LEN);
        self.records = 0;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) hash: u64,
    pub(super) seq: u64,
    pub(super) record: &'a [u8],
}

/// The entries of a block; an error is the last one.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    reader: Reader<'a>,
    left: u32,
}

/// Checks the sum over a block that fills `block`.
pub(super) fn entries(block: &[u8]) -> Result<Entries<'_>, &'static str> {
    let mut reader = Reader::new(block);
    let crc = reader.u32().ok_or("a block is too short")?;
    if crc32fast::hash(&block[4..]) != crc {
        return Err("a block's checksum does not match");
    }
    let len = reader.u32().ok_or("a block is too short")?;
    let left = reader.u32().ok_or("a block is too short")?;
    if usize::try_from(len) != Ok(block.len() - HEADER_LEN) {
        return Err("a block has another length than the index says");
    }
    Ok(Entries { reader, left })
}

impl<'a> Entries<'a> {
    fn entry(&mut self) -> Option<Entry<'a>> {
        let (hash, seq) = (self.reader.u64()?, self.reader.varint()?);
        Some(Entry { hash, seq, record: self.reader.bytes()? })
    }

    fn stop(&mut self) {
        *self = Self { reader: Reader::new(&[]), left: 0 };
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            let entry = self.entry();
            if entry.is_none() {
                self.stop();
            }
            return Some(entry.ok_or("an entry runs past the end of its block"));
        }
        let excess = !self.reader.is_empty();
        self.stop();
        excess.then_some(Err("a block goes on behind its last entry"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_come_back(records in vec((any::<u64>(), any::<u64>(), vec(any::<u8>(), 0..300)), 1..40)) {
            let mut block = BlockBuilder::new();
            for _ in 0..2 {
                block.clear();
                let mut kept = 0;
                for (hash, seq, record) in &records {
                    if !block.has_room_for(record) {
                        break;
                    }
                    block.push(*hash, *seq, record);
                    kept += 1;
                }
                let (first_hash, len, bytes) = block.seal();
                prop_assert!(bytes.len() <= BLOCK_LEN && bytes.len() == len as usize);
                prop_assert_eq!(first_hash, records[0].0);
                let found: Vec<_> = entries(bytes).unwrap().map(Result::unwrap).collect();
                prop_assert_eq!(found.len(), kept);
                for (entry, (hash, seq, record)) in found.iter().zip(&records) {
                    prop_assert_eq!(*entry, Entry { hash: *hash, seq: *seq, record });
                }
            }
        }

        /// As a block would be that was written wrong, checksum and all.
        #[test]
        fn arbitrary_entries_never_panic_and_end(payload in vec(any::<u8>(), 0..200), count: u32) {
            let mut block = vec![0; 4];
            block.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
            block.extend_from_slice(&count.to_le_bytes());
            block.extend_from_slice(&payload);
            let crc = crc32fast::hash(&block[4..]);
            block[..4].copy_from_slice(&crc.to_le_bytes());
            let found = entries(&block).unwrap().take(1_000).count();
            prop_assert!(found <= payload.len() / 10 + 1);
        }
    }

    #[test]
    fn a_large_record_has_a_block_of_its_own() {
        let mut block = BlockBuilder::new();
        let large = vec![7; 3 * BLOCK_LEN];
        assert!(block.has_room_for(&large));
        block.push(1, 2, &large);
        assert!(!block.has_room_for(b"x"));
        let (_, _, bytes) = block.seal();
        assert_eq!(entries(bytes).unwrap().next(), Some(Ok(Entry { hash: 1, seq: 2, record: &large })));
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let mut block = BlockBuilder::new();
        block.push(1, 2, b"record");
        let bytes = block.seal().2.to_vec();
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0x10;
            assert!(entries(&changed).is_err(), "byte {place}");
            assert!(entries(&bytes[..place]).is_err(), "cut at {place}");
        }
    }
}
