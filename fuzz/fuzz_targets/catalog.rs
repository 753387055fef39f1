//! The catalog. A store on a changed one does not open, with an error, or it answers. Unless the
//! catalog says with a right sum that it is another, the store answers as before, if need be after a
//! salvage.
#![no_main]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libfuzzer_sys::fuzz_target;
use oncedb::simulation::MemoryDisk;
use oncedb::{Scope, Store, Timestamp};
use oncedb_fuzz::catalog::{CATALOG, DIR, IDS, Image, Plan, id, image, options};
use oncedb_fuzz::memory::bounded;

static IMAGES: [OnceLock<Image>; 2] = [const { OnceLock::new() }; 2];

/// Something else than redb has panicked. The store makes errors of redb's panics, and must not hide
/// its own among them.
static OURS: AtomicBool = AtomicBool::new(false);

/// More than any of these stores needs; a changed length does not fill the memory.
const ROOM: u64 = 32 << 20;

fuzz_target!(
    init: {
        // Not fatal by itself, as the hook of libFuzzer would have it.
        std::panic::set_hook(Box::new(|info| {
            if !info.location().is_some_and(|place| place.file().contains("/redb-")) {
                OURS.store(true, Ordering::Relaxed);
                eprintln!("{info}");
            }
        }));
    },
    |plan: Plan| {
        let image = IMAGES[usize::from(plan.closed)].get_or_init(|| image(plan.closed));
        let disk = MemoryDisk::new(2);
        let mut len = 0;
        for (path, bytes) in image {
            let bytes = if path.ends_with("catalog.redb") { plan.apply(bytes.clone()) } else { bytes.clone() };
            len += bytes.len();
            disk.replace(path, &bytes);
        }
        assert!(disk.contents(CATALOG).is_some());
        disk.set_capacity(Some(ROOM));
        bounded(len, 8, 16 << 20, || {
            let faithful = !plan.may_be_believed();
            let used = open_and_use(&disk, faithful).and_then(|()| open_and_use(&disk, faithful));
            if used.is_err_and(|error| error.is_corruption()) {
                let salvaged = options(&disk).salvage(DIR);
                assert!(salvaged.is_ok() || !faithful, "what is beside a catalog cannot be salvaged: {salvaged:?}");
                let used = salvaged.and_then(|salvaged| use_store(salvaged.store, faithful));
                let used = used.and_then(|()| open_and_use(&disk, faithful));
                assert!(used.is_ok() || !faithful, "a salvaged store fails: {used:?}");
            }
        });
        assert!(!OURS.load(Ordering::Relaxed), "a panic that is not redb's was taken for one");
    }
);

/// Whatever fails does so with an error.
fn open_and_use(disk: &MemoryDisk, faithful: bool) -> oncedb::Result<()> {
    use_store(options(disk).open(DIR)?, faithful)
}

fn use_store(store: Store, faithful: bool) -> oncedb::Result<()> {
    let scope = store.scope("alpha")?;
    look(&scope, faithful);
    let _ = store.scope("another").and_then(|scope| scope.claim("evt_1"));
    drop(scope.begin("running"));
    let _ = store.maintain();
    let _ = scope.claim("evt_new");
    let _ = store.stats();
    store.close()
}

/// Asks for everything; what was recorded is there, if `faithful`.
fn look(scope: &Scope, faithful: bool) {
    for number in 0..IDS {
        if let Ok(found) = scope.get(id(number)) {
            assert!(found.is_some() || !faithful, "{} is forgotten", id(number));
        }
    }
    if let Ok(mark) = scope.last_applied("entity") {
        let last = Timestamp::sequence((IDS - 1).into());
        assert!(mark.is_some_and(|mark| mark.timestamp() == last) || !faithful, "the mark is forgotten");
    }
    if let Ok(answer) = scope.claim("evt_1") {
        assert!(answer.is_duplicate() || !faithful, "a recorded claim is granted again");
    }
}
