//! The receiving process: opens the store, serves until it is told to stop, closes the store.
//!
//! What a proxy in front of it is for is left to the proxy: TLS, and a limit to the connections that
//! send nothing. Such a connection holds no claim and no work.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use oncedb::Store;
use standardwebhooks::Webhook;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::args::Serve;
use crate::effects::Effects;
use crate::receive::{Receiver, receive};
use crate::rehearsal::Rehearsal;
use crate::work::Work;
use crate::{Failed, SECRET_VARIABLE, deliveries};

/// Starts the line that says where the receiver listens.
pub const LISTENING: &str = "listening on ";

const BODY_LIMIT: usize = 1 << 20;

/// What open requests, and then running handlers, are given to end.
const GRACE: Duration = Duration::from_secs(10);

/// One line to standard output. Nobody reading it is no reason to stop receiving.
pub fn say(line: &str) {
    // A path or a payload may hold anything; in here it stays on its line.
    let line = line.replace(char::is_control, "?");
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Bytes, by the Standard Webhooks specification.
const SHORTEST_SECRET: usize = 24;

pub fn serve(options: &Serve) -> Result<(), Failed> {
    let secret = std::env::var(SECRET_VARIABLE)
        .map_err(|_| format!("set {SECRET_VARIABLE} to the signing secret (whsec_ and base64)"))?;
    let webhook = Webhook::new(&secret)
        .map_err(|error| format!("{SECRET_VARIABLE} is not whsec_ and base64: {error}"))?;
    // Four characters of base64 hold three bytes.
    if secret.trim_start_matches("whsec_").trim_end_matches('=').len() * 3 / 4 < SHORTEST_SECRET {
        return Err(
            format!("{SECRET_VARIABLE} is shorter than {SHORTEST_SECRET} bytes: too easy to guess").into()
        );
    }
    let rehearsal = if options.rehearse { deliveries::rehearsal()? } else { Rehearsal::default() };
    let effects = Effects::open(&options.effects)
        .map_err(|error| format!("can't open {}: {error}", options.effects.display()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(options, webhook, Work::new(effects, rehearsal)))
}

async fn run(options: &Serve, webhook: Webhook, work: Work) -> Result<(), Failed> {
    // First of all, so that a signal that comes early still ends in a store that is closed.
    let mut told = tokio::spawn(told_to_stop(options.rehearse));
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|error| format!("can't listen on {}: {error}", options.listen))?;
    // Nothing is served yet, so the blocking call keeps nobody waiting.
    let store = Store::open(&options.data)?;
    let receiver = Arc::new(Receiver::new(store.clone(), webhook, work)?);
    let routes = Router::new()
        .route("/webhooks/{source}", post(receive))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(Arc::clone(&receiver));

    let (stop, stopped) = oneshot::channel::<()>();
    let address = listener.local_addr()?;
    let server = axum::serve(listener, routes).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let mut server = tokio::spawn(server.into_future());
    say(&format!("{LISTENING}{address}"));

    tokio::select! {
        reason = &mut told => say(&format!("stopping: {}", reason??)),
        ended = &mut server => ended??,
    }
    let _ = stop.send(());
    if !server.is_finished() && timeout(GRACE, server).await.is_err() {
        eprintln!("receiver: some requests did not end in time");
    }
    // A sender may have hung up long ago on work that still runs.
    if timeout(GRACE, receiver.idle()).await.is_err() {
        eprintln!("receiver: some handlers did not end in time; their events will be new again");
    }
    store.close_async().await?;
    say("stopped");
    Ok(())
}

/// Ctrl-C, SIGTERM or, in the demo, the end of standard input: then its sender is gone.
async fn told_to_stop(watch_input: bool) -> std::io::Result<&'static str> {
    let (gone, input_ended) = oneshot::channel();
    if watch_input {
        // A plain thread, since a runtime would wait for a blocked read when it shuts down.
        std::thread::spawn(move || {
            let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
            let _ = gone.send(());
        });
    }
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed.map(|()| "Ctrl-C"),
        terminated = terminated() => terminated.map(|()| "SIGTERM"),
        Ok(()) = input_ended => Ok("the input ended"),
    }
}

#[cfg(unix)]
async fn terminated() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::terminate())?.recv().await;
    Ok(())
}

#[cfg(not(unix))]
async fn terminated() -> std::io::Result<()> {
    std::future::pending().await
}
