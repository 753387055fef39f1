//! The layer for receivers of webhooks.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::answer::{self, Answering, Verdict};
use super::attempt::{Owner, Terms};
use super::convention::Convention;
use super::fingerprint::Fingerprint;
use super::patience::Patience;
use super::reply_body::ReplyBody;
use super::request_body::{NotBuffered, RequestBody, buffer};
use super::rule::{Finished, Rule};
use super::source::{Changed, Place, Seen, Source, Time};
use crate::guard::Guard;
use crate::outcome::{InProgress, Outcome, Settled};
use crate::scope::Scope;
use crate::timestamp::Timestamp;

/// Lets the inner service see each event once: for receivers of webhooks.
///
/// Of every request it takes the id (the header `webhook-id`, unless you say otherwise), and claims it in the
/// scope. The inner service runs for a new event only. Where its reply is a success (2xx, unless a
/// [`Rule`] of yours says otherwise) the claim is completed, durably before the head of the reply is
/// sent; else, and when the service panics, times out or is dropped because the sender hung up, the key is free
/// and the next delivery is new. Work that a reply does while its body streams would come after the
/// completion: do it before the head.
///
/// | the event | the answer |
/// |---|---|
/// | done before; older than what was applied to its entity | 200 |
/// | running, or another event of its entity is | 409 with `Retry-After`, at once or after a [`wait`](Self::wait) |
/// | same id, other fingerprint | 422 |
/// | no id; one that is too long; no time of change where an order is asked for | 400 |
/// | a body that has to be looked at and is too long | 413 |
/// | the store cannot answer, or could not make the completion durable | 503 |
///
/// **Put it inside of what verifies signatures**, so that only requests from the sender claim ids. The body is
/// buffered only if the id, the fingerprint, the entity or the time is in it.
///
/// The inner service finds an [`Attempt`](super::Attempt) in the extensions of the request, and whoever logs
/// finds a [`Verdict`] in those of the response.
///
/// ```
/// # use axum::{Router, routing::post};
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = oncedb::Store::open(dir.path())?;
/// use oncedb::http::{GITHUB, Place, STRIPE, WebhookLayer};
///
/// let stripe = WebhookLayer::of(store.scope("stripe")?, &STRIPE).entity(Place::Json("data.object.id"));
/// let github = WebhookLayer::of(store.scope("github")?, &GITHUB);
/// let app: Router = Router::new()
///     .route("/stripe", post(async || "done").layer(stripe))
///     .route("/github", post(async || "done").layer(github));
/// # let _ = app;
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct WebhookLayer {
    config: Arc<Config>,
}

