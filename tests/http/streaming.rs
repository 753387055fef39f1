//! Replies frame by frame, with no server in between: what is held back, until when, and what becomes of the key.

use crate::common::{Place, block_on, poll_once};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use oncedb::http::{IdempotencyLayer, ReplyBody, RequestBody, StoreError, Verdict, WebhookLayer};
use oncedb::simulation::{Call, Fault, FaultKind, MemoryDisk};
use oncedb::{Durability, Error, Scope, Store};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// A body that does what a test has written down.
#[derive(Debug)]
pub struct Script {
    steps: VecDeque<Step>,
    size: Option<u64>,
    /// Whether it says so when nothing follows.
    tells_end: bool,
}

#[derive(Debug)]
enum Step {
    Data(Bytes),
    Trailers(HeaderMap),
    Error,
    /// Pending at this poll, and woken.
    Wait,
}

impl Script {
    /// Of a length that nobody knows.
    pub fn unknown() -> Self {
        Self { steps: VecDeque::new(), size: None, tells_end: false }
    }

    pub fn known(size: u64) -> Self {
        Self { size: Some(size), ..Self::unknown() }
    }

    fn telling_its_end(mut self) -> Self {
        self.tells_end = true;
        self
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push_back(step);
        self
    }

    pub fn data(self, data: impl Into<Bytes>) -> Self {
        self.step(Step::Data(data.into()))
    }

    pub fn trailers(self, name: &'static str, value: &'static str) -> Self {
        let mut trailers = HeaderMap::new();
        trailers.insert(name, HeaderValue::from_static(value));
        self.step(Step::Trailers(trailers))
    }

    pub fn error(self) -> Self {
        self.step(Step::Error)
    }

