//! Runs: built from a plan of blocks, or from bytes whose sums are made right.

use arbitrary::Arbitrary;

use crate::records::{Record, file_header, put_bytes, put_varint};

const FOOTER: usize = 140;
const HEADER: usize = 64;
const MAGIC: [u8; 8] = *b"oncerun\n";
const SALTS: [u32; 8] =
    [0xabc9_e14d, 0xcd96_4875, 0xd4f3_b835, 0x774b_670d, 0x53d6_386b, 0xf07a_ee79, 0x427f_4f17, 0x9c2b_70cf];

#[derive(Arbitrary, Clone, Debug)]
pub struct Plan {
    /// Put the entries in order, as a writer would.
    pub sorted: bool,
    pub blocks: Vec<Vec<Entry>>,
    pub filter_blocks: u8,
    pub bucket: u64,
    /// Bytes to change before the sums are made.
    pub changes: Vec<(u16, u8)>,
}

#[derive(Arbitrary, Clone, Debug)]
pub struct Entry {
    pub hash: Hash,
    pub seq: u64,
    pub record: Record,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Hash {
    /// Many keys of one hash.
    Small(u8),
    Any(u64),
}

impl Hash {
    #[must_use]
    pub fn value(self) -> u64 {
        match self {
            Self::Small(hash) => hash.into(),
            Self::Any(hash) => hash,
        }
    }
}

/// A file, and what is in it if nothing was changed.
pub struct Built {
    pub bytes: Vec<u8>,
    pub items: Vec<(u64, u64, Vec<u8>)>,
    pub keys: Vec<(u64, Vec<u8>)>,
    /// A run that the store could have written.
    pub honest: bool,
}

impl Plan {
    #[must_use]
    pub fn build(&self) -> Built {
        let mut blocks: Vec<Vec<&Entry>> = self.blocks.iter().map(|block| block.iter().collect()).collect();
        if self.sorted {
            let sizes: Vec<_> = blocks.iter().map(Vec::len).collect();
            let mut all: Vec<_> = blocks.concat();
            all.sort_by_key(|entry| (entry.hash.value(), key(entry)));
            all.dedup_by_key(|entry| (entry.hash.value(), key(entry)));
            let mut all = all.into_iter();
            blocks = sizes.into_iter().map(|size| all.by_ref().take(size).collect()).collect();
        }
        blocks.retain(|block| !block.is_empty());
        let mut bytes = file_header(MAGIC).to_vec();
        let mut index = Vec::new();
        let mut sums = Sums::NONE;
        let mut filter = vec![0_u8; (1 + usize::from(self.filter_blocks % 8)) * 64];
        let (mut items, mut keys) = (Vec::new(), Vec::new());
        let mut honest = self.sorted && self.changes.iter().all(|(_, change)| *change == 0);
        for block in blocks {
            let (start, first) = (bytes.len(), block[0].hash.value());
            bytes.extend_from_slice(&[0; 8]);
            bytes.extend_from_slice(&u32::try_from(block.len()).unwrap_or(0).to_le_bytes());
            for entry in block {
                let record = entry.record.to_bytes();
                let hash = entry.hash.value();
                bytes.extend_from_slice(&hash.to_le_bytes());
                put_varint(&mut bytes, entry.seq);
                put_bytes(&mut bytes, &record);
                honest &= entry.record.lasting_key().is_some();
                sums.add(entry);
                set(&mut filter, hash);
                keys.push((hash, key(entry)));
                items.push((hash, entry.seq, record));
            }
            let len = u32::try_from(bytes.len() - start).unwrap_or(0);
            bytes[start + 4..start + 8].copy_from_slice(&(len - 12).to_le_bytes());
            index.extend_from_slice(&first.to_le_bytes());
            index.extend_from_slice(&(start as u64).to_le_bytes());
            index.extend_from_slice(&len.to_le_bytes());
        }
        let index_at = bytes.len();
        bytes.extend_from_slice(&index);
        let filter_at = bytes.len();
        bytes.extend_from_slice(&filter);
        for (at, len) in [(index_at, index.len()), (filter_at, filter.len())] {
            bytes.extend_from_slice(&(at as u64).to_le_bytes());
            bytes.extend_from_slice(&(len as u64).to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
        }
        for number in sums.fields().into_iter().chain([self.bucket]) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        // The length of the file, the magic and the sum.
        bytes.extend_from_slice(&[0; 20]);
        for &(place, change) in &self.changes {
            let place = usize::from(place) % bytes.len();
            bytes[place] ^= change;
        }
        repair(&mut bytes, 0xff);
        Built { bytes, items, keys, honest }
    }
}

fn key(entry: &Entry) -> Vec<u8> {
    let bytes = entry.record.to_bytes();
    oncedb::fuzzing::key_of(&bytes).to_vec()
}

struct Sums {
    records: u64,
    done: u64,
    min_seq: u64,
    max_seq: u64,
    first_expiry: u64,
    last_expiry: u64,
    last_purge: u64,
    first_made: u64,
    last_made: u64,
}

impl Sums {
    const NONE: Self = Self {
        records: 0,
        done: 0,
        min_seq: 0,
        max_seq: 0,
        first_expiry: 0,
        last_expiry: 0,
        last_purge: 0,
        first_made: u64::MAX,
        last_made: 0,
    };

