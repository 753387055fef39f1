//! A server behind one of the layers, on a real socket. A claim in progress is a request whose handler
//! runs.

mod keys;
mod server;
mod webhooks;
mod wire;

use std::fmt::Write;
use std::marker::PhantomData;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use axum::http::request::Parts;
use oncedb::conformance::{Ability, Answer, Attempt, Done, End, Event, Setup, Subject};
use oncedb::simulation::MemoryDisk;
use oncedb::{ManualClock, http};
use tokio::sync::oneshot;

use crate::common::{PATIENCE, block_on};
use crate::life::{Life, break_disk, fill_disk};
use server::{Run, Server};
use wire::Reply;

pub use keys::Keys;
pub use webhooks::Webhooks;

/// A layer, how a request of it looks, and how its answers are to be read.
pub trait Layered: Send + Sync + 'static {
    /// A store that keeps what the layer stores.
    fn open(setup: &Setup, disk: &MemoryDisk, clock: &ManualClock) -> oncedb::Result<Life>;
    fn can(ability: Ability) -> bool;
    /// The headers that are the layer's own.
    fn headers(event: &Event) -> Vec<(&'static str, String)>;
    fn answer(
        life: &Life,
        request: axum::extract::Request,
        work: axum::routing::MethodRouter,
    ) -> impl Future<Output = axum::response::Response> + Send;
    /// What is kept of the first, by the reply to a duplicate.
    fn done(reply: &Reply) -> Done;
    fn forget(life: &Life, source: &str, id: &[u8]) -> bool;
}

pub struct Served<L> {
    setup: Setup,
    disk: MemoryDisk,
    clock: ManualClock,
    /// `None` only between two lives.
    server: Option<Server>,
    layer: PhantomData<L>,
}

/// What a client hears first.
enum Heard {
    Entered(http::Attempt),
    Answered(std::io::Result<Reply>),
}

/// A request whose handler runs.
pub struct Running {
    attempt: http::Attempt,
    end: oneshot::Sender<End>,
    heard: Receiver<Heard>,
    connection: TcpStream,
    /// Ends when nothing of the request is left in the server.
    gone: Receiver<()>,
}

/// Ids and names of any bytes, in a header.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    let mut text = String::new();
    for byte in bytes.as_ref() {
        write!(text, "{byte:02x}").expect("a string has room");
    }
    text
}

pub fn header(head: &Parts, name: &str) -> Option<String> {
    Some(head.headers.get(name)?.to_str().expect("they are all text").to_owned())
}

pub fn length(head: &Parts, name: &str) -> Option<Duration> {
    Some(Duration::from_nanos(header(head, name)?.parse().expect("nanoseconds")))
}

pub fn fingerprint() -> http::Fingerprint {
    http::Fingerprint::of_head(|head| Some(header(head, "x-fingerprint")?.into_bytes()))
}

impl<L: Layered> Served<L> {
    fn server(&self) -> &Server {
        self.server.as_ref().expect("the server runs")
    }

    fn begin_life(&mut self) {
        let life = L::open(&self.setup, &self.disk, &self.clock).expect("the store opens");
        self.server = Some(Server::start::<L>(life));
    }

    fn told<R>(reply: std::io::Result<Reply>) -> Answer<R> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return Answer::Error(error.to_string()),
        };
        match (reply.header("x-verdict"), reply.status) {
            (Some("Duplicate"), _) => Answer::Duplicate(L::done(&reply)),
            (Some("InProgress"), 409) => {
                assert!(reply.header("retry-after").is_some_and(|after| after.parse::<u64>().is_ok()));
                Answer::InProgress
            }
            (Some("Mismatch"), 422) => Answer::Mismatch,
            (Some("Stale"), 200) => Answer::Stale,
            (verdict, status) => {
                assert!(status >= 400, "{status} although nothing was done: {verdict:?}");
                Answer::Error(format!("{status} {verdict:?}"))
            }
        }
    }
}

impl<L: Layered> Subject for Served<L> {
    type Running = Running;

