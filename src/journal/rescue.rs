//! What is sound in a journal that is not: every good frame of a segment's epoch, wherever it lies.
//!
//! Frames are numbered without gaps, so the numbers that are missing say what is lost. When that was
//! is told by the records beside a gap. A frame that a recovery decided against stays dead: a later
//! segment has its number, or a log start says so.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::frame::{FRAME_ALIGN, Frame};
use super::replay::Known;
use super::segment::{self, FRAMES_AT, Header};
use crate::clock::Time;
use crate::disk::{self, Disk};
use crate::error::{Error, Result};
use crate::lenient::read_what_can_be;
use crate::record::{Body, StoredRecord};
use crate::span::Span;
use crate::verification::Problem;

/// By how much the times of frames may disagree with their numbers: a thread reads the clock before
/// it gets its number.
const SKEW: Duration = Duration::from_secs(60);

/// Damage to a segment, and when the frames were made that are lost by it.
#[derive(Debug)]
pub(crate) struct LostSegment {
    pub(crate) file_id: u32,
    pub(crate) problem: Problem,
    /// Up to [`Time::NEVER`] if nothing sound follows.
    pub(crate) claims: Span,
}

/// What [`rescue`] found.
#[derive(Debug, Default)]
pub(crate) struct Rescued {
    /// The highest number that is known to have been given.
    pub(crate) last_seq: u64,
    pub(crate) lost: Vec<LostSegment>,
}

/// A segment that is to be read: its file id, ordinal and epoch.
pub(crate) type Wanted = (u32, u64, u64);

