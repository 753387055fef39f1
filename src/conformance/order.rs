//! Older events after newer ones.

use std::time::Duration;

use super::expect::{
    begins, completes, ends, is_duplicate, is_error, is_in_progress, is_new, is_stale, shows,
};
use super::{Ability, End, Event, Setup, Subject};
use crate::options::Ties;

super::cases! {
    an_older_event_lands_after_a_newer_one [Order];
    an_older_event_lands_after_the_newer_ones_id_has_expired [Order, Windows];
    an_older_event_lands_after_a_restart [Order];
    an_older_event_lands_after_a_crash [Order, Durable];
    entities_do_not_disturb_each_other [Order];
    equal_timestamps_are_accepted [Order];
    equal_timestamps_are_rejected_where_asked [Order, RejectTies];
    a_repeat_of_the_event_that_set_the_mark_is_not_another_one_of_the_same_second [Order, Windows];
    two_events_of_one_entity_at_the_same_time [Order, InProgress];
    a_date_far_ahead_is_refused [Order, MaxAhead];
    a_newer_event_that_fails_keeps_no_older_one_out [Order];
    an_old_owner_that_finishes_late_does_not_set_its_entity_back [Order, Leases];
    a_newer_event_that_dies_keeps_no_older_one_out [Order];
}

const DAY: Duration = Duration::from_secs(24 * 3600);

fn event(id: &str, seconds: i64) -> Event {
    Event::new("stripe", id).order("acct_7", seconds)
}

fn an_older_event_lands_after_a_newer_one<S: Subject>() {
    let subject = S::open(&Setup::default());
    completes(&subject, begins(&subject, &event("evt_2", 200)), "applied");
    for _ in 0..2 {
        is_stale(&subject, &event("evt_1", 100));
    }
    is_new(&subject, &event("evt_3", 300));
    is_stale(&subject, &event("evt_4", 299));
    is_new(&subject, &Event::new("stripe", "evt_5"));
}

fn an_older_event_lands_after_the_newer_ones_id_has_expired<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_2", 200));
    subject.advance(2 * DAY);
    subject.collect();
    is_stale(&subject, &event("evt_1", 100));
    is_new(&subject, &event("evt_3", 300));
}

fn an_older_event_lands_after_a_restart<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_2", 200));
    subject.restart(Duration::from_secs(60));
    is_stale(&subject, &event("evt_1", 100));
    is_new(&subject, &event("evt_3", 300));
}

fn an_older_event_lands_after_a_crash<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_2", 200));
    subject.crash(Vec::new());
    is_stale(&subject, &event("evt_1", 100));
    is_duplicate(&subject, &event("evt_2", 200));
}

fn entities_do_not_disturb_each_other<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_2", 200));
    is_new(&subject, &Event::new("stripe", "evt_1").order("acct_8", 100));
    is_new(&subject, &Event::new("github", "evt_1").order("acct_7", 100));
    is_stale(&subject, &event("evt_0", 100));
}

fn equal_timestamps_are_accepted<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1", 100));
    is_new(&subject, &event("evt_2", 100));
    is_duplicate(&subject, &event("evt_1", 100));
    is_duplicate(&subject, &event("evt_2", 100));
    is_stale(&subject, &event("evt_3", 99));
}

fn equal_timestamps_are_rejected_where_asked<S: Subject>() {
    let subject = S::open(&Setup { ties: Ties::Reject, ..Setup::default() });
    is_new(&subject, &event("evt_1", 100));
    is_stale(&subject, &event("evt_2", 100));
    is_duplicate(&subject, &event("evt_1", 100));
    is_new(&subject, &event("evt_3", 101));
}

fn a_repeat_of_the_event_that_set_the_mark_is_not_another_one_of_the_same_second<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1", 100));
    is_duplicate(&subject, &event("evt_1", 100));
    subject.advance(2 * DAY);
    subject.collect();
    is_stale(&subject, &event("evt_1", 100));
    is_new(&subject, &event("evt_2", 100));
}

fn two_events_of_one_entity_at_the_same_time<S: Subject>() {
    let subject = S::open(&Setup::default());
    let older = begins(&subject, &event("evt_1", 100));
    is_in_progress(&subject, &event("evt_2", 200));
    completes(&subject, older, "applied");
    let newer = begins(&subject, &event("evt_2", 200));
    is_in_progress(&subject, &event("evt_3", 300));
    is_stale(&subject, &event("evt_0", 50));
    completes(&subject, newer, "applied");
    is_stale(&subject, &event("evt_4", 150));
}

fn a_date_far_ahead_is_refused<S: Subject>() {
    let hour = Duration::from_secs(3600);
    let setup = Setup { max_ahead: Some(hour), ..Setup::default() };
    let subject = S::open(&setup);
    let epoch = setup.now.duration_since(std::time::SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let now = i64::try_from(epoch).expect("long before the year 292,277,026,596");
    is_error(&subject, &event("evt_2099", 4_070_908_800));
    is_error(&subject, &event("evt_ahead", now + 3_601));
    is_new(&subject, &event("evt_1", now));
    is_new(&subject, &event("evt_2", now + 3_600));
}

fn a_newer_event_that_fails_keeps_no_older_one_out<S: Subject>() {
    let subject = S::open(&Setup::default());
    ends(&subject, begins(&subject, &event("evt_2", 200)), End::Abort);
    completes(&subject, begins(&subject, &event("evt_1", 100)), "applied");
    completes(&subject, begins(&subject, &event("evt_2", 200)), "applied");
    shows::<S>(&is_duplicate(&subject, &event("evt_1", 100)), "applied");
}

fn a_newer_event_that_dies_keeps_no_older_one_out<S: Subject>() {
    let mut subject = S::open(&Setup::default());
    let running = begins(&subject, &event("evt_2", 200));
    subject.crash(vec![running]);
    is_new(&subject, &event("evt_1", 100));
    is_new(&subject, &event("evt_2", 200));
    if S::can(Ability::Durable) {
        subject.crash(Vec::new());
        is_stale(&subject, &event("evt_0", 150));
    }
}

fn an_old_owner_that_finishes_late_does_not_set_its_entity_back<S: Subject>() {
    let subject = S::open(&Setup::default());
    let lease = Duration::from_secs(3600);
    let old = begins(&subject, &event("evt_1", 100).lease(lease));
    subject.advance(lease);
    completes(&subject, begins(&subject, &event("evt_2", 200)), "applied");
    subject.end(old, End::Complete(None)).expect_err("its entity has gone on");
    is_stale(&subject, &event("evt_3", 150));
    is_new(&subject, &event("evt_4", 250));
}
