//! A ledger in a redb database of the caller's. A claim in progress is a transaction that is open.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncedb::conformance::{Ability, Answer, End, Event, Setup, Subject};
use oncedb::redb::{Database, ReadableDatabase, StorageBackend, WriteTransaction};
use oncedb::{Ledger, ManualClock, Record};

use crate::ledger::{can, ledger, request, told};

/// A file in memory: what was written is there when the process that wrote it is not.
#[derive(Clone, Debug, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock().unwrap();
        let start = usize::try_from(offset).unwrap();
        out.copy_from_slice(&bytes[start..start + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        self.0.lock().unwrap()[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        Ok(())
    }
}

pub struct InRedb {
    setup: Setup,
    clock: ManualClock,
    file: File,
    /// `None` only between two lives.
    db: Option<Database>,
}

/// An open transaction, in which the id is claimed.
pub struct Running {
    event: Event,
    tx: WriteTransaction,
}

impl InRedb {
    fn db(&self) -> &Database {
        self.db.as_ref().expect("the database is open")
    }

    fn begin_life(&mut self) {
        let file = self.file.clone();
        self.db = Some(Database::builder().create_with_backend(file).expect("it opens"));
    }

    fn ledger(&self, source: &str) -> Ledger {
        ledger!(Ledger, source, self.setup, self.clock)
    }

    fn claim_in(&self, tx: &WriteTransaction, event: &Event, response: Option<&[u8]>) -> Answer<Record> {
        let ledger = self.ledger(&event.source);
        let request = request!(ledger, event);
        told(match response {
            Some(response) => request.claim_with(tx, response),
            None => request.claim(tx),
        })
    }
}

impl Subject for InRedb {
    type Running = Running;

    fn open(setup: &Setup) -> Self {
        let clock = ManualClock::new(setup.now);
        let mut subject = Self { setup: setup.clone(), clock, file: File::default(), db: None };
        subject.begin_life();
        subject
    }

    fn can(ability: Ability) -> bool {
        can(ability)
    }

    fn begin(&self, event: &Event) -> Answer<Running> {
        let tx = self.db().begin_write().expect("a transaction");
        let answer = self.claim_in(&tx, event, None);
        answer.and_then(|_| Answer::New(Running { event: event.clone(), tx }))
    }

    fn end(&self, running: Running, end: End) -> Result<(), String> {
        match end {
            End::Complete(response) => {
                if let Some(response) = response {
                    let ledger = self.ledger(&running.event.source);
                    let told = ledger.respond(&running.tx, &running.event.id, response);
                    assert!(told.expect("it is stored"), "it was claimed in this transaction");
                }
                running.tx.commit().map_err(|error| error.to_string())
            }
            End::Abort => running.tx.abort().map_err(|error| error.to_string()),
            End::Drop => {
                drop(running);
                Ok(())
            }
            End::Panic => {
                let work = AssertUnwindSafe(|| {
                    let _running = running;
                    resume_unwind(Box::new("the work fails"));
                });
                catch_unwind(work).expect_err("it panics");
                Ok(())
            }
            End::Refuse(_) => unreachable!("a ledger knows no refusals"),
        }
    }

    fn claim(&self, event: &Event, response: Option<&[u8]>) -> Answer<()> {
        let tx = self.db().begin_write().expect("a transaction");
        self.claim_in(&tx, event, response).and_then(|_| match tx.commit() {
            Ok(()) => Answer::New(()),
            Err(error) => Answer::Error(error.to_string()),
        })
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn crash(&mut self, running: Vec<Running>) {
        // What a dead process leaves is what it wrote, and of a transaction that means nothing.
        drop(running);
        self.db = None;
        self.begin_life();
    }

    fn forget(&self, source: &str, id: &[u8]) -> bool {
        let tx = self.db().begin_write().expect("a transaction");
        let forgotten = self.ledger(source).forget(&tx, id).expect("it can be forgotten");
        tx.commit().expect("it commits");
        forgotten
    }

    fn claim_all(&self, events: &[Event]) -> Vec<Answer<()>> {
        let tx = self.db().begin_write().expect("a transaction");
        let claim = |event| self.claim_in(&tx, event, None).and_then(|_| Answer::New(()));
        let answers = events.iter().map(claim).collect();
        tx.commit().expect("it commits");
        answers
    }

    fn contains(&self, source: &str, id: &[u8]) -> bool {
        let tx = self.db().begin_read().expect("a transaction");
        self.ledger(source).contains(&tx, id).expect("the ledger answers")
    }

    fn step_wall(&self, seconds: i64) {
        self.clock.step_wall(seconds);
    }
}
