//! What cannot be found out anew if the catalog is lost: the seed of the hash and the scopes' numbers.
//!
//! Two copies lie beside the catalog, `identity.1` and `identity.2`. They are written, or added to, one
//! after the other whenever a scope gets a number, before the catalog lists it, so that one of them is
//! always whole and neither knows less than the catalog.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | `onceself` |
//! | 8..12 | format version, 1 |
//! | 12..16 | number of scopes |
//! | 16..24 | generation: one more at each writing |
//! | 24..32 | seed of the key hash |
//! | 32..40 | store time of the creation |
//! | 40..48, 48..56, 56..64 | era, and the clock's stamp when it was written: store time, wall time |
//! | 64.. | scopes: number (4), name (v length, bytes) |
//! | 4 | CRC-32 of the bytes before |
//! | then | scopes that were added later: CRC-32 (4) of the rest, number (4), name (v length, bytes) |
//!
//! What does not read behind the first sum is the torn end of an addition that the catalog does not
//! list yet.
//!
//! v: a variable-length integer. All other integers are little-endian.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::catalog::{Contents, Meta};
use crate::codec::{Reader, put_bytes};
use crate::disk::{self, Disk};

const MAGIC: [u8; 8] = *b"onceself";
const VERSION: u32 = 1;
const COPIES: [&str; 2] = ["identity.1", "identity.2"];

/// What makes a store this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    generation: u64,
    pub(crate) seed: u64,
    pub(crate) created: u64,
    pub(crate) era: u64,
    pub(crate) store_time: u64,
    pub(crate) wall_time: u64,
    pub(crate) scopes: BTreeMap<Box<str>, u32>,
}

/// What was found of the two copies.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// The newest sound one.
    pub(crate) newest: Option<Identity>,
    /// Those that are there and not sound, or are older.
    pub(crate) unsound: Vec<PathBuf>,
    /// Whether any is there.
    pub(crate) any: bool,
    /// Whether both are sound and the same.
    pub(crate) complete: bool,
}

impl Identity {
    /// That of a store with this catalog.
    pub(crate) fn of(contents: &Contents) -> Self {
        Self {
            generation: 0,
            seed: contents.meta(Meta::Seed),
            created: contents.meta(Meta::Created),
            era: contents.meta(Meta::Era),
            store_time: contents.meta(Meta::StoreTime),
            wall_time: contents.meta(Meta::WallTime),
            scopes: contents.scopes.clone(),
        }
    }

