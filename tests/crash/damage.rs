//! Histories that end with a damaged file.

use crate::history::{Tally, use_store};
use crate::world::{Setup, World};
use oncedb::{Durability, Error};

/// One changed byte in a file of a store that lost power: what was acknowledged is there, or the store
/// says that something is damaged.
pub fn damaged(seed: u64) -> Tally {
    let setup = Setup { durability: Durability::Sync, threads: false };
    let mut world = World::new(seed, setup);
    assert!(world.try_open());
    use_store(&mut world, 60);
    world.cut_power();
    let files: Vec<_> = world.disk.files().into_iter().filter(|(_, len)| *len > 0).collect();
    let (path, _) = &files[usize::try_from(world.dice.below(files.len() as u64)).expect("few files")];
    let bytes = world.disk.contents(path).expect("it is listed");
    let written: Vec<usize> = (0..bytes.len()).filter(|place| bytes[*place] != 0).collect();
    if written.is_empty() {
        return Tally::of(&world);
    }
    let place = written[usize::try_from(world.dice.below(written.len() as u64)).expect("in range")];
    world.disk.damage(path, place as u64, &[bytes[place] ^ (1 << world.dice.below(8))]);
    match world.open_damaged() {
        Ok(()) => match world.try_look() {
            Ok(shown) => world.check_damaged(&shown),
            Err(error) => assert!(error.is_corruption(), "damage is answered with: {error}"),
        },
        Err(error) => {
            let said = error.is_corruption() || matches!(error, Error::Version { .. } | Error::Io { .. });
            assert!(said, "damage is answered with: {error}");
        }
    }
    Tally::of(&world)
}
