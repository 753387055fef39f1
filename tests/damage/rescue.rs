//! Whatever is damaged, salvaging opens the store, keeps what is sound, and names the time in which
//! claims may be missing.

use super::cases::{Damage, check_each, cuts, exchanges, flips, is_beyond_promise, losses, seed};
use super::common::{Dice, SECOND, new};
use super::panics;
use super::sample::{DIR, Image, Question, Recorded, SCOPES, answers, ask, questions, recorded, sample};
use oncedb::simulation::MemoryDisk;
use oncedb::{Error, Missing, Salvaged};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::SystemTime;

/// What a sound store answers, and when that was recorded.
struct Truth {
    questions: Vec<Question>,
    answers: Vec<String>,
    recorded: Recorded,
}

impl Truth {
    fn of(image: &Image) -> Self {
        // A claim changes the store, so the answer to it is not asked of one that is looked at twice.
        let questions: Vec<_> =
            questions().into_iter().filter(|ask| !matches!(ask, Question::Claim(..))).collect();
        Self { answers: answers(image, &questions), recorded: recorded(image, &questions), questions }
    }
}

fn covers(
    missing: &[Missing],
    of: impl Fn(&Missing) -> Option<(SystemTime, SystemTime)>,
    at: SystemTime,
) -> bool {
    missing.iter().filter_map(of).any(|(from, until)| from <= at && at <= until)
}

fn claims(missing: &Missing) -> Option<(SystemTime, SystemTime)> {
    missing.claims.clone().map(std::ops::RangeInclusive::into_inner)
}

fn responses(missing: &Missing) -> Option<(SystemTime, SystemTime)> {
    missing.responses.clone().map(std::ops::RangeInclusive::into_inner)
}

/// Every answer is the same, but for what was recorded in the times that are said to be missing.
fn check_answers(store: &oncedb::Store, missing: &[Missing], truth: &Truth) {
    for (question, expected) in truth.questions.iter().zip(&truth.answers) {
        let found = ask(store, question).unwrap();
        if found == *expected {
            continue;
        }
        let Some(&at) = truth.recorded.get(question) else {
            // What took something away is lost, and it shows again.
            assert!(missing.iter().any(|missing| missing.claims.is_some()), "{question:?}: {found}");
            continue;
        };
        let only_response = found.ends_with(" omitted")
            && found.split(' ').zip(expected.split(' ')).take(12).all(|(found, expected)| found == expected);
        if only_response && covers(missing, responses, at) {
            continue;
        }
        assert!(
            covers(missing, claims, at),
            "{question:?}, recorded at {at:?}, is lost: {found} in {missing:?}"
        );
    }
}

/// Salvages what is left after `damage`, and uses the store from then on.
fn check(image: &Image, damage: &Damage, truth: &Truth) -> bool {
    let mut image = image.clone();
    damage.apply(&mut image);
    check_disk(&image, &image.disk(1), truth)
}

/// The same for a disk that holds the image.
fn check_disk(image: &Image, disk: &MemoryDisk, truth: &Truth) -> bool {
    let Salvaged { store, missing, .. } = match image.options(disk).salvage(DIR) {
        // Another version of the crate may have written it: that is not for us to salvage.
        Err(Error::Version { .. }) => return false,
        salvaged => salvaged.unwrap(),
    };
    check_answers(&store, &missing, truth);
    check_copies(disk, image, &missing);
    let verification = store.verify().unwrap();
    assert!(verification.is_sound(), "{:?}", verification.problems);
    let token = use_it(&store);
    store.close().unwrap();

    // As a store like any other from here on.
    let again = image.options(disk).salvage(DIR).unwrap();
    assert_eq!(again.missing, [], "nothing is missing twice");
    check_answers(&again.store, &missing, truth);
    assert!(use_it(&again.store) > token, "tokens grow");
    assert!(again.store.scope(SCOPES[0]).unwrap().contains("after").unwrap());
    check_copies(disk, image, &missing);
    !missing.is_empty()
}

/// Claims something, and gives a token.
fn use_it(store: &oncedb::Store) -> u64 {
    let scope = store.scope(SCOPES[0]).unwrap();
    let guard = new(scope.begin("token"));
    let token = guard.token();
    drop(guard);
    let _ = scope.claim("after").unwrap();
    store.maintain().unwrap();
    token
}

/// Each damaged file that was there lies beside the store as it was.
fn check_copies(disk: &MemoryDisk, damaged: &Image, missing: &[Missing]) {
    for missing in missing {
        let copy = missing.set_aside.as_ref().and_then(|path| disk.contents(path));
        assert!(copy.as_ref() == damaged.files.get(&missing.path), "not as it was: {missing:?}");
        let inside =
            missing.set_aside.as_ref().is_none_or(|path| path.starts_with(Path::new(DIR).join("damaged")));
        assert!(inside && !missing.what.is_empty());
    }
}