    /// Whether they differ only by when they were written.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        (self.seed, self.created, &self.scopes) == (other.seed, other.created, &other.scopes)
    }

    /// Reads both copies.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Copies> {
        let mut copies = Copies::default();
        let mut sound: Vec<(PathBuf, Self)> = Vec::new();
        let (mut unreadable, mut torn) = (None, false);
        for path in COPIES.map(|name| dir.join(name)) {
            let bytes = match disk.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => {
                    let file = opened?;
                    file.drop_cache()?;
                    let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
                    // One that the device cannot read is damaged, and the other is there for that.
                    match disk::read_exact_at(&*file, &mut bytes, 0) {
                        Ok(()) => bytes,
                        Err(error) => {
                            unreadable = Some(error);
                            Vec::new()
                        }
                    }
                }
            };
            copies.any = true;
            match Self::from_bytes(&bytes) {
                Some((identity, whole)) => {
                    torn |= !whole;
                    sound.push((path, identity));
                }
                None => copies.unsound.push(path),
            }
        }
        let newest = sound
            .iter()
            .map(|(_, identity)| identity)
            .max_by_key(|identity| (identity.generation, identity.scopes.len()));
        copies.newest = newest.cloned();
        if let (None, Some(error)) = (&copies.newest, unreadable) {
            return Err(error);
        }
        copies.complete = !torn && sound.len() == COPIES.len() && sound[0].1 == sound[1].1;
        let older = sound.into_iter().filter(|(_, identity)| copies.newest.as_ref() != Some(identity));
        copies.unsound.extend(older.map(|(path, _)| path));
        Ok(copies)
    }

    /// Adds a scope to both copies, which are whole, the same and `len` bytes long; the new length.
    pub(crate) fn append(disk: &dyn Disk, dir: &Path, len: u64, name: &str, number: u32) -> io::Result<u64> {
        let mut scope = number.to_le_bytes().to_vec();
        put_bytes(&mut scope, name.as_bytes());
        let mut entry = crc32fast::hash(&scope).to_le_bytes().to_vec();
        entry.append(&mut scope);
        for path in COPIES.map(|name| dir.join(name)) {
            let file = disk.open(&path)?;
            disk::write_all_at(&*file, &entry, len)?;
            disk::sync(&*file)?;
        }
        Ok(len + entry.len() as u64)
    }

    /// Writes both copies, durably, each when the other is whole; their length.
    pub(crate) fn write(mut self, disk: &dyn Disk, dir: &Path) -> io::Result<u64> {
        let known = Self::read(disk, dir)?;
        self.generation = known.newest.as_ref().map_or(0, |newest| newest.generation).saturating_add(1);
        let bytes = self.to_bytes();
        // A copy that is not sound goes first: the other one may be the only one.
        let mut paths = COPIES.map(|name| dir.join(name));
        if known.unsound.contains(&paths[1]) {
            paths.reverse();
        }
        for path in paths {
            let file = disk.create(&path)?;
            disk::write_all_at(&*file, &bytes, 0)?;
            disk::sync(&*file)?;
            disk.sync_dir(dir)?;
        }
        Ok(bytes.len() as u64)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(self.scopes.len()).unwrap_or(u32::MAX).to_le_bytes());
        let Self { generation, seed, created, era, store_time, wall_time, .. } = *self;
        for field in [generation, seed, created, era, store_time, wall_time] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for (name, number) in &self.scopes {
            bytes.extend_from_slice(&number.to_le_bytes());
            put_bytes(&mut bytes, name.as_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// What a copy says, and whether all of its bytes belong to that.
    fn from_bytes(bytes: &[u8]) -> Option<(Self, bool)> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len())? != MAGIC || reader.u32()? != VERSION {
            return None;
        }
        let count = reader.u32()?;
        let mut identity = Self {
            generation: reader.u64()?,
            seed: reader.u64()?,
            created: reader.u64()?,
            era: reader.u64()?,
            store_time: reader.u64()?,
            wall_time: reader.u64()?,
            scopes: BTreeMap::new(),
        };
        for _ in 0..count {
            identity.take_scope(&mut reader)?;
        }
        let checked = bytes.get(..bytes.len() - reader.len())?;
        if crc32fast::hash(checked) != reader.u32()? {
            return None;
        }
        while !reader.is_empty() {
            if identity.take_addition(&mut reader).is_none() {
                return Some((identity, false));
            }
        }
        Some((identity, true))
    }

    fn take_scope(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let number = reader.u32()?;
        self.scopes.insert(str::from_utf8(reader.bytes()?).ok()?.into(), number);
        Some(())
    }

    fn take_addition(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let crc = reader.u32()?;
        let mut ahead = *reader;
        let (number, name) = (ahead.u32()?, ahead.bytes()?);
        let scope = reader.take(reader.len() - ahead.len())?;
        if crc32fast::hash(scope) != crc {
            return None;
        }
        self.scopes.insert(str::from_utf8(name).ok()?.into(), number);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;

    fn sample(scopes: u32) -> Identity {
        let scopes = (1..=scopes).map(|number| (format!("scope {number}").into(), number)).collect();
        Identity { seed: 7, created: 8, era: 9, store_time: 10, wall_time: 11, scopes, ..Identity::default() }
    }

    #[test]
    fn damage_to_either_copy_leaves_the_other() {
        let (disk, dir) = (MemoryDisk::new(0), Path::new("d"));
        sample(1).write(&disk, dir).unwrap();
        sample(3).write(&disk, dir).unwrap();
        assert!(Identity::read(&disk, dir).unwrap().complete);
        for path in COPIES.map(|name| dir.join(name)) {
            let bytes = disk.contents(&path).unwrap();
            for place in 0..bytes.len() {
                disk.damage(&path, place as u64, &[bytes[place] ^ 0x20]);
                let copies = Identity::read(&disk, dir).unwrap();
                assert!(copies.newest.unwrap().is_same_as(&sample(3)), "byte {place}");
                assert!(!copies.complete);
                disk.replace(&path, &bytes[..place]);
                assert!(Identity::read(&disk, dir).unwrap().newest.unwrap().is_same_as(&sample(3)));
                disk.replace(&path, &bytes);
            }
        }
    }

    #[test]
    fn what_is_added_counts_and_what_is_torn_does_not() {
        let (disk, dir) = (MemoryDisk::new(0), Path::new("d"));
        let len = sample(1).write(&disk, dir).unwrap();
        let before = Identity::append(&disk, dir, len, "scope 2", 2).unwrap();
        let len = Identity::append(&disk, dir, before, "scope 3", 3).unwrap();
        let copies = Identity::read(&disk, dir).unwrap();
        assert!(copies.complete && copies.newest.unwrap().is_same_as(&sample(3)));
        for path in COPIES.map(|name| dir.join(name)) {
            let bytes = disk.contents(&path).unwrap();
            assert_eq!(bytes.len() as u64, len);
            for cut in before..len {
                disk.replace(&path, &bytes[..usize::try_from(cut).unwrap()]);
                let copies = Identity::read(&disk, dir).unwrap();
                assert!(!copies.complete && copies.newest.unwrap().is_same_as(&sample(3)), "cut at {cut}");
            }
            disk.replace(&path, &bytes);
        }
        sample(4).write(&disk, dir).unwrap();
        assert!(Identity::read(&disk, dir).unwrap().newest.unwrap().is_same_as(&sample(4)));
    }

    #[test]
    fn a_power_cut_while_it_is_written_leaves_one_of_the_two() {
        for seed in 0..50 {
            let (disk, dir) = (MemoryDisk::new(seed), Path::new("d"));
            sample(1).write(&disk, dir).unwrap();
            let file = Disk::create(&disk, &dir.join(COPIES[usize::from(seed % 2 == 0)])).unwrap();
            disk::write_all_at(&*file, &sample(2).to_bytes(), 0).unwrap();
            disk.crash();
            let newest = Identity::read(&disk, dir).unwrap().newest.unwrap();
            assert!(newest.is_same_as(&sample(1)) || newest.is_same_as(&sample(2)));
        }
    }
}
