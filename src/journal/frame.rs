//! Frames: the checksummed unit of the journal.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | length of the records, in bytes; never 0 |
//! | 4 | 4 | CRC-32 over the whole frame except this field |
//! | 8 | 8 | sequence number, dense across segments |
//! | 16 | 8 | the sequence number that was durable when this frame was written |
//! | 24 | 8 | the segment's epoch |
//! | 32 | | records, each a variable-length length and its bytes |
//! | | 0 to 7 | zeros up to a multiple of 8 |
//!
//! The durable number tells a torn tail from damage: if a bad frame is followed by a good one that
//! says the bad one was durable, something was lost; if not, nobody was promised it. The epoch keeps
//! what a recycled segment held before from being taken for frames.

use crate::codec::{Reader, put_bytes};

/// Bytes before the records.
pub(crate) const FRAME_HEADER: usize = 32;

/// Frames begin at multiples of this.
pub(crate) const FRAME_ALIGN: usize = 8;

/// A good frame, borrowed from a segment's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) seq: u64,
    pub(crate) durable: u64,
    records: &'a [u8],
    /// Bytes it takes in the segment.
    pub(crate) len: usize,
}

/// The most a frame takes whose records take `records` bytes (five more each for their lengths).
pub(crate) const fn frame_bound(records: usize) -> u64 {
    (FRAME_HEADER + records + 2 * 5 + FRAME_ALIGN) as u64
}

/// Appends a frame that lacks only what is known when it is written: see [`seal`].
pub(crate) fn append(out: &mut Vec<u8>, seq: u64, records: &[&[u8]]) {
    let start = out.len();
    out.resize(start + FRAME_HEADER, 0);
    for record in records {
        put_bytes(out, record);
    }
    let len = u32::try_from(out.len() - start - FRAME_HEADER).expect("record lengths are limited");
    out.resize(start + (out.len() - start).next_multiple_of(FRAME_ALIGN), 0);
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    out[start + 8..start + 16].copy_from_slice(&seq.to_le_bytes());
}

/// The size in the segment of the first frame of `bytes`, which [`append`] made.
pub(crate) fn size(bytes: &[u8]) -> usize {
    let len = Reader::new(bytes).u32().map_or(0, |len| len as usize);
    (FRAME_HEADER + len).next_multiple_of(FRAME_ALIGN)
}

/// Completes one frame that [`append`] made.
pub(crate) fn seal(frame: &mut [u8], durable: u64, epoch: u64) {
    frame[16..24].copy_from_slice(&durable.to_le_bytes());
    frame[24..32].copy_from_slice(&epoch.to_le_bytes());
    let crc = checksum(frame);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[..4]);
    hasher.update(&frame[8..]);
    hasher.finalize()
}

impl<'a> Frame<'a> {
    /// Reads the frame at the start of `bytes`; `None` if there is no good frame of this epoch.
    pub(crate) fn read(bytes: &'a [u8], epoch: u64) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (len, crc) = (reader.u32()? as usize, reader.u32()?);
        let (seq, durable, found_epoch) = (reader.u64()?, reader.u64()?, reader.u64()?);
        // The last number of all has no next one, so no log reaches it.
        if len == 0 || found_epoch != epoch || len > bytes.len() || seq == u64::MAX {
            return None;
        }
        let frame = bytes.get(..(FRAME_HEADER + len).next_multiple_of(FRAME_ALIGN))?;
        if checksum(frame) != crc {
            return None;
        }
        Some(Self { seq, durable, records: &frame[FRAME_HEADER..FRAME_HEADER + len], len: frame.len() })
    }

    /// The encoded records; the last item is `None` if the bytes do not divide into records.
    pub(crate) fn records(self) -> impl Iterator<Item = Option<&'a [u8]>> {
        let mut reader = Reader::new(self.records);
        let mut ended = false;
        std::iter::from_fn(move || {
            if ended || reader.is_empty() {
                return None;
            }
            let record = reader.bytes();
            ended = record.is_none();
            Some(record)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(seq: u64, records: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        append(&mut bytes, seq, records);
        assert_eq!(size(&bytes), bytes.len());
        assert!(bytes.len() as u64 <= frame_bound(records.iter().map(|record| record.len()).sum()));
        seal(&mut bytes, seq - 1, 99);
        bytes
    }

    #[test]
    fn a_frame_comes_back() {
        let bytes = sealed(7, &[b"one", b"second"]);
        let frame = Frame::read(&bytes, 99).unwrap();
        assert_eq!((frame.seq, frame.durable, frame.len), (7, 6, bytes.len()));
        let records: Vec<_> = frame.records().map(Option::unwrap).collect();
        assert_eq!(records, [b"one".as_slice(), b"second"]);
    }

    #[test]
    fn any_changed_bit_makes_it_no_frame() {
        let bytes = sealed(7, &[b"one"]);
        for index in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[index] ^= 1 << bit;
                assert!(Frame::read(&bad, 99).is_none(), "byte {index}, bit {bit}");
            }
        }
        assert!(Frame::read(&bytes, 98).is_none(), "another epoch");
        for len in 0..bytes.len() {
            assert!(Frame::read(&bytes[..len], 99).is_none(), "cut at {len}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            if let Some(frame) = Frame::read(&bytes, 0) {
                frame.records().for_each(drop);
            }
        }
    }
}
