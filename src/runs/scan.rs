//! Reading a run from end to end, checking everything.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::block::entries;
use super::layout::{RunSummary, decode};
use super::run::Run;
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::record::key_of;

/// How much is read at a time; a merge holds as much for each of its runs.
const PIECE: u64 = 128 << 10;

/// A record of a run that is being scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) hash: u64,
    pub(crate) seq: u64,
    pub(crate) purge_at: Time,
    pub(crate) record: Vec<u8>,
}

impl Item {
    /// What runs are sorted by.
    pub(crate) fn place(&self) -> (u64, &[u8]) {
        (self.hash, key_of(&self.record))
    }
}

/// The records of a run in order. Ends after the first error, unless it is to keep going. Who has read it to the end knows
/// that the whole file is sound: every sum and the order are right, every record decodes and
/// passes the filter, and the summary is the one in the footer.
#[derive(Debug)]
pub(crate) struct Scan {
    run: Arc<Run>,
    next_block: usize,
    piece: Vec<u8>,
    piece_range: Range<u64>,
    items: VecDeque<Item>,
    last: Option<(u64, Vec<u8>)>,
    seen: RunSummary,
    ended: bool,
    /// Goes on with the next block after a damaged one.
    keep_going: bool,
    damaged: bool,
}

impl Scan {
    pub(super) fn new(run: Arc<Run>, keep_going: bool) -> Self {
        Self {
            run,
            next_block: 0,
            piece: Vec::new(),
            piece_range: 0..0,
            items: VecDeque::new(),
            last: None,
            seen: RunSummary::default(),
            ended: false,
            keep_going,
            damaged: false,
        }
    }

    /// Where in the file the block of the last record begins.
    pub(crate) fn offset(&self) -> u64 {
        let block = self.next_block.checked_sub(1).and_then(|block| self.run.index.range(block));
        block.map_or(0, |range| range.start)
    }

    /// Decodes the next block into `items`; false at the end.
    fn load(&mut self) -> Result<bool> {
        let Some(range) = self.run.index.range(self.next_block) else {
            return self.check_end().map(|()| false);
        };
        if range.end > self.piece_range.end {
            self.read_piece(range.clone())?;
        }
        let run = &*self.run;
        let corrupt = |what| Error::corrupt(run.path(), range.start, what);
        let place = |offset: u64| usize::try_from(offset - self.piece_range.start).ok();
        let block = place(range.start)
            .zip(place(range.end))
            .and_then(|(start, end)| self.piece.get(start..end))
            .ok_or_else(|| corrupt("a block is larger than memory"))?;
        for entry in entries(block).map_err(corrupt)? {
            let entry = entry.map_err(corrupt)?;
            let record = decode(entry.record).ok_or_else(|| corrupt("a record does not decode"))?;
            let at = (entry.hash, record.key);
            if self.last.as_ref().is_some_and(|(hash, key)| (*hash, &key[..]) >= at) {
                return Err(corrupt("records are out of order"));
            }
            if self.items.is_empty() && run.index.first_hash(self.next_block) != Some(entry.hash) {
                return Err(corrupt("a block does not begin with the hash that the index says"));
            }
            if !run.may_contain(entry.hash) {
                return Err(corrupt("the filter denies a record"));
            }
            self.seen.add(entry.seq, &record);
            let (hash, key) = self.last.get_or_insert_default();
            *hash = entry.hash;
            key.clear();
            key.extend_from_slice(record.key);
            self.items.push_back(Item {
                hash: entry.hash,
                seq: entry.seq,
                purge_at: record.purge_at,
                record: entry.record.to_vec(),
            });
        }
        self.next_block += 1;
        Ok(true)
    }

    /// Reads the block at `first` and as many behind it as fit a piece.
    fn read_piece(&mut self, first: Range<u64>) -> Result<()> {
        let fits = |range: &Range<u64>| range.end - first.start <= PIECE;
        let behind = (self.next_block + 1..).map_while(|block| self.run.index.range(block)).take_while(fits);
        let end = behind.last().map_or(first.end, |last| last.end);
        self.run.read(first.start..end, &mut self.piece)?;
        self.piece_range = first.start..end;
        Ok(())
    }

    fn check_end(&self) -> Result<()> {
        let summary = self.run.summary();
        if self.damaged
            || (RunSummary { bytes: summary.bytes, bucket: summary.bucket, ..self.seen }) == *summary
        {
            Ok(())
        } else {
            let end = self.run.index.end();
            Err(Error::corrupt(self.run.path(), end, "the footer does not sum up the records"))
        }
    }
}

impl Iterator for Scan {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.items.is_empty() && !self.ended {
            match self.load() {
                Ok(more) => self.ended = !more,
                Err(error) => {
                    // There is no block behind the summary.
                    self.ended = !self.keep_going || self.next_block >= self.run.index.blocks();
                    self.damaged = true;
                    self.next_block += 1;
                    self.items.clear();
                    return Some(Err(error));
                }
            }
        }
        self.items.pop_front().map(Ok)
    }
}