    fn add(&mut self, entry: &Entry) {
        self.min_seq = if self.records == 0 { entry.seq } else { self.min_seq.min(entry.seq) };
        self.max_seq = self.max_seq.max(entry.seq);
        self.records += 1;
        if let Record::Done { expires_at, .. } = entry.record {
            self.first_expiry = if self.done == 0 { expires_at } else { self.first_expiry.min(expires_at) };
            self.last_expiry = self.last_expiry.max(expires_at);
            self.done += 1;
        }
        if let Some((purge_at, made)) = entry.record.times() {
            self.last_purge = self.last_purge.max(purge_at);
            self.first_made = self.first_made.min(made);
            self.last_made = self.last_made.max(made);
        }
    }

    fn fields(&self) -> [u64; 9] {
        [
            self.records,
            self.done,
            self.min_seq,
            self.max_seq,
            self.first_expiry,
            self.last_expiry,
            self.last_purge,
            self.first_made,
            self.last_made,
        ]
    }
}

fn set(filter: &mut [u8], hash: u64) {
    let blocks = (filter.len() / 64) as u64;
    let block = usize::try_from(((hash >> 32) * blocks) >> 32).unwrap_or(0);
    let low = (hash & 0xffff_ffff) as u32;
    for (lane, salt) in SALTS.into_iter().enumerate() {
        let bit = low.wrapping_mul(salt) >> 26;
        filter[block * 64 + lane * 8 + bit as usize / 8] |= 1 << (bit % 8);
    }
}

/// Makes sums and lengths right, those that `which` names a bit for: header, footer, sections, blocks.
pub fn repair(bytes: &mut [u8], which: u8) {
    let len = bytes.len();
    if len < HEADER + FOOTER {
        return;
    }
    if which & 1 != 0 {
        bytes[..HEADER].copy_from_slice(&file_header(MAGIC));
    }
    let footer = len - FOOTER;
    let number = |bytes: &[u8], at: usize| {
        let field = bytes[at..at + 8].first_chunk().copied().unwrap_or_default();
        usize::try_from(u64::from_le_bytes(field)).unwrap_or(usize::MAX)
    };
    if which & 2 != 0 {
        let (index_at, index_len) = (number(bytes, footer), number(bytes, footer + 8));
        let entries = index_at.checked_add(index_len).filter(|&end| end <= footer).map(|end| index_at..end);
        for entry in entries.into_iter().flat_map(|range| range.step_by(20)).filter(|at| at + 20 <= footer) {
            let at = number(bytes, entry + 8);
            let size =
                u32::from_le_bytes(bytes[entry + 16..entry + 20].first_chunk().copied().unwrap_or_default());
            let Some(end) = at.checked_add(size as usize) else { continue };
            if size >= 12 && at >= HEADER && end <= index_at {
                bytes[at + 4..at + 8].copy_from_slice(&(size - 12).to_le_bytes());
                let crc = crc32fast::hash(&bytes[at + 4..end]);
                bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
            }
        }
    }
    if which & 4 != 0 {
        for section in [footer, footer + 20] {
            let (at, size) = (number(bytes, section), number(bytes, section + 8));
            let Some(end) = at.checked_add(size).filter(|&end| end <= footer) else { continue };
            let crc = crc32fast::hash(&bytes[at..end]);
            bytes[section + 16..section + 20].copy_from_slice(&crc.to_le_bytes());
        }
    }
    if which & 8 != 0 {
        bytes[footer + 120..footer + 128].copy_from_slice(&(len as u64).to_le_bytes());
        bytes[footer + 128..footer + 136].copy_from_slice(&MAGIC);
        let crc = crc32fast::hash(&bytes[footer..footer + 136]);
        bytes[footer + 136..].copy_from_slice(&crc.to_le_bytes());
    }
}
