//! The layer for the `Idempotency-Key` header.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::answer::{self, Answering, Verdict};
use super::attempt::{Owner, Terms};
use super::dialect::{Dialect, Refusal};
use super::fingerprint::Fingerprint;
use super::headers::{self, Chosen};
use super::key::{self, NoKey};
use super::recorder::{Recorder, Recording, promised_len};
use super::reply_body::{BodyError, ReplyBody};
use super::request_body::{Buffered, NotBuffered, RequestBody, buffer};
use super::rule::{Finished, Rule};
use super::stored::StoredReply;
use crate::error::Error;
use crate::outcome::{Outcome, Record};
use crate::scope::Scope;

/// Makes requests with an `Idempotency-Key` header safe to send again: for APIs.
///
/// The first request with a key runs, and its reply (status, headers, body, trailers) is stored. The same
/// request again gets that reply with `Idempotent-Replayed: true`. Another request under the same key is
/// refused, and so is a second one while the first runs. Once the window is over the key is new. What the
/// refusals look like is a [`Dialect`]; the IETF draft's by default.
///
/// - **Whose key.** `principal` says who calls: an account, a tenant, from what your authentication has put
///   into the request. A key belongs to its principal, so no caller gets another one's reply. It is stored with
///   the key: give a name that stays, not a credential. `None` is answered 401. An API without callers gives one
///   principal for all: `|_| Some("")`.
/// - **Which requests.** `POST` and `PATCH` with the header. Without it they pass as they are, or are
///   answered 400 after [`required`](Self::required).
/// - **Which key.** A quoted string after RFC 8941, as the draft has it, or a bare value; 1 to 255 printable
///   ASCII characters. Quoted and bare are one key.
/// - **Which request is the same.** SHA-256 over method, path, query and body: [`Fingerprint::of_request`], which
///   says what to do inside of a router's nest. The body is buffered for it, up to [`request_limit`](Self::request_limit).
/// - **Which replies are kept.** 2xx and 4xx but for those that ask to be tried again (408, 425, 429):
///   [`Rule::final_answers`]. Every other one, a panic, a time-out and a client that hangs up free the key. A 4xx is kept as a refusal:
///   [`Record::is_refusal`](crate::Record::is_refusal).
/// - **What is kept.** All headers but cookies, credentials, those marked as sensitive, those about the
///   connection, `Content-Length` and `Date`; [`headers`](Self::headers) narrows that. A body up to
///   [`reply_limit`](Self::reply_limit), and no more than the store's `max_response_len` in all. A longer one
///   passes through, and its repetition is answered that the request was done and the reply not kept (410).
/// - **When.** Nothing is told before it is durable. A reply of known length within the limit is collected,
///   stored, then sent; if storing fails the answer is 503. Any other one streams, and its last frame is held back
///   until it is stored; if that fails, the body breaks. A body that breaks, that is not as long as its
///   `Content-Length` says, or whose client goes away, frees the key. (Over HTTP/1.0 a streaming reply that breaks
///   looks like one that ends.)
///
/// ```
/// # use axum::{Router, routing::post};
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// use oncedb::http::IdempotencyLayer;
///
/// #[derive(Clone)]
/// struct Account(String); // what your authentication puts into the extensions
///
/// let layer = IdempotencyLayer::new(store.scope("api")?, |head| {
///     head.extensions.get::<Account>().map(|account| account.0.clone())
/// });
/// let app: Router = Router::new()
///     .route("/payments", post(async || "paid").layer(layer.clone().required()))
///     .route("/notes", post(async || "noted").layer(layer));
/// # let _ = app;
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct IdempotencyLayer {
    config: Arc<Config>,
}

type Principal = dyn Fn(&Parts) -> Option<Vec<u8>> + Send + Sync;

#[derive(Clone)]
struct Config {
    scope: Scope,
    principal: Arc<Principal>,
    header: HeaderName,
    required: bool,
    methods: Arc<dyn Fn(&Method) -> bool + Send + Sync>,
    dialect: Dialect,
    fingerprint: Fingerprint,
    keeps: Rule,
    headers: Arc<Chosen>,
    request_limit: usize,
    reply_limit: usize,
    terms: Terms,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("scope", &self.scope)
            .field("header", &self.header)
            .field("required", &self.required)
            .field("dialect", &self.dialect)
            .field("request_limit", &self.request_limit)
            .field("reply_limit", &self.reply_limit)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}