#[derive(Clone, Debug)]
struct Config {
    scope: Scope,
    id: Source,
    changed: Option<Changed>,
    handshake: Option<(Source, &'static str)>,
    order: Option<(Source, Time)>,
    fingerprint: Option<Fingerprint>,
    completes: Rule,
    patience: Option<Patience>,
    body_limit: usize,
    terms: Terms,
}

/// The longest body that is looked into, unless another limit is set, in bytes.
const BODY_LIMIT: usize = 1 << 20;

impl WebhookLayer {
    /// The id is the header `webhook-id`, kept for the scope's window.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        let config = Config {
            scope,
            id: Place::Header("webhook-id").into(),
            changed: None,
            handshake: None,
            order: None,
            fingerprint: None,
            completes: Rule::success(),
            patience: None,
            body_limit: BODY_LIMIT,
            terms: Terms::default(),
        };
        Self { config: Arc::new(config) }
    }

    /// What a convention says: the id, how long to keep it, which requests are no events.
    #[must_use]
    pub fn of(scope: Scope, convention: &Convention) -> Self {
        let Convention { id, changed, window, handshake, .. } = *convention;
        Self::new(scope).with(|config| {
            config.id = id.into();
            config.changed = changed;
            config.terms.window = Some(window);
            config.handshake = handshake.map(|(place, value)| (place.into(), value));
        })
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Where the id is.
    #[must_use]
    pub fn id(self, id: impl Into<Source>) -> Self {
        self.with(|config| config.id = id.into())
    }

    /// What tells two events under one id apart; none by default. An event whose fingerprint is another
    /// one than that of its id is answered 422.
    #[must_use]
    pub fn fingerprint(self, fingerprint: Fingerprint) -> Self {
        self.with(|config| config.fingerprint = Some(fingerprint))
    }

    /// Orders the events of an entity by their time of change: see
    /// [`Request::order`](crate::Request::order). A request without an entity is not ordered; one with an
    /// entity and without a time is answered 400.
    #[must_use]
    pub fn order(self, entity: impl Into<Source>, time: impl Into<Time>) -> Self {
        self.with(|config| config.order = Some((entity.into(), time.into())))
    }

    /// Orders the events of an entity by the time of change that the convention names.
    ///
    /// # Panics
    ///
    /// If the convention names none, or the layer has no convention: use [`order`](Self::order).
    #[must_use]
    #[track_caller]
    pub fn entity(self, entity: impl Into<Source>) -> Self {
        let changed = self.config.changed;
        self.order(
            entity,
            changed.expect(
                "no convention says where the time of change is; use `order` with a time instead of `entity`",
            ),
        )
    }

    /// Which replies complete the claim: [`Rule::success`] by default.
    #[must_use]
    pub fn completes(self, rule: Rule) -> Self {
        self.with(|config| config.completes = rule)
    }

    /// Waits for an event in progress, at most for `bound`, instead of answering 409 at once. `sleep` is your
    /// runtime's timer: `tokio::time::sleep`, say.
    #[must_use]
    pub fn wait<F>(self, bound: Duration, sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.with(|config| config.patience = Some(Patience::new(bound, sleep)))
    }

    /// The longest body that is looked into, in bytes; 1 MiB by default. A longer one is answered 413.
    #[must_use]
    pub fn body_limit(self, bytes: usize) -> Self {
        self.with(|config| config.body_limit = bytes)
    }

    /// How long the id of a completed event is kept: 1 second to 100 years. The convention's window, or
    /// the scope's, by default.
    #[must_use]
    pub fn window(self, length: Duration) -> Self {
        self.with(|config| config.terms.window = Some(length))
    }

    /// After how long another delivery may take over from a handler that has not ended; the scope's lease by
    /// default. See [`Request::lease`](crate::Request::lease).
    #[must_use]
    pub fn lease(self, length: Duration) -> Self {
        self.with(|config| config.terms.lease = Some(length))
    }
}

impl<S> Layer<S> for WebhookLayer {
    type Service = Webhook<S>;

    fn layer(&self, inner: S) -> Webhook<S> {
        Webhook { inner, config: Arc::clone(&self.config) }
    }
}

/// The service of [`WebhookLayer`].
#[derive(Clone, Debug)]
pub struct Webhook<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S, B, R> Service<Request<B>> for Webhook<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body + Send + 'static,
    R: Send + 'static,
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

/// What is asked of the store for one request.
struct Event<'a> {
    id: Cow<'a, [u8]>,
    fingerprint: Option<Vec<u8>>,
    order: Option<(Cow<'a, [u8]>, Timestamp)>,
}

