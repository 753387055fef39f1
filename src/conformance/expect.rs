//! Steps of scenarios, with what each must come to.

use super::{Ability, Answer, Done, End, Event, Reply, Subject};

/// An event with no more than an id, of the one source that most scenarios have.
pub(super) fn event(id: &str) -> Event {
    Event::new("stripe", id)
}

#[track_caller]
fn unexpected<R>(wanted: &str, event: &Event, answer: &Answer<R>) -> ! {
    let told = match answer {
        Answer::New(_) => "new".to_owned(),
        Answer::Duplicate(done) => format!("a duplicate of {done:?}"),
        Answer::InProgress => "in progress".to_owned(),
        Answer::Mismatch => "a mismatch".to_owned(),
        Answer::Stale => "stale".to_owned(),
        Answer::Error(problem) => format!("an error: {problem}"),
    };
    panic!("{} of {} should be {wanted}, and was {told}", event.id.escape_ascii(), event.source)
}

/// Its work begins.
#[track_caller]
pub(super) fn begins<S: Subject>(subject: &S, event: &Event) -> S::Running {
    match subject.begin(event) {
        Answer::New(running) => running,
        answer => unexpected("new", event, &answer),
    }
}

/// It is new, and done at once.
#[track_caller]
pub(super) fn is_new<S: Subject>(subject: &S, event: &Event) {
    match subject.claim(event, None) {
        Answer::New(()) => {}
        answer => unexpected("new", event, &answer),
    }
}

/// It was done before, for a claim in one step and for one that begins.
#[track_caller]
pub(super) fn is_duplicate<S: Subject>(subject: &S, event: &Event) -> Done {
    let done = match subject.claim(event, None) {
        Answer::Duplicate(done) => done,
        answer => unexpected("a duplicate", event, &answer),
    };
    match subject.begin(event) {
        Answer::Duplicate(again) => assert_eq!(again, done, "both show the same"),
        answer => unexpected("a duplicate", event, &answer),
    }
    done
}

#[track_caller]
pub(super) fn is_in_progress<S: Subject>(subject: &S, event: &Event) {
    match subject.begin(event) {
        Answer::InProgress => {}
        answer => unexpected("in progress", event, &answer),
    }
}

#[track_caller]
pub(super) fn is_mismatch<S: Subject>(subject: &S, event: &Event) {
    match subject.begin(event) {
        Answer::Mismatch => {}
        answer => unexpected("a mismatch", event, &answer),
    }
}

/// It is not done again; a store that tells stale events from duplicates says which it is.
#[track_caller]
pub(super) fn is_stale<S: Subject>(subject: &S, event: &Event) {
    match subject.begin(event) {
        Answer::Stale => {}
        Answer::Duplicate(_) if !S::can(Ability::StaleIsTold) => {}
        answer => unexpected("stale", event, &answer),
    }
}

/// There is no verdict.
#[track_caller]
pub(super) fn is_error<S: Subject>(subject: &S, event: &Event) {
    match subject.claim(event, None) {
        Answer::Error(_) => {}
        answer => unexpected("an error", event, &answer),
    }
}

#[track_caller]
pub(super) fn completes<S: Subject>(subject: &S, running: S::Running, response: &str) {
    ends(subject, running, End::Complete(Some(response.into())));
}

#[track_caller]
pub(super) fn ends<S: Subject>(subject: &S, running: S::Running, end: End) {
    let how = format!("{end:?}");
    if let Err(problem) = subject.end(running, end) {
        panic!("{how} should be accepted, and was refused: {problem}");
    }
}

/// What is kept of a completion, by a store that keeps responses.
#[track_caller]
pub(super) fn shows<S: Subject>(done: &Done, response: &str) {
    if S::can(Ability::Responses) {
        assert_eq!(done.response, Reply::Stored(response.into()), "the response of the first");
    }
}