/// Gives every record that is still in the log to `visit`, in order, with its number. `before` says
/// when the last claim was completed that is older than a number, as far as others know.
pub(crate) fn rescue(
    disk: &dyn Disk,
    dir: &Path,
    wanted: &[Wanted],
    known: Known,
    before: &dyn Fn(u64) -> Time,
    visit: &mut dyn FnMut(u64, StoredRecord<'_>, &[u8]),
) -> Result<Rescued> {
    let mut parts = wanted.iter().map(|wanted| Part::read(disk, dir, *wanted)).collect::<Result<Vec<_>>>()?;
    exchange(&mut parts);
    parts.sort_by_key(|part| part.ordinal);
    parts.iter_mut().for_each(Part::find_frames);
    bury_the_dead(&mut parts);

    let mut log = BTreeMap::new();
    for (index, part) in parts.iter().enumerate() {
        log.extend(part.found.iter().map(|place| (place.seq, (index, *place))));
    }
    let seen = log.last_key_value().map_or(0, |(&seq, _)| seq);
    let promised = parts.iter().flat_map(|part| &part.found).map(|place| place.durable).max().unwrap_or(0);
    let last_seq = seen.max(promised).max(known.durable).max(known.released);
    for (&seq, (index, place)) in &log {
        parts[*index].records(*place, |record, bytes| visit(seq, record, bytes));
    }

    let end_is_lost = end_is_lost(&parts);
    for gap in gaps(&log, known.released, last_seq) {
        let claims = Span {
            first: since(&log, gap.0).max(before(gap.0)).before(SKEW),
            last: until(&log, gap.1).map_or(Time::NEVER, |time| time.after(SKEW)),
        };
        let home = home_of(&parts, gap, known.released);
        if let Some(part) = home.and_then(|home| parts.get_mut(home)) {
            part.lose(gap.0, claims);
        }
    }
    // Where all that is lost is in runs, the file is damaged all the same.
    for part in &mut parts {
        let broken = part.found.windows(2).find(|pair| pair[1].seq != pair[0].seq + 1);
        if let Some(seq) = broken.map(|pair| pair[0].seq + 1).filter(|_| part.lost.is_empty()) {
            part.lose(seq, Span::EMPTY);
        }
    }
    if let Some(part) = end_is_lost.and_then(|index| parts.get_mut(index)) {
        let first = since(&log, u64::MAX).max(before(u64::MAX)).before(SKEW);
        part.lose(u64::MAX, Span { first, last: Time::NEVER });
    }
    // A store has a segment whenever it has been opened. Without one, nobody knows how far the log went.
    let all = parts.is_empty().then(|| LostSegment {
        file_id: 0,
        problem: Problem::new(dir, 0, "there is no journal segment"),
        claims: Span { first: before(u64::MAX).before(SKEW), last: Time::NEVER },
    });
    let lost = parts.into_iter().flat_map(|part| {
        let Part { file_id, problem, mut lost, .. } = part;
        if lost.is_empty() {
            lost.extend(problem.map(|problem| (problem, Span::EMPTY)));
        }
        lost.into_iter().map(move |(problem, claims)| LostSegment { file_id, problem, claims })
    });
    Ok(Rescued { last_seq, lost: lost.chain(all).collect() })
}

/// One segment's bytes, as far as they can be read, and the good frames in them.
struct Part {
    file_id: u32,
    ordinal: u64,
    epoch: u64,
    path: PathBuf,
    bytes: Vec<u8>,
    header: Option<Header>,
    problem: Option<Problem>,
    found: Vec<Place>,
    /// The end of the log before, if its first frame is a log start.
    log_start: Option<(u64, u64)>,
    /// What is lost, one by one.
    lost: Vec<(Problem, Span)>,
}

#[derive(Clone, Copy)]
struct Place {
    seq: u64,
    durable: u64,
    offset: usize,
    len: usize,
    /// When it was made, if it tells.
    made: Option<Time>,
    /// The latest moment that it tells; it was not made before.
    written: Time,
}

impl Part {
    fn read(disk: &dyn Disk, dir: &Path, (file_id, ordinal, epoch): Wanted) -> Result<Self> {
        let path = segment::path(dir, file_id);
        let mut part = Self {
            file_id,
            ordinal,
            epoch,
            bytes: Vec::new(),
            header: None,
            problem: None,
            found: Vec::new(),
            log_start: None,
            lost: Vec::new(),
            path,
        };
        let file = match disk.open(&part.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                part.problem = Some(Problem::new(&part.path, 0, "the file is missing"));
                return Ok(part);
            }
            Err(error) => return Err(Error::io(&part.path, error)),
        };
        let failed = |error| Error::io(&part.path, error);
        let len = file.len().map_err(failed)?;
        let len = usize::try_from(len).map_err(|error| failed(io::Error::other(error)))?;
        part.bytes.resize(len, 0);
        // What a killed process left in the cache alone is no more rescued than it is replayed.
        disk::sync(&*file).and_then(|()| file.drop_cache()).map_err(failed)?;
        let whole = read_what_can_be(&*file, &mut part.bytes, 0);
        let header = part.bytes.first_chunk().ok_or(None).and_then(Header::from_bytes);
        part.header = header.ok();
        let what = match header {
            Err(Some(version)) => {
                return Err(Error::Version { found: version, supported: segment::VERSION });
            }
            Err(None) => "the segment header does not read",
            Ok(header) if (header.ordinal, header.epoch) != (ordinal, epoch) => {
                "the segment header is not the one the catalog lists"
            }
            Ok(header) if header.size != part.bytes.len() as u64 => {
                "the file has not the length it was made with"
            }
            // Not to be used again, whatever lay there.
            Ok(_) if !whole => "the device does not read all of it",
            Ok(_) => return Ok(part),
        };
        part.problem = Some(Problem::new(&part.path, 0, what));
        Ok(part)
    }

    fn find_frames(&mut self) {
        let mut offset = FRAMES_AT;
        while let Some(rest) = self.bytes.get(offset..) {
            let Some(frame) = Frame::read(rest, self.epoch) else {
                offset += FRAME_ALIGN;
                continue;
            };
            let mut place = Place {
                seq: frame.seq,
                durable: frame.durable,
                offset,
                len: frame.len,
                made: None,
                written: Time(0),
            };
            let mut decodes = true;
            for record in frame.records() {
                let Some(record) = record.and_then(StoredRecord::decode) else {
                    decodes = false;
                    break;
                };
                place.written = place.written.max(record.written_at());
                match record.body {
                    Body::Done(_) | Body::Released(_) | Body::Tombstone { .. } => {
                        place.made = Some(record.written_at());
                    }
                    Body::LogStart { segment, last_seq } => self.log_start = Some((segment, last_seq)),
                    _ => {}
                }
            }
            if decodes {
                self.found.push(place);
            }
            offset += frame.len;
        }
    }

    fn records(&self, place: Place, mut visit: impl FnMut(StoredRecord<'_>, &[u8])) {
        let frame = self.bytes.get(place.offset..).and_then(|rest| Frame::read(rest, self.epoch));
        for bytes in frame.into_iter().flat_map(Frame::records).flatten() {
            if let Some(record) = StoredRecord::decode(bytes) {
                visit(record, bytes);
            }
        }
    }

    /// Frames from `seq` on are lost here.
    fn lose(&mut self, seq: u64, claims: Span) {
        let problem = self.problem.clone().unwrap_or_else(|| {
            let before = self.found.iter().rev().find(|place| place.seq < seq);
            let offset = before.map_or(FRAMES_AT, |place| place.offset + place.len);
            Problem::new(&self.path, offset as u64, "frames are damaged or missing")
        });
        self.lost.push((problem, claims));
    }

    /// Whether bytes behind the last good frame look like a frame of this use.
    fn goes_on(&self) -> bool {
        let end = self.found.last().map_or(FRAMES_AT, |place| place.offset + place.len);
        let rest = self.bytes.get(end..).unwrap_or_default();
        rest.as_chunks().0.iter().any(|word| u64::from_le_bytes(*word) == self.epoch)
    }
}

/// Gives each part the bytes of its own segment, where they lie in another one's file.
fn exchange(parts: &mut [Part]) {
    let bytes: Vec<_> = parts.iter_mut().map(|part| std::mem::take(&mut part.bytes)).collect();
    let sources: Vec<_> = parts
        .iter()
        .enumerate()
        .map(|(index, part)| {
            let is_its = |other: &Part| {
                other
                    .header
                    .is_some_and(|header| (header.ordinal, header.epoch) == (part.ordinal, part.epoch))
            };
            if is_its(part) { index } else { parts.iter().position(is_its).unwrap_or(index) }
        })
        .collect();
    for (part, source) in parts.iter_mut().zip(sources) {
        part.bytes.clone_from(&bytes[source]);
    }
}

/// Drops the frames that do not count: those that a log start cuts off, and those whose numbers a
/// later segment gave anew.
fn bury_the_dead(parts: &mut [Part]) {
    let starts: Vec<_> =
        parts.iter().filter_map(|part| part.log_start.map(|start| (part.ordinal, start))).collect();
    for part in parts.iter_mut() {
        for &(ordinal, (segment, last_seq)) in &starts {
            if part.ordinal < ordinal && part.ordinal >= segment {
                part.found.retain(|place| part.ordinal == segment && place.seq <= last_seq);
            }
        }
    }
    let mut next = u64::MAX;
    for part in parts.iter_mut().rev() {
        part.found.retain(|place| place.seq < next);
        next = part.found.iter().map(|place| place.seq).fold(next, u64::min);
    }
}

type Log = BTreeMap<u64, (usize, Place)>;

/// The numbers between `released` and `last_seq` that are missing, as first and last ones.
fn gaps(log: &Log, released: u64, last_seq: u64) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut next = released + 1;
    for &seq in log.range(next..).map(|(seq, _)| seq) {
        if seq > next {
            gaps.push((next, seq - 1));
        }
        next = seq + 1;
    }
    if next <= last_seq {
        gaps.push((next, last_seq));
    }
    gaps
}