const REQUEST_LIMIT: usize = 1 << 20;
const REPLY_LIMIT: usize = 256 << 10;

impl IdempotencyLayer {
    /// `principal` says whose key a request has; `None` is answered 401.
    pub fn new<P: AsRef<[u8]>>(
        scope: Scope,
        principal: impl Fn(&Parts) -> Option<P> + Send + Sync + 'static,
    ) -> Self {
        let config = Config {
            scope,
            principal: Arc::new(move |parts| principal(parts).map(|principal| principal.as_ref().to_vec())),
            header: HeaderName::from_static("idempotency-key"),
            required: false,
            methods: Arc::new(|method| matches!(*method, Method::POST | Method::PATCH)),
            dialect: Dialect::draft(),
            fingerprint: Fingerprint::of_request(),
            keeps: Rule::final_answers(),
            headers: Arc::new(|_| true),
            request_limit: REQUEST_LIMIT,
            reply_limit: REPLY_LIMIT,
            terms: Terms::default(),
        };
        Self { config: Arc::new(config) }
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// A request without a key is answered 400.
    #[must_use]
    pub fn required(self) -> Self {
        self.with(|config| config.required = true)
    }

    /// A request without a key passes as it is. The default.
    #[must_use]
    pub fn optional(self) -> Self {
        self.with(|config| config.required = false)
    }

    /// The header that the key is in: `Idempotency-Key` by default.
    #[must_use]
    pub fn header(self, name: HeaderName) -> Self {
        self.with(|config| config.header = name)
    }

    /// Requests of which methods have a key: `POST` and `PATCH` by default. Others pass as they are.
    #[must_use]
    pub fn methods(self, methods: impl Fn(&Method) -> bool + Send + Sync + 'static) -> Self {
        self.with(|config| config.methods = Arc::new(methods))
    }

    /// How the answers of the layer are worded: [`Dialect::draft`] by default.
    #[must_use]
    pub fn dialect(self, dialect: Dialect) -> Self {
        self.with(|config| config.dialect = dialect)
    }

    /// What makes two requests the same: [`Fingerprint::of_request`] by default.
    #[must_use]
    pub fn fingerprint(self, fingerprint: Fingerprint) -> Self {
        self.with(|config| config.fingerprint = fingerprint)
    }

    /// Which replies are kept: [`Rule::final_answers`] by default. Every other one frees the key.
    #[must_use]
    pub fn keeps(self, rule: Rule) -> Self {
        self.with(|config| config.keeps = rule)
    }

    /// Which headers of a reply are stored: all, by default. Those that are never stored are not asked
    /// about.
    #[must_use]
    pub fn headers(self, stored: impl Fn(&HeaderName) -> bool + Send + Sync + 'static) -> Self {
        self.with(|config| config.headers = Arc::new(stored))
    }

    /// The longest body of a request, in bytes; 1 MiB by default. A longer one is answered 413.
    #[must_use]
    pub fn request_limit(self, bytes: usize) -> Self {
        self.with(|config| config.request_limit = bytes)
    }

    /// The longest body of a reply that is kept, in bytes; 256 KiB by default. The store's
    /// [`max_response_len`](crate::Options::max_response_len) bounds body and headers together.
    #[must_use]
    pub fn reply_limit(self, bytes: usize) -> Self {
        self.with(|config| config.reply_limit = bytes)
    }

    /// How long a reply is kept: 1 second to 100 years. The scope's window by default.
    #[must_use]
    pub fn window(self, length: Duration) -> Self {
        self.with(|config| config.terms.window = Some(length))
    }

    /// After how long another request may take over from a handler that has not ended; the scope's lease by
    /// default. See [`Request::lease`](crate::Request::lease).
    #[must_use]
    pub fn lease(self, length: Duration) -> Self {
        self.with(|config| config.terms.lease = Some(length))
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency { inner, config: Arc::clone(&self.config) }
    }
}

/// The service of [`IdempotencyLayer`].
#[derive(Clone, Debug)]
pub struct Idempotency<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S, B, R> Service<Request<B>> for Idempotency<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body + Send + 'static,
    R: Body + Send + 'static,
    R::Error: Into<BodyError>,
{
    type Response = Response<ReplyBody<R>>;
    type Error = S::Error;
    type Future = Answering<R, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = answer::take_ready(&mut self.inner);
        let config = Arc::clone(&self.config);
        Answering::new(config.answer(inner, request))
    }
}

