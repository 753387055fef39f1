//! Every limit holds at its edge: what fits is kept whole, what does not is refused by an error that
//! names the limit, and a refused call leaves nothing behind.

#[path = "../common/mod.rs"]
mod common;

mod keys;
mod options;
mod parts;
mod responses;
mod room;
mod windows;

use oncedb::simulation::MemoryDisk;
use oncedb::{ManualClock, Options, Scope, Store};

/// A store on a disk in memory, by a clock that stands still.
struct Place {
    disk: MemoryDisk,
    clock: ManualClock,
}

impl Place {
    fn new() -> Self {
        Self { disk: MemoryDisk::new(3), clock: ManualClock::new(common::noon()) }
    }

    fn options(&self) -> Options {
        Store::options().disk(&self.disk).clock(self.clock.clone())
    }

    /// The bytes and number of files whose names end like this.
    fn files(&self, ending: &str) -> (u64, usize) {
        let files = self.disk.files();
        let files = files.iter().filter(|(path, _)| path.extension().is_some_and(|found| found == ending));
        (files.clone().map(|(_, bytes)| bytes).sum(), files.count())
    }
}

/// A store, and the scope that most of these tests are about.
#[track_caller]
fn open(options: Options) -> (Store, Scope) {
    let store = options.open("store").unwrap();
    let scope = store.scope("s").unwrap();
    (store, scope)
}

/// Brings what a store was told to another place.
type Keep = fn(Place, Options, Store) -> (Place, Store);

/// How a store comes to keep what it was told, the least first.
const KEPT: [Keep; 4] = [|place, _, store| (place, store), flushed, merged, reopened];

fn flushed(place: Place, _: Options, store: Store) -> (Place, Store) {
    assert!(store.maintain().unwrap().flushed > 0);
    (place, store)
}

fn merged(place: Place, options: Options, store: Store) -> (Place, Store) {
    let (place, store) = flushed(place, options, store);
    let scope = store.scope("filler").unwrap();
    let before = store.stats().runs;
    for number in 0_u8..20 {
        common::new(scope.claim([number]));
        store.maintain().unwrap();
    }
    assert!(store.stats().runs < before + 10, "runs of one bucket are merged");
    (place, store)
}

fn reopened(place: Place, options: Options, store: Store) -> (Place, Store) {
    let (place, store) = merged(place, options.clone(), store);
    store.close().unwrap();
    let store = options.open("store").unwrap();
    (place, store)
}