/// The latest moment that a frame before `seq` tells.
fn since(log: &Log, seq: u64) -> Time {
    log.range(..seq).map(|(_, (_, place))| place.written).max().unwrap_or(Time(0))
}

/// When the first frame behind `seq` was made. A begin may be a repeated one, and a mark one that was
/// put back: they tell an earlier time.
fn until(log: &Log, seq: u64) -> Option<Time> {
    log.range(seq..).find_map(|(_, (_, place))| place.made)
}

/// The segment that a gap lies in: one with other damage, if such a one lies there.
fn home_of(parts: &[Part], gap: (u64, u64), released: u64) -> Option<usize> {
    let reaches = |index: usize| {
        let before = parts[..index].iter().flat_map(|part| &part.found).map(|place| place.seq);
        let after = parts[index + 1..].iter().flat_map(|part| &part.found).map(|place| place.seq);
        let (low, high) = (before.max().unwrap_or(released), after.min().unwrap_or(u64::MAX));
        gap.0 < high && gap.1 > low
    };
    let all = || (0..parts.len()).filter(|&index| reaches(index));
    let holds = |&index: &usize| parts[index].found.first().is_some_and(|place| place.seq < gap.0);
    let damaged = all().find(|&index| parts[index].problem.is_some());
    damaged.or_else(|| all().rfind(holds)).or_else(|| all().next()).or_else(|| parts.len().checked_sub(1))
}

/// Whether the segment after this one is there, if there is any: without a catalog nobody else knows
/// of one that is gone.
fn is_followed(parts: &[Part], index: usize) -> bool {
    parts.get(index + 1).is_none_or(|next| next.ordinal == parts[index].ordinal.saturating_add(1))
}

/// The segment that may have held the end of the log, if that may be lost.
fn end_is_lost(parts: &[Part]) -> Option<usize> {
    let last = parts.iter().rposition(|part| !part.found.is_empty());
    if let Some(last) = last
        && (parts[last].problem.is_some() || parts[last].goes_on() || !is_followed(parts, last))
    {
        return Some(last);
    }
    // Segments are begun in order: behind one that was not begun there is nothing.
    let behind = parts.iter().enumerate().skip(last.map_or(0, |last| last + 1));
    behind.take_while(|(_, part)| part.problem.is_some() || part.goes_on()).map(|(index, _)| index).next()
}
