//! Reading every file of a store in use, and checking all that can be checked.
//!
//! No lock is held while something is read. The runs are those of one list, whose files stay until it
//! is let go. A segment may be freed and prepared for another use meanwhile: what is found wrong with
//! one counts only if the journal still holds it afterwards.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::Engine;
use crate::clock::Time;
use crate::error::Result;
use crate::journal::check::{Extent, check_begun, check_header};
use crate::key::{KEY_PREFIX, Kind};
use crate::record::{Body, Reply, StoredRecord};
use crate::runs::{Bucket, Item, Run, RunSet};
use crate::verification::{Problem, Verification, VerifyProgress};

/// Bytes between two reports of progress in one file.
const REPORT_EVERY: u64 = 1 << 20;

impl Engine {
    /// Reads and checks everything; `progress` is told now and then how far it is.
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(&VerifyProgress<'_>)) -> Result<Verification> {
        self.check()?;
        // The runs first: what a flush moves from the journal into runs meanwhile is read there or here.
        let set = self.runs.current();
        let extent = self.journal.extent();
        let scopes = self.catalog.contents().scopes.into_values().collect();
        let mut report = Report::new(&set, &extent, scopes, self.catalog.bytes(), progress);
        report.file(self.catalog.path(), self.catalog.bytes());
        report.note(self.catalog.path(), self.catalog.check());
        for bucket in &set.buckets {
            self.verify_bucket(bucket, &set, &mut report);
        }
        self.verify_journal(&extent, &mut report);
        self.check()?;
        Ok(report.found)
    }

    fn verify_journal(&self, extent: &Extent, report: &mut Report<'_>) {
        let mut first = None;
        for used in &extent.begun {
            let path = &used.segment.path;
            report.file(path, used.segment.size);
            match check_begun(used, first, |record| flaw_in_frame(record, &report.scopes)) {
                Ok(checked) => report.found.records += checked.records,
                Err(error) if self.journal.holds(used.segment.ordinal) => report.note(path, Err(error)),
                Err(_) => {}
            }
            first = Some(used.last_seq + 1);
        }
        for segment in &extent.ready {
            report.file(&segment.path, segment.size);
            match check_header(segment) {
                Err(error) if self.journal.holds(segment.ordinal) => report.note(&segment.path, Err(error)),
                _ => {}
            }
        }
    }

    fn verify_bucket(&self, bucket: &Bucket, set: &RunSet, report: &mut Report<'_>) {
        let mut unreadable = BTreeSet::new();
        for file in &bucket.responses {
            report.file(file.path(), 0);
            if let Err(error) = file.check() {
                unreadable.insert(file.id());
                report.note(file.path(), Err(error));
            }
        }
        for run in &bucket.runs {
            report.file(run.path(), 0);
            match run.read_again(&self.options.disk) {
                Ok(fresh) => self.verify_run(&fresh, bucket, set, &unreadable, report),
                Err(error) => report.note(run.path(), Err(error)),
            }
            report.advance(run.path(), run.summary().bytes);
        }
        for file in &bucket.responses {
            report.advance(file.path(), file.bytes());
        }
    }

    fn verify_run(
        &self,
        run: &Arc<Run>,
        bucket: &Bucket,
        set: &RunSet,
        unreadable: &BTreeSet<u64>,
        report: &mut Report<'_>,
    ) {
        let path = run.path();
        let mut scan = run.scan_sound();
        let mut reported = 0;
        while let Some(item) = scan.next() {
            if scan.offset() >= reported + REPORT_EVERY {
                reported = scan.offset();
                report.tell(path, reported);
            }
            let item = match item {
                Ok(item) => item,
                Err(error) => {
                    report.note(path, Err(error));
                    continue;
                }
            };
            report.found.records += 1;
            if let Some(what) = self.flaw_in_run(&item, bucket.end, report) {
                report.wrong(path, scan.offset(), what);
            }
            if let Some(Body::Done(done)) = StoredRecord::decode(&item.record).map(|record| record.body)
                && let Reply::Far(far) = done.reply
                && !unreadable.contains(&far.file)
            {
                report.found.responses += 1;
                report.note(path, set.response(far).map(drop));
            }
        }
    }

