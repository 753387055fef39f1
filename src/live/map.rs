//! The sharded table of recent states.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table;

use super::attempt::Attempt;
use crate::key::Key;
use crate::record::key_of;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// A power of two. More shards mean shorter pauses while one is flushed or grows. Tests of races pay
/// for every lock, and want keys to meet.
const SHARDS: usize = if cfg!(shuttle) { 2 } else { 128 };

/// What a table slot and two allocations cost beside the bytes themselves.
const ENTRY_OVERHEAD: usize = 96;
const ATTEMPT_OVERHEAD: usize = 384;

/// Every state that is not in runs yet, and every claim in progress.
#[derive(Debug)]
pub(crate) struct LiveMap {
    shards: Box<[Mutex<Shard>]>,
    bytes: AtomicUsize,
}

/// One part of the map; a key is always in the same one.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    states: HashTable<Entry>,
    owners: HashTable<Owner>,
}

/// The last state of a key, and the sequence number of the frame that made it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) hash: u64,
    pub(crate) seq: u64,
    pub(crate) state: State,
}

#[derive(Debug)]
pub(crate) enum State {
    Settled {
        /// The encoded record.
        record: Arc<[u8]>,
        /// For a mark: the one-step claim that moved it, while that may still be taken back.
        undelivered: Option<Arc<Attempt>>,
    },
    Running(Arc<Attempt>),
}

/// The attempt that last took an entity; it counts while it is running.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) entity: Key,
    pub(crate) attempt: Arc<Attempt>,
}

impl Entry {
    pub(crate) fn key(&self) -> &[u8] {
        match &self.state {
            State::Settled { record, .. } => key_of(record),
            State::Running(attempt) => &attempt.key.bytes,
        }
    }

    /// What it counts for against the memory limit.
    pub(crate) fn cost(&self) -> usize {
        match &self.state {
            State::Settled { record, .. } => ENTRY_OVERHEAD + record.len(),
            State::Running(attempt) => {
                let note = attempt.progress().note.as_ref().map_or(0, |note| note.len());
                ENTRY_OVERHEAD + ATTEMPT_OVERHEAD + 2 * attempt.key.bytes.len() + note
            }
        }
    }
}

/// The memory a new claim will count for, before it is granted.
pub(crate) fn cost_of_claim(key_len: usize, extra: usize) -> usize {
    ENTRY_OVERHEAD + ATTEMPT_OVERHEAD + 2 * key_len + extra
}

impl Default for LiveMap {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), bytes: AtomicUsize::new(0) }
    }
}

impl LiveMap {
    /// Bytes held, estimated.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        self.shards.iter()
    }

    fn index(hash: u64) -> usize {
        // Not the bits that the table itself uses.
        usize::try_from(hash >> 40).unwrap_or(0) % SHARDS
    }

    /// Locks the shard of a key, and that of a second one, always in shard order.
    pub(crate) fn lock(&self, first: &Key, second: Option<&Key>) -> Locked<'_> {
        let first = Self::index(first.hash);
        let second = second.map_or(first, |key| Self::index(key.hash));
        if first == second {
            return Locked { map: self, first: self.shards[first].lock(), second: None };
        }
        let lower = self.shards[first.min(second)].lock();
        let higher = self.shards[first.max(second)].lock();
        let (first, second) = if first < second { (lower, higher) } else { (higher, lower) };
        Locked { map: self, first, second: Some(second) }
    }

    /// Drops the states that `done` accepts.
    pub(crate) fn sweep(&self, mut done: impl FnMut(&Entry) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let mut freed = 0;
            shard.states.retain(|entry| {
                let drop = done(entry);
                if drop {
                    freed += entry.cost();
                }
                !drop
            });
            if shard.states.is_empty() {
                shard.states.shrink_to(0, |entry| entry.hash);
            }
            shard.owners.retain(|owner| !owner.attempt.has_ended());
            self.bytes.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Counts a change of what one entry holds.
    pub(crate) fn add_bytes(&self, before: usize, after: usize) {
        self.bytes.fetch_add(after, Ordering::Relaxed);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
    }
}

/// The one or two shards that one decision needs.
pub(crate) struct Locked<'a> {
    map: &'a LiveMap,
    first: MutexGuard<'a, Shard>,
    /// `None` if both keys live in the first.
    second: Option<MutexGuard<'a, Shard>>,
}

impl Locked<'_> {
    /// The shard of the first key.
    pub(crate) fn first(&mut self) -> &mut Shard {
        &mut self.first
    }

    /// The shard of the second key.
    pub(crate) fn second(&mut self) -> &mut Shard {
        self.second.as_mut().unwrap_or(&mut self.first)
    }

    /// Sets the state of the first key.
    pub(crate) fn set_first(&mut self, key: &Key, seq: u64, state: State) {
        let (before, after) = self.first.set(key, seq, state);
        self.map.add_bytes(before, after);
    }

    /// Sets the state of the second key.
    pub(crate) fn set_second(&mut self, key: &Key, seq: u64, state: State) {
        let (before, after) = self.second().set(key, seq, state);
        self.map.add_bytes(before, after);
    }
}

impl Shard {
    pub(crate) fn find(&self, key: &Key) -> Option<&Entry> {
        self.states.find(key.hash, |entry| entry.key() == &*key.bytes)
    }

    pub(crate) fn find_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        self.states.find_mut(key.hash, |entry| entry.key() == &*key.bytes)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.states.iter()
    }

    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.states.iter_mut()
    }

    /// Sets a key's state; returns what the entry cost before and costs now.
    fn set(&mut self, key: &Key, seq: u64, state: State) -> (usize, usize) {
        let new = Entry { hash: key.hash, seq, state };
        let after = new.cost();
        match self.states.entry(key.hash, |entry| entry.key() == &*key.bytes, |entry| entry.hash) {
            hash_table::Entry::Occupied(mut old) => {
                let before = old.get().cost();
                *old.get_mut() = new;
                (before, after)
            }
            hash_table::Entry::Vacant(place) => {
                place.insert(new);
                (0, after)
            }
        }
    }

    /// The attempt that last took an entity.
    pub(crate) fn owner(&self, entity: &Key) -> Option<&Arc<Attempt>> {
        self.owners.find(entity.hash, |owner| owner.entity == *entity).map(|owner| &owner.attempt)
    }

    /// Gives an entity to an attempt.
    pub(crate) fn own(&mut self, owner: Owner) {
        let entity = owner.entity.clone();
        self.disown(&entity, |_| true);
        self.owners.insert_unique(owner.entity.hash, owner, |owner| owner.entity.hash);
    }

    /// Takes an entity from its owner, if `is` accepts that one.
    pub(crate) fn disown(&mut self, entity: &Key, is: impl FnOnce(&Attempt) -> bool) {
        if let Ok(found) = self.owners.find_entry(entity.hash, |owner| owner.entity == *entity)
            && is(&found.get().attempt)
        {
            found.remove();
        }
    }
}
