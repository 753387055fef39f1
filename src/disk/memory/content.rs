//! One file of the simulated disk: what its device holds, and the page cache in front of it.

use std::collections::BTreeSet;
use std::fmt;

use super::random::Random;

/// What a crash tears a write at.
pub(super) const SECTOR: usize = 512;

/// Reads are answered from the cache. A change reaches the device at the next sync; until then a
/// crash keeps an arbitrary part of it.
#[derive(Clone, Default)]
pub(super) struct Content {
    cache: Vec<u8>,
    device: Vec<u8>,
    /// Changes that are in the cache only, in order.
    dirty: Vec<Change>,
    /// Sectors that the device cannot read.
    broken: BTreeSet<usize>,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Len(usize),
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, dirty) = (self.cache.len(), self.dirty.len());
        f.debug_struct("Content").field("len", &len).field("dirty", &dirty).finish_non_exhaustive()
    }
}

impl Content {
    /// A file that is on the device already.
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self { cache: bytes.clone(), device: bytes, ..Self::default() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.cache
    }

    pub(super) fn len(&self) -> usize {
        self.cache.len()
    }

    pub(super) fn break_sector(&mut self, place: usize) {
        self.broken.insert(place / SECTOR);
    }

    /// Whether a read of so many bytes meets a broken sector.
    pub(super) fn is_broken(&self, start: usize, count: usize) -> bool {
        let end = start.saturating_add(count).min(self.len());
        end > start && self.broken.range(start / SECTOR..end.div_ceil(SECTOR)).next().is_some()
    }

    pub(super) fn write(&mut self, start: usize, bytes: &[u8]) {
        self.broken.retain(|sector| !(start..start + bytes.len()).contains(&(sector * SECTOR)));
        put(&mut self.cache, start, bytes);
        self.dirty.push(Change::Write(start, bytes.to_vec()));
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.cache.resize(len, 0);
        self.dirty.push(Change::Len(len));
    }

    /// As a creation over it does.
    pub(super) fn empty(&mut self) {
        if self.len() > 0 {
            self.set_len(0);
        }
        self.broken.clear();
    }

    pub(super) fn sync(&mut self) {
        for change in self.dirty.drain(..) {
            match change {
                Change::Write(start, bytes) => put(&mut self.device, start, &bytes),
                Change::Len(len) => self.device.resize(len, 0),
            }
        }
    }

    /// A sync that fails, as Linux does it: some changes reach the device, the others are lost and
    /// are not dirty any more, but the cache goes on showing them all.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        self.device = self.after_crash(random);
        self.dirty.clear();
    }

    /// Forgets clean pages: reads show the device, with the changes that are still to reach it.
    pub(super) fn drop_cache(&mut self) {
        self.cache.clone_from(&self.device);
        for change in &self.dirty {
            match change {
                Change::Write(start, bytes) => put(&mut self.cache, *start, bytes),
                Change::Len(len) => self.cache.resize(*len, 0),
            }
        }
    }

    /// The file after a crash; broken sectors stay broken.
    pub(super) fn survivor(&self, random: &mut Random) -> Self {
        Self { broken: self.broken.clone(), ..Self::durable(self.after_crash(random)) }
    }

    /// What a crash leaves: of the changes since the last sync all, none, or some sectors.
    pub(super) fn after_crash(&self, random: &mut Random) -> Vec<u8> {
        let mut survivor = self.device.clone();
        // One in so many is lost; 1 is all, 0 is none.
        let odds = [0, 1, 2, 2, 8][random.below(5)];
        let mut lost = || odds > 0 && random.below(odds) == 0;
        for change in &self.dirty {
            match change {
                Change::Len(_) if lost() => {}
                Change::Len(len) => survivor.resize(*len, 0),
                Change::Write(start, bytes) => {
                    let mut from = 0;
                    while from < bytes.len() {
                        let sector_end = ((start + from) / SECTOR + 1) * SECTOR - start;
                        let to = sector_end.min(bytes.len());
                        if !lost() {
                            put(&mut survivor, start + from, &bytes[from..to]);
                        }
                        from = to;
                    }
                }
            }
        }
        survivor
    }

    /// Changes bytes behind everybody's back, wherever they are; nothing past the end of the file.
    pub(super) fn damage(&mut self, start: usize, bytes: &[u8]) {
        let dirty = self.dirty.iter_mut().filter_map(|change| match change {
            Change::Write(at, written) => Some((*at, written)),
            Change::Len(_) => None,
        });
        for (at, side) in [(0, &mut self.cache), (0, &mut self.device)].into_iter().chain(dirty) {
            for (offset, byte) in (start..).zip(bytes) {
                if let Some(place) = offset.checked_sub(at).and_then(|place| side.get_mut(place)) {
                    *place = *byte;
                }
            }
        }
    }
}

