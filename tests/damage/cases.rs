//! Ways to damage a store's files: all of them, or a choice of them.

use super::common::Dice;
use super::panics;
use super::sample::{Image, frames};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Changes that one byte goes through.
pub const FLIPS: [u8; 3] = [0x01, 0x80, 0xff];

/// What was done to which file.
#[derive(Clone, Debug)]
pub enum Damage {
    Flip { path: PathBuf, offset: usize, by: u8 },
    Cut { path: PathBuf, len: usize },
    Zero { path: PathBuf, from: usize, to: usize },
    Extend { path: PathBuf },
    Delete { path: PathBuf },
    Exchange { one: PathBuf, other: PathBuf },
}

impl Damage {
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            Self::Flip { path, .. }
            | Self::Cut { path, .. }
            | Self::Zero { path, .. }
            | Self::Extend { path }
            | Self::Delete { path } => vec![path],
            Self::Exchange { one, other } => vec![one, other],
        }
    }

    pub fn apply(&self, image: &mut Image) {
        match self {
            Self::Flip { path, offset, by } => bytes(image, path)[*offset] ^= by,
            Self::Cut { path, len } => bytes(image, path).truncate(*len),
            Self::Zero { path, from, to } => bytes(image, path)[*from..*to].fill(0),
            Self::Extend { path } => bytes(image, path).extend([0; 100]),
            Self::Delete { path } => drop(image.files.remove(path)),
            Self::Exchange { one, other } => {
                let first = std::mem::take(bytes(image, one));
                let second = std::mem::replace(bytes(image, other), first);
                *bytes(image, one) = second;
            }
        }
    }
}

/// Has `check` look at each kind of damage that is chosen; it says whether the store noticed.
pub fn check_each(
    image: &Image,
    closed: bool,
    choose: impl Fn(&Image, &mut Dice) -> Vec<Damage>,
    check: impl Fn(&Damage) -> bool,
) {
    panics::watch();
    let seed = seed();
    let mut damages = choose(image, &mut Dice::new(seed));
    damages.retain(|damage| !is_beyond_promise(image, damage));
    let (mut noticed, all) = (0, damages.len());
    for damage in damages {
        let checked = catch_unwind(AssertUnwindSafe(|| check(&damage)));
        let failed = checked.is_err();
        assert!(!failed, "after {damage:?} (ONCEDB_SEED={seed}, closed: {closed})");
        noticed += usize::from(checked.unwrap_or_default());
    }
    panics::assert_none();
    eprintln!("{noticed} of {all} were noticed");
    assert!(noticed > all / 8, "only {noticed} of {all} were noticed");
}

/// Whether damage leaves nothing that promises what it destroys: only the last frames of the log are
/// damaged, and that looks like a write cut short.
pub fn is_beyond_promise(image: &Image, damage: &Damage) -> bool {
    let (path, from, to) = match damage {
        Damage::Flip { path, offset, .. } => (path, *offset, *offset + 1),
        Damage::Zero { path, from, to } => (path, *from, *to),
        _ => return false,
    };
    let segments = image.ending(".segment");
    let all = segments.iter().flat_map(|segment| frames(&image.files[segment]));
    let promised = all.clone().map(|(.., durable)| durable).max().unwrap_or(0);
    if !segments.contains(path) || from < 512 {
        return false;
    }
    let of_file = frames(&image.files[path]);
    let holds_the_end = all.map(|(.., seq, _)| seq).max() == of_file.last().map(|(.., seq, _)| *seq);
    let survivors = of_file.iter().filter(|(start, end, ..)| *end <= from || *start >= to);
    let promised_still = survivors.map(|(.., durable)| *durable).max().unwrap_or(0);
    let hit = of_file.iter().filter(|(start, end, ..)| *end > from && *start < to);
    let first_hit = hit.map(|(.., seq, _)| *seq).min();
    holds_the_end && first_hit.is_some_and(|seq| seq > promised_still.min(promised))
}

fn bytes<'a>(image: &'a mut Image, path: &Path) -> &'a mut Vec<u8> {
    image.files.get_mut(path).unwrap_or_else(|| panic!("no file {}", path.display()))
}

/// Whether everything is to be tried, which takes long.
pub fn exhaustive() -> bool {
    std::env::var_os("ONCEDB_EXHAUSTIVE").is_some()
}

/// The seed of this run; printed.
pub fn seed() -> u64 {
    let seed = crate::common::fresh_seed();
    eprintln!("ONCEDB_SEED={seed}");
    seed
}

/// Bytes that are worth changing: not far from one that is not zero.
fn used(bytes: &[u8]) -> Vec<usize> {
    const NEAR: usize = 40;
    let near =
        |place: usize| bytes[place.saturating_sub(NEAR)..].iter().take(2 * NEAR).any(|&byte| byte != 0);
    (0..bytes.len()).filter(|&place| near(place)).collect()
}

/// Every changed byte of every file, or `most` of each.
pub fn flips(image: &Image, most: usize, dice: &mut Dice) -> Vec<Damage> {
    let mut all = Vec::new();
    for (path, bytes) in &image.files {
        let places = used(bytes);
        let mut flip = |offset, by| all.push(Damage::Flip { path: path.clone(), offset, by });
        if exhaustive() {
            for &offset in &places {
                for by in FLIPS {
                    flip(offset, by);
                }
            }
        } else if !places.is_empty() {
            for _ in 0..most.min(places.len()) {
                let offset = places[usize::try_from(dice.below(places.len() as u64)).unwrap()];
                flip(offset, 1 << dice.below(8));
            }
        }
    }
    all
}

/// Every length of every file, or those near edges of its structure and `most` others.
pub fn cuts(image: &Image, most: usize, dice: &mut Dice) -> Vec<Damage> {
    let mut all = Vec::new();
    for (path, bytes) in &image.files {
        let mut lens: Vec<usize> = if exhaustive() {
            (0..bytes.len()).collect()
        } else {
            let len = bytes.len();
            let edges = [0, 1, 63, 64, 65, 511, 512, 513, len / 2, len.saturating_sub(140), len - 1];
            let others = (0..most).map(|_| usize::try_from(dice.below(len as u64)).unwrap());
            edges.into_iter().filter(|&cut| cut < len).chain(others).collect()
        };
        lens.sort_unstable();
        lens.dedup();
        all.extend(lens.into_iter().map(|len| Damage::Cut { path: path.clone(), len }));
    }
    all
}

/// Each file deleted, emptied, zeroed as a whole and in its halves, and made longer.
pub fn losses(image: &Image) -> Vec<Damage> {
    let mut all = Vec::new();
    for (path, bytes) in &image.files {
        let (path, len) = (path.clone(), bytes.len());
        let zero = |from, to| Damage::Zero { path: path.clone(), from, to };
        all.extend([zero(0, len), zero(0, len / 2), zero(len / 2, len), zero(0, 64.min(len))]);
        all.push(Damage::Cut { path: path.clone(), len: 0 });
        all.push(Damage::Extend { path: path.clone() });
        all.push(Damage::Delete { path });
    }
    all
}

/// Each two files of one kind exchanged.
pub fn exchanges(image: &Image) -> Vec<Damage> {
    let mut all = Vec::new();
    for ending in [".run", ".responses", ".segment", ".1", ".2"] {
        let paths = image.ending(ending);
        for (index, one) in paths.iter().enumerate() {
            for other in &paths[index + 1..] {
                all.push(Damage::Exchange { one: one.clone(), other: other.clone() });
            }
        }
    }
    all
}
