//! A server on the loopback device, over a store with a clock of its own.

use crate::client::Client;
use crate::common::{PATIENCE, Place};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use oncedb::http::{Attempt, IdempotencyLayer};
use oncedb::{Scope, Store};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

/// Ends with its connections when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    _runtime: Runtime,
}

impl Server {
    pub fn start(routes: Router) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        runtime.spawn(async move { axum::serve(listener, routes).await.expect("the server runs") });
        Self { address, _runtime: runtime }
    }

    pub fn client(&self) -> Client {
        Client::new(self.address)
    }
}

/// What is announced, one after the other.
pub struct Heard<T>(Mutex<mpsc::Receiver<T>>);

impl<T> Heard<T> {
    pub fn channel() -> (mpsc::Sender<T>, Self) {
        let (says, heard) = mpsc::channel();
        (says, Self(Mutex::new(heard)))
    }

    /// Waits for the next one.
    #[track_caller]
    pub fn next(&self) -> T {
        let heard = self.0.lock().expect("nobody panics while listening");
        heard.recv_timeout(PATIENCE).expect("it is announced")
    }

    /// All that there are by now.
    pub fn so_far(&self) -> Vec<T> {
        self.0.lock().expect("nobody panics while listening").try_iter().collect()
    }
}

/// What the handler of a test does with the request; the number of the run, from 1.
pub type Handler = dyn Fn(u32, &Request) -> Response + Send + Sync;

/// A handler whose runs are counted, announced, and held at a gate while it is shut.
#[derive(Clone)]
pub struct Work(Arc<Inner>);

struct Inner {
    runs: AtomicU32,
    entered: mpsc::Sender<Attempt>,
    gate: Semaphore,
    handler: Box<Handler>,
}

impl Work {
    pub fn new(
        handler: impl Fn(u32, &Request) -> Response + Send + Sync + 'static,
    ) -> (Self, Heard<Attempt>) {
        let (entered, seen) = Heard::channel();
        let gate = Semaphore::new(0);
        (Self(Arc::new(Inner { runs: AtomicU32::new(0), entered, gate, handler: Box::new(handler) })), seen)
    }

    /// Answers 201 with the number of the run.
    pub fn counting() -> (Self, Heard<Attempt>) {
        Self::new(|run, _| (axum::http::StatusCode::CREATED, format!("run {run}")).into_response())
    }

    pub fn runs(&self) -> u32 {
        self.0.runs.load(Ordering::SeqCst)
    }

    /// Lets this many runs through.
    pub fn open_gate(&self, runs: usize) {
        self.0.gate.add_permits(runs);
    }

    async fn run(self, request: Request) -> Response {
        let run = self.0.runs.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(attempt) = request.extensions().get::<Attempt>() {
            // A test may not care.
            let _ = self.0.entered.send(attempt.clone());
        }
        self.0.gate.acquire().await.expect("the gate stays").forget();
        (self.0.handler)(run, &request)
    }

    /// Every method and path.
    pub fn routes(&self) -> Router {
        let work = self.clone();
        let handler = any(move |request: Request| work.clone().run(request));
        Router::new().route("/{*path}", handler)
    }
}

/// A gate that never shuts.
pub const OPEN: usize = 1 << 20;

/// The principal of these tests is a header.
pub fn by_account(scope: Scope) -> IdempotencyLayer {
    IdempotencyLayer::new(scope, |head| {
        head.headers.get("x-account").map(|account| account.as_bytes().to_vec())
    })
}

/// An API behind a layer, and what a test of it needs.
pub struct Api {
    pub place: Place,
    pub store: Store,
    pub scope: Scope,
    pub work: Work,
    pub entered: Heard<Attempt>,
    pub server: Server,
    pub client: Client,
}

impl Api {
    /// The gate is open.
    pub fn start(
        layer: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer,
        handler: impl Fn(u32, &Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        let api = Self::shut(layer, handler);
        api.work.open_gate(OPEN);
        api
    }

    /// Runs wait at the gate until the test opens it.
    pub fn shut(
        layer: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer,
        handler: impl Fn(u32, &Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        let place = Place::new();
        let store = place.open();
        let scope = store.scope("api").expect("the scope opens");
        let (work, entered) = Work::new(handler);
        let server = Server::start(work.routes().layer(layer(by_account(scope.clone()))));
        let client = server.client();
        Self { place, store, scope, work, entered, server, client }
    }
}

/// The handler that answers 201 with the number of its run and what the request says.
pub fn numbered(run: u32, request: &Request) -> Response {
    let location = ("location", format!("/orders/{run}"));
    let path = request.uri().path().to_owned();
    (axum::http::StatusCode::CREATED, [location], Body::from(format!("run {run} of {path}"))).into_response()
}
