//! Watches for panics in the store's own threads, which no caller would see.

use std::panic;
use std::sync::{Mutex, Once};
use std::thread;

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
static WATCHING: Once = Once::new();

/// Keeps what redb panics with on damaged files, which the store catches, out of the output.
pub fn watch() {
    WATCHING.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let thread = thread::current();
            let name = thread.name().unwrap_or_default();
            if name.starts_with("oncedb-") {
                SEEN.lock().unwrap().push(format!("{name}: {info}"));
            }
            let in_redb = info.location().is_some_and(|place| place.file().contains("redb-"));
            if !in_redb {
                before(info);
            }
        }));
    });
}

pub fn assert_none() {
    let seen = SEEN.lock().unwrap();
    assert!(seen.is_empty(), "a thread of the store panicked: {seen:?}");
}