    /// What is wrong with a record of a run that its checksum does not tell.
    fn flaw_in_run(&self, item: &Item, bucket_end: Time, report: &Report<'_>) -> Option<&'static str> {
        let record = StoredRecord::decode(&item.record)?;
        if self.hasher.hash(record.key) != item.hash {
            return Some("a record's hash is not that of its key");
        }
        if record.purge_at > bucket_end {
            return Some("a record outlives its bucket");
        }
        if item.seq > report.durable {
            return Some("a record is ahead of the journal");
        }
        flaw_in_key(&record, &report.scopes)
    }
}

fn flaw_in_frame(record: &StoredRecord<'_>, scopes: &BTreeSet<u32>) -> Option<&'static str> {
    if matches!(record.body, Body::LogStart { .. }) { None } else { flaw_in_key(record, scopes) }
}

fn flaw_in_key(record: &StoredRecord<'_>, scopes: &BTreeSet<u32>) -> Option<&'static str> {
    let (kind, scope) = match record.key.split_first_chunk::<KEY_PREFIX>() {
        Some(([kind, scope @ ..], [_, ..])) => (*kind, u32::from_le_bytes(*scope)),
        _ => return Some("a record's key is too short"),
    };
    let fits = match record.body {
        Body::Mark(_) => kind == Kind::Mark as u8,
        Body::Tombstone { .. } => kind == Kind::Mark as u8 || kind == Kind::Id as u8,
        _ => kind == Kind::Id as u8,
    };
    if !fits {
        return Some("a record's key is not of the record's kind");
    }
    (!scopes.contains(&scope)).then_some("a record is of a scope that the catalog does not know")
}

/// What was found, and how far it is.
struct Report<'a> {
    found: Verification,
    /// The numbers of all scopes.
    scopes: BTreeSet<u32>,
    /// The last durable frame.
    durable: u64,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(&VerifyProgress<'_>),
}

impl<'a> Report<'a> {
    fn new(
        set: &RunSet,
        extent: &Extent,
        scopes: BTreeSet<u32>,
        catalog: u64,
        progress: &'a mut dyn FnMut(&VerifyProgress<'_>),
    ) -> Self {
        let runs = set.buckets.iter().flat_map(|bucket| &bucket.runs).map(|run| run.summary().bytes);
        let responses = set.buckets.iter().flat_map(|bucket| &bucket.responses).map(|file| file.bytes());
        let begun = extent.begun.iter().map(|used| used.segment.size);
        let ready = extent.ready.iter().map(|segment| segment.size);
        let total = runs.chain(responses).chain(begun).chain(ready).sum::<u64>() + catalog;
        Self { found: Verification::default(), scopes, durable: extent.durable, done: 0, total, progress }
    }

    /// A file is at hand; `bytes` of it are read at once.
    fn file(&mut self, path: &Path, bytes: u64) {
        self.found.files += 1;
        self.tell(path, 0);
        self.advance(path, bytes);
    }

    fn advance(&mut self, path: &Path, bytes: u64) {
        self.done += bytes;
        self.found.bytes += bytes;
        if bytes > 0 {
            self.tell(path, 0);
        }
    }

    fn tell(&mut self, path: &Path, within: u64) {
        let bytes_done = (self.done + within).min(self.total);
        (self.progress)(&VerifyProgress { path, bytes_done, bytes_total: self.total });
    }

    fn note(&mut self, path: &Path, checked: Result<()>) {
        if let Err(error) = checked {
            self.found.problems.push(Problem::of(path, &error));
        }
    }

    fn wrong(&mut self, path: &Path, offset: u64, what: &str) {
        self.found.problems.push(Problem::new(path, offset, what));
    }
}
