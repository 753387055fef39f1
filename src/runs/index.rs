//! The sparse index of a run: where each block lies and the hash it begins with.
//!
//! | bytes | an entry |
//! |---|---|
//! | 0..8 | hash of the block's first record |
//! | 8..16 | offset of the block in the file |
//! | 16..20 | length of the block |
//!
//! The blocks lie one behind the other, so that no byte of the file is outside of all of them.

use std::ops::Range;

use crate::codec::Reader;

const ENTRY: usize = 20;

/// Apart from one another, because a search only looks at the hashes.
#[derive(Debug)]
pub(super) struct Index {
    first_hashes: Vec<u64>,
    ends: Vec<u64>,
    start: u64,
}

impl Index {
    /// No blocks yet; the first one will begin at `start`.
    pub(super) fn starting_at(start: u64) -> Self {
        Self { first_hashes: Vec::new(), ends: Vec::new(), start }
    }

    /// Adds the next block.
    pub(super) fn push(&mut self, first_hash: u64, len: u32) {
        let end = self.end() + u64::from(len);
        self.first_hashes.push(first_hash);
        self.ends.push(end);
    }

    pub(super) fn blocks(&self) -> usize {
        self.ends.len()
    }

    /// Where the last block ends.
    pub(super) fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(self.start)
    }

    /// Where in the file a block lies.
    pub(super) fn range(&self, block: usize) -> Option<Range<u64>> {
        let end = *self.ends.get(block)?;
        let before = block.checked_sub(1).and_then(|before| self.ends.get(before));
        Some(before.copied().unwrap_or(self.start)..end)
    }

    pub(super) fn first_hash(&self, block: usize) -> Option<u64> {
        self.first_hashes.get(block).copied()
    }

    /// The first block that can hold `hash`: the one before the first that begins with it or with
    /// a higher one, because records of one hash may begin at the end of a block.
    pub(super) fn first_candidate(&self, hash: u64) -> usize {
        self.first_hashes.partition_point(|&first| first < hash).saturating_sub(1)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.blocks() * ENTRY);
        let mut offset = self.start;
        for (first_hash, &end) in self.first_hashes.iter().zip(&self.ends) {
            bytes.extend_from_slice(&first_hash.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
            let [len @ .., _, _, _, _] = (end - offset).to_le_bytes();
            bytes.extend_from_slice(&len);
            offset = end;
        }
        bytes
    }

    /// `None` unless the blocks ascend and fill the file from `start` to `end`.
    pub(super) fn from_bytes(bytes: &[u8], start: u64, end: u64) -> Option<Self> {
        let blocks = bytes.len() / ENTRY;
        let mut index =
            Self { first_hashes: Vec::with_capacity(blocks), ends: Vec::with_capacity(blocks), start };
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let (first_hash, offset, len) = (reader.u64()?, reader.u64()?, reader.u32()?);
            let ascends = index.first_hashes.last().is_none_or(|&before| before <= first_hash);
            if !ascends || offset != index.end() || len == 0 || offset + u64::from(len) > end {
                return None;
            }
            index.push(first_hash, len);
        }
        (index.end() == end).then_some(index)
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        (self.first_hashes.capacity() + self.ends.capacity()) * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Index {
        let mut index = Index::starting_at(64);
        for (first_hash, len) in [(3, 10), (3, 20), (7, 30)] {
            index.push(first_hash, len);
        }
        index
    }

    #[test]
    fn a_search_starts_where_the_hash_may_begin() {
        let index = sample();
        for (hash, block) in [(0, 0), (2, 0), (3, 0), (4, 1), (6, 1), (7, 1), (8, 2), (u64::MAX, 2)] {
            assert_eq!(index.first_candidate(hash), block, "{hash}");
        }
        assert_eq!(Index::starting_at(64).first_candidate(1), 0);
        assert_eq!((index.range(0), index.range(2), index.range(3)), (Some(64..74), Some(94..124), None));
    }

    #[test]
    fn an_index_comes_back_and_gaps_and_disorder_are_refused() {
        let bytes = sample().to_bytes();
        let back = Index::from_bytes(&bytes, 64, 124).unwrap();
        assert_eq!(back.to_bytes(), bytes);
        assert!(Index::from_bytes(&bytes, 63, 124).is_none());
        assert!(Index::from_bytes(&bytes, 64, 125).is_none());
        assert!(Index::from_bytes(&bytes, 64, 123).is_none());
        assert!(Index::from_bytes(&bytes[..59], 64, 124).is_none());
        assert!(Index::from_bytes(&bytes[..40], 64, 94).is_some());
        assert!(Index::from_bytes(&[], 64, 64).is_some());
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0x80;
            // A changed hash can leave the order as it was; nothing else may pass.
            assert!(place % ENTRY < 8 || Index::from_bytes(&changed, 64, 124).is_none(), "{place}");
        }
    }
}