fn check_all(closed: bool, choose: impl Fn(&Image, &mut Dice) -> Vec<Damage>) {
    let image = sample(closed);
    let truth = Truth::of(&image);
    check_each(&image, closed, choose, |damage| check(&image, damage, &truth));
}

#[test]
fn a_sound_store_is_salvaged_to_itself() {
    // With nothing wrong there is nothing missing, nothing set aside, and every answer as before.
    for closed in [false, true] {
        let image = sample(closed);
        let truth = Truth::of(&image);
        let disk = image.disk(1);
        let salvaged = image.options(&disk).salvage(DIR).unwrap();
        assert_eq!(salvaged.missing, []);
        check_answers(&salvaged.store, &[], &truth);
        assert!(disk.files().iter().all(|(path, _)| !path.starts_with("store/damaged")));
    }
    let disk = MemoryDisk::new(3);
    let empty = oncedb::Store::options().disk(&disk).salvage(DIR).unwrap();
    assert_eq!(empty.missing, []);
    let _ = new(empty.store.scope("s").unwrap().claim("first"));
}

#[test]
fn salvage_after_a_changed_byte_loses_only_what_it_names() {
    // One byte costs at most the block, the frame or the response that it is in.
    check_all(false, |image, dice| flips(image, 8, dice));
    check_all(true, |image, dice| flips(image, 4, dice));
}

#[test]
fn salvage_of_a_file_cut_short_loses_only_what_it_names() {
    // What is in front of the cut is kept.
    check_all(false, |image, dice| cuts(image, 1, dice));
}

#[test]
fn salvage_of_lost_or_exchanged_files_loses_only_what_it_names() {
    // A file that is gone takes its claims with it and no others.
    for closed in [false, true] {
        check_all(closed, |image, _| losses(image));
    }
    check_all(false, |image, _| exchanges(image));
}

#[test]
fn salvage_of_sectors_that_do_not_read_loses_only_what_they_held() {
    // A device that ages fails to read here and there; only what lay there is gone, whichever file it is.
    panics::watch();
    for closed in [false, true] {
        let image = sample(closed);
        let truth = Truth::of(&image);
        for (path, bytes) in &image.files {
            let len = bytes.len();
            for from in [0, len / 3, len / 2, len.saturating_sub(1)].map(|place| place / 512 * 512) {
                // The copy has zeros there.
                let zero = Damage::Zero { path: path.clone(), from, to: (from + 512).min(len) };
                if len == 0 || is_beyond_promise(&image, &zero) {
                    continue;
                }
                let mut damaged = image.clone();
                zero.apply(&mut damaged);
                let broken = || {
                    let disk = damaged.disk(1);
                    disk.break_sector(path, from as u64);
                    disk
                };
                // A free segment is not read until its bytes have been written anew.
                let is_segment = path.extension().is_some_and(|ending| ending == "segment");
                if is_segment && image.options(&broken()).open(DIR).is_ok() {
                    continue;
                }
                let disk = broken();
                let checked = catch_unwind(AssertUnwindSafe(|| check_disk(&damaged, &disk, &truth)));
                assert!(checked.is_ok(), "byte {from} of {} does not read", path.display());
            }
        }
    }
    panics::assert_none();
}

#[test]
fn a_copy_of_the_identity_that_does_not_read_is_written_anew() {
    // The copy is there to save the store, not to bring it down.
    for closed in [false, true] {
        let image = sample(closed);
        for name in ["store/identity.1", "store/identity.2"] {
            let disk = image.disk(1);
            disk.break_sector(name, 0);
            let store = image.options(&disk).open(DIR).unwrap();
            assert!(store.verify().unwrap().is_sound());
            store.close().unwrap();
            assert_eq!(disk.contents("store/identity.1"), disk.contents("store/identity.2"));
        }
    }
}

#[test]
fn what_a_lost_run_held_is_taken_from_a_journal_that_still_has_it() {
    // A flush frees whole segments only, so what was flushed last is in the journal, too.
    let disk = MemoryDisk::new(1);
    let options = || oncedb::Store::options().memory_limit(1 << 20).threads(false).disk(&disk);
    let store = options().open(DIR).unwrap();
    let scope = store.scope("s").unwrap();
    for number in 0..10 {
        let _ = new(scope.claim(format!("evt_{number}")));
    }
    assert!(scope.forget("evt_9").unwrap());
    store.maintain().unwrap();
    let running = new(scope.begin("running"));
    running.note("half way").unwrap();
    disk.crash();
    drop((store, scope, running));
    for (path, _) in disk.files().iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "run"))
    {
        disk.delete(path);
    }
    let salvaged = options().salvage(DIR).unwrap();
    assert_eq!(salvaged.missing.len(), 1, "{:?}", salvaged.missing);
    let scope = salvaged.store.scope("s").unwrap();
    for number in 0..10 {
        assert_eq!(scope.contains(format!("evt_{number}")).unwrap(), number != 9, "{number}");
    }
    let again = new(scope.begin("running"));
    assert_eq!(again.previous().unwrap().note.as_deref(), Some(&b"half way"[..]));
    assert!(salvaged.store.verify().unwrap().is_sound());
}

