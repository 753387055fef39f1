//! What was acknowledged is there, whatever the disk and the machine do.

use std::time::Duration;

use super::expect::{begins, completes, event, is_duplicate, is_error, is_new, shows};
use super::{Ability, Setup, Subject};

super::cases! {
    power_is_lost_after_the_answer [Durable];
    power_is_lost_again_and_again [Durable];
    everything_is_there_after_a_restart;
    a_failed_write_is_never_forgotten [FailingDisk, Durable];
    the_disk_fills_up_in_the_middle [FullDisk];
    a_second_owner_is_refused [Exclusive];
    a_hot_key_leaves_nothing_behind [Size];
}

fn power_is_lost_after_the_answer<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1"));
    completes(&subject, begins(&subject, &event("evt_2")), "paid");
    subject.crash(Vec::new());
    is_duplicate(&subject, &event("evt_1"));
    shows::<S>(&is_duplicate(&subject, &event("evt_2")), "paid");
}

/// What was written after the first crash is found after the second, whatever that left at the end of
/// the log.
fn power_is_lost_again_and_again<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    let mut acknowledged = Vec::new();
    for round in 0..10 {
        for number in 0..=round {
            let event = event(&format!("evt_{round}_{number}"));
            is_new(&subject, &event);
            acknowledged.push(event);
        }
        let torn = begins(&subject, &event(&format!("torn_{round}")));
        subject.crash(vec![torn]);
        for event in &acknowledged {
            is_duplicate(&subject, event);
        }
        is_new(&subject, &event(&format!("torn_{round}")));
    }
}

fn everything_is_there_after_a_restart<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    for number in 0..200 {
        completes(&subject, begins(&subject, &event(&format!("evt_{number}"))), &format!("reply {number}"));
        if number % 50 == 0 {
            subject.restart(Duration::from_secs(1));
            subject.collect();
        }
    }
    subject.restart(Duration::from_secs(1));
    for number in 0..200 {
        shows::<S>(&is_duplicate(&subject, &event(&format!("evt_{number}"))), &format!("reply {number}"));
    }
}

fn a_failed_write_is_never_forgotten<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1"));
    subject.break_disk(true);
    is_error(&subject, &event("evt_2"));
    subject.break_disk(false);
    // Nothing is new or done on top of what the disk may not have.
    is_error(&subject, &event("evt_3"));
    subject.crash(Vec::new());
    is_duplicate(&subject, &event("evt_1"));
    let _ = subject.claim(&event("evt_2"), None);
    is_duplicate(&subject, &event("evt_2"));
    is_new(&subject, &event("evt_3"));
}

/// Work that began can be completed, and claims are refused before they begin.
fn the_disk_fills_up_in_the_middle<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1"));
    let running = begins(&subject, &event("evt_2"));
    subject.fill_disk(true);
    let mut refused = None;
    for number in 0..1_000_000 {
        match subject.claim(&event(&format!("fill_{number}")), None) {
            super::Answer::New(()) => {}
            super::Answer::Error(_) => {
                refused = Some(number);
                break;
            }
            other => panic!("a full disk answers {other:?}"),
        }
    }
    let refused = refused.expect("there is an end to the disk");
    completes(&subject, running, "paid");
    is_duplicate(&subject, &event("evt_1"));
    is_duplicate(&subject, &event("evt_2"));
    subject.fill_disk(false);
    subject.collect();
    is_new(&subject, &event(&format!("fill_{refused}")));
}

fn a_second_owner_is_refused<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    assert!(subject.refuses_a_second_owner());
    is_new(&subject, &event("evt_1"));
    subject.restart(Duration::ZERO);
    assert!(subject.refuses_a_second_owner());
    is_duplicate(&subject, &event("evt_1"));
}

fn a_hot_key_leaves_nothing_behind<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("hot"));
    let before = subject.size();
    for _ in 0..2_000 {
        is_duplicate(&subject, &event("hot"));
    }
    assert_eq!(subject.size(), before, "bytes after thousands of duplicates");
    if S::can(Ability::InProgress) {
        let running = begins(&subject, &event("running"));
        let before = subject.size();
        for _ in 0..2_000 {
            assert_eq!(subject.claim(&event("running"), None), super::Answer::InProgress);
        }
        assert_eq!(subject.size(), before, "bytes after thousands of copies");
        completes(&subject, running, "paid");
    }
}
