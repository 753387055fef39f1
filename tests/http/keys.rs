//! Whose key it is, and what is one.

use crate::client::statuses;
use crate::common::{HOUR, Place};
use crate::server::{Api, OPEN, Server, Work, by_account, numbered};
use axum::Router;
use axum::extract::OriginalUri;
use axum::http::HeaderName;
use oncedb::http::Fingerprint;

/// Two callers with one key are two keys: neither sees the other's reply.
#[test]
fn no_tenant_sees_another_ones_reply() {
    let api = Api::start(|layer| layer, numbered);
    let post = |account, key| {
        api.client.send("POST", "/orders", &[("idempotency-key", key), ("x-account", account)], "{}")
    };
    post("a", "k").expect(201, "run 1 of /orders");
    post("b", "k").expect(201, "run 2 of /orders");
    // Nor do callers and keys run into each other where one ends and the other begins.
    post("a", "bk").expect(201, "run 3 of /orders");
    post("ab", "k").expect(201, "run 4 of /orders");
    let again = post("a", "k");
    again.expect(201, "run 1 of /orders");
    assert!(again.is_replayed());
}

/// A request with a key of nobody is answered 401 and does not run.
#[test]
fn a_key_without_a_principal_is_401() {
    let api = Api::start(|layer| layer, numbered);
    let reply = api.client.send("POST", "/orders", &[("idempotency-key", "k")], "{}");
    assert_eq!((reply.status, api.work.runs()), (401, 0));
    // Without a key nobody has to be known.
    api.client.send("POST", "/orders", &[], "{}").expect(201, "run 1 of /orders");
}

/// A quoted key and the same one bare are one key.
#[test]
fn quoted_and_bare_keys_are_one() {
    let api = Api::start(|layer| layer, numbered);
    api.client.post("\"8e03978e-40d5\"", "{}").expect(201, "run 1 of /orders");
    assert!(api.client.post("8e03978e-40d5", "{}").is_replayed());
}

/// An empty key, one that is too long, a malformed one and more than one are 400 and do not run.
#[test]
fn what_is_no_key_is_400() {
    let api = Api::start(|layer| layer, numbered);
    let long = "k".repeat(256);
    let replies: Vec<_> = ["", "\"\"", &long, "a b", "\"a", "\"a\", \"b\""]
        .iter()
        .map(|key| api.client.post(key, "{}"))
        .collect();
    assert_eq!(statuses(&replies), [400; 6]);
    let two = [("idempotency-key", "k"), ("idempotency-key", "k"), ("x-account", "a")];
    assert_eq!(api.client.send("POST", "/orders", &two, "{}").status, 400);
    assert_eq!(api.work.runs(), 0);
}

/// A caller's name that the store cannot take with the key is 400, not a verdict.
#[test]
fn a_principal_that_is_too_long_is_400() {
    let api = Api::start(|layer| layer, numbered);
    let account = "a".repeat(2000);
    let headers = [("idempotency-key", "k"), ("x-account", &account[..])];
    assert_eq!(api.client.send("POST", "/orders", &headers, "{}").status, 400);
    assert_eq!(api.work.runs(), 0);
}

/// The header, the methods, the window and the fingerprint can be replaced.
#[test]
fn what_makes_a_key_can_be_replaced() {
    let api = Api::start(
        |layer| {
            layer
                .header(HeaderName::from_static("x-request-id"))
                .methods(|method| method == "PUT")
                .window(HOUR)
                .fingerprint(Fingerprint::of_head(|head| {
                    head.headers.get("x-digest").map(|digest| digest.as_bytes().to_vec())
                }))
        },
        numbered,
    );
    let put = |digest, body| {
        let headers = [("x-request-id", "k"), ("x-account", "a"), ("x-digest", digest)];
        api.client.send("PUT", "/orders", &headers, body)
    };
    put("1", "{}").expect(201, "run 1 of /orders");
    assert!(put("1", "another body").is_replayed());
    assert_eq!(put("2", "{}").status, 422);
    api.place.clock.advance(HOUR);
    put("2", "{}").expect(201, "run 2 of /orders");
    api.client.post("k", "{}").expect(201, "run 3 of /orders");
}

/// Routes of different nests are different requests, although the router takes the nests' prefixes off: for a
/// layer around the outer router as it is, inside of a nest by the URI that the router has kept.
#[test]
fn routes_of_different_nests_are_different_requests() {
    for inside in [false, true] {
        let place = Place::new();
        let scope = place.open().scope("api").expect("the scope opens");
        let (work, _entered) = Work::new(numbered);
        work.open_gate(OPEN);
        let mut layer = by_account(scope);
        let mut nested = work.routes();
        if inside {
            layer = layer.fingerprint(Fingerprint::of_request_to(|parts| {
                parts.extensions.get::<OriginalUri>().map(|uri| &uri.0)
            }));
            nested = nested.layer(layer.clone());
        }
        let mut routes = Router::new().nest("/v1", nested.clone()).nest("/v2", nested);
        if !inside {
            routes = routes.layer(layer);
        }
        let server = Server::start(routes);
        let client = server.client();
        let post =
            |path| client.send("POST", path, &[("idempotency-key", "k"), ("x-account", "a")], "{}").status;
        assert_eq!([post("/v1/orders"), post("/v2/orders"), post("/v1/orders")], [201, 422, 201]);
        assert_eq!(work.runs(), 1);
    }
}

/// A fingerprint that the store does not take is the program's fault and no caller's: 503, with the error.
#[test]
fn a_fingerprint_that_is_too_long_is_503() {
    let api = Api::start(|layer| layer.fingerprint(Fingerprint::new(|_, _| Some(vec![0; 65]))), numbered);
    assert_eq!((api.client.post("k", "{}").status, api.work.runs()), (503, 0));
}

/// A request body over the limit is 413 with the limit in it, whether its length is known or not; nothing
/// is begun.
#[test]
fn a_request_body_over_the_limit_is_413() {
    let api = Api::start(|layer| layer.request_limit(10), numbered);
    let reply = api.client.post("k", "12345678901");
    assert_eq!(reply.status, 413);
    assert!(reply.json("/detail").as_str().is_some_and(|detail| detail.contains("10 bytes")));
    let chunked = "POST /orders HTTP/1.1\r\nhost: h\r\nidempotency-key: k\r\nx-account: a\r\n\
                   transfer-encoding: chunked\r\nconnection: close\r\n\r\n6\r\n123456\r\n5\r\n78901\r\n0\r\n\r\n";
    assert!(crate::raw::exchange(&api.server, chunked).starts_with("HTTP/1.1 413 "));
    assert_eq!((api.work.runs(), api.store.stats().in_progress), (0, 0));
    api.client.post("k", "1234567890").expect(201, "run 1 of /orders");
}
