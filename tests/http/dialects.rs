//! What the dialects promise, line by line, over HTTP and with a stock client.

use crate::client::Reply;
use crate::common::{DAY, SECOND};
use crate::server::{Api, OPEN, numbered};
use oncedb::http::Dialect;
use std::thread;

/// A dialect and what it says of conflicts.
struct Spoken {
    dialect: Dialect,
    mismatch: fn(&Reply),
    running: fn(&Reply),
    missing: fn(&Reply),
}

#[track_caller]
fn problem(reply: &Reply, status: u16, title: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.json("/status"), status);
    assert_eq!(reply.json("/title"), title);
    assert_eq!(reply.json("/type"), "https://api.example/idempotency");
    assert_eq!(reply.header("link"), Some("<https://api.example/idempotency>; rel=\"describedby\""));
}

#[track_caller]
fn named(reply: &Reply, status: u16, field: &str, name: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.json(field), name);
    assert!(reply.json("/error/message").as_str().is_some_and(|message| message.len() > 20));
}

fn dialects() -> [Spoken; 3] {
    [
        Spoken {
            dialect: Dialect::draft_documented_at("https://api.example/idempotency"),
            mismatch: |reply| problem(reply, 422, "Idempotency-Key is already used"),
            running: |reply| problem(reply, 409, "A request is outstanding for this Idempotency-Key"),
            missing: |reply| problem(reply, 400, "Idempotency-Key is missing"),
        },
        Spoken {
            dialect: Dialect::typed(),
            mismatch: |reply| named(reply, 409, "/error/type", "idempotency_conflict"),
            running: |reply| named(reply, 409, "/error/type", "request_in_progress"),
            missing: |reply| named(reply, 400, "/error/type", "idempotency_key_missing"),
        },
        Spoken {
            dialect: Dialect::coded(),
            mismatch: |reply| named(reply, 422, "/error/code", "IDEMPOTENCY_MISMATCH"),
            running: |reply| named(reply, 409, "/error/code", "REQUEST_IN_PROGRESS"),
            missing: |reply| named(reply, 400, "/error/code", "IDEMPOTENCY_KEY_MISSING"),
        },
    ]
}

fn in_every_dialect(test: impl Fn(Spoken)) {
    dialects().into_iter().for_each(test);
}

/// A new key runs the request and stores its reply, once.
#[test]
fn a_new_key_stores_once() {
    in_every_dialect(|spoken| {
        let api = Api::start(|layer| layer.dialect(spoken.dialect), numbered);
        let first = api.client.post("k", "{}");
        first.expect(201, "run 1 of /orders");
        assert!(!first.is_replayed(), "the first reply is no replay");
        assert_eq!((api.work.runs(), api.store.stats().live_keys), (1, 1));
    });
}

/// The same key and body gets the first reply again, with `Idempotent-Replayed: true`.
#[test]
fn the_same_key_and_body_replays_with_the_header() {
    in_every_dialect(|spoken| {
        let api = Api::start(|layer| layer.dialect(spoken.dialect), numbered);
        let first = api.client.post("k", "{}");
        for _ in 0..3 {
            let again = api.client.post("k", "{}");
            again.expect(201, &first.body);
            assert!(again.is_replayed());
            assert_eq!(again.header("location"), Some("/orders/1"));
            assert_eq!(again.header("content-type"), first.header("content-type"));
        }
        assert_eq!(api.work.runs(), 1);
    });
}

/// Another body, path, query or method under the same key is a conflict and does not run.
#[test]
fn another_request_under_the_same_key_conflicts() {
    in_every_dialect(|spoken| {
        let api = Api::start(|layer| layer.dialect(spoken.dialect), numbered);
        api.client.post("k", "{}").expect(201, "run 1 of /orders");
        let headers = [("idempotency-key", "k"), ("x-account", "a")];
        for (method, path, body) in [
            ("POST", "/orders", "{\"amount\": 2}"),
            ("POST", "/refunds", "{}"),
            ("POST", "/orders?a=1", "{}"),
            ("PATCH", "/orders", "{}"),
        ] {
            let other = api.client.send(method, path, &headers, body);
            (spoken.mismatch)(&other);
            assert!(!other.is_replayed());
        }
        assert_eq!(api.work.runs(), 1);
        api.client.post("k", "{}").expect(201, "run 1 of /orders");
    });
}

/// A second request while the first runs is a conflict with `Retry-After`; when the first is done it is
/// replayed.
#[test]
fn a_second_request_while_the_first_runs_conflicts() {
    in_every_dialect(|spoken| {
        let api = Api::shut(|layer| layer.dialect(spoken.dialect), numbered);
        thread::scope(|scope| {
            let first = scope.spawn(|| api.client.post("k", "{}"));
            api.entered.next();
            let second = api.client.post("k", "{}");
            (spoken.running)(&second);
            assert_eq!(second.header("retry-after"), Some("1"), "in whole seconds");
            (spoken.mismatch)(&api.client.post("k", "other"));
            api.work.open_gate(OPEN);
            first.join().expect("the first client ends").expect(201, "run 1 of /orders");
        });
        assert!(api.client.post("k", "{}").is_replayed());
        assert_eq!(api.work.runs(), 1);
    });
}

/// A key is known for 24 hours from its completion, and is new at that very moment.
#[test]
fn a_key_older_than_24_hours_is_new() {
    in_every_dialect(|spoken| {
        let api = Api::start(|layer| layer.dialect(spoken.dialect), numbered);
        api.client.post("k", "{}").expect(201, "run 1 of /orders");
        api.place.clock.advance(DAY.saturating_sub(SECOND));
        assert!(api.client.post("k", "{}").is_replayed());
        api.place.clock.advance(SECOND);
        let new = api.client.post("k", "another body");
        new.expect(201, "run 2 of /orders");
        assert!(!new.is_replayed());
    });
}

/// Where a key is required, a request without one is answered 400 and does not run.
#[test]
fn a_route_that_requires_a_key_refuses_a_request_without_one() {
    in_every_dialect(|spoken| {
        let api = Api::start(|layer| layer.dialect(spoken.dialect).required(), numbered);
        (spoken.missing)(&api.client.send("POST", "/orders", &[("x-account", "a")], "{}"));
        assert_eq!(api.work.runs(), 0);
        // A method that is safe or idempotent by itself needs none.
        api.client.send("GET", "/orders", &[], "").expect(201, "run 1 of /orders");
    });
}

/// Where a key is optional, a request without one runs every time.
#[test]
fn a_route_with_an_optional_key_lets_a_request_without_one_pass() {
    let api = Api::start(|layer| layer, numbered);
    for run in 1..=2 {
        let reply = api.client.send("POST", "/orders", &[("x-account", "a")], "{}");
        reply.expect(201, &format!("run {run} of /orders"));
    }
    assert_eq!(api.store.stats().live_keys, 0);
}

/// A dialect of one's own words every refusal.
#[test]
fn a_dialect_can_be_replaced() {
    let dialect = Dialect::new(|refusal| {
        let mut response = axum::http::Response::new(format!("{refusal:?}").into());
        *response.status_mut() = axum::http::StatusCode::IM_A_TEAPOT;
        response
    });
    let api = Api::start(|layer| layer.dialect(dialect).required(), numbered);
    api.client.send("POST", "/orders", &[], "").expect(418, "KeyMissing");
}
