//! The server, and the handler that does what the suite says.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use oncedb::conformance::End;
use oncedb::http::{Attempt, Verdict};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::Layered;
use crate::life::Life;

/// What the handler of one request is to do.
pub struct Run {
    /// Says that it runs.
    pub announce: Box<dyn FnOnce(Attempt) + Send>,
    pub ends: oneshot::Receiver<End>,
    /// Dropped with the request.
    pub held: Sender<()>,
}

#[derive(Clone)]
struct Shared {
    life: Arc<Life>,
    runs: Arc<Mutex<HashMap<u64, Run>>>,
}

/// Ends with all its requests when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    shared: Shared,
    next: AtomicU64,
    _runtime: Runtime,
}

impl Server {
    pub fn start<L: Layered>(life: Life) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let shared = Shared { life: Arc::new(life), runs: Arc::default() };
        let serving = shared.clone();
        let routes =
            Router::new().fallback(any(move |request: Request| answer::<L>(serving.clone(), request)));
        runtime.spawn(async move { axum::serve(listener, routes).await.expect("the server runs") });
        Self { address, shared, next: AtomicU64::new(0), _runtime: runtime }
    }

    pub fn life(&self) -> &Life {
        &self.shared.life
    }

    /// The number by which a request asks for this.
    pub fn expect_run(&self, run: Run) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.shared.runs.lock().expect("nobody panics here").insert(number, run);
        number
    }
}

async fn answer<L: Layered>(shared: Shared, request: Request) -> Response {
    let number = request.headers()["x-run"].to_str().expect("a number").parse().expect("a number");
    let run = shared.runs.lock().expect("nobody panics here").remove(&number).expect("it is expected");
    // Declared before all that it outlives.
    let _held = run.held;
    let work = Arc::new(Mutex::new(Some((run.announce, run.ends))));
    let handler = any(move |request: Request| {
        let (announce, ends) = work.lock().expect("nobody panics here").take().expect("one request, one run");
        handle(announce, ends, request)
    });
    let mut response = L::answer(&shared.life, request, handler).await;
    if let Some(verdict) = response.extensions().get::<Verdict>() {
        let verdict = HeaderValue::from_str(&format!("{verdict:?}")).expect("a word");
        response.headers_mut().insert("x-verdict", verdict);
    }
    response
}

async fn handle(
    announce: Box<dyn FnOnce(Attempt) + Send>,
    ends: oneshot::Receiver<End>,
    request: Request,
) -> Response {
    announce(request.extensions().get::<Attempt>().expect("it is told").clone());
    match ends.await {
        Ok(End::Complete(response)) => Body::from(response.unwrap_or_default()).into_response(),
        Ok(End::Refuse(response)) => (StatusCode::CONFLICT, Body::from(response)).into_response(),
        Ok(End::Panic) => resume_unwind(Box::new("the handler fails")),
        // Dropped with its server, or told to fail.
        Ok(End::Abort | End::Drop) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
