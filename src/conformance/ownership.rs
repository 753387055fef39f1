//! Who owns a key, until when, and what the next one finds.
#![allow(clippy::unchecked_time_subtraction, reason = "the times of a scenario are known")]

use std::time::Duration;

use super::expect::{begins, completes, ends, event, is_duplicate, is_in_progress, is_new, shows};
use super::{Ability, Attempt, End, Setup, Subject};
use crate::guard::Cause;

super::cases! {
    a_crash_between_claim_and_completion;
    a_crash_after_an_outside_effect_leaves_its_note [Notes, Attempts];
    a_handler_that_is_slow_is_never_overtaken [InProgress];
    a_handler_slower_than_its_lease_is_overtaken [Leases, Attempts];
    an_old_owner_that_finishes_late_changes_nothing [Leases];
    an_old_owner_that_gives_up_late_frees_nothing [Leases];
    an_old_owner_that_goes_on_is_told [Leases];
    a_renewed_lease_begins_anew [Leases];
    a_handler_fails_and_the_sender_retries;
    a_copy_that_came_while_the_first_ran_is_new_once_that_failed [InProgress];
    a_dropped_handler_frees_the_key;
    a_panic_frees_the_key;
    the_claim_owns_its_key;
    an_event_that_the_application_queues_again_is_new;
    attempts_are_counted [Attempts];
}

const HOUR: Duration = Duration::from_secs(3600);

/// What the attempt that begins now must know, if the store tells.
#[track_caller]
fn follows<S: Subject>(subject: &S, running: &S::Running, number: u32, cause: Cause, note: Option<&str>) {
    if S::can(Ability::Attempts) {
        let wanted = Attempt { number, previous: Some(cause), note: note.map(Into::into) };
        assert_eq!(subject.attempt(running), wanted, "what the next attempt knows");
    }
}

fn a_crash_between_claim_and_completion<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    for _ in 0..3 {
        let running = begins(&subject, &event("evt_1"));
        subject.crash(vec![running]);
    }
    let running = begins(&subject, &event("evt_1"));
    if S::can(Ability::Notes) {
        // A note is durable, and so is its claim: the next attempt surely knows of this one.
        subject.note(&running, b"about to charge").expect("it is kept");
        let number = subject.attempt(&running).number;
        subject.crash(vec![running]);
        let next = begins(&subject, &event("evt_1"));
        follows(&subject, &next, number + 1, Cause::Orphaned, Some("about to charge"));
        completes(&subject, next, "paid");
    } else {
        completes(&subject, running, "paid");
    }
    shows::<S>(&is_duplicate(&subject, &event("evt_1")), "paid");
}

fn a_crash_after_an_outside_effect_leaves_its_note<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    let running = begins(&subject, &event("evt_1"));
    subject.note(&running, b"about to charge").expect("it is kept");
    subject.note(&running, b"charged 17").expect("it is kept");
    subject.crash(vec![running]);
    let running = begins(&subject, &event("evt_1"));
    follows(&subject, &running, 2, Cause::Orphaned, Some("charged 17"));
    completes(&subject, running, "paid");
    is_duplicate(&subject, &event("evt_1"));
}

fn a_handler_that_is_slow_is_never_overtaken<S: Subject>() {
    let subject = S::open(&Setup::default());
    let running = begins(&subject, &event("evt_1"));
    for _ in 0..100 {
        subject.advance(HOUR);
        subject.collect();
        is_in_progress(&subject, &event("evt_1"));
    }
    completes(&subject, running, "paid");
    shows::<S>(&is_duplicate(&subject, &event("evt_1")), "paid");
}

fn a_handler_slower_than_its_lease_is_overtaken<S: Subject>() {
    let subject = S::open(&Setup::default());
    let old = begins(&subject, &event("evt_1").lease(HOUR));
    subject.advance(HOUR - Duration::from_nanos(1));
    is_in_progress(&subject, &event("evt_1"));
    subject.advance(Duration::from_nanos(1));
    let successor = begins(&subject, &event("evt_1"));
    follows(&subject, &successor, 2, Cause::LeaseExpired, None);
    is_in_progress(&subject, &event("evt_1"));
    completes(&subject, successor, "the successor's");
    drop(old);
}

fn an_old_owner_that_finishes_late_changes_nothing<S: Subject>() {
    for end in [End::Complete(Some(b"late".into())), End::Refuse(b"late".into())] {
        for successor_is_done in [false, true] {
            let subject = S::open(&Setup::default());
            let old = begins(&subject, &event("evt_1").lease(HOUR));
            subject.advance(HOUR);
            let successor = begins(&subject, &event("evt_1"));
            if successor_is_done {
                completes(&subject, successor, "the successor's");
                subject.end(old, end.clone()).expect_err("it has lost its key");
            } else {
                subject.end(old, end.clone()).expect_err("it has lost its key");
                is_in_progress(&subject, &event("evt_1"));
                completes(&subject, successor, "the successor's");
            }
            let done = is_duplicate(&subject, &event("evt_1"));
            shows::<S>(&done, "the successor's");
            assert!(!done.refusal);
        }
    }
}

