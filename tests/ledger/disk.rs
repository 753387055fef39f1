//! A ledger in redb over storage that loses what was not synced: id and work agree, whichever call is
//! the last.

use crate::common::{Dice, SECOND, announce, fresh_seed, noon};
use crate::door::World;
use crate::payments::{assert_agree, pay};
use crate::redb_door::Redb;
use oncedb::ManualClock;
use oncedb::redb::{Database, StorageBackend};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

const SECTOR: usize = 512;

#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Len(usize),
}

/// A file in memory, and what of it would be lost.
#[derive(Debug, Default)]
struct Platter {
    durable: Vec<u8>,
    now: Vec<u8>,
    unsynced: Vec<Change>,
    calls: u64,
    /// The call that is not carried out any more, and none after it.
    dies_at: Option<u64>,
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(offset, data) => {
            let end = offset + data.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[*offset..end].copy_from_slice(data);
        }
        Change::Len(len) => bytes.resize(*len, 0),
    }
}

impl Platter {
    fn is_dead(&self) -> bool {
        self.dies_at.is_some_and(|call| self.calls >= call)
    }

    fn call(&mut self) -> io::Result<()> {
        if self.is_dead() {
            return Err(io::Error::other("the machine is off"));
        }
        self.calls += 1;
        Ok(())
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        self.call()?;
        apply(&mut self.now, &change);
        self.unsynced.push(change);
        Ok(())
    }

    /// What a power cut leaves: any of the sectors that were written since the last sync.
    fn after_power_cut(&self, dice: &mut Dice) -> Vec<u8> {
        let mut left = self.durable.clone();
        for change in &self.unsynced {
            match change {
                Change::Len(_) => apply(&mut left, change),
                Change::Write(offset, data) => {
                    for (number, sector) in data.chunks(SECTOR).enumerate() {
                        if dice.below(2) == 0 {
                            apply(&mut left, &Change::Write(offset + number * SECTOR, sector.to_vec()));
                        }
                    }
                }
            }
        }
        left
    }
}

#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<Platter>>);

impl Disk {
    fn of(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Platter { durable: bytes.clone(), now: bytes, ..Platter::default() })))
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platter = self.0.lock().unwrap();
        if platter.is_dead() {
            return Err(io::Error::other("the machine is off"));
        }
        let start = usize::try_from(offset).unwrap();
        out.copy_from_slice(platter.now.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().change(Change::Len(usize::try_from(len).unwrap()))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platter = self.0.lock().unwrap();
        platter.call()?;
        let Platter { durable, now, unsynced, .. } = &mut *platter;
        durable.clone_from(now);
        unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().change(Change::Write(usize::try_from(offset).unwrap(), data.to_vec()))
    }
}

/// Makes payments until the disk is dead: those that were acknowledged.
fn payments(disk: &Disk, clock: &ManualClock) -> Vec<i64> {
    let mut acknowledged = Vec::new();
    // A transaction on a dead disk ends in some error; which one is redb's.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let db = Database::builder().create_with_backend(disk.clone()).unwrap();
        let world = World::<Redb> { db, clock: clock.clone() };
        let ledger = world.ledger();
        for number in 0..6 {
            pay::<Redb>(&ledger, &world.db, number);
            acknowledged.push(number);
            clock.advance(SECOND);
        }
    }));
    acknowledged
}

#[test]
fn id_and_work_agree_whichever_call_of_the_disk_is_the_last() {
    let seed = fresh_seed();
    announce(&format!("ledger on a lossy disk: ONCEDB_SEED={seed}"));
    let mut dice = Dice::new(seed);
    let (all, clock) = (Disk::default(), ManualClock::new(noon()));
    assert_eq!(payments(&all, &clock).len(), 6);
    let calls = all.0.lock().unwrap().calls;
    assert!(calls > 20, "{calls} calls of the disk");
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let runs: Vec<_> = (0..calls)
        .map(|last| {
            let (disk, clock) = (Disk::default(), ManualClock::new(noon()));
            disk.0.lock().unwrap().dies_at = Some(last);
            (last, payments(&disk, &clock), disk, clock)
        })
        .collect();
    std::panic::set_hook(hook);
    let mut ends = [0; 7];
    for (last, acknowledged, disk, clock) in runs {
        let platter = disk.0.lock().unwrap();
        let cuts = (0..3).map(|_| ("a power cut", platter.after_power_cut(&mut dice)));
        for (kind, bytes) in cuts.collect::<Vec<_>>().into_iter().chain([("a kill", platter.now.clone())]) {
            let at = format!("{kind} at call {last}, ONCEDB_SEED={seed}");
            let db = Database::builder().create_with_backend(Disk::of(bytes));
            let Ok(db) = db else {
                assert!(acknowledged.is_empty(), "{at}: {}", db.unwrap_err());
                continue; // the database itself was being made
            };
            let world = World::<Redb> { db, clock: clock.clone() };
            let count = assert_agree(&world, &world.ledger(), &acknowledged, &at);
            ends[usize::try_from(count).unwrap()] += 1;
        }
    }
    assert!(ends.iter().all(|count| *count > 0), "every number of payments was left once: {ends:?}");
}
