//! Handlers that do not end well: the key is free, and the retry runs.

use crate::common::{PATIENCE, Place, block_on, in_progress, poll_once};
use crate::raw;
use crate::server::{Api, OPEN, Server, Work, by_account, numbered};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use oncedb::http::{Attempt, Finished, IdempotencyLayer, Rule, WebhookLayer};
use oncedb::{Cause, Settled, Store};
use std::convert::Infallible;
use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::sync::Notify;
use tower_layer::Layer;
use tower_service::Service;

#[track_caller]
fn assert_retried(attempt: &Attempt) {
    let previous = attempt.previous().expect("a later attempt is told of the one before");
    assert_eq!((attempt.number(), previous.attempt, previous.cause), (2, 1, Cause::Aborted));
}

/// A handler that panics frees the key; the panic goes on to the server.
#[test]
fn a_handler_that_panics_frees_the_key() {
    let api = Api::start(
        |layer| layer,
        |run, request| if run == 1 { panic!("the first run panics") } else { numbered(run, request) },
    );
    let headers = [("idempotency-key", "k"), ("x-account", "a")];
    assert!(api.client.try_send("POST", "/orders", &headers, "{}").is_none(), "no reply comes");
    api.client.post("k", "{}").expect(201, "run 2 of /orders");
    api.entered.next();
    assert_retried(&api.entered.next());
    assert!(api.client.post("k", "{}").is_replayed());
}

/// The same behind the layer for webhooks.
#[test]
fn a_receiver_that_panics_frees_the_event() {
    let place = Place::new();
    let scope = place.open().scope("events").expect("the scope opens");
    let (work, entered) =
        Work::new(
            |run, request| {
                if run == 1 { panic!("the first run panics") } else { numbered(run, request) }
            },
        );
    work.open_gate(OPEN);
    let server = Server::start(work.routes().layer(WebhookLayer::new(scope)));
    let client = server.client();
    assert!(client.try_send("POST", "/hook", &[("webhook-id", "e")], "").is_none(), "no reply comes");
    client.send("POST", "/hook", &[("webhook-id", "e")], "").expect(201, "run 2 of /hook");
    entered.next();
    assert_retried(&entered.next());
    client.send("POST", "/hook", &[("webhook-id", "e")], "").expect(200, "");
}

/// A handler whose time is up answers a 5xx, which frees the key.
#[test]
fn a_handler_that_times_out_frees_the_key() {
    let place = Place::new();
    let scope = place.open().scope("api").expect("the scope opens");
    let (runs, time_is_up) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let handler = {
        let time_is_up = Arc::clone(&time_is_up);
        move || async move {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            let work = async {
                if run == 1 {
                    std::future::pending::<()>().await;
                }
                (StatusCode::CREATED, format!("run {run}"))
            };
            tokio::select! {
                reply = work => reply.into_response(),
                () = time_is_up.notified() => StatusCode::GATEWAY_TIMEOUT.into_response(),
            }
        }
    };
    let server = Server::start(Router::new().route("/orders", post(handler)).layer(by_account(scope)));
    // The permit is kept until the handler waits for it.
    time_is_up.notify_one();
    assert_eq!(server.client().post("k", "{}").status, 504);
    server.client().post("k", "{}").expect(201, "run 2");
    assert!(server.client().post("k", "{}").is_replayed());
}

/// A client that hangs up cancels the handler and frees the key.
#[test]
fn a_client_that_hangs_up_frees_the_key() {
    let api = Api::shut(|layer| layer, numbered);
    let stream = raw::connect(
        &api.server,
        "POST /orders HTTP/1.1\r\nhost: h\r\nidempotency-key: k\r\nx-account: a\r\ncontent-length: 2\r\n\r\n{}",
    );
    let attempt = api.entered.next();
    let running = in_progress(api.scope.begin(attempt.id()));
    drop(stream);
    let settled = running.wait(PATIENCE).expect("the store answers");
    assert!(matches!(settled, Settled::Released), "{settled:?}");
    api.work.open_gate(OPEN);
    api.client.post("k", "{}").expect(201, "run 2 of /orders");
    assert_retried(&api.entered.next());
    // The first attempt has nothing left to say.
    assert!(attempt.renew().is_err());
}

/// The same behind the layer for webhooks.
#[test]
fn a_sender_that_hangs_up_frees_the_event() {
    let place = Place::new();
    let scope = place.open().scope("events").expect("the scope opens");
    let (work, entered) = Work::counting();
    let server = Server::start(work.routes().layer(WebhookLayer::new(scope.clone())));
    let stream =
        raw::connect(&server, "POST /hook HTTP/1.1\r\nhost: h\r\nwebhook-id: e\r\ncontent-length: 0\r\n\r\n");
    entered.next();
    let running = in_progress(scope.begin("e"));
    drop(stream);
    let settled = running.wait(PATIENCE).expect("the store answers");
    assert!(matches!(settled, Settled::Released), "{settled:?}");
    work.open_gate(OPEN);
    server.client().send("POST", "/hook", &[("webhook-id", "e")], "").expect(201, "run 2");
    assert_retried(&entered.next());
}