fn an_old_owner_that_gives_up_late_frees_nothing<S: Subject>() {
    for end in [End::Abort, End::Drop, End::Panic] {
        let subject = S::open(&Setup::default());
        let old = begins(&subject, &event("evt_1").lease(HOUR));
        subject.advance(HOUR);
        let successor = begins(&subject, &event("evt_1"));
        let _ = subject.end(old, end);
        is_in_progress(&subject, &event("evt_1"));
        completes(&subject, successor, "the successor's");
        shows::<S>(&is_duplicate(&subject, &event("evt_1")), "the successor's");
    }
}

fn an_old_owner_that_goes_on_is_told<S: Subject>() {
    let subject = S::open(&Setup::default());
    let old = begins(&subject, &event("evt_1").lease(HOUR));
    subject.advance(HOUR);
    let successor = begins(&subject, &event("evt_1").lease(HOUR));
    subject.renew(&old).expect_err("it has lost its key");
    if S::can(Ability::Notes) {
        subject.note(&old, b"late").expect_err("it has lost its key");
    }
    subject.advance(HOUR);
    let third = begins(&subject, &event("evt_1"));
    follows(&subject, &third, 3, Cause::LeaseExpired, None);
    completes(&subject, third, "the third's");
    drop((old, successor));
    shows::<S>(&is_duplicate(&subject, &event("evt_1")), "the third's");
}

fn a_renewed_lease_begins_anew<S: Subject>() {
    let subject = S::open(&Setup::default());
    let running = begins(&subject, &event("evt_1").lease(HOUR));
    for _ in 0..5 {
        subject.advance(HOUR / 2);
        subject.renew(&running).expect("it is still the owner");
        is_in_progress(&subject, &event("evt_1"));
    }
    subject.advance(HOUR - Duration::from_nanos(1));
    is_in_progress(&subject, &event("evt_1"));
    completes(&subject, running, "paid");
    shows::<S>(&is_duplicate(&subject, &event("evt_1")), "paid");
}

fn given_up<S: Subject>(end: &End) {
    let mut subject = S::open(&Setup::default());
    ends(&subject, begins(&subject, &event("evt_1")), end.clone());
    for attempt in 2..5 {
        let running = begins(&subject, &event("evt_1"));
        follows(&subject, &running, attempt, Cause::Aborted, None);
        ends(&subject, running, end.clone());
    }
    subject.restart(Duration::ZERO);
    completes(&subject, begins(&subject, &event("evt_1")), "paid");
    shows::<S>(&is_duplicate(&subject, &event("evt_1")), "paid");
}

fn a_handler_fails_and_the_sender_retries<S: Subject>() {
    given_up::<S>(&End::Abort);
}

fn a_dropped_handler_frees_the_key<S: Subject>() {
    given_up::<S>(&End::Drop);
}

fn a_panic_frees_the_key<S: Subject>() {
    given_up::<S>(&End::Panic);
}

fn a_copy_that_came_while_the_first_ran_is_new_once_that_failed<S: Subject>() {
    let subject = S::open(&Setup::default());
    let running = begins(&subject, &event("evt_1"));
    is_in_progress(&subject, &event("evt_1"));
    ends(&subject, running, End::Abort);
    completes(&subject, begins(&subject, &event("evt_1")), "paid");
    is_duplicate(&subject, &event("evt_1"));
}

/// The handler changes its input meanwhile; the claim does not follow.
fn the_claim_owns_its_key<S: Subject>() {
    let subject = S::open(&Setup::default());
    let mut input = event("evt_1");
    let running = begins(&subject, &input);
    input.id = b"evt_2".into();
    completes(&subject, running, "paid");
    is_new(&subject, &input);
    shows::<S>(&is_duplicate(&subject, &event("evt_1")), "paid");
}

fn an_event_that_the_application_queues_again_is_new<S: Subject>() {
    let subject = S::open(&Setup::default());
    let running = begins(&subject, &event("evt_1").fingerprint("one").order("acct_7", 100));
    ends(&subject, running, End::Abort);
    completes(&subject, begins(&subject, &event("evt_1").fingerprint("one").order("acct_7", 100)), "paid");
    is_duplicate(&subject, &event("evt_1"));
}

fn attempts_are_counted<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    let running = begins(&subject, &event("evt_1"));
    assert_eq!(subject.attempt(&running), Attempt { number: 1, ..Attempt::default() });
    ends(&subject, running, End::Abort);
    subject.restart(HOUR);
    let running = begins(&subject, &event("evt_1"));
    follows(&subject, &running, 2, Cause::Aborted, None);
    completes(&subject, running, "paid");
    subject.advance(24 * HOUR);
    let running = begins(&subject, &event("evt_1"));
    assert_eq!(subject.attempt(&running).number, 1, "an expired key begins anew");
    completes(&subject, running, "paid");
}
