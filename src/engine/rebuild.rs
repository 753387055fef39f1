//! Finding out anew what a lost catalog said, from the files beside it.
//!
//! The seed and the scopes are in the identity, a run's bucket and extent in its footer, the order of
//! the segments in their headers, with what the catalog knew when they were prepared. Files that the
//! catalog did not list any more are taken up, too. That brings nothing back: the newest record of a
//! key is never removed before those it replaced have expired.

use std::collections::BTreeMap;
use std::path::Path;

use super::open::{JOURNAL_DIR, MOST_COUNTED, RUNS_DIR};
use crate::catalog::{CATALOG_FILE, Contents, Edit, FileKind, Listed, Meta};
use crate::clock::Time;
use crate::disk::read_exact_at;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::journal::segment::{FRAMES_AT, Header, Origin};
use crate::options::Options;
use crate::runs::summary_of;
use crate::span::Span;
use crate::verification::Problem;

/// Added to the era where a segment does not tell how far it had come.
const ERA_MARGIN: u64 = 1 << 16;

/// What the catalog says, or would say.
pub(super) struct Rebuilt {
    pub(super) contents: Contents,
    /// Every record up to here is in runs.
    pub(super) released: u64,
    /// What is wrong with the catalog's file.
    pub(super) problem: Option<Problem>,
}

/// Finds out what the catalog must have said, which is damaged in the way that `what` tells.
pub(super) fn rebuild(dir: &Path, options: &Options, what: &'static str) -> Result<Rebuilt> {
    let path = dir.join(CATALOG_FILE);
    let copies = Identity::read(&*options.disk, dir).map_err(|error| Error::io(dir, error))?;
    let Some(identity) = copies.newest else {
        let what =
            "it is damaged or missing, and so are both copies of the identity that it could be made from";
        return Err(Error::corrupt(&path, 0, what));
    };
    let mut edits = Vec::new();
    let mut meta = |meta, value| edits.push(Edit::Meta(meta, value));
    let segments = segments(dir, options)?;
    let files = files(dir, options, Time(identity.created))?;
    // The latest of what is known of the time, and of the openings.
    let stamps = segments.values().flatten().map(|header| header.origin);
    let told = Origin {
        era: identity.era,
        released: 0,
        store_time: identity.store_time,
        wall_time: identity.wall_time,
    };
    let stamp = stamps.clone().chain([told]).max_by_key(|stamp| stamp.store_time).unwrap_or(told);
    let era = stamps.clone().chain([told]).map(|stamp| stamp.era).max().unwrap_or(0);
    // The one that does not read may have been the last opening's.
    let all_tell = !segments.is_empty() && segments.values().all(Option::is_some);
    let era = era.saturating_add(if all_tell { 0 } else { ERA_MARGIN });
    let released = stamps.map(|stamp| stamp.released).max().unwrap_or(0);
    let above = |ids: Option<u64>| ids.unwrap_or(0).saturating_add(1);
    meta(Meta::Seed, identity.seed);
    meta(Meta::Created, identity.created);
    meta(Meta::Era, era);
    meta(Meta::StoreTime, stamp.store_time);
    meta(Meta::WallTime, stamp.wall_time);
    meta(Meta::AboveStoreTime, stamp.store_time);
    meta(Meta::AboveWallTime, stamp.wall_time);
    meta(Meta::NextFile, above(files.keys().max().copied()));
    meta(Meta::NextSegment, above(segments.keys().max().copied().map(u64::from)));
    meta(Meta::Ordinal, segments.values().flatten().map(|header| header.ordinal).max().unwrap_or(0));
    let next_bucket = above(files.values().map(|(listed, _)| listed.bucket).max());
    meta(Meta::NextBucket, next_bucket.saturating_add(1));

    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    for (id, (mut listed, end)) in files {
        if listed.bucket == 0 {
            listed.bucket = next_bucket;
        }
        let known = ends.entry(listed.bucket).or_default();
        *known = end.0.max(*known);
        edits.push(Edit::File(id, listed));
    }
    edits.extend(ends.into_iter().map(|(id, end)| Edit::Bucket { id, end }));
    edits.extend(identity.scopes.into_iter().map(|(name, number)| Edit::Scope(name, number)));
    // One whose header does not read has no epoch by which its frames could be told.
    edits.extend(segments.iter().map(|(&file_id, header)| {
        let (ordinal, epoch) = header.map_or((u64::MAX, 0), |header| (header.ordinal, header.epoch));
        Edit::Segment { file_id, ordinal, epoch }
    }));
    let problem = Some(Problem::new(&path, 0, what));
    Ok(Rebuilt { contents: Contents::default().after(&edits), released, problem })
}

impl Rebuilt {
    /// Puts response files into the buckets of the runs that point to them, and drops the others.
    pub(super) fn place_responses(&mut self, buckets: &BTreeMap<u64, u64>) {
        self.contents.files.retain(|id, listed| {
            if listed.kind == FileKind::Run {
                return true;
            }
            buckets.get(id).is_some_and(|&bucket| {
                listed.bucket = bucket;
                true
            })
        });
    }
}

/// The run and response files that are there, and the last `purge_at` in each.
fn files(dir: &Path, options: &Options, created: Time) -> Result<BTreeMap<u64, (Listed, Time)>> {
    let dir = dir.join(RUNS_DIR);
    let mut files = BTreeMap::new();
    for path in options.disk.list(&dir).map_err(|error| Error::io(&dir, error))? {
        let Some(id) = id_of(&path) else { continue };
        let kind = match path.extension().and_then(|ending| ending.to_str()) {
            Some("run") => FileKind::Run,
            Some("responses") => FileKind::Responses,
            _ => continue,
        };
        let file = options.disk.open(&path).map_err(|error| Error::io(&path, error))?;
        let bytes = file.len().map_err(|error| Error::io(&path, error))?;
        let unknown = Span { first: created, last: Time::NEVER };
        let unknown = Listed { kind, bucket: 0, bytes, records: bytes, written: unknown };
        let known = match kind {
            FileKind::Run => summary_of(&*file, &path).ok(),
            FileKind::Responses => None,
        };
        let entry = known.map_or((unknown, Time(0)), |summary| {
            let (bucket, records, written) = (summary.bucket, summary.records, summary.written);
            (Listed { bucket, records, written, ..unknown }, summary.last_purge)
        });
        files.insert(id, entry);
    }
    Ok(files)
}

/// The segment files that are there, with their headers where these read.
fn segments(dir: &Path, options: &Options) -> Result<BTreeMap<u32, Option<Header>>> {
    let dir = dir.join(JOURNAL_DIR);
    let mut segments = BTreeMap::new();
    for path in options.disk.list(&dir).map_err(|error| Error::io(&dir, error))? {
        let Some(id) = id_of(&path).and_then(|id| u32::try_from(id).ok()) else { continue };
        let file = options.disk.open(&path).map_err(|error| Error::io(&path, error))?;
        let mut bytes = [0; FRAMES_AT];
        let header = match read_exact_at(&*file, &mut bytes, 0) {
            Ok(()) => Header::from_bytes(&bytes).ok().filter(can_be_counted_on_from),
            Err(_) => None,
        };
        segments.insert(id, header);
    }
    Ok(segments)
}

fn can_be_counted_on_from(header: &Header) -> bool {
    [header.ordinal, header.origin.era, header.origin.released].iter().all(|&count| count < MOST_COUNTED)
}

fn id_of(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok()
}
