//! The catalog. A store on a changed one does not open, with an error, or it answers.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use oncedb::simulation::MemoryDisk;
use oncedb_fuzz::catalog::{CATALOG, DIR, IDS, Image, Plan, id, image, options};
use oncedb_fuzz::memory::bounded;

static IMAGES: [OnceLock<Image>; 2] = [const { OnceLock::new() }; 2];

/// More than any of these stores needs; a changed length does not fill the memory.
const ROOM: u64 = 32 << 20;

fuzz_target!(
    init: {
        // A panic of redb that the store makes an error of is none here; one that arrives here is fatal.
        std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
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
            if use_store(&disk).is_ok() {
                let _ = use_store(&disk);
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
