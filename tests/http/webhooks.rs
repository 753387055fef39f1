//! The layer for receivers: each verdict and its answer.

use crate::client::{Client, Reply};
use crate::common::{HOUR, Place, SECOND};
use crate::server::{Heard, OPEN, Server, Work, numbered};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use oncedb::http::{Attempt, Fingerprint, Format, Place as Where, Rule, Source, Time, WebhookLayer};
use oncedb::{Scope, Store};
use std::thread;

struct Hook {
    place: Place,
    store: Store,
    scope: Scope,
    work: Work,
    entered: Heard<Attempt>,
    server: Server,
    client: Client,
}

impl Hook {
    fn shut(layer: impl FnOnce(WebhookLayer) -> WebhookLayer, handler: (Work, Heard<Attempt>)) -> Self {
        let place = Place::new();
        let store = place.open();
        let scope = store.scope("events").expect("the scope opens");
        let (work, entered) = handler;
        let server = Server::start(work.routes().layer(layer(WebhookLayer::new(scope.clone()))));
        let client = server.client();
        Self { place, store, scope, work, entered, server, client }
    }

    fn start(layer: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        let hook = Self::shut(layer, Work::counting());
        hook.work.open_gate(OPEN);
        hook
    }

    #[track_caller]
    fn deliver(&self, id: &str, body: &str) -> Reply {
        self.client.send("POST", "/hook", &[("webhook-id", id)], body)
    }
}

/// The inner service runs for a new event only; its own reply goes out, and every duplicate is 200.
#[test]
fn the_inner_service_runs_for_new_events_only() {
    let hook = Hook::start(|layer| layer);
    hook.deliver("evt_1", "").expect(201, "run 1");
    hook.deliver("evt_1", "").expect(200, "");
    hook.deliver("evt_2", "").expect(201, "run 2");
    hook.deliver("evt_1", "").expect(200, "");
    assert_eq!(hook.work.runs(), 2);
    assert!(hook.scope.contains("evt_1").expect("the store answers"));
}

/// A completed id is known for the window, and new when that is over.
#[test]
fn an_id_is_known_for_the_window() {
    let hook = Hook::start(|layer| layer.window(HOUR));
    hook.deliver("evt_1", "").expect(201, "run 1");
    hook.place.clock.advance(HOUR.saturating_sub(SECOND));
    hook.deliver("evt_1", "").expect(200, "");
    hook.place.clock.advance(SECOND);
    hook.deliver("evt_1", "").expect(201, "run 2");
}

/// Every answer but 2xx goes out as it is and frees the event; the next delivery runs and completes it.
#[test]
fn anything_but_2xx_frees_the_event() {
    let statuses = [500, 404, 302, 429, 204];
    let handler = Work::new(move |run, _| {
        StatusCode::from_u16(statuses[run as usize - 1]).expect("a status").into_response()
    });
    let hook = Hook::shut(|layer| layer, handler);
    hook.work.open_gate(OPEN);
    for status in statuses {
        assert_eq!(hook.deliver("evt_1", "").status, status);
    }
    hook.deliver("evt_1", "").expect(200, "");
    let attempts: Vec<u32> = hook.entered.so_far().iter().map(Attempt::number).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
}

/// The rule of what completes can be replaced.
#[test]
fn the_rule_of_success_can_be_replaced() {
    let handler = Work::new(|_, _| StatusCode::CONFLICT.into_response());
    let hook = Hook::shut(|layer| layer.completes(Rule::new(|reply| reply.status == 409)), handler);
    hook.work.open_gate(OPEN);
    assert_eq!(hook.deliver("evt_1", "").status, 409);
    hook.deliver("evt_1", "").expect(200, "");
    assert_eq!(hook.work.runs(), 1);
}

/// An event that is running is 409 with `Retry-After`, and runs no second time.
#[test]
fn a_running_event_is_409_with_retry_after() {
    let hook = Hook::shut(|layer| layer, Work::counting());
    thread::scope(|scope| {
        let first = scope.spawn(|| hook.deliver("evt_1", ""));
        hook.entered.next();
        let second = hook.deliver("evt_1", "");
        assert_eq!((second.status, second.header("retry-after")), (409, Some("1")));
        hook.work.open_gate(OPEN);
        first.join().expect("the sender ends").expect(201, "run 1");
    });
    hook.deliver("evt_1", "").expect(200, "");
}