#[test]
fn a_catalog_that_has_lost_its_last_commit_does_not_lose_the_segment_that_it_listed() {
    // redb keeps the commit before the last one, and one bit says which of the two counts.
    let clock = oncedb::ManualClock::new(super::common::noon());
    let disk = MemoryDisk::new(1);
    let options =
        || oncedb::Store::options().memory_limit(1 << 20).threads(false).clock(clock.clone()).disk(&disk);
    for recycled in [false, true] {
        if recycled {
            let store = options().open(DIR).unwrap();
            let _ = new(store.scope("s").unwrap().claim("other"));
            store.close().unwrap();
        }
        options().open(DIR).unwrap().close().unwrap();
        let store = options().open(DIR).unwrap();
        let _ = store.scope("s").unwrap();
        store.close().unwrap();
        let store = options().open(DIR).unwrap();
        let id = format!("recycled: {recycled}");
        let _ = new(store.scope("s").unwrap().claim(&id));
        disk.crash();
        drop(store);
        let header = disk.contents("store/catalog.redb").unwrap();
        disk.damage("store/catalog.redb", 9, &[header[9] ^ 1]);
        let error = options().open(DIR).unwrap_err();
        assert!(matches!(&error, Error::Corrupt { path, .. } if path.ends_with("catalog.redb")), "{error}");
        let salvaged = options().salvage(DIR).unwrap();
        assert!(salvaged.store.scope("s").unwrap().contains(&id).unwrap(), "{:?}", salvaged.missing);
        assert!(salvaged.missing.iter().all(|missing| missing.claims.is_none()), "{:?}", salvaged.missing);
        salvaged.store.close().unwrap();
    }
}

#[test]
fn a_journal_that_is_gone_with_the_catalog_is_missed() {
    // Nobody knows what was in it, so all since the last flush may be gone.
    let image = sample(false);
    let truth = Truth::of(&image);
    let mut damaged = image.clone();
    damaged.files.retain(|path, _| {
        !path.ends_with("catalog.redb") && path.extension().is_none_or(|ending| ending != "segment")
    });
    let disk = damaged.disk(1);
    let salvaged = damaged.options(&disk).salvage(DIR).unwrap();
    check_answers(&salvaged.store, &salvaged.missing, &truth);
}

#[test]
fn salvage_of_several_damaged_files_loses_only_what_it_names() {
    // Damage seldom comes alone.
    panics::watch();
    let seed = seed();
    let mut dice = Dice::new(seed);
    let image = sample(false);
    let truth = Truth::of(&image);
    for _ in 0..60 {
        let mut all = flips(&image, 4, &mut dice);
        all.extend(cuts(&image, 1, &mut dice));
        all.extend(losses(&image));
        all.retain(|damage| !is_beyond_promise(&image, damage));
        let mut damaged = image.clone();
        let mut chosen = Vec::new();
        for _ in 0..2 + dice.below(3) {
            let damage = all[usize::try_from(dice.below(all.len() as u64)).unwrap()].clone();
            let touched = |known: &Damage| known.paths().iter().any(|path| damage.paths().contains(path));
            // Without a catalog and its two copies there is no way back.
            // A run that is gone along with the catalog cannot be missed: nothing names it any more.
            let gone = |one: &Damage| matches!(one, Damage::Delete { path } if path.extension().is_some_and(|ending| ending == "run"));
            let catalog = |one: &Damage| one.paths().iter().any(|path| path.ends_with("catalog.redb"));
            let unmissed =
                |known: &Damage| (gone(known) && catalog(&damage)) || (catalog(known) && gone(&damage));
            if chosen.iter().any(unmissed) {
                continue;
            }
            if !chosen.iter().any(touched) && !damage.paths()[0].to_string_lossy().contains("identity") {
                damage.apply(&mut damaged);
                chosen.push(damage);
            }
        }
        let nothing = Damage::Extend { path: "store/none".into() };
        damaged.files.insert("store/none".into(), Vec::new());
        let checked = catch_unwind(AssertUnwindSafe(|| check(&damaged, &nothing, &truth)));
        assert!(checked.is_ok(), "after {chosen:?} (ONCEDB_SEED={seed})");
    }
    panics::assert_none();
}

#[test]
fn without_the_catalog_and_both_copies_of_the_identity_nothing_is_guessed() {
    // The hash seed cannot be found out, and with another one every key would be new.
    let mut image = sample(false);
    for name in ["catalog.redb", "identity.1", "identity.2"] {
        image.files.remove(&Path::new(DIR).join(name));
    }
    let disk = image.disk(1);
    let error = image.options(&disk).salvage(DIR).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { path, .. } if path.ends_with("catalog.redb")), "{error}");
    let left = Image::of(&disk, &image.clock);
    let data = |image: &Image| {
        image.files.keys().filter(|path| !path.ends_with("lock")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(data(&left), data(&image), "nothing was changed");
    image.clock.advance(SECOND);
}
