//! What is kept of a reply, and which replies are.

use crate::client::statuses;
use crate::server::{Api, numbered};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use oncedb::http::Rule;
use oncedb::{Response as Stored, Store};

/// Answers with the status that the path names.
fn by_path(run: u32, request: &axum::extract::Request) -> axum::response::Response {
    let status = request.uri().path().trim_start_matches('/').parse().expect("a status in the path");
    (StatusCode::from_u16(status).expect("a status"), format!("run {run}")).into_response()
}

/// 2xx and 4xx are kept but for 4xx that ask to be tried again, and a 4xx is kept as a refusal; 5xx and all else free the key.
#[test]
fn final_statuses_are_kept_and_passing_ones_free_the_key() {
    for (status, kept) in [
        (200, true),
        (202, true),
        (400, true),
        (404, true),
        (422, true),
        (401, false),
        (408, false),
        (421, false),
        (425, false),
        (429, false),
        (302, false),
        (500, false),
        (503, false),
    ] {
        let api = Api::start(|layer| layer, by_path);
        let post = || {
            let headers = [("idempotency-key", "k"), ("x-account", "a")];
            api.client.send("POST", &format!("/{status}"), &headers, "")
        };
        post().expect(status, "run 1");
        let again = post();
        assert_eq!((again.status, again.is_replayed()), (status, kept));
        let attempt = api.entered.next();
        let record = api.scope.get(attempt.id()).expect("the store answers");
        if kept {
            assert_eq!(again.body, "run 1");
            assert_eq!(record.expect("it is there").is_refusal(), status >= 400);
        } else {
            assert_eq!(again.body, "run 2");
            let attempt = api.entered.next();
            assert_eq!((attempt.number(), record.is_some()), (2, false));
        }
    }
}

/// The rule of what is kept can be replaced.
#[test]
fn the_rule_can_be_replaced() {
    let api = Api::start(|layer| layer.keeps(Rule::new(|reply| reply.status == 503)), by_path);
    let post = |key, path| api.client.send("POST", path, &[("idempotency-key", key), ("x-account", "a")], "");
    let replies = [post("k", "/503"), post("k", "/503"), post("l", "/200"), post("l", "/200")];
    assert_eq!(statuses(&replies), [503, 503, 200, 200]);
    assert_eq!(replies.map(|reply| reply.body), ["run 1", "run 1", "run 2", "run 3"]);
}

/// Cookies, credentials, what is marked as sensitive and hop-by-hop headers reach the first caller and are not
/// stored; repeated headers survive in their order.
#[test]
fn secrets_are_not_stored_and_repeated_headers_survive() {
    let api = Api::start(
        |layer| layer,
        |_, _| {
            let mut headers = HeaderMap::new();
            headers.append("link", HeaderValue::from_static("</a>; rel=\"next\""));
            headers.append("link", HeaderValue::from_static("</b>; rel=\"prev\""));
            headers.append(SET_COOKIE, HeaderValue::from_static("session=secret-cookie"));
            headers.append("authorization", HeaderValue::from_static("secret-credential"));
            headers.append("keep-alive", HeaderValue::from_static("timeout=5"));
            let mut token = HeaderValue::from_static("secret-token");
            token.set_sensitive(true);
            headers.append("x-token", token);
            (StatusCode::OK, headers, "done").into_response()
        },
    );
    let first = api.client.post("k", "");
    assert_eq!(first.header("set-cookie"), Some("session=secret-cookie"));
    assert_eq!(first.header("x-token"), Some("secret-token"));
    let again = api.client.post("k", "");
    again.expect(200, "done");
    assert_eq!(
        again.headers.get_all("link").iter().collect::<Vec<_>>(),
        ["</a>; rel=\"next\"", "</b>; rel=\"prev\""]
    );
    for gone in ["set-cookie", "authorization", "keep-alive", "x-token"] {
        assert_eq!(again.header(gone), None, "{gone} is not replayed");
    }
    let attempt = api.entered.next();
    let record = api.scope.get(attempt.id()).expect("the store answers").expect("it is there");
    let stored = record.stored_response().expect("the reply is stored");
    assert!(!stored.windows(6).any(|bytes| bytes == b"secret"), "no secret gets to the disk");
}

/// Only the chosen headers are stored.
#[test]
fn headers_can_be_chosen() {
    let api = Api::start(|layer| layer.headers(|name| name == "content-type"), numbered);
    assert_eq!(api.client.post("k", "").header("location"), Some("/orders/1"));
    let again = api.client.post("k", "");
    assert_eq!(again.header("location"), None);
    assert_eq!(again.header("content-type"), api.client.post("l", "").header("content-type"));
}

