//! What the layers cost: the bare service beside each layer, under load over the loopback device.
//!
//! `cargo bench --bench http` prints the processor time of a request, client and server together, and what is
//! more of it than for the bare service. The client sends the same bytes in every row. The rows take turns, and
//! each is the lower quartile of its rounds: what it takes where nothing else disturbs it. A second table has the
//! same services called with no network in between: what the layer and the store take of the processor.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::post;
use oncedb::http::{IdempotencyLayer, Place, WebhookLayer};
use oncedb::{Options, Scope, Store};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tower_service::Service;

use common::{Fixture, is_measuring, relaxed, scaled};

const CONNECTIONS: usize = 8;
const ROUNDS: usize = 24;

/// As much as a small event has.
const BODY: &str = r#"{"type": "invoice.paid", "created": 1796126400, "data": {"object": {"id": "in_1PgafmB7WZ01zgkW6dKueIc5", "object": "invoice", "amount_paid": 2000, "currency": "eur", "customer": "cus_9s6XKzkNRiz8i3"}}}"#;

async fn handler(body: String) -> String {
    format!("{{\"read\": {}}}", body.len())
}

/// What is measured.
struct Row {
    name: &'static str,
    routes: Router,
    address: SocketAddr,
    /// Whether every request has an id of its own; else one id was seen before.
    fresh: bool,
    _fixture: Option<Fixture>,
}

fn serve(runtime: &Runtime, routes: Router) -> SocketAddr {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    runtime.spawn(async move { axum::serve(listener, routes).await });
    address
}

fn bare() -> Router {
    Router::new().route("/hook", post(handler))
}

fn row(
    runtime: &Runtime,
    name: &'static str,
    fresh: bool,
    options: Options,
    routes: impl FnOnce(Scope) -> Router,
) -> Row {
    let fixture = Fixture::new(options);
    let routes = routes(fixture.scope.clone());
    let address = serve(runtime, routes.clone());
    Row { name, routes, address, fresh, _fixture: Some(fixture) }
}

/// What a handler does that claims and completes by itself.
fn by_hand(scope: Scope) -> Router {
    let handler = move |head: axum::http::HeaderMap, body: String| {
        let scope = scope.clone();
        async move {
            let id = head.get("webhook-id").expect("every request has one");
            let claimed = scope.begin_async(id).await.expect("the store answers");
            let reply = handler(body).await;
            claimed.into_new().expect("it is new").complete_async().await.expect("it is completed");
            reply
        }
    };
    Router::new().route("/hook", post(handler))
}

fn webhook(scope: Scope) -> Router {
    bare().layer(WebhookLayer::new(scope))
}

fn webhook_in_json(scope: Scope) -> Router {
    bare().layer(WebhookLayer::new(scope).fingerprint(oncedb::http::Fingerprint::of_body()).order(
        Place::Header("webhook-id"),
        oncedb::http::Time::new(Place::Json("created"), oncedb::http::Format::Seconds),
    ))
}

fn keyed(scope: Scope) -> Router {
    bare().layer(IdempotencyLayer::new(scope, |_| Some("acct_1032D82eZvKYlo2C")))
}

fn unkeyed(scope: Scope) -> Router {
    let other = axum::http::HeaderName::from_static("x-no-such-key");
    bare().layer(IdempotencyLayer::new(scope, |_| Some("acct_1032D82eZvKYlo2C")).header(other))
}

/// A number that no request has had, or one that one has had.
fn number(fresh: bool) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if fresh { NEXT.fetch_add(1, Ordering::Relaxed) } else { 0 }
}

/// Calls the service with no network in between, one request after the other.
async fn call(routes: &Router, requests: usize, fresh: bool) {
    let mut routes = routes.clone();
    for _ in 0..requests {
        let number = number(fresh);
        let request = Request::post("/hook")
            .header("host", "h")
            .header("webhook-id", format!("msg_{number:024}"))
            .header("idempotency-key", format!("key_{number:024}"))
            .header("content-type", "application/json")
            .body(Body::from(BODY))
            .expect("a request");
        let response = routes.call(request).await.expect("it is infallible");
        assert_eq!(response.status(), 200);
        axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("the body comes");
    }
}

