//! A damaged store says that it is damaged, and where, or answers as if it were not.

use super::cases::{Damage, check_each, cuts, exchanges, flips, losses};
use super::common::Dice;
use super::sample::{Image, Question, answers, ask, check_sample, questions, sample};
use oncedb::Error;

/// Opens what is left after `damage` and asks everything.
fn check(image: &Image, damage: &Damage, questions: &[Question], expected: &[String]) -> bool {
    let mut image = image.clone();
    damage.apply(&mut image);
    let store = match image.open() {
        Ok(store) => store,
        Err(error) => {
            assert_says_where(&error, &image);
            return true;
        }
    };
    let mut noticed = false;
    for (question, expected) in questions.iter().zip(expected) {
        match ask(&store, question) {
            Ok(answer) => assert_eq!(answer, *expected, "a wrong answer to {question:?}"),
            Err(error) => {
                assert_says_where(&error, &image);
                noticed = true;
            }
        }
    }
    noticed
}

fn assert_says_where(error: &Error, image: &Image) {
    match error {
        Error::Version { .. } => {}
        Error::Corrupt { path, offset, what, .. } => {
            let len = image.files.get(path).map_or(0, Vec::len) as u64;
            assert!(!what.is_empty());
            assert!(path.starts_with("store"), "{}", path.display());
            assert!(*offset <= len.max(1 << 20), "byte {offset} of {}, which has {len}", path.display());
        }
        other => panic!("neither Corrupt nor Version: {other:?}"),
    }
}

fn check_all(closed: bool, choose: impl Fn(&Image, &mut Dice) -> Vec<Damage>) {
    let image = sample(closed);
    check_sample(&image, closed);
    let questions = questions();
    let expected = answers(&image, &questions);
    check_each(&image, closed, choose, |damage| check(&image, damage, &questions, &expected));
}

#[test]
fn a_changed_byte_is_reported_or_changes_no_answer() {
    // Any byte of any file may change, and no verdict does.
    check_all(false, |image, dice| flips(image, 24, dice));
}

#[test]
fn a_changed_byte_of_a_closed_store_is_reported_or_changes_no_answer() {
    // The same where the journal holds nothing that counts.
    check_all(true, |image, dice| flips(image, 10, dice));
}

#[test]
fn a_file_cut_short_is_reported_or_changes_no_answer() {
    // Whatever is missing from the end of a file, no verdict is given as if it had never been.
    check_all(false, |image, dice| cuts(image, 2, dice));
    check_all(true, |image, dice| cuts(image, 1, dice));
}

#[test]
fn files_lost_zeroed_extended_or_exchanged_are_reported_or_change_no_answer() {
    // Losing a file, or finding another one in its place, is no reason to take an event for new.
    for closed in [false, true] {
        check_all(closed, |image, _| losses(image));
        check_all(closed, |image, _| exchanges(image));
    }
}
