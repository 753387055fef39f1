//! Waiting for an event in progress, by a timer that the test holds.

use crate::common::{HOUR, Place};
use crate::server::{Heard, OPEN, Server, Work};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use oncedb::http::WebhookLayer;
use std::sync::Arc;
use std::thread;
use tokio::sync::Notify;

struct Waiting {
    _place: Place,
    work: Work,
    entered: Heard<oncedb::http::Attempt>,
    /// Says when a delivery begins to wait.
    began: Heard<()>,
    time_is_up: Arc<Notify>,
    server: Server,
}

impl Waiting {
    fn start(handler: (Work, Heard<oncedb::http::Attempt>)) -> Self {
        let place = Place::new();
        let scope = place.open().scope("events").expect("the scope opens");
        let (work, entered) = handler;
        let (begins, began) = Heard::channel();
        let time_is_up = Arc::new(Notify::new());
        let timer = Arc::clone(&time_is_up);
        let layer = WebhookLayer::new(scope).wait(HOUR, move |bound| {
            assert_eq!(bound, HOUR);
            begins.send(()).expect("the test listens");
            let timer = Arc::clone(&timer);
            async move { timer.notified().await }
        });
        let server = Server::start(work.routes().layer(layer));
        Self { _place: place, work, entered, began, time_is_up, server }
    }

    fn deliver(&self) -> crate::client::Reply {
        self.server.client().send("POST", "/hook", &[("webhook-id", "evt_1")], "")
    }
}

/// A delivery that waits is a duplicate as soon as the running one is done.
#[test]
fn a_delivery_that_waits_is_answered_when_the_event_is_done() {
    let waiting = Waiting::start(Work::counting());
    thread::scope(|scope| {
        let first = scope.spawn(|| waiting.deliver());
        waiting.entered.next();
        let second = scope.spawn(|| waiting.deliver());
        waiting.began.next();
        waiting.work.open_gate(OPEN);
        first.join().expect("it ends").expect(201, "run 1");
        second.join().expect("it ends").expect(200, "");
    });
    assert_eq!(waiting.work.runs(), 1);
}

/// A delivery that waits runs itself if the running one fails.
#[test]
fn a_delivery_that_waits_runs_when_the_event_is_free() {
    let waiting = Waiting::start(Work::new(|run, _| {
        let status = if run == 1 { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
        (status, format!("run {run}")).into_response()
    }));
    thread::scope(|scope| {
        let first = scope.spawn(|| waiting.deliver());
        waiting.entered.next();
        let second = scope.spawn(|| waiting.deliver());
        waiting.began.next();
        waiting.work.open_gate(OPEN);
        first.join().expect("it ends").expect(500, "run 1");
        second.join().expect("it ends").expect(200, "run 2");
    });
}

/// When the time is up, a delivery that waits is 409 with `Retry-After`.
#[test]
fn a_wait_is_bounded() {
    let waiting = Waiting::start(Work::counting());
    thread::scope(|scope| {
        let first = scope.spawn(|| waiting.deliver());
        waiting.entered.next();
        let second = scope.spawn(|| waiting.deliver());
        waiting.began.next();
        waiting.time_is_up.notify_one();
        let second = second.join().expect("it ends");
        assert_eq!((second.status, second.header("retry-after")), (409, Some("1")));
        waiting.work.open_gate(OPEN);
        first.join().expect("it ends").expect(201, "run 1");
    });
}