/// A refusal, and the verdict to log.
struct Refused(Refusal, Verdict);

impl Config {
    fn refuse<R>(&self, Refused(refusal, verdict): &Refused) -> Response<ReplyBody<R>> {
        answer::own(self.dialect.answer(refusal), *verdict)
    }

    fn unavailable<R>(&self, error: Error) -> Response<ReplyBody<R>> {
        let refused = if answer::is_callers_fault(&error) {
            let reason = "with the name of the caller it is longer than what the store takes";
            Refused(Refusal::KeyInvalid { reason }, Verdict::Refused)
        } else {
            Refused(Refusal::Unavailable, Verdict::Failed)
        };
        answer::failed(self.refuse(&refused), error)
    }

    /// The id of a request; `None` for one that has none and needs none.
    fn id(&self, parts: &Parts) -> Result<Option<Vec<u8>>, Refused> {
        if !(self.methods)(&parts.method) {
            return Ok(None);
        }
        let key = match key::of(&parts.headers, &self.header) {
            Ok(key) => key,
            Err(NoKey::Missing) if !self.required => return Ok(None),
            Err(NoKey::Missing) => return Err(Refused(Refusal::KeyMissing, Verdict::Refused)),
            Err(NoKey::Invalid(reason)) => {
                return Err(Refused(Refusal::KeyInvalid { reason }, Verdict::Refused));
            }
        };
        let principal = (self.principal)(parts).ok_or(Refused(Refusal::NoPrincipal, Verdict::Refused))?;
        Ok(Some(key::compose(&principal, &key)))
    }

