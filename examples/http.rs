//! A webhook route and an API route with OnceDB in front of them, and a client that puts both through what
//! senders and clients do: `cargo run --example http`.
//!
//! Serves on a port of the loopback device, sends what is below to itself, prints a line a request, and exits
//! with 0 if everything was done once.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use oncedb::http::{Attempt, Dialect, IdempotencyLayer, Place, STRIPE, Verdict, WebhookLayer};
use oncedb::{ScopeOptions, Store, Ties};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What the handlers have done; in a real program a database.
#[derive(Default)]
struct Done {
    events: AtomicU32,
    payments: AtomicU32,
}

/// Runs for each event once. In front of it belongs what verifies the sender's signature.
async fn event(State(done): State<Arc<Done>>, Extension(attempt): Extension<Attempt>) -> StatusCode {
    if attempt.number() == 1 && attempt.id() == b"evt_2" {
        return StatusCode::INTERNAL_SERVER_ERROR; // a bad moment: the sender tries again
    }
    done.events.fetch_add(1, Ordering::SeqCst);
    StatusCode::NO_CONTENT
}

/// Runs for each key once.
async fn pay(State(done): State<Arc<Done>>, order: String) -> Response {
    let Ok(order) = serde_json::from_str::<Value>(&order) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let payment = done.payments.fetch_add(1, Ordering::SeqCst) + 1;
    let body = json!({ "payment": payment, "amount": order["amount"] });
    (StatusCode::CREATED, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// Tells what the store said. A program that logs takes it from the same place.
async fn told(mut response: Response) -> Response {
    if let Some(verdict) = response.extensions().get::<Verdict>() {
        let verdict = format!("{verdict:?}").to_lowercase();
        response.headers_mut().insert("x-verdict", HeaderValue::try_from(verdict).expect("letters"));
    }
    response
}

fn routes(store: &Store, done: Arc<Done>) -> oncedb::Result<Router> {
    // Several events of one object can be created in one second: an equal time is no reason to skip one.
    let events = store.scope_with("stripe", ScopeOptions::new().ties(Ties::Accept))?;
    let webhooks = WebhookLayer::of(events, &STRIPE).entity(Place::Json("data.object.id"));
    // Whose key it is, your authentication knows: here a header says so, of which it takes care. It is stored with
    // the key, so it is no credential.
    let keys = IdempotencyLayer::new(store.scope("payments")?, |head| {
        head.headers.get("x-account").map(|account| account.as_bytes().to_vec())
    });
    let keys = keys.required().dialect(Dialect::draft_documented_at("https://api.example/idempotency"));
    Ok(Router::new()
        .route("/stripe", post(event).layer(webhooks))
        .route("/payments", post(pay).layer(keys))
        .layer(map_response(told))
        .with_state(done))
}

/// A request, the reply's status, and whether it was a replay.
fn send(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<(u16, bool), ureq::Error> {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut request = agent.post(format!("http://{to}{path}")).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut response = request.send(body.to_string())?;
    let status = response.status().as_u16();
    let replayed = response.headers().contains_key("idempotent-replayed");
    let verdict = response.headers().get("x-verdict").and_then(|verdict| verdict.to_str().ok());
    let verdict = verdict.unwrap_or_default().to_owned();
    let text = response.body_mut().read_to_string()?;
    println!(
        "POST {path} {headers:?} {body}\n  -> {verdict}: {status}{} {text}",
        if replayed { ", replayed" } else { "" }
    );
    Ok((status, replayed))
}

fn demo(to: SocketAddr) -> Result<bool, ureq::Error> {
    let event = |id: &str, created: u32| json!({ "id": id, "created": created, "data": { "object": { "id": "sub_1" } } });
    let deliver = |event: Value| send(to, "/stripe", &[], &event);
    let pay = |caller: &str, key: &str, amount: u32| {
        send(
            to,
            "/payments",
            &[("x-account", caller), ("idempotency-key", key)],
            &json!({ "amount": amount }),
        )
    };
    let seen = [
        deliver(event("evt_1", 100))?,
        deliver(event("evt_1", 100))?, // a duplicate
        deliver(event("evt_2", 300))?, // the handler has a bad moment
        deliver(event("evt_2", 300))?, // the retry
        deliver(event("evt_0", 50))?,  // older than what was applied
        pay("account-1", "k-1", 20)?,
        pay("account-1", "k-1", 20)?, // the reply was lost, the client asks again
        pay("account-1", "k-1", 30)?, // another request under the same key
        pay("account-2", "k-1", 20)?, // another caller's key
        send(to, "/payments", &[("x-account", "account-1")], &json!({ "amount": 20 }))?, // no key
    ];
    let expected = [204, 200, 500, 204, 200, 201, 201, 422, 201, 400];
    Ok(seen.map(|(status, _)| status) == expected
        && seen.map(|(_, replayed)| replayed).iter().filter(|r| **r).count() == 1)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let done = Arc::new(Done::default());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(axum::serve(listener, routes(&store, Arc::clone(&done))?).into_future());
    let as_expected = tokio::task::spawn_blocking(move || demo(address)).await??;
    server.abort();
    store.close_async().await?;
    let (events, payments) = (done.events.load(Ordering::SeqCst), done.payments.load(Ordering::SeqCst));
    println!("{events} events and {payments} payments were processed");
    if as_expected && (events, payments) == (2, 2) { Ok(()) } else { Err("that was not expected".into()) }
}
