//! Segments: the journal's fixed-size files, zero-filled once and then recycled.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `ONCEJRNL` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | zero |
//! | 16 | 8 | ordinal: the segment's place in the log |
//! | 24 | 8 | epoch: random, new at every use |
//! | 32 | 8 | size of the file |
//! | 40 | 8 | era of the opening that prepared it |
//! | 48 | 8 | released number then |
//! | 56 | 8 | the clock's last stamp then: store time |
//! | 64 | 8 | and the wall time that went with it |
//! | 72 | 52 | zeros |
//! | 124 | 4 | CRC-32 over bytes 0 to 123 |
//! | 128 | 384 | zeros |
//! | 512 | | frames; then zeros, or what an earlier use left |
//!
//! The header is synced, and ordinal and epoch are in the catalog, before the first frame is written,
//! so a header that does not read is damage and never a torn write. What the catalog knew then is
//! repeated in the header, so that a lost catalog can be made anew.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{FRAME_ALIGN, Frame};
use crate::codec::Reader;
use crate::disk::{self, Disk, DiskFile};
use crate::error::{Error, Result};
use crate::lenient::read_what_can_be;
use crate::sabotage::{self, Break};

/// Where frames begin: a sector of its own for the header.
pub(crate) const SEGMENT_HEADER: u64 = FRAMES_AT as u64;

/// The same, as an index.
pub(crate) const FRAMES_AT: usize = 512;

const MAGIC: &[u8; 8] = b"ONCEJRNL";
pub(super) const VERSION: u32 = 1;
const CHECKED: usize = 124;
/// Zeros are written in pieces of this size. Larger ones make larger units in the page cache, and each
/// later sync slower (measured: 79 us at 64 KiB, 85 us at 1 MiB, 97 us at 8 MiB).
const FILL_PIECE: usize = 64 << 10;

/// One segment file in one use.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Names the file; stays with it through all its uses.
    pub(crate) file_id: u32,
    pub(crate) ordinal: u64,
    pub(crate) epoch: u64,
    pub(crate) size: u64,
    pub(crate) origin: Origin,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
}

/// What the catalog knew when a segment was prepared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) era: u64,
    pub(crate) released: u64,
    pub(crate) store_time: u64,
    pub(crate) wall_time: u64,
}

/// The header of a segment, without what is the same in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) ordinal: u64,
    pub(crate) epoch: u64,
    pub(crate) size: u64,
    pub(crate) origin: Origin,
}

/// The path of a segment file.
pub(crate) fn path(dir: &Path, file_id: u32) -> PathBuf {
    dir.join(format!("{file_id:08}.segment"))
}

/// Whether a file is a segment of a later ordinal than this, with frames of that use.
pub(crate) fn begun_after(disk: &dyn Disk, path: &Path, ordinal: u64) -> Result<bool> {
    let failed = |error| Error::io(path, error);
    let file = disk.open(path).map_err(failed)?;
    let mut header = [0; FRAMES_AT];
    if file.len().map_err(failed)? < SEGMENT_HEADER || disk::read_exact_at(&*file, &mut header, 0).is_err() {
        return Ok(false);
    }
    let Some(header) = Header::from_bytes(&header).ok().filter(|header| header.ordinal > ordinal) else {
        return Ok(false);
    };
    let mut bytes = vec![0; usize::try_from(file.len().map_err(failed)?).unwrap_or(usize::MAX)];
    read_what_can_be(&*file, &mut bytes, 0);
    let mut places = (FRAMES_AT..bytes.len()).step_by(FRAME_ALIGN);
    Ok(places.any(|place| Frame::read(&bytes[place..], header.epoch).is_some()))
}

impl Segment {
    /// Makes a file ready for a new use: filled with zeros if it is new or of another size, its
    /// header durable. The caller then lists it in the catalog.
    pub(crate) fn prepare(disk: &dyn Disk, dir: &Path, use_: Use) -> io::Result<Self> {
        let Use { file_id, ordinal, epoch, size, origin } = use_;
        let path = path(dir, file_id);
        let reused = match disk.open(&path) {
            Ok(file) => (file.len()? == size).then_some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let file = match reused {
            Some(file) => file,
            None => fill(disk, dir, &path, size)?,
        };
        let segment = Self { file_id, ordinal, epoch, size, origin, path, file };
        disk::write_all_at(&*segment.file, &segment.header().to_bytes(), 0)?;
        disk::sync(&*segment.file)?;
        Ok(segment)
    }

    /// Opens a segment that the catalog lists, and checks that it is that one. What is read from it
    /// then is on the device: a killed process or a failed sync may have left more in the cache.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, file_id: u32, ordinal: u64, epoch: u64) -> Result<Self> {
        let path = path(dir, file_id);
        let file = disk.open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::corrupt(&path, 0, "the file is missing"),
            _ => Error::io(&path, error),
        })?;
        if !sabotage::is(Break::TrustPageCache) {
            disk::sync(&*file).and_then(|()| file.drop_cache()).map_err(|error| Error::io(&path, error))?;
        }
        let size = file.len().map_err(|error| Error::io(&path, error))?;
        if size < SEGMENT_HEADER {
            return Err(Error::corrupt(&path, size, "the file is cut short"));
        }
        let mut found = [0; FRAMES_AT];
        disk::read_exact_at(&*file, &mut found, 0).map_err(|error| Error::io(&path, error))?;
        match Header::from_bytes(&found) {
            Ok(Header { origin, .. }) if (Header { ordinal, epoch, size, origin }).to_bytes() == found => {
                Ok(Self { file_id, ordinal, epoch, size, origin, path, file })
            }
            Err(Some(version)) => Err(Error::Version { found: version, supported: VERSION }),
            _ => Err(Error::corrupt(&path, 0, "the segment header is not the one the catalog lists")),
        }
    }

    fn header(&self) -> Header {
        Header { ordinal: self.ordinal, epoch: self.epoch, size: self.size, origin: self.origin }
    }

    /// Reads the header again: whether it is still this segment's.
    pub(crate) fn header_stands(&self) -> io::Result<bool> {
        let mut found = [0; FRAMES_AT];
        disk::read_exact_at(&*self.file, &mut found, 0)?;
        Ok(found == self.header().to_bytes())
    }
}

