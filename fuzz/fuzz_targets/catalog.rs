//! The catalog. A store on a changed one does not open, with an error, or it answers.
#![no_main]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libfuzzer_sys::fuzz_target;
use oncedb::simulation::MemoryDisk;
use oncedb_fuzz::catalog::{CATALOG, DIR, IDS, Image, Plan, id, image, options};
use oncedb_fuzz::memory::bounded;

static IMAGES: [OnceLock<Image>; 2] = [const { OnceLock::new() }; 2];

/// Whether a panic of redb, which happens on some damaged files, has to be an error of the store.
const SHIELDED: bool = false;

/// The last panic was one of redb.
static BY_REDB: AtomicBool = AtomicBool::new(false);

/// More than any of these stores needs; a changed length does not fill the memory.
const ROOM: u64 = 32 << 20;

fuzz_target!(
    init: {
        // Not fatal by itself, as the hook of libFuzzer would have it: the store may make an error of it.
        std::panic::set_hook(Box::new(|info| {
            let by_redb = info.location().is_some_and(|place| place.file().contains("/redb-"));
            BY_REDB.store(by_redb, Ordering::Relaxed);
            if SHIELDED || !by_redb {
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
            let used = catch_unwind(AssertUnwindSafe(|| use_store(&disk).and_then(|()| use_store(&disk))));
            if let Err(panic) = used
                && (SHIELDED || !BY_REDB.load(Ordering::Relaxed))
            {
                resume_unwind(panic);
            }
        });
    }
);

/// Whatever fails does so with an error.
fn use_store(disk: &MemoryDisk) -> oncedb::Result<()> {
    let store = options(disk).open(DIR)?;
    let scope = store.scope("alpha")?;
    for number in 0..IDS {
        let _ = scope.get(id(number));
    }
    let _ = scope.last_applied("entity");
    let _ = scope.claim("evt_1");
    let _ = store.scope("another").and_then(|scope| scope.claim("evt_1"));
    drop(scope.begin("running"));
    let _ = store.maintain();
    let _ = scope.claim("evt_new");
    let _ = store.stats();
    store.close()
}
