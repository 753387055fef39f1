//! A server that is killed: what it answered is still true, and what it did not is processed.

use crate::client::Client;
use crate::common::child::{Child, role, say, wait_for_the_kill, watch_over_silence};
use crate::server::by_account;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Extension, response::Response};
use oncedb::Store;
use oncedb::http::{Attempt, WebhookLayer};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// What the server has done, a line each, in the order of their ends.
type Effects = Arc<Mutex<File>>;

async fn work(
    State(effects): State<Effects>,
    Path(name): Path<String>,
    Extension(attempt): Extension<Attempt>,
) -> Response {
    if name == "stuck" && attempt.number() == 1 {
        attempt.note("got stuck").await.expect("the note is kept");
        say("stuck");
        std::future::pending::<()>().await;
    }
    let previous = attempt.previous();
    let cause = previous.map_or("none".to_owned(), |previous| format!("{:?}", previous.cause));
    let note = previous.and_then(|previous| previous.note.clone()).unwrap_or_default();
    let number = {
        let mut effects = effects.lock().expect("no writer has panicked");
        writeln!(effects, "{name}").expect("the effect is written");
        attempt.number().to_string()
    };
    let headers = [("x-attempt", number), ("x-previous", cause)];
    (StatusCode::CREATED, headers, format!("{name}: {}", String::from_utf8_lossy(&note))).into_response()
}

/// The server, where this process is a child; nothing else.
#[test]
fn server_child() {
    let Some((_, dir)) = role() else { return };
    watch_over_silence();
    let store = Store::open(dir.join("store")).expect("the store opens");
    let effects = OpenOptions::new().append(true).create(true).open(dir.join("effects"));
    let effects: Effects = Arc::new(Mutex::new(effects.expect("the file opens")));
    let api = by_account(store.scope("api").expect("the scope opens"));
    let hook = WebhookLayer::new(store.scope("events").expect("the scope opens"));
    let routes = Router::new()
        .route("/api/{name}", post(work).layer(api))
        .route("/hook/{name}", post(work).layer(hook))
        .with_state(effects);
    let server = crate::server::Server::start(routes);
    say(&server.address.to_string());
    wait_for_the_kill();
}

fn start(dir: &std::path::Path) -> (Child, Client) {
    let mut child = Child::start("kills::server_child", "serve", dir);
    let address = child.hear().expect("the server says where it listens");
    (child, Client::new(address.parse().expect("an address")))
}

fn effects(dir: &std::path::Path) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for line in fs::read_to_string(dir.join("effects")).expect("the file is there").lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// The handler of a request or an event was running when the process was killed: the retry is processed, and is
/// told that its predecessor died, with the note that one left.
#[test]
fn what_was_running_at_a_kill_is_processed_by_the_retry() {
    for (path, header) in [("/api/stuck", "idempotency-key"), ("/hook/stuck", "webhook-id")] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (mut child, client) = start(dir.path());
        let headers = [(header, "k"), ("x-account", "a")];
        thread::scope(|scope| {
            let first = scope.spawn(|| client.try_send("POST", path, &headers, ""));
            child.expect("stuck");
            child.kill();
            assert!(first.join().expect("the client ends").is_none(), "nothing is answered");
        });
        child.bury();
        let (_child, client) = start(dir.path());
        let retry = client.send("POST", path, &headers, "");
        retry.expect(201, "stuck: got stuck");
        assert_eq!((retry.header("x-attempt"), retry.header("x-previous")), (Some("2"), Some("Orphaned")));
        assert_eq!(effects(dir.path()), HashMap::from([("stuck".to_owned(), 1)]));
    }
}

/// Under load the process is killed: every reply that reached a client is replayed byte for byte, its work was
/// done, once; every other request is processed when it is sent again.
#[test]
fn what_was_answered_before_a_kill_is_replayed_after_it() {
    const CLIENTS: usize = 4;
    const ANSWERS: usize = 60;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (mut child, client) = start(dir.path());
    let answered = AtomicUsize::new(0);
    let send = |client: &Client, name: &str| {
        let headers = [("idempotency-key", name), ("x-account", "a")];
        client.try_send("POST", &format!("/api/{name}"), &headers, "")
    };
    let mut told: Vec<(String, String)> = Vec::new();
    let mut untold: Vec<String> = Vec::new();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (client, answered) = (&client, &answered);
                scope.spawn(move || {
                    let mut told = Vec::new();
                    for request in 0.. {
                        let name = format!("{number}-{request}");
                        match send(client, &name) {
                            Some(reply) => {
                                assert_eq!(reply.status, 201, "{reply:?}");
                                told.push((name, reply.body));
                                answered.fetch_add(1, Ordering::SeqCst);
                            }
                            None => return (told, name),
                        }
                    }
                    unreachable!("the server is killed")
                })
            })
            .collect();
        while answered.load(Ordering::SeqCst) < ANSWERS {
            thread::yield_now();
        }
        child.kill();
        for client in clients {
            let (replies, name) = client.join().expect("the client ends");
            told.extend(replies);
            untold.push(name);
        }
    });
    child.bury();
    let done = effects(dir.path());
    for (name, _) in &told {
        assert_eq!(done.get(name), Some(&1), "{name} was answered, so it was done, once");
    }
    let (_child, client) = start(dir.path());
    for (name, body) in &told {
        let again = send(&client, name).expect("a reply comes");
        again.expect(201, body);
        assert!(again.is_replayed(), "{name}");
    }
    for name in &untold {
        assert_eq!(send(&client, name).expect("a reply comes").status, 201);
    }
    let after = effects(dir.path());
    assert!(told.iter().all(|(name, _)| after[name] == 1), "no replay has an effect");
    assert!(untold.iter().all(|name| after[name] >= 1), "everything is done in the end");
}