impl Header {
    fn to_bytes(self) -> [u8; FRAMES_AT] {
        let mut header = [0; FRAMES_AT];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let Origin { era, released, store_time, wall_time } = self.origin;
        let fields = [self.ordinal, self.epoch, self.size, era, released, store_time, wall_time];
        for (place, field) in header[16..CHECKED].as_chunks_mut::<8>().0.iter_mut().zip(fields) {
            *place = field.to_le_bytes();
        }
        let crc = crc32fast::hash(&header[..CHECKED]);
        header[CHECKED..CHECKED + 4].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Reads a header; `Some` in the error is the version of a sound one that this crate does not
    /// read.
    pub(crate) fn from_bytes(found: &[u8; FRAMES_AT]) -> Result<Self, Option<u32>> {
        let header = Self::parse(found)?;
        if header.to_bytes() == *found { Ok(header) } else { Err(None) }
    }

    fn parse(found: &[u8; FRAMES_AT]) -> Result<Self, Option<u32>> {
        let mut reader = Reader::new(found);
        let sound = found[CHECKED..CHECKED + 4] == crc32fast::hash(&found[..CHECKED]).to_le_bytes();
        if !sound || reader.take(MAGIC.len()) != Some(MAGIC) {
            return Err(None);
        }
        match reader.u32() {
            Some(VERSION) => {}
            version => return Err(version),
        }
        // Zeros fill up the version to eight bytes.
        let mut fields = found[16..].as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let mut next = || fields.next().ok_or(None);
        Ok(Self {
            ordinal: next()?,
            epoch: next()?,
            size: next()?,
            origin: Origin { era: next()?, released: next()?, store_time: next()?, wall_time: next()? },
        })
    }
}

/// What a segment file is prepared for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) file_id: u32,
    pub(crate) ordinal: u64,
    pub(crate) epoch: u64,
    pub(crate) size: u64,
    pub(crate) origin: Origin,
}

/// Creates a file of zeros that are really written: a sync of bytes written over them later has no
/// metadata to wait for.
fn fill(disk: &dyn Disk, dir: &Path, path: &Path, size: u64) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.create(path)?;
    let filled = (|| {
        let zeros = vec![0; FILL_PIECE];
        let mut offset = 0;
        while offset < size {
            let piece = usize::try_from(size - offset).map_or(FILL_PIECE, |rest| rest.min(FILL_PIECE));
            disk::write_all_at(&*file, &zeros[..piece], offset)?;
            offset += piece as u64;
        }
        disk::sync(&*file)?;
        disk.sync_dir(dir)
    })();
    match filled {
        Ok(()) => Ok(file),
        Err(error) => {
            // A half-made file would keep the room that is missing.
            let _ = disk.remove(path);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;

    fn use_of(ordinal: u64, epoch: u64) -> Use {
        Use { file_id: 3, ordinal, epoch, size: 1 << 16, origin: Origin { era: 1, ..Origin::default() } }
    }

    #[test]
    fn a_segment_is_recycled_under_a_new_epoch() {
        let (disk, dir) = (MemoryDisk::new(1), Path::new("j"));
        let first = Segment::prepare(&disk, dir, use_of(1, 10)).unwrap();
        disk::write_all_at(&*first.file, b"old frames", SEGMENT_HEADER).unwrap();
        Segment::open(&disk, dir, 3, 1, 10).unwrap();
        Segment::prepare(&disk, dir, use_of(9, 20)).unwrap();
        let again = Segment::open(&disk, dir, 3, 9, 20).unwrap();
        assert_eq!(again.size, 1 << 16);
        assert!(Segment::open(&disk, dir, 3, 1, 10).unwrap_err().is_corruption(), "the old use is over");
    }

    #[test]
    fn a_missing_or_damaged_segment_is_corrupt() {
        let (disk, dir) = (MemoryDisk::new(1), Path::new("j"));
        assert!(Segment::open(&disk, dir, 3, 1, 10).unwrap_err().is_corruption());
        Segment::prepare(&disk, dir, use_of(1, 10)).unwrap();
        for offset in 0..SEGMENT_HEADER {
            disk.damage(path(dir, 3), offset, &[0xa5]);
            let error = Segment::open(&disk, dir, 3, 1, 10).unwrap_err();
            assert!(error.is_corruption(), "byte {offset}: {error}");
            Segment::prepare(&disk, dir, use_of(1, 10)).unwrap();
        }
    }
}