/// Sends requests on one connection, each after the reply to the one before.
fn send(to: SocketAddr, requests: usize, fresh: bool) {
    let mut stream = TcpStream::connect(to).expect("the server listens");
    stream.set_nodelay(true).expect("an option of the socket");
    let mut replies = BufReader::new(stream.try_clone().expect("a second handle"));
    let (mut line, mut body) = (String::new(), Vec::new());
    for _ in 0..requests {
        let number = number(fresh);
        let request = format!(
            "POST /hook HTTP/1.1\r\nhost: h\r\nwebhook-id: msg_{number:024}\r\nidempotency-key: key_{number:024}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        stream.write_all(request.as_bytes()).expect("the request is sent");
        let mut len = 0;
        loop {
            line.clear();
            replies.read_line(&mut line).expect("a line of the head comes");
            if line.starts_with("HTTP/1.1 ") {
                assert!(line.starts_with("HTTP/1.1 200"), "{line}");
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                len = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        body.resize(len, 0);
        replies.read_exact(&mut body).expect("the body comes");
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().expect("after the start"),
        time.tv_nsec.try_into().expect("nanoseconds"),
    )
}

/// Processor and real time of a request, in microseconds.
fn measure(requests: usize, work: impl FnOnce()) -> (f64, f64) {
    let (used, began) = (processor_time(), Instant::now());
    work();
    #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
    let each = |time: Duration| time.as_secs_f64() * 1e6 / requests as f64;
    (each(processor_time().saturating_sub(used)), each(began.elapsed()))
}

fn quartile(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 4]
}

/// Measures every row in turn, and prints a line for each.
fn table(title: &str, rows: &[Row], mut measured: impl FnMut(&Row) -> (f64, f64)) {
    let mut times: Vec<Vec<(f64, f64)>> = rows.iter().map(|_| Vec::new()).collect();
    for round in 0..if is_measuring() { ROUNDS + 1 } else { 1 } {
        for (row, times) in rows.iter().zip(&mut times) {
            let measured = measured(row);
            // The first round warms up, where there are others.
            if round > 0 || !is_measuring() {
                times.push(measured);
            }
        }
    }
    println!("| {title} | processor time a request | more than bare | ratio | real time a request |");
    println!("|---|---|---|---|---|");
    let mut least = None;
    for (row, times) in rows.iter().zip(&times) {
        let used = quartile(times.iter().map(|times| times.0).collect());
        let real = quartile(times.iter().map(|times| times.1).collect());
        let without = *least.get_or_insert(used);
        println!(
            "| {} | {used:.1} us | {:+.1} us | {:.2} | {real:.1} us |",
            row.name,
            used - without,
            used / without
        );
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let address = serve(&runtime, bare());
    let bare = Row { name: "bare service", routes: bare(), address, fresh: true, _fixture: None };
    let rows = [
        bare,
        row(&runtime, "claimed by hand, Interval(100 ms)", true, relaxed(), by_hand),
        row(&runtime, "webhook, new, Interval(100 ms)", true, relaxed(), webhook),
        row(
            &runtime,
            "webhook, new, ordered by JSON, fingerprint, Interval",
            true,
            relaxed(),
            webhook_in_json,
        ),
        row(&runtime, "webhook, duplicate", false, relaxed(), webhook),
        row(&runtime, "webhook, new, Sync", true, Store::options(), webhook),
        row(&runtime, "key, new, Interval(100 ms)", true, relaxed(), keyed),
        row(&runtime, "key, replay", false, relaxed(), keyed),
        row(&runtime, "key, new, Sync", true, Store::options(), keyed),
        row(&runtime, "no key", true, relaxed(), unkeyed),
    ];
    let requests = scaled(4_000);
    // One after the other, synced requests would measure the disk.
    let (synced, unsynced): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.name.ends_with("Sync"));
    table("called directly", &unsynced, |row| {
        measure(requests, || runtime.block_on(call(&row.routes, requests, row.fresh)))
    });
    println!();
    let each = requests / CONNECTIONS;
    let rows: Vec<_> = unsynced.into_iter().chain(synced).collect();
    table("over loopback", &rows, |row| {
        measure(each * CONNECTIONS, || {
            thread::scope(|scope| {
                for _ in 0..CONNECTIONS {
                    scope.spawn(|| send(row.address, each, row.fresh));
                }
            });
        })
    });
}
