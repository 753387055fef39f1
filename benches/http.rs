//! What the layers cost: the bare service beside each layer, under load over the loopback device.
//!
//! `cargo bench --bench http` prints the processor time that a request takes of the server, and what is more of it
//! than for the bare service. The threads of the client are not counted: its bytes are the same in every row, and
//! what it takes depends on how many replies it finds at a time. The bare service is measured anew before each
//! layer, and what is more is the median of these pairs. Every measurement has a store of its own, opened and
//! brought up to date before it begins (the bare service does not use it); what the store does in the background
//! and in its `close` counts. Another table has the same services called with no network in between.

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
/// How often each row is measured.
const BLOCKS: usize = 9;

/// As much as a small event has.
const BODY: &str = r#"{"type": "invoice.paid", "created": 1796126400, "data": {"object": {"id": "in_1PgafmB7WZ01zgkW6dKueIc5", "object": "invoice", "amount_paid": 2000, "currency": "eur", "customer": "cus_9s6XKzkNRiz8i3"}}}"#;

async fn handler(body: String) -> String {
    format!("{{\"read\": {}}}", body.len())
}

/// What is measured.
struct Row {
    name: &'static str,
    options: Options,
    routes: fn(Scope) -> Router,
    ids: Ids,
}

/// What the ids of the requests are.
#[derive(Clone, Copy, PartialEq)]
enum Ids {
    /// Each has one of its own.
    Fresh,
    /// All have one, which was seen before.
    Seen,
    /// Each has one of its own, and nobody looks at it.
    Unclaimed,
}

fn bare() -> Router {
    Router::new().route("/hook", post(handler))
}

/// Shows what the measurement makes of a known time.
fn spin(_: Scope) -> Router {
    let handler = async |body: String| {
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(3) {}
        handler(body).await
    };
    Router::new().route("/hook", post(handler))
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
fn number(ids: Ids) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if ids == Ids::Seen { 0 } else { NEXT.fetch_add(1, Ordering::Relaxed) }
}

