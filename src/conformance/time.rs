//! How long a key is kept, by whose clock, and what happens at the end.
#![allow(clippy::unchecked_time_subtraction, reason = "the times of a scenario are known")]

use std::thread;
use std::time::Duration;

use super::expect::{begins, completes, event, is_duplicate, is_in_progress, is_new, is_stale};
use super::{Ability, Answer, Event, Setup, Subject};

super::cases! {
    the_retry_lands_exactly_at_expiry [Windows];
    a_look_goes_by_the_rule_of_a_claim [Windows, Lookups];
    duplicates_do_not_extend_the_window [Windows];
    an_expired_key_that_is_claimed_again_lives_a_whole_window [Windows];
    the_window_starts_at_completion [Windows, InProgress];
    the_wall_clock_steps_back [Windows, ClockSteps];
    the_wall_clock_steps_years_ahead [Windows, SteadyTime];
    the_store_is_down_longer_than_the_window [Windows];
    the_store_is_down_and_its_windows_pause [Windows, DowntimePauses];
    different_senders_have_different_horizons [EventWindows];
    windows_of_a_second_and_of_ten_years [EventWindows];
    collection_takes_only_what_has_expired [Windows];
    collection_beside_claims [Windows];
    a_claim_in_progress_is_never_collected [Windows, InProgress];
    expired_keys_leave_nothing_behind [Windows, Size];
}

const NANOSECOND: Duration = Duration::from_nanos(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn the_retry_lands_exactly_at_expiry<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1"));
    is_new(&subject, &event("evt_2"));
    subject.advance(DAY - NANOSECOND);
    subject.collect();
    is_duplicate(&subject, &event("evt_1"));
    is_duplicate(&subject, &event("evt_2"));
    subject.advance(NANOSECOND);
    is_new(&subject, &event("evt_1"));
    subject.collect();
    is_new(&subject, &event("evt_2"));
}

fn a_look_goes_by_the_rule_of_a_claim<S: Subject>() {
    let subject = S::open(&Setup::default());
    let is_known = || subject.contains("stripe", b"evt_1");
    for _ in 0..2 {
        assert!(!is_known());
        is_new(&subject, &event("evt_1"));
        assert!(is_known());
        subject.advance(DAY - NANOSECOND);
        subject.collect();
        assert!(is_known(), "a nanosecond is left");
        subject.advance(NANOSECOND);
        assert!(!is_known(), "its time is over");
        subject.collect();
    }
    assert!(!subject.contains("other", b"evt_1"));
}

fn duplicates_do_not_extend_the_window<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1"));
    for _ in 0..23 {
        subject.advance(HOUR);
        is_duplicate(&subject, &event("evt_1"));
    }
    subject.advance(HOUR);
    is_new(&subject, &event("evt_1"));
}

fn an_expired_key_that_is_claimed_again_lives_a_whole_window<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    for _ in 0..3 {
        is_new(&subject, &event("evt_1"));
        subject.advance(DAY / 2);
        subject.restart(Duration::ZERO);
        subject.collect();
        is_duplicate(&subject, &event("evt_1"));
        subject.advance(DAY / 2 - NANOSECOND);
        is_duplicate(&subject, &event("evt_1"));
        subject.advance(NANOSECOND);
        subject.collect();
    }
}

fn the_window_starts_at_completion<S: Subject>() {
    let subject = S::open(&Setup::default());
    let running = begins(&subject, &event("evt_1").window(4 * HOUR));
    subject.advance(20 * HOUR);
    subject.collect();
    is_in_progress(&subject, &event("evt_1"));
    completes(&subject, running, "paid");
    let window = if S::can(Ability::EventWindows) { 4 * HOUR } else { DAY };
    subject.advance(window - NANOSECOND);
    is_duplicate(&subject, &event("evt_1"));
    subject.advance(NANOSECOND);
    is_new(&subject, &event("evt_1"));
}

fn the_wall_clock_steps_back<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1"));
    subject.advance(DAY);
    // What was seen as expired stays so.
    is_new(&subject, &event("evt_2"));
    subject.step_wall(-7 * 86_400);
    is_new(&subject, &event("evt_1"));
    is_duplicate(&subject, &event("evt_1"));
    is_duplicate(&subject, &event("evt_2"));
}

fn the_wall_clock_steps_years_ahead<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1"));
    for seconds in [400 * 86_400, -800 * 86_400, 4_000 * 86_400] {
        subject.step_wall(seconds);
        subject.collect();
        is_duplicate(&subject, &event("evt_1"));
    }
    subject.advance(DAY);
    is_new(&subject, &event("evt_1"));
}