/// A service without a server. Its first run goes wrong.
#[derive(Clone)]
struct Unlucky {
    runs: Arc<AtomicU32>,
    /// The first run never ends; else it fails, as it does inside of a timeout.
    hangs: bool,
}

const TIME_IS_UP: &str = "its time is up";

impl<B> Service<Request<B>> for Unlucky {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, &'static str>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        if run == 1 && self.hangs {
            return Box::pin(std::future::pending());
        }
        if run == 2 {
            assert_retried(request.extensions().get::<Attempt>().expect("every new run has one"));
        }
        let reply = Response::builder().status(StatusCode::CREATED).body(Body::empty());
        Box::pin(ready(if run == 1 { Err(TIME_IS_UP) } else { Ok(reply.expect("a response")) }))
    }
}

/// What comes of a first run that goes wrong and of two deliveries after it, and how often the service ran.
fn statuses_after_bad_luck<L, R>(hangs: bool, layer: &L) -> ([u16; 2], u32)
where
    L: Layer<Unlucky>,
    L::Service: Service<Request<Body>, Response = Response<R>, Error = &'static str>,
{
    let runs = Arc::new(AtomicU32::new(0));
    let mut service = layer.layer(Unlucky { runs: Arc::clone(&runs), hangs });
    let mut call = || {
        let request = Request::post("/").header("webhook-id", "e").header("idempotency-key", "k");
        service.call(request.body(Body::empty()).expect("a request"))
    };
    if hangs {
        let mut first = Box::pin(call());
        assert!(poll_once(first.as_mut()).is_pending());
        assert!(poll_once(first.as_mut()).is_pending());
    } else {
        assert_eq!(block_on(call()).err(), Some(TIME_IS_UP), "the service's own error goes on");
    }
    let statuses = [(); 2].map(|()| block_on(call()).expect("it succeeds").status().as_u16());
    (statuses, runs.load(Ordering::SeqCst))
}

/// The second run completes, behind both layers; the delivery after it is a duplicate.
fn assert_bad_luck_frees_the_key(hangs: bool) {
    let scope = Place::new().open().scope("s").expect("the scope opens");
    assert_eq!(statuses_after_bad_luck(hangs, &WebhookLayer::new(scope.clone())), ([201, 200], 2));
    let keys = IdempotencyLayer::new(scope, |_| Some("a"));
    assert_eq!(statuses_after_bad_luck(hangs, &keys), ([201, 201], 2));
}

/// A timeout inside of the layer makes the service fail: the error goes on and the key is free.
#[test]
fn a_service_that_fails_frees_the_key() {
    assert_bad_luck_frees_the_key(false);
}

/// A timeout around the layer drops its future: the key is free.
#[test]
fn a_call_that_is_dropped_frees_the_key() {
    assert_bad_luck_frees_the_key(true);
}

/// A reply that tells, when it goes, how many claims are in progress.
struct Watching {
    store: Store,
    running: Arc<AtomicU64>,
}

impl http_body::Body for Watching {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("the body fails")
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(3)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.running.store(self.store.stats().in_progress, Ordering::SeqCst);
    }
}

/// A panic after the handler has answered, in a rule of the caller's or in the body, frees the key after what the
/// reply holds is gone: a retry must not meet it.
#[test]
fn what_a_reply_holds_is_gone_before_its_key_is_free() {
    let panics = |_: &Finished<'_>| -> bool { panic!("the rule fails") };
    for rule in [Rule::new(panics), Rule::new(|_| true)] {
        let place = Place::new();
        let store = place.open();
        let running = Arc::new(AtomicU64::new(u64::MAX));
        let handler = {
            let (store, running) = (store.clone(), Arc::clone(&running));
            async move || Response::new(Body::new(Watching { store, running }))
        };
        let scope = store.scope("s").expect("the scope opens");
        let layer = IdempotencyLayer::new(scope, |_| Some("a")).keeps(rule);
        let mut service = layer.layer(post(handler));
        let request =
            Request::post("/").header("idempotency-key", "k").body(Body::empty()).expect("a request");
        let call = AssertUnwindSafe(|| block_on(service.call(request)).is_ok());
        catch_unwind(call).expect_err("the panic goes on");
        assert_eq!(running.load(Ordering::SeqCst), 1, "the claim, while the reply goes");
        assert_eq!(store.stats().in_progress, 0, "and after it");
    }
}