fn put(side: &mut Vec<u8>, start: usize, bytes: &[u8]) {
    let end = start + bytes.len();
    if side.len() < end {
        side.resize(end, 0);
    }
    side[start..end].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_keeps_what_was_synced_and_tears_the_rest_at_sectors() {
        let (mut kept, mut lost, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let mut file = Content::default();
            file.write(0, &[1; 4096]);
            file.sync();
            file.write(1000, &[2; 2072]);
            let bytes = file.after_crash(&mut Random::new(seed));
            assert!(bytes[..1000].iter().chain(&bytes[3072..]).all(|&byte| byte == 1));
            let sectors: Vec<_> = [1000..1024, 1024..1536, 1536..2048, 2048..2560, 2560..3072]
                .map(|sector| {
                    let sector = &bytes[sector];
                    assert!(sector.iter().all(|&byte| byte == sector[0]), "torn inside a sector");
                    sector[0] == 2
                })
                .into();
            kept += usize::from(sectors.iter().all(|&kept| kept));
            lost += usize::from(sectors.iter().all(|&kept| !kept));
            torn += usize::from(sectors.iter().any(|&kept| kept) && sectors.iter().any(|&kept| !kept));
        }
        assert!(kept > 20 && lost > 20 && torn > 20, "{kept} {lost} {torn}");
    }

    #[test]
    fn of_two_writes_to_one_sector_either_or_neither_survives() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut file = Content::durable(vec![0; 10]);
            file.write(3, &[1]);
            file.write(3, &[2]);
            seen.insert(file.after_crash(&mut Random::new(seed))[3]);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn a_broken_sector_fails_reads_that_meet_it_until_it_is_written_anew() {
        let mut file = Content::durable(vec![0; 2000]);
        file.break_sector(600);
        let broken =
            |file: &Content| [file.is_broken(0, 512), file.is_broken(500, 20), file.is_broken(1024, 9)];
        assert_eq!(broken(&file), [false, true, false]);
        file = file.survivor(&mut Random::new(1));
        assert_eq!(broken(&file), [false, true, false]);
        file.write(512, &[1; 512]);
        assert_eq!(broken(&file), [false; 3]);
    }

    #[test]
    fn a_length_that_was_not_synced_may_be_the_old_one() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut file = Content::durable(vec![7; 10]);
            file.set_len(4);
            seen.insert(file.after_crash(&mut Random::new(seed)).len());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [4, 10]);
    }

    #[test]
    fn a_failed_sync_is_followed_by_one_that_claims_success_and_by_reads_of_what_was_lost() {
        let mut lost = 0;
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let mut file = Content::durable(vec![0; 10]);
            file.write(0, &[1; 10]);
            file.fail_sync(&mut random);
            file.sync();
            assert_eq!(file.bytes(), [1; 10], "the cache still shows it");
            file.write(9, &[2]);
            file.drop_cache();
            assert_eq!(file.bytes()[9], 2, "a dirty page is not dropped");
            lost += u32::from(file.bytes()[0] == 0);
            assert_eq!(file.after_crash(&mut random)[0], file.bytes()[0]);
        }
        assert!((10..40).contains(&lost), "{lost}");
    }
}