    fn open(setup: &Setup) -> Self {
        let (disk, clock) = (MemoryDisk::new(1), ManualClock::new(setup.now));
        let mut subject = Self { setup: setup.clone(), disk, clock, server: None, layer: PhantomData };
        subject.begin_life();
        subject
    }

    fn can(ability: Ability) -> bool {
        L::can(ability)
    }

    fn begin(&self, event: &Event) -> Answer<Running> {
        let (says, heard) = channel();
        let (end, ends) = oneshot::channel();
        let (held, gone) = channel();
        let entered = says.clone();
        let announce = Box::new(move |attempt| drop(entered.send(Heard::Entered(attempt))));
        let number = self.server().expect_run(Run { announce, ends, held });
        let mut headers = L::headers(event);
        headers.push(("x-run", number.to_string()));
        headers.push(("x-source", hex(&event.source)));
        headers.extend(event.fingerprint.iter().map(|bytes| ("x-fingerprint", hex(bytes))));
        headers.extend(event.window.iter().map(|length| ("x-window", length.as_nanos().to_string())));
        headers.extend(event.lease.iter().map(|length| ("x-lease", length.as_nanos().to_string())));
        let connection = wire::send(self.server().address, &headers);
        let mut reader = connection.try_clone().expect("a second handle");
        thread::spawn(move || says.send(Heard::Answered(wire::read(&mut reader))));
        match heard.recv_timeout(PATIENCE).expect("the handler begins, or an answer comes") {
            Heard::Entered(attempt) => Answer::New(Running { attempt, end, heard, connection, gone }),
            Heard::Answered(reply) => Self::told(reply),
        }
    }

    fn end(&self, running: Running, end: End) -> Result<(), String> {
        let Running { attempt: _, end: says, heard, connection, gone } = running;
        if end == End::Drop {
            connection.shutdown(Shutdown::Both).expect("it is open");
            // Nothing is left, or nobody is left to say so.
            let _ = gone.recv_timeout(PATIENCE);
            return Ok(());
        }
        let is_done = matches!(end, End::Complete(_) | End::Refuse(_));
        says.send(end).expect("the handler waits");
        let Heard::Answered(reply) = heard.recv_timeout(PATIENCE).expect("an answer comes") else {
            panic!("the handler began twice")
        };
        let _ = gone.recv_timeout(PATIENCE);
        match reply {
            Ok(reply) if reply.header("x-verdict") == Some("Done") => Ok(()),
            Ok(reply) if is_done => Err(format!("{} {:?}", reply.status, reply.header("x-verdict"))),
            Err(error) if is_done => Err(error.to_string()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn crash(&mut self, running: Vec<Running>) {
        self.disk.crash();
        self.server = None;
        drop(running);
        self.begin_life();
    }

    fn restart(&mut self, down: Duration) {
        self.server().life().store.close().expect("it closes");
        self.server = None;
        self.clock.advance(down);
        self.begin_life();
    }

    fn collect(&self) {
        self.server().life().store.maintain().expect("there is room, and the disk works");
    }

    fn attempt(&self, running: &Running) -> Attempt {
        let previous = running.attempt.previous();
        Attempt {
            number: running.attempt.number(),
            previous: previous.map(|previous| previous.cause),
            note: previous.and_then(|previous| previous.note.clone()),
        }
    }

    fn note(&self, running: &Running, note: &[u8]) -> Result<(), String> {
        block_on(running.attempt.note(note)).map_err(|error| error.to_string())
    }

    fn renew(&self, running: &Running) -> Result<(), String> {
        running.attempt.renew().map_err(|error| error.to_string())
    }

    fn forget(&self, source: &str, id: &[u8]) -> bool {
        L::forget(self.server().life(), source, id)
    }

    fn step_wall(&self, seconds: i64) {
        self.clock.step_wall(seconds);
    }

    fn refuses_a_second_owner(&self) -> bool {
        let second = L::open(&self.setup, &self.disk, &self.clock);
        matches!(second, Err(oncedb::Error::Locked { .. }))
    }

    fn break_disk(&self, broken: bool) {
        break_disk(&self.disk, broken);
    }

    fn fill_disk(&self, full: bool) {
        fill_disk(&self.disk, full);
    }
}
