//! A ledger in a SQLite database of the caller's. A claim in progress is a transaction that is open, on
//! a thread that owns it.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use oncedb::ManualClock;
use oncedb::conformance::{Ability, Answer, End, Event, Setup, Subject};
use oncedb::sqlite::Ledger;
use oncedb::sqlite::rusqlite::{Connection, Transaction, TransactionBehavior};
use tempfile::TempDir;

use crate::ledger::{can, ledger, request, told};

pub struct InSqlite {
    setup: Setup,
    clock: ManualClock,
    dir: TempDir,
}

/// A thread with a transaction in which the id is claimed.
pub struct Running {
    /// Whether to commit, and with which response.
    end: Sender<Option<Response>>,
    thread: JoinHandle<Result<(), String>>,
}

type Response = Option<Vec<u8>>;

/// What a claim is made with.
struct Place {
    path: PathBuf,
    setup: Setup,
    clock: ManualClock,
}

impl Place {
    fn connect(&self) -> Connection {
        let connection = Connection::open(&self.path).expect("it opens");
        connection.busy_timeout(Duration::from_secs(60)).expect("it takes a bound");
        // Syncs are for power cuts, which are not made here.
        connection
            .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")
            .expect("it takes options");
        connection
    }

    fn ledger(&self, source: &str) -> Ledger {
        ledger!(Ledger, source, self.setup, self.clock)
    }

    fn claim_in(&self, tx: &Transaction<'_>, event: &Event, response: Option<&[u8]>) -> Answer<()> {
        let ledger = self.ledger(&event.source);
        let request = request!(ledger, event);
        let answer = told(match response {
            Some(response) => request.claim_with(tx, response),
            None => request.claim(tx),
        });
        answer.and_then(|_| Answer::New(()))
    }

    /// Claims, says so, and waits for what to do with the transaction.
    fn hold(
        &self,
        event: &Event,
        say: &Sender<Answer<()>>,
        end: &Receiver<Option<Response>>,
    ) -> Result<(), String> {
        let connection = self.connect();
        let tx = Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)
            .map_err(|error| error.to_string())?;
        let answer = self.claim_in(&tx, event, None);
        let is_new = matches!(answer, Answer::New(()));
        say.send(answer).expect("somebody waits");
        if is_new && let Ok(Some(response)) = end.recv() {
            if let Some(response) = response {
                let told = self.ledger(&event.source).respond(&tx, &event.id, response);
                assert!(told.expect("it is stored"), "it was claimed in this transaction");
            }
            return tx.commit().map_err(|error| error.to_string());
        }
        tx.rollback().map_err(|error| error.to_string())
    }
}

fn begin(connection: &Connection) -> Transaction<'_> {
    Transaction::new_unchecked(connection, TransactionBehavior::Immediate).expect("a transaction")
}

impl InSqlite {
    fn place(&self) -> Place {
        let path = self.dir.path().join("work.sqlite");
        Place { path, setup: self.setup.clone(), clock: self.clock.clone() }
    }

    fn finish(running: Running, response: Option<Response>) -> Result<(), String> {
        running.end.send(response).expect("the thread waits");
        running.thread.join().expect("it does not panic")
    }
}

impl Subject for InSqlite {
    type Running = Running;

    fn open(setup: &Setup) -> Self {
        let clock = ManualClock::new(setup.now);
        Self { setup: setup.clone(), clock, dir: tempfile::tempdir().expect("a directory") }
    }

    fn can(ability: Ability) -> bool {
        can(ability)
    }

    fn begin(&self, event: &Event) -> Answer<Running> {
        let (say, said) = channel();
        let (end, ended) = channel();
        let (place, wanted) = (self.place(), event.clone());
        let thread = thread::spawn(move || place.hold(&wanted, &say, &ended));
        let answer = said.recv().expect("the thread answers");
        if answer == Answer::New(()) {
            return Answer::New(Running { end, thread });
        }
        thread.join().expect("it does not panic").expect("it rolls back");
        answer.and_then(|()| unreachable!("it is not new"))
    }

    fn end(&self, running: Running, end: End) -> Result<(), String> {
        match end {
            End::Complete(response) => Self::finish(running, Some(response)),
            End::Abort | End::Drop | End::Panic => Self::finish(running, None),
            End::Refuse(_) => unreachable!("a ledger knows no refusals"),
        }
    }

    fn claim(&self, event: &Event, response: Option<&[u8]>) -> Answer<()> {
        let place = self.place();
        let connection = place.connect();
        let tx = begin(&connection);
        let answer = place.claim_in(&tx, event, response);
        let ended = if answer == Answer::New(()) { tx.commit() } else { tx.rollback() };
        match ended {
            Ok(()) => answer,
            Err(error) => Answer::Error(error.to_string()),
        }
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn crash(&mut self, running: Vec<Running>) {
        for running in running {
            Self::finish(running, None).expect("it rolls back");
        }
    }

    fn forget(&self, source: &str, id: &[u8]) -> bool {
        let place = self.place();
        let connection = place.connect();
        let tx = begin(&connection);
        let forgotten = place.ledger(source).forget(&tx, id).expect("it can be forgotten");
        tx.commit().expect("it commits");
        forgotten
    }

    fn claim_all(&self, events: &[Event]) -> Vec<Answer<()>> {
        let place = self.place();
        let connection = place.connect();
        let tx = begin(&connection);
        let answers = events.iter().map(|event| place.claim_in(&tx, event, None)).collect();
        tx.commit().expect("it commits");
        answers
    }

    fn contains(&self, source: &str, id: &[u8]) -> bool {
        let place = self.place();
        place.ledger(source).contains(&place.connect(), id).expect("the ledger answers")
    }

    fn step_wall(&self, seconds: i64) {
        self.clock.step_wall(seconds);
    }
}