/// `Retry-After` is what is left of the lease, in whole seconds up to 60.
#[test]
fn retry_after_is_what_is_left_of_the_lease() {
    let hook = Hook::shut(|layer| layer.lease(90 * SECOND), Work::counting());
    thread::scope(|scope| {
        let first = scope.spawn(|| hook.deliver("evt_1", ""));
        hook.entered.next();
        let retry_after = || hook.deliver("evt_1", "").header("retry-after").map(str::to_owned);
        assert_eq!(retry_after().as_deref(), Some("60"));
        hook.place.clock.advance(78 * SECOND);
        assert_eq!(retry_after().as_deref(), Some("12"));
        hook.work.open_gate(OPEN);
        first.join().expect("the sender ends").expect(201, "run 1");
    });
}

/// A request with no id, more than one, or one that is too long is 400 and does not run.
#[test]
fn a_missing_id_is_400() {
    let hook = Hook::start(|layer| layer);
    let send = |headers: &[(&str, &str)]| hook.client.send("POST", "/hook", headers, "").status;
    assert_eq!(send(&[]), 400);
    assert_eq!(send(&[("webhook-id", "")]), 400);
    assert_eq!(send(&[("webhook-id", "a"), ("webhook-id", "b")]), 400);
    assert_eq!(send(&[("webhook-id", &"a".repeat(2000))]), 400);
    assert_eq!((hook.work.runs(), hook.store.stats().live_keys), (0, 0));
}