fn the_store_is_down_longer_than_the_window<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1"));
    subject.restart(DAY - NANOSECOND);
    is_duplicate(&subject, &event("evt_1"));
    subject.restart(NANOSECOND);
    is_new(&subject, &event("evt_1"));
}

fn the_store_is_down_and_its_windows_pause<S: Subject>() {
    let setup = Setup { downtime_at_most: Some(2 * HOUR), ..Setup::default() };
    let mut subject = S::open(&setup);
    is_new(&subject, &event("evt_1"));
    subject.advance(HOUR);
    subject.restart(7 * DAY);
    subject.collect();
    is_duplicate(&subject, &event("evt_1"));
    subject.advance(21 * HOUR - NANOSECOND);
    is_duplicate(&subject, &event("evt_1"));
    subject.advance(NANOSECOND);
    is_new(&subject, &event("evt_1"));
}

fn different_senders_have_different_horizons<S: Subject>() {
    let subject = S::open(&Setup::default());
    let senders = [("an hour", HOUR), ("three days", 3 * DAY), ("nine days", 9 * DAY)];
    for (source, window) in senders {
        is_new(&subject, &Event::new(source, "evt_1").window(window));
    }
    let mut passed = Duration::ZERO;
    for (source, window) in senders {
        subject.advance(window - passed - NANOSECOND);
        subject.collect();
        is_duplicate(&subject, &Event::new(source, "evt_1").window(window));
        subject.advance(NANOSECOND);
        passed = window;
        is_new(&subject, &Event::new(source, "evt_1").window(window));
    }
}

fn windows_of_a_second_and_of_ten_years<S: Subject>() {
    let subject = S::open(&Setup::default());
    let (second, years) = (Duration::from_secs(1), 3_653 * DAY);
    is_new(&subject, &event("short").window(second));
    is_new(&subject, &event("long").window(years));
    subject.advance(second);
    is_new(&subject, &event("short").window(second));
    is_duplicate(&subject, &event("long"));
    subject.advance(years - second - NANOSECOND);
    subject.collect();
    is_duplicate(&subject, &event("long"));
    subject.advance(NANOSECOND);
    is_new(&subject, &event("long"));
}

fn collection_takes_only_what_has_expired<S: Subject>() {
    let subject = S::open(&Setup::default());
    for hour in 0..60 {
        is_new(&subject, &event(&format!("evt_{hour}")));
        subject.advance(HOUR);
        subject.collect();
        for earlier in 0..=hour {
            let age = hour + 1 - earlier;
            if age < 24 {
                is_duplicate(&subject, &event(&format!("evt_{earlier}")));
            }
        }
    }
    is_new(&subject, &event("evt_0"));
}

fn collection_beside_claims<S: Subject>() {
    let subject = S::open(&Setup::default());
    let ids: Vec<Event> = (0..10).map(|number| event(&format!("evt_{number}"))).collect();
    for event in &ids {
        is_new(&subject, event);
    }
    for _ in 0..5 {
        subject.advance(DAY);
        let new: Vec<usize> = thread::scope(|scope| {
            let claims = || ids.iter().map(|event| subject.claim(event, None)).collect::<Vec<_>>();
            let threads = [scope.spawn(claims), scope.spawn(claims)];
            for _ in 0..ids.len() {
                subject.collect();
            }
            let answers = threads.map(|thread| thread.join().expect("a claim does not panic"));
            let is_new = |answers: &Vec<Answer<()>>, event: usize| answers[event] == Answer::New(());
            (0..ids.len())
                .map(|event| answers.iter().filter(|answers| is_new(answers, event)).count())
                .collect()
        });
        assert!(new.iter().all(|&new| new == 1), "how often each did the work: {new:?}");
    }
}

fn a_claim_in_progress_is_never_collected<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_2").order("acct_7", 200));
    let running = begins(&subject, &event("evt_1"));
    for _ in 0..10 {
        subject.advance(DAY);
        subject.collect();
        is_in_progress(&subject, &event("evt_1"));
    }
    completes(&subject, running, "paid");
    is_duplicate(&subject, &event("evt_1"));
    if S::can(Ability::Order) {
        is_stale(&subject, &event("evt_0").order("acct_7", 100));
    }
}

fn expired_keys_leave_nothing_behind<S: Subject>() {
    let subject = S::open(&Setup::default());
    let mut largest_early = 0;
    for round in 0..12 {
        for number in 0..500 {
            is_new(&subject, &event(&format!("evt_{round}_{number}")));
        }
        subject.advance(DAY);
        subject.collect();
        let size = subject.size();
        if round < 4 {
            largest_early = largest_early.max(size);
        } else {
            assert!(size <= largest_early * 2, "{size} bytes after round {round}, {largest_early} before");
        }
    }
}