    fn wait(self) -> Self {
        self.step(Step::Wait)
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(Some(match self.steps.pop_front() {
            None => return Poll::Ready(None),
            Some(Step::Data(data)) => {
                self.size = self.size.map(|size| size - data.len() as u64);
                Ok(Frame::data(data))
            }
            Some(Step::Trailers(trailers)) => Ok(Frame::trailers(trailers)),
            Some(Step::Error) => Err(io::Error::other("the script says so")),
            Some(Step::Wait) => {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.tells_end && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.size.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// An inner service that answers each call with what `reply` makes.
#[derive(Clone)]
struct Answers<F>(F);

impl<F> Service<Request<RequestBody<Script>>> for Answers<F>
where
    F: FnMut() -> Response<Script>,
{
    type Response = Response<Script>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Script>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody<Script>>) -> Self::Future {
        ready(Ok((self.0)()))
    }
}

type Reply = Response<ReplyBody<Script>>;

fn request(body: Script) -> Request<Script> {
    let request = Request::post("/orders").header("idempotency-key", "k").header("webhook-id", "k");
    request.body(body).expect("a request")
}

/// The id of key `k` of the principal without a name.
const ID: &[u8] = b"\0k";

fn layer(scope: &Scope) -> IdempotencyLayer {
    IdempotencyLayer::new(scope.clone(), |_| Some("")).reply_limit(8)
}

fn ask(
    layer: &IdempotencyLayer,
    reply: impl FnMut() -> Response<Script> + Clone + Send + 'static,
    body: Script,
) -> Reply {
    block_on(layer.layer(Answers(reply)).call(request(body))).expect("it is infallible")
}

/// A reply with this body to a new request.
fn answer(scope: &Scope, body: impl Fn() -> Script + Clone + Send + 'static) -> Reply {
    ask(&layer(scope), move || Response::new(body()), Script::known(0))
}

/// What is replayed now; panics if the inner service is asked.
fn replay(scope: &Scope) -> Reply {
    ask(&layer(scope), || panic!("a duplicate does not run"), Script::known(0))
}

/// What the next frame is, as text.
fn next(reply: &mut Reply) -> Option<Result<String, oncedb::http::BodyError>> {
    let frame = block_on(poll_fn(|context| Pin::new(&mut *reply.body_mut()).poll_frame(context)))?;
    Some(frame.map(|frame| match frame.into_data() {
        Ok(data) => String::from_utf8(data.to_vec()).expect("text"),
        Err(frame) => format!("{:?}", frame.into_trailers().expect("data or trailers")),
    }))
}

fn text(reply: &mut Reply) -> String {
    let mut text = String::new();
    while let Some(frame) = next(reply) {
        text += &frame.expect("the body does not break");
    }
    text
}

fn is_done(scope: &Scope) -> bool {
    scope.contains(ID).expect("the store answers")
}

fn is_held(store: &Store) -> bool {
    store.stats().in_progress == 1
}

/// A store on a disk that can be told to fail.
fn failing() -> (MemoryDisk, Store, Scope) {
    let disk = MemoryDisk::new(1);
    let store = Store::options().disk(&disk).open("store").expect("the store opens");
    let scope = store.scope("api").expect("the scope opens");
    (disk, store, scope)
}

fn place() -> (Place, Store, Scope) {
    let place = Place::new();
    let store = place.open();
    let scope = store.scope("api").expect("the scope opens");
    (place, store, scope)
}

/// Everything that was sent before the end of a stream reaches the client at once; the end comes when the
/// completion is durable, and not before.
#[test]
fn the_end_of_a_stream_waits_for_the_completion() {
    let (_place, store, scope) = place();
    let mut reply = answer(&scope, || Script::unknown().data("a").wait().data("b"));
    assert_eq!(next(&mut reply).expect("a frame").expect("no error"), "a");
    assert_eq!(next(&mut reply).expect("a frame").expect("no error"), "b");
    assert!(!is_done(&scope) && is_held(&store), "until the end nothing is final");
    assert!(!reply.body().is_end_stream());
    assert!(next(&mut reply).is_none());
    assert!(is_done(&scope) && reply.body().is_end_stream());
    assert_eq!(text(&mut replay(&scope)), "ab");
}

/// Where the last frame is known to be the last, by the length or by what the body says, it is held back until
/// the completion is durable: a server would not ask again.
#[test]
fn the_last_frame_waits_for_the_completion() {
    let by_length: fn() -> Script = || Script::known(10).data("12345").data("67890");
    let by_word: fn() -> Script = || Script::unknown().data("12345").data("67890").telling_its_end();
    for script in [by_length, by_word] {
        let (disk, _store, scope) = failing();
        let mut reply = answer(&scope, script);
        assert_eq!(next(&mut reply).expect("a frame").expect("no error"), "12345");
        disk.inject(Fault::new(FaultKind::Io).on(Call::Sync).lasting());
        let error = next(&mut reply).expect("the body breaks").expect_err("no last frame");
        assert!(error.downcast_ref::<Error>().is_some_and(Error::needs_reopen), "{error}");
        assert!(next(&mut reply).is_none(), "nothing follows");
    }
}

/// A `Content-Length` in the head is a promise like the length of the body: the frame that keeps it waits for the
/// completion, also if empty frames follow, and within the limit such a reply is collected.
#[test]
fn a_length_in_the_head_is_a_promise() {
    fn with_length(len: &'static str, body: Script) -> Response<Script> {
        Response::builder().header("content-length", len).body(body).expect("a response")
    }
    let long = || with_length("10", Script::unknown().data("12345").data("67890"));
    let empty = || with_length("10", Script::unknown().data("12345").data("67890").data(""));
    let by_body = || Response::new(Script::known(10).data("12345").data("67890").data(""));
    for reply in [long as fn() -> Response<Script>, empty, by_body] {
        let (disk, store, scope) = failing();
        let mut reply = ask(&layer(&scope), reply, Script::known(0));
        assert_eq!(next(&mut reply).expect("a frame").expect("no error"), "12345");
        assert!(is_held(&store));
        disk.inject(Fault::new(FaultKind::Io).on(Call::Sync).lasting());
        let error = next(&mut reply).expect("the body breaks").expect_err("no last frame");
        assert!(error.downcast_ref::<Error>().is_some_and(Error::needs_reopen), "{error}");
    }
    let (_place, _store, scope) = place();
    let short = || with_length("4", Script::unknown().data("do").wait().data("ne"));
    let mut reply = ask(&layer(&scope), short, Script::known(0));
    assert!(is_done(&scope), "before its head is sent");
    assert_eq!(text(&mut reply), "done");
    assert_eq!(text(&mut replay(&scope)), "done");
}

/// A reply that is not as long as it promised, within the limit of what is kept or over it, breaks before its last
/// frame and frees the key.
#[test]
fn a_reply_of_another_length_than_promised_frees_the_key() {
    for (promised, frames) in [("4", 3), ("6", 3), ("14", 5), ("16", 5), ("9", 3), ("5", 5)] {
        let (_place, store, scope) = place();
        let script = move || (0..frames).fold(Script::unknown(), |script, _| script.data("abc"));
        let inner = move || {
            Response::builder().header("content-length", promised).body(script()).expect("a response")
        };
        let right = promised.parse() == Ok(3 * frames);
        let mut reply = ask(&layer(&scope), inner, Script::known(0));
        let mut broken = reply.status() == StatusCode::INTERNAL_SERVER_ERROR;
        let mut sent = 0;
        while let Some(frame) = (!broken).then(|| next(&mut reply)).flatten() {
            match frame {
                Ok(data) => sent += data.len(),
                Err(_) => broken = true,
            }
        }
        assert_eq!((broken, is_done(&scope), is_held(&store)), (!right, right, false), "{promised}");
        assert!(right || sent < promised.parse().expect("a number"), "{promised}: it must not look whole");
    }
}

/// The last frame comes through, with the length it was promised with, once the completion is durable.
#[test]
fn a_long_reply_of_known_length_comes_whole() {
    let (_place, _store, scope) = place();
    let mut reply = answer(&scope, || Script::known(10).data("12345").wait().data("67890"));
    assert_eq!(reply.body().size_hint().exact(), Some(10));
    assert_eq!(next(&mut reply).expect("a frame").expect("no error"), "12345");
    assert_eq!(reply.body().size_hint().exact(), Some(5));
    assert!(!is_done(&scope));
    assert_eq!(next(&mut reply).expect("a frame").expect("no error"), "67890");
    assert!(is_done(&scope) && reply.body().is_end_stream());
    assert_eq!(replay(&scope).status(), StatusCode::GONE, "it is longer than what is kept");
}

/// Trailers are recorded, held back like a last frame, and replayed.
#[test]
fn trailers_are_replayed() {
    let (_place, _store, scope) = place();
    let mut reply = answer(&scope, || Script::unknown().data("a").trailers("grpc-status", "0"));
    assert_eq!(next(&mut reply).expect("a frame").expect("no error"), "a");
    assert!(!is_done(&scope));
    let trailers = next(&mut reply).expect("a frame").expect("no error");
    assert!(is_done(&scope) && trailers.contains("grpc-status"), "{trailers}");
    let mut again = replay(&scope);
    assert_eq!(next(&mut again).expect("a frame").expect("no error"), "a");
    assert_eq!(next(&mut again).expect("a frame").expect("no error"), trailers);
    assert!(next(&mut again).is_none());
}

/// What is never stored of the headers is never stored of the trailers.
#[test]
fn secrets_in_trailers_are_not_stored() {
    let (_place, _store, scope) = place();
    let mut reply = answer(&scope, || Script::unknown().data("a").trailers("set-cookie", "secret"));
    assert!(text(&mut reply).contains("secret"), "they reach the first caller");
    assert!(!text(&mut replay(&scope)).contains("secret"));
}

/// A gRPC reply whose trailers tell of a passing error frees the key.
#[test]
fn trailers_that_tell_of_a_passing_error_free_the_key() {
    let (_place, store, scope) = place();
    let mut reply = answer(&scope, || Script::unknown().data("a").trailers("grpc-status", "14"));
    assert!(text(&mut reply).contains("14"), "the error reaches the client");
    assert!(!is_done(&scope) && !is_held(&store));
}

/// A body that breaks while it is recorded, or while it is collected, frees the key.
#[test]
fn a_body_that_breaks_frees_the_key() {
    let (_place, store, scope) = place();
    let mut reply = answer(&scope, || Script::unknown().data("a").error());
    assert_eq!(next(&mut reply).expect("a frame").expect("no error"), "a");
    assert!(is_held(&store));
    next(&mut reply).expect("the body breaks").expect_err("with the script's error");
    assert!(!is_done(&scope) && !is_held(&store));

    let collected = answer(&scope, || Script::known(5).data("a").error());
    assert_eq!(collected.status(), StatusCode::INTERNAL_SERVER_ERROR, "its 200 was not sent yet");
    assert_eq!(collected.extensions().get(), Some(&Verdict::Failed));
    assert!(!is_done(&scope) && !is_held(&store));
}

/// A body that is dropped before its end, as by a server whose client hung up, frees the key, although all
/// frames but the end are gone out.
#[test]
fn a_body_that_is_dropped_frees_the_key() {
    let (_place, store, scope) = place();
    let mut reply = answer(&scope, || Script::unknown().data("a"));
    assert_eq!(next(&mut reply).expect("a frame").expect("no error"), "a");
    drop(reply);
    assert!(!is_done(&scope) && !is_held(&store));
    assert_eq!(text(&mut answer(&scope, || Script::unknown().data("again"))), "again");
}

/// A short reply whose completion fails is a 503, never a 2xx; the error is in the extensions.
#[test]
fn a_completion_that_fails_is_503() {
    let (disk, _store, scope) = failing();
    let inner = {
        let disk = disk.clone();
        move || {
            disk.inject(Fault::new(FaultKind::Io).on(Call::Sync).lasting());
            Response::new(Script::known(4).data("done"))
        }
    };
    let reply = ask(&layer(&scope), inner.clone(), Script::known(0));
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(reply.extensions().get::<StoreError>().is_some_and(|error| error.0.needs_reopen()));

    let (disk, _store, scope) = failing();
    let inner = move || {
        disk.inject(Fault::new(FaultKind::Io).on(Call::Sync).lasting());
        Response::new(Script::known(0))
    };
    let mut webhook = WebhookLayer::new(scope).layer(Answers(inner));
    let reply = block_on(webhook.call(request(Script::known(0)))).expect("it is infallible");
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reply.extensions().get(), Some(&Verdict::Failed));
}

/// A store that cannot answer, closed or poisoned, is a 503 and the inner service does not run.
#[test]
fn a_store_that_cannot_answer_is_503() {
    let (_place, store, scope) = place();
    store.close().expect("the store closes");
    let reply = replay(&scope);
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(matches!(&*reply.extensions().get::<StoreError>().expect("the error").0, Error::Closed { .. }));

    let (disk, _store, scope) = failing();
    disk.inject(Fault::new(FaultKind::Io).on(Call::Sync).lasting());
    assert!(scope.request("other").durability(Durability::Sync).claim().is_err());
    let mut webhook = WebhookLayer::new(scope).layer(Answers(|| panic!("it does not run")));
    let reply = block_on(webhook.call(request(Script::known(0)))).expect("it is infallible");
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
}

/// A request body that breaks while it is looked into has begun nothing.
#[test]
fn a_request_body_that_breaks_begins_nothing() {
    let (_place, store, scope) = place();
    let reply = ask(&layer(&scope), || panic!("it does not run"), Script::unknown().data("a").error());
    assert_eq!(reply.status(), StatusCode::BAD_REQUEST);
    assert!(!is_done(&scope) && !is_held(&store));
}

/// A call that is dropped before the inner service has answered frees the key; one that is dropped while it waits
/// for the disk is carried out.
#[test]
fn a_call_that_is_dropped_frees_the_key_or_is_carried_out() {
    let (_place, store, scope) = place();
    let inner = || Response::new(Script::known(4).wait().data("done"));
    let mut call = Box::pin(layer(&scope).layer(Answers(inner)).call(request(Script::known(0))));
    assert!(poll_once(call.as_mut()).is_pending(), "the body is on its way");
    assert!(is_held(&store));
    drop(call);
    assert!(!is_done(&scope) && !is_held(&store));

    let inner = || Response::new(Script::known(4).data("done"));
    let mut call = Box::pin(layer(&scope).layer(Answers(inner)).call(request(Script::known(0))));
    if poll_once(call.as_mut()).is_pending() {
        drop(call);
    }
    assert_eq!(text(&mut replay(&scope)), "done");
}
