//! The layers fit where they are to be used: axum, hyper without a framework, and what tonic asks of a layer.

use crate::client::Client;
use crate::common::Place;
use axum::Router;
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use http_body::Body;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use oncedb::http::{BodyError, IdempotencyLayer, WebhookLayer};
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use tower_layer::Layer;
use tower_service::Service;

fn layers() -> (Place, WebhookLayer, IdempotencyLayer) {
    let place = Place::new();
    let scope = place.open().scope("s").expect("the scope opens");
    let webhooks = WebhookLayer::new(scope.clone());
    (place, webhooks, IdempotencyLayer::new(scope, |_| Some("")))
}

/// axum takes both, for a router, a route and a method, one inside the other.
#[test]
fn axum_takes_the_layers() {
    let (_place, webhooks, keys) = layers();
    let routes: Router = Router::new()
        .route(
            "/a",
            post(async |body: String| body).layer::<_, Infallible>(webhooks.clone()).layer(keys.clone()),
        )
        .route_layer(webhooks.clone())
        .route("/b", post(async || "done"))
        .layer(keys)
        .layer(webhooks);
    drop(routes);
}

/// A service without a framework, which answers with its own body.
#[derive(Clone)]
struct Echo;

impl<B: Body> Service<Request<B>> for Echo {
    type Response = Response<axum::body::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let body = format!("{} of {:?} bytes", request.uri().path(), request.body().size_hint().exact());
        ready(Ok(Response::builder().status(StatusCode::CREATED).body(body.into()).expect("a response")))
    }
}

/// hyper serves both with no framework in between.
#[test]
fn hyper_serves_the_layers() {
    let (_place, webhooks, keys) = layers();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let client = Client::new(listener.local_addr().expect("an address"));
    let service = webhooks.layer(keys.layer(Echo));
    runtime.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection comes");
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    let send = |id, key| client.send("POST", "/a", &[("webhook-id", id), ("idempotency-key", key)], "abc");
    send("evt_1", "k").expect(201, "/a of Some(3) bytes");
    send("evt_1", "k").expect(200, "");
    let again = send("evt_2", "k");
    again.expect(201, "/a of Some(3) bytes");
    assert!(again.is_replayed());
}

/// What tonic's server asks of a layer and of the services in it, word for word in types: bodies that are `Send`
/// and no more, errors that can be boxed.
#[test]
fn tonic_takes_the_layers() {
    type Unsync = Pin<Box<dyn Body<Data = Bytes, Error = BodyError> + Send>>;

    fn takes<L, R>(layer: &L)
    where
        L: Layer<Echo> + Clone,
        L::Service: Service<Request<Unsync>, Response = Response<R>> + Clone + Send + 'static,
        <L::Service as Service<Request<Unsync>>>::Future: Send,
        <L::Service as Service<Request<Unsync>>>::Error: Into<BodyError> + Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        drop(layer.layer(Echo));
    }

    let (_place, webhooks, keys) = layers();
    takes(&webhooks);
    takes(&keys);
}

/// Layers and services are cheap to clone, can be shared between threads, and can be shown.
#[test]
fn layers_and_services_are_portable() {
    fn is_portable<T: Clone + Debug + Send + Sync + 'static>(value: &T) -> String {
        format!("{value:?}")
    }
    let (_place, webhooks, keys) = layers();
    assert!(is_portable(&webhooks).contains("webhook-id"));
    assert!(is_portable(&keys).contains("idempotency-key"));
    is_portable(&webhooks.layer(()));
    is_portable(&keys.layer(()));
}