/// Calls the service with no network in between, one request after the other.
async fn call(mut routes: Router, requests: usize, ids: Ids) {
    for _ in 0..requests {
        let number = number(ids);
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

/// Sends requests on one connection, each after the reply to the one before; the processor time it took.
fn send(to: SocketAddr, requests: usize, ids: Ids) -> Duration {
    let used = processor_time(ClockId::ThreadCPUTime);
    let mut stream = TcpStream::connect(to).expect("the server listens");
    stream.set_nodelay(true).expect("an option of the socket");
    let mut replies = BufReader::new(stream.try_clone().expect("a second handle"));
    let (mut line, mut body) = (String::new(), Vec::new());
    for _ in 0..requests {
        let number = number(ids);
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
    processor_time(ClockId::ThreadCPUTime).saturating_sub(used)
}

/// Serves over loopback to all connections at once; the processor time of the client.
fn serve(runtime: &Runtime, routes: Router, requests: usize, ids: Ids) -> Duration {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    let server = runtime.spawn(async move { axum::serve(listener, routes).await });
    // One request alone comes first, else all connections would begin the same event at once.
    let first = send(address, 1, ids);
    let others: Duration = thread::scope(|scope| {
        let send = || send(address, requests / CONNECTIONS, ids);
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(send)).collect();
        threads.into_iter().map(|thread| thread.join().expect("the client ends well")).sum()
    });
    server.abort();
    first + others
}

fn processor_time(of: ClockId) -> Duration {
    let time = clock_gettime(of);
    Duration::new(
        time.tv_sec.try_into().expect("after the start"),
        time.tv_nsec.try_into().expect("nanoseconds"),
    )
}

/// What a request takes, in microseconds.
#[derive(Clone, Copy)]
struct Cost {
    processor: f64,
    real: f64,
}

/// Does the work, which gives the processor time that does not count.
fn measure(requests: usize, work: impl FnOnce() -> Duration) -> Cost {
    let (used, began) = (processor_time(ClockId::ProcessCPUTime), Instant::now());
    let client = work();
    let real = began.elapsed();
    let used = processor_time(ClockId::ProcessCPUTime).saturating_sub(used + client);
    #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
    let each = |time: Duration| time.as_secs_f64() * 1e6 / requests as f64;
    Cost { processor: each(used), real: each(real) }
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures the bare service and every row, block after block, and prints a line for each.
fn table(title: &str, rows: &[Row], requests: usize, work: impl Fn(Router, Ids) -> Duration) {
    let cost = |row: &Row| {
        let Fixture { scope, store, dir: _dir } = Fixture::new(row.options.clone());
        store.maintain().expect("the store is brought up to date");
        measure(requests, || {
            let client = work((row.routes)(scope), row.ids);
            let new = usize::try_from(store.stats().new).expect("a small number");
            match row.ids {
                Ids::Fresh => assert!(new >= requests, "{}: {new} were new", row.name),
                Ids::Seen => assert_eq!(new, 1, "{}", row.name),
                Ids::Unclaimed => assert_eq!(new, 0, "{}", row.name),
            }
            store.close().expect("the store closes");
            client
        })
    };
    let bare = Row { name: "bare service", options: relaxed(), routes: |_| bare(), ids: Ids::Unclaimed };
    let mut pairs = vec![Vec::new(); rows.len()];
    // The first block warms up.
    for block in 0..=if is_measuring() { BLOCKS } else { 1 } {
        for (row, pairs) in rows.iter().zip(&mut pairs) {
            let pair = (cost(&bare), cost(row));
            if block > 0 {
                pairs.push(pair);
            }
        }
    }
    println!("| {title} | processor time a request | more than bare | real time a request |");
    println!("|---|---|---|---|");
    let alone = || pairs.iter().flatten().map(|pair| pair.0);
    let processor = median(alone().map(|cost| cost.processor));
    let real = median(alone().map(|cost| cost.real));
    println!("| {} | {processor:.1} us | | {real:.1} us |", bare.name);
    for (row, pairs) in rows.iter().zip(&pairs) {
        let processor = median(pairs.iter().map(|pair| pair.1.processor));
        let more = median(pairs.iter().map(|pair| pair.1.processor - pair.0.processor));
        let real = median(pairs.iter().map(|pair| pair.1.real));
        println!("| {} | {processor:.1} us | {more:+.1} us | {real:.1} us |", row.name);
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let row = |name, ids, options, routes| Row { name, options, routes, ids };
    let unsynced = [
        row("a loop of 3 us", Ids::Unclaimed, relaxed(), spin as fn(Scope) -> Router),
        row("claimed by hand", Ids::Fresh, relaxed(), by_hand),
        row("webhook, new", Ids::Fresh, relaxed(), webhook),
        row("webhook, new, ordered by JSON, fingerprint", Ids::Fresh, relaxed(), webhook_in_json),
        row("webhook, duplicate", Ids::Seen, relaxed(), webhook),
        row("key, new", Ids::Fresh, relaxed(), keyed),
        row("key, replay", Ids::Seen, relaxed(), keyed),
        row("no key", Ids::Unclaimed, relaxed(), unkeyed),
    ];
    let synced = [
        row("webhook, new, Sync", Ids::Fresh, Store::options(), webhook),
        row("key, new, Sync", Ids::Fresh, Store::options(), keyed),
    ];
    let requests = scaled(32_000);
    let direct = |routes, ids| {
        runtime.block_on(call(routes, requests, ids));
        Duration::ZERO
    };
    let loopback = |routes, ids| serve(&runtime, routes, requests, ids);
    table("called directly, Interval(100 ms)", &unsynced, requests, direct);
    println!();
    table("over loopback, Interval(100 ms)", &unsynced, requests, loopback);
    println!();
    // Called directly, one after the other, these would measure the disk.
    table("over loopback, Sync", &synced, requests, loopback);
}