/// What a request is.
enum Kind<'a> {
    Event(Event<'a>),
    /// Nothing to claim.
    Handshake,
    /// Why it is no event.
    Refused(&'static str),
}

impl Config {
    fn needs_body(&self) -> bool {
        self.id.needs_body()
            || self.handshake.as_ref().is_some_and(|(source, _)| source.needs_body())
            || self.fingerprint.as_ref().is_some_and(Fingerprint::needs_body)
            || self.order.as_ref().is_some_and(|(entity, time)| entity.needs_body() || time.needs_body())
    }

    fn look_at<'a>(&self, parts: &'a Parts, body: &'a [u8]) -> Kind<'a> {
        let seen = Seen::new(parts, body);
        if let Some((source, value)) = &self.handshake
            && source.of(&seen).is_some_and(|found| *found == *value.as_bytes())
        {
            return Kind::Handshake;
        }
        let Some(id) = self.id.of(&seen) else {
            return Kind::Refused("the request has no event id, or more than one");
        };
        let mut order = None;
        if let Some((source, time)) = &self.order
            && let Some(entity) = source.of(&seen)
        {
            let Some(time) = time.of(&seen) else {
                return Kind::Refused("the event does not say when the change happened");
            };
            order = Some((entity, time));
        }
        let fingerprint =
            self.fingerprint.as_ref().and_then(|fingerprint| fingerprint.of(seen.parts(), seen.body()));
        Kind::Event(Event { id, fingerprint, order })
    }

    fn request(&self, event: &Event<'_>) -> crate::Request {
        let request = self.terms.request(&self.scope, &event.id, event.fingerprint.as_deref());
        match &event.order {
            Some((entity, time)) => request.order(entity, *time),
            None => request,
        }
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
    {
        let (mut parts, body) = request.into_parts();
        async move {
            let (seen, body) = if self.needs_body() {
                match buffer(body, self.body_limit).await {
                    Ok(whole) => (whole.data.clone(), RequestBody::buffered(whole)),
                    Err(NotBuffered::TooLarge) => {
                        let limit = self.body_limit;
                        let why =
                            format!("the body is longer than {limit} bytes, the most that is looked into");
                        return Ok(answer::text(StatusCode::PAYLOAD_TOO_LARGE, why, Verdict::Refused));
                    }
                    Err(NotBuffered::Broken) => {
                        let why = "the body ended before its time; nothing was begun";
                        return Ok(answer::text(StatusCode::BAD_REQUEST, why, Verdict::Refused));
                    }
                }
            } else {
                (Bytes::new(), RequestBody::original(body))
            };
            let guard = match self.look_at(&parts, &seen) {
                Kind::Event(event) => match self.claim(&event).await {
                    Ok(guard) => Some(guard),
                    Err(answer) => return Ok(answer),
                },
                Kind::Handshake => None,
                Kind::Refused(why) => {
                    return Ok(answer::text(StatusCode::BAD_REQUEST, why, Verdict::Refused));
                }
            };
            // The handler's body is its own again: it may free it, or change it in place.
            drop(seen);
            let Some(guard) = guard else {
                let passed = inner.call(Request::from_parts(parts, body));
                return Ok(answer::pass(passed.await?, Verdict::Passed));
            };
            // From here on the owner's end, however it comes, frees the key.
            let (owner, attempt) = Owner::new(guard);
            parts.extensions.insert(attempt);
            let response = inner.call(Request::from_parts(parts, body)).await?;
            let finished =
                Finished { status: response.status(), headers: response.headers(), trailers: None };
            if !self.completes.completes(&finished) {
                drop(owner);
                return Ok(answer::pass(response, Verdict::Freed));
            }
            match owner.complete(None, false).await {
                Ok(()) => Ok(answer::pass(response, Verdict::Done)),
                Err(error) => Ok(unavailable(error)),
            }
        }
    }

    /// The guard of a new event, or the answer to every other one.
    async fn claim<R>(&self, event: &Event<'_>) -> Result<Guard, Response<ReplyBody<R>>> {
        let mut waiting = None;
        loop {
            let running = match self.request(event).begin_async().await {
                Ok(Outcome::New(guard)) => return Ok(guard),
                Ok(Outcome::Duplicate(_)) => {
                    return Err(answer::text(StatusCode::OK, "", Verdict::Duplicate));
                }
                Ok(Outcome::Stale(_)) => return Err(answer::text(StatusCode::OK, "", Verdict::Stale)),
                Ok(Outcome::Mismatch(_)) => {
                    let why = "another event came under this id";
                    return Err(answer::text(StatusCode::UNPROCESSABLE_ENTITY, why, Verdict::Mismatch));
                }
                Ok(Outcome::InProgress(running)) => running,
                Err(error) if answer::is_callers_fault(&error) => {
                    let why = error.to_string();
                    let refused = answer::text(StatusCode::BAD_REQUEST, why, Verdict::Refused);
                    return Err(answer::failed(refused, error));
                }
                Err(error) => return Err(unavailable(error)),
            };
            let Some(patience) = &self.patience else { return Err(in_progress(&running)) };
            let waiting = waiting.get_or_insert_with(|| patience.begin());
            match waiting.for_end_of(&running).await {
                Ok(Settled::Completed(_)) => {
                    return Err(answer::text(StatusCode::OK, "", Verdict::Duplicate));
                }
                Ok(Settled::Released) => {}
                Ok(Settled::Running) => return Err(in_progress(&running)),
                Err(error) => return Err(unavailable(error)),
            }
        }
    }
}

fn in_progress<R>(running: &InProgress) -> Response<ReplyBody<R>> {
    let mut response = answer::text(
        StatusCode::CONFLICT,
        "the event, or one of the same entity, is running",
        Verdict::InProgress,
    );
    response.headers_mut().insert(RETRY_AFTER, running.retry_after().as_secs().into());
    response
}

fn unavailable<R>(error: crate::Error) -> Response<ReplyBody<R>> {
    let why = "the event could not be recorded; deliver it again";
    answer::failed(answer::text(StatusCode::SERVICE_UNAVAILABLE, why, Verdict::Failed), error)
}