    /// Not an `async fn`, which would hold its arguments twice: a small future is a cheap one.
    fn answer<S, B, R>(
        self: Arc<Self>,
        mut inner: S,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<ReplyBody<R>>, S::Error>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        B: Body,
        R: Body,
        R::Error: Into<BodyError>,
    {
        let (mut parts, body) = request.into_parts();
        async move {
            let id = match self.id(&parts) {
                Ok(Some(id)) => id,
                Ok(None) => {
                    let passed = inner.call(Request::from_parts(parts, RequestBody::original(body)));
                    return Ok(answer::pass(passed.await?, Verdict::Passed));
                }
                Err(refused) => return Ok(self.refuse(&refused)),
            };
            let (fingerprint, body) = if self.fingerprint.needs_body() {
                match buffer(body, self.request_limit).await {
                    Ok(whole) => (self.fingerprint.of(&parts, &whole.data), RequestBody::buffered(whole)),
                    Err(NotBuffered::TooLarge) => {
                        let refusal = Refusal::BodyTooLarge { limit: self.request_limit };
                        return Ok(self.refuse(&Refused(refusal, Verdict::Refused)));
                    }
                    Err(NotBuffered::Broken) => {
                        return Ok(self.refuse(&Refused(Refusal::BodyBroken, Verdict::Refused)));
                    }
                }
            } else {
                (self.fingerprint.of(&parts, &[]), RequestBody::original(body))
            };
            let request = self.terms.request(&self.scope, &id, fingerprint.as_deref());
            let guard = match request.begin_async().await {
                Ok(Outcome::New(guard)) => guard,
                Ok(Outcome::Duplicate(record)) => return Ok(self.replay(&record)),
                Ok(Outcome::InProgress(running)) => {
                    let refusal = Refusal::InProgress { retry_after: running.retry_after() };
                    return Ok(self.refuse(&Refused(refusal, Verdict::InProgress)));
                }
                Ok(Outcome::Mismatch(_)) => {
                    return Ok(self.refuse(&Refused(Refusal::Mismatch, Verdict::Mismatch)));
                }
                // Not without an order, which is never asked for here.
                Ok(Outcome::Stale(_)) => {
                    return Ok(self.refuse(&Refused(Refusal::Unavailable, Verdict::Failed)));
                }
                Err(error) => return Ok(self.unavailable(error)),
            };
            // From here on the owner's end, however it comes, frees the key.
            let (owner, attempt) = Owner::new(guard);
            let is_head = parts.method == Method::HEAD;
            parts.extensions.insert(attempt);
            let response = inner.call(Request::from_parts(parts, body)).await?;
            Ok(self.record(owner, response, is_head).await)
        }
    }

    /// Stores the reply, before or while it is sent.
    fn record<R>(
        &self,
        owner: Owner,
        response: Response<R>,
        is_head: bool,
    ) -> impl Future<Output = Response<ReplyBody<R>>>
    where
        R: Body,
        R::Error: Into<BodyError>,
    {
        let (head, body) = response.into_parts();
        async move {
            // Declared in this order, the body goes before its key is free, wherever this ends.
            let (owner, body) = (owner, body);
            let promised = promised_len(&head.headers, &body);
            if !self.keeps.completes(&Finished {
                status: head.status,
                headers: &head.headers,
                trailers: None,
            }) {
                drop(owner);
                return answer::pass(Response::from_parts(head, body), Verdict::Freed);
            }
            // A closed store fails the completion.
            let stored_limit = self.scope.open().map_or(0, |(_, engine)| engine.options().max_response_len);
            let recording = Recording {
                owner,
                rule: self.keeps.clone(),
                status: head.status,
                chosen: Arc::clone(&self.headers),
                body_limit: self.reply_limit,
                stored_limit,
            };
            let whole = if is_head || has_no_body(head.status) {
                // A server drops this body without looking into it.
                Buffered::default()
            } else if promised.is_some_and(|len| len <= self.reply_limit as u64) {
                match buffer(body, self.reply_limit).await {
                    Ok(whole) if promised == Some(whole.data.len() as u64) => whole,
                    // The recording goes, and with it the owner: the key is free.
                    Ok(_) | Err(NotBuffered::TooLarge | NotBuffered::Broken) => {
                        return self.refuse(&Refused(Refusal::ReplyBroken, Verdict::Failed));
                    }
                }
            } else {
                let recorder = Recorder::new(body, promised, recording, head.headers.clone());
                return answer::marked(
                    Response::from_parts(head, ReplyBody::recorded(recorder)),
                    Verdict::Done,
                );
            };
            let len = whole.data.len() as u64;
            let trailers = whole.trailers.as_deref();
            let verdict = match recording.complete(&head.headers, Some(&whole.data), len, trailers) {
                None => Verdict::Freed,
                Some(completion) => match completion.await {
                    Ok(()) => Verdict::Done,
                    Err(error) => return self.unavailable(error),
                },
            };
            answer::marked(Response::from_parts(head, ReplyBody::whole(whole)), verdict)
        }
    }

    /// The stored reply, or an answer that says that it was not kept.
    fn replay<R>(&self, record: &Record) -> Response<ReplyBody<R>> {
        let stored = record.stored_response();
        let (status, len) = match stored.as_deref().map(StoredReply::decode) {
            Some(Some(StoredReply::Kept(reply))) => {
                let whole = Buffered { data: reply.body, trailers: reply.trailers.map(Box::new) };
                let mut response = Response::new(ReplyBody::whole(whole));
                *response.status_mut() = reply.status;
                *response.headers_mut() = reply.headers;
                return replayed(answer::marked(response, Verdict::Duplicate));
            }
            Some(Some(StoredReply::Omitted { status, len })) => (Some(status), Some(len)),
            // What another version has written is as good as not kept, and a store without room, which left
            // it out, knows no length of a body.
            Some(None) | None => (None, None),
        };
        replayed(self.refuse(&Refused(Refusal::ReplyNotKept { status, len }, Verdict::Duplicate)))
    }
}

fn replayed<B>(mut response: Response<B>) -> Response<B> {
    response.headers_mut().insert(headers::REPLAYED, HeaderValue::from_static("true"));
    response
}

/// Whether a reply with this status has no body, whatever the service has given it.
fn has_no_body(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}