/// The id can be any header, a field of the body, or a function of the request.
#[test]
fn an_id_can_be_anywhere() {
    let sources: [(Source, &str, &str); 3] = [
        (Where::Header("x-event").into(), "evt_1", "{}"),
        (Where::Json("event.id").into(), "", r#"{"event": {"id": "evt_1"}}"#),
        (
            Source::of_request(|head, body| Some([head.method.as_str().as_bytes(), body].concat())),
            "",
            "evt_1",
        ),
    ];
    for (source, header, body) in sources {
        let hook = Hook::start(|layer| layer.id(source));
        let deliver =
            |header: &str, body: &str| hook.client.send("POST", "/hook", &[("x-event", header)], body);
        deliver(header, body).expect(201, "run 1");
        deliver(header, body).expect(200, "");
        deliver("evt_2", &body.replace("evt_1", "evt_2")).expect(201, "run 2");
    }
}

/// An event older than what was applied to its entity is 200 and does not run; one without an entity is not
/// ordered; one with an entity and without a time is 400.
#[test]
fn stale_events_are_200_and_do_not_run() {
    let time = Time::new(Where::Json("at"), Format::Seconds);
    let hook = Hook::start(|layer| layer.order(Where::Json("entity"), time));
    hook.deliver("evt_2", r#"{"entity": "sub_1", "at": 200}"#).expect(201, "run 1");
    hook.deliver("evt_1", r#"{"entity": "sub_1", "at": 100}"#).expect(200, "");
    hook.deliver("evt_3", r#"{"entity": "sub_2", "at": 100}"#).expect(201, "run 2");
    hook.deliver("evt_4", r#"{"at": 100}"#).expect(201, "run 3");
    assert_eq!(hook.deliver("evt_5", r#"{"entity": "sub_1"}"#).status, 400);
    hook.deliver("evt_6", r#"{"entity": "sub_1", "at": 300}"#).expect(201, "run 4");
    assert_eq!(hook.work.runs(), 4);
}

/// Two events of one entity do not run at once: the second is 409.
#[test]
fn a_busy_entity_is_409() {
    let time = Time::new(Where::Json("at"), Format::Seconds);
    let hook = Hook::shut(|layer| layer.order(Where::Json("entity"), time), Work::counting());
    thread::scope(|scope| {
        let first = scope.spawn(|| hook.deliver("evt_1", r#"{"entity": "sub_1", "at": 1}"#));
        hook.entered.next();
        assert_eq!(hook.deliver("evt_2", r#"{"entity": "sub_1", "at": 2}"#).status, 409);
        hook.work.open_gate(OPEN);
        first.join().expect("the sender ends").expect(201, "run 1");
    });
    hook.deliver("evt_2", r#"{"entity": "sub_1", "at": 2}"#).expect(201, "run 2");
}

/// The same id with another fingerprint is 422 and does not run.
#[test]
fn another_event_under_the_same_id_is_422() {
    let hook = Hook::start(|layer| layer.fingerprint(Fingerprint::of_body()));
    hook.deliver("evt_1", "a").expect(201, "run 1");
    assert_eq!(hook.deliver("evt_1", "b").status, 422);
    hook.deliver("evt_1", "a").expect(200, "");
    assert_eq!(hook.work.runs(), 1);
}

/// A body that has to be looked into is bounded, 413 over that; one that need not be is not.
#[test]
fn a_body_over_the_limit_is_413_only_where_it_is_looked_into() {
    let hook = Hook::start(|layer| layer.body_limit(4).id(Where::Json("id")));
    assert_eq!(hook.deliver("", "12345").status, 413);
    let hook = Hook::start(|layer| layer.body_limit(4));
    hook.deliver("evt_1", "12345").expect(201, "run 1");
}

/// The inner service reads the body as it was sent, looked into or not.
#[test]
fn the_inner_service_gets_the_body() {
    use axum::routing::post;
    let place = Place::new();
    let scope = place.open().scope("events").expect("the scope opens");
    let routes = axum::Router::new()
        .route("/plain", post(async |body: String| body).layer(WebhookLayer::new(scope.clone())))
        .route(
            "/json",
            post(async |body: String| body).layer(WebhookLayer::new(scope).id(Where::Json("id"))),
        );
    let server = Server::start(routes);
    for path in ["/plain", "/json"] {
        let body = format!(r#"{{"id": "{path}", "text": "as it was sent"}}"#);
        let reply = server.client().send("POST", path, &[("webhook-id", "evt_1")], &body);
        reply.expect(200, &body);
    }
}

/// The inner service can leave a note, and the next attempt finds it.
#[test]
fn a_note_reaches_the_next_attempt() {
    use axum::{Extension, routing::post};
    let place = Place::new();
    let scope = place.open().scope("events").expect("the scope opens");
    let handler = async |Extension(attempt): Extension<Attempt>| {
        if attempt.previous().is_none() {
            attempt.note("about to charge").await.expect("the note is kept");
            return (StatusCode::INTERNAL_SERVER_ERROR, String::new());
        }
        let note = attempt.previous().and_then(|previous| previous.note.clone()).expect("a note");
        (StatusCode::OK, String::from_utf8(note).expect("text"))
    };
    let server =
        Server::start(axum::Router::new().route("/hook", post(handler)).layer(WebhookLayer::new(scope)));
    let deliver = || server.client().send("POST", "/hook", &[("webhook-id", "evt_1")], "");
    assert_eq!(deliver().status, 500);
    deliver().expect(200, "about to charge");
    deliver().expect(200, "");
}

/// With a lease, a delivery takes over from a handler that has not ended; the late one is answered 503, since its
/// work was not recorded, and its event is a duplicate of the other's.
#[test]
fn a_lease_that_lapses_lets_the_next_delivery_take_over() {
    let hook = Hook::shut(|layer| layer.lease(HOUR), Work::new(numbered));
    thread::scope(|scope| {
        let first = scope.spawn(|| hook.deliver("evt_1", ""));
        hook.entered.next();
        hook.place.clock.advance(HOUR);
        let second = scope.spawn(|| hook.deliver("evt_1", ""));
        hook.entered.next();
        hook.work.open_gate(OPEN);
        let (first, second) = (first.join().expect("it ends"), second.join().expect("it ends"));
        assert_eq!((first.status, second.status), (503, 201));
    });
    hook.deliver("evt_1", "").expect(200, "");
    assert!(hook.server.address.port() > 0);
}