/// A reply over the limit passes through whole, and its repetition is told that the request was done, with what,
/// and that the reply was not kept.
#[test]
fn a_reply_over_the_limit_passes_and_is_recorded_as_omitted() {
    let long = "0123456789".repeat(1000);
    // Over the layer's own limit, and over the store's.
    for (limit, store_limit) in [(9_999, 256 << 10), (256 << 10, 10_000)] {
        let place = crate::common::Place::new();
        let store: Store = place.open_with(place.options().max_response_len(store_limit));
        let scope = store.scope("api").expect("the scope opens");
        let body = long.clone();
        let (work, entered) =
            crate::server::Work::new(move |_, _| (StatusCode::CREATED, body.clone()).into_response());
        work.open_gate(crate::server::OPEN);
        let layer = crate::server::by_account(scope.clone()).reply_limit(limit);
        let server = crate::server::Server::start(work.routes().layer(layer));
        let client = server.client();
        client.post("k", "").expect(201, &long);
        let again = client.post("k", "");
        assert_eq!(again.status, 410);
        assert!(again.is_replayed());
        let detail = again.json("/detail");
        let detail = detail.as_str().expect("a sentence");
        assert!(
            detail.contains("was carried out") && detail.contains("201") && detail.contains("10000 bytes"),
            "{detail}"
        );
        assert_eq!(work.runs(), 1);
        let attempt = entered.next();
        let record = scope.get(attempt.id()).expect("the store answers").expect("it is there");
        assert!(matches!(record.response(), Stored::Stored(bytes) if bytes.len() < 16));
    }
}

/// Bytes that another version has stored, or a completion with no reply, are answered like a reply that was not
/// kept.
#[test]
fn a_reply_that_cannot_be_read_is_answered_as_not_kept() {
    let api = Api::start(|layer| layer, numbered);
    for (key, stored) in [("k", Some(&b"\x02future"[..])), ("l", None)] {
        api.client.post("probe", "").expect(201, "run 1 of /orders");
        let mut id = vec![1, b'a'];
        id.extend_from_slice(key.as_bytes());
        match stored {
            Some(stored) => assert!(api.scope.request(&id).claim_with(stored).expect("it claims").is_new()),
            None => assert!(api.scope.claim(&id).expect("it claims").is_new()),
        }
        let reply = api.client.post(key, "");
        assert_eq!((reply.status, reply.is_replayed()), (410, true));
    }
    assert_eq!(api.work.runs(), 1);
}

/// A reply that has no body by its status is kept although the server never looks into what the handler gave.
#[test]
fn a_reply_without_a_body_is_kept() {
    let api = Api::start(
        |layer| layer,
        |_, _| {
            // Of unknown length, so that it would be recorded as it streams.
            let body = axum::body::Body::new(crate::streaming::Script::unknown().data("ignored"));
            Response::builder().status(204).header("x-run", "1").body(body).expect("a response")
        },
    );
    for replayed in [false, true] {
        let reply = api.client.post("k", "");
        reply.expect(204, "");
        assert_eq!((reply.is_replayed(), reply.header("x-run")), (replayed, Some("1")));
    }
    assert_eq!(api.work.runs(), 1);
}

/// A reply that streams over HTTP is recorded when it ends, and replayed whole.
#[test]
fn a_streaming_reply_is_replayed_whole() {
    let api = Api::start(
        |layer| layer,
        |run, _| {
            let script = crate::streaming::Script::unknown()
                .data("first ")
                .data("second ")
                .data(format!("of run {run}"));
            axum::body::Body::new(script).into_response()
        },
    );
    for replayed in [false, true] {
        let reply = api.client.post("k", "");
        reply.expect(200, "first second of run 1");
        assert_eq!(reply.is_replayed(), replayed);
    }
}

/// A server ends a reply once it has sent what `Content-Length` says, and asks its body for nothing more: it is
/// recorded all the same, within the limit of what is kept and over it.
#[test]
fn a_streaming_reply_with_a_length_in_its_head_is_recorded() {
    for (limit, again) in [(1 << 10, 200), (10, 410)] {
        let api = Api::start(
            |layer| layer.reply_limit(limit),
            |run, _| {
                let script = crate::streaming::Script::unknown().data("this is ").data(format!("run {run}"));
                let body = axum::body::Body::new(script);
                Response::builder().header("content-length", "13").body(body).expect("a response")
            },
        );
        api.client.post("k", "").expect(200, "this is run 1");
        let reply = api.client.post("k", "");
        assert_eq!((reply.status, reply.is_replayed(), api.work.runs()), (again, true, 1));
    }
}

/// Trailers come with the repetition as they came with the first reply, over HTTP/1.1 too.
#[test]
fn trailers_are_replayed_over_http_1() {
    let api = Api::start(
        |layer| layer,
        |_, _| {
            let script = crate::streaming::Script::unknown().data("body").trailers("x-sum", "7");
            let body = axum::body::Body::new(script);
            Response::builder().header("trailer", "x-sum").body(body).expect("a response")
        },
    );
    for _ in 0..2 {
        let reply = crate::raw::exchange(
            &api.server,
            "POST /orders HTTP/1.1\r\nhost: h\r\nidempotency-key: k\r\nx-account: a\r\nte: trailers\r\n\
             connection: close\r\ncontent-length: 0\r\n\r\n",
        );
        assert!(reply.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{reply}");
    }
    assert_eq!(api.work.runs(), 1);
}

/// A streaming reply that breaks frees the key: the retry runs.
#[test]
fn a_streaming_reply_that_breaks_frees_the_key() {
    let api = Api::start(
        |layer| layer,
        |run, _| {
            let script = crate::streaming::Script::unknown().data("first ");
            let script = if run == 1 { script.error() } else { script.data("second") };
            axum::body::Body::new(script).into_response()
        },
    );
    let headers = [("idempotency-key", "k"), ("x-account", "a")];
    assert!(api.client.try_send("POST", "/orders", &headers, "").is_none(), "the first reply breaks off");
    api.client.post("k", "").expect(200, "first second");
    assert!(api.client.post("k", "").is_replayed());
}
