//! Reading the log back, and telling a torn tail from damage.
//!
//! The log is the frames with sequence numbers `n, n + 1, …` over the segments in ordinal order. It
//! ends at the first place where the next number is not found. That end is right, and nobody was
//! promised what lies behind it, unless something says otherwise:
//!
//! | found behind the end | verdict |
//! |---|---|
//! | in the same segment, a good frame whose durable number reaches past the end | damage |
//! | in the next segment, a first frame that goes on with the next number | not the end: go on there |
//! | in a later segment, any good frame | damage: a segment starts only when the one before is durable |
//! | nothing of the kind, but the catalog knows a higher durable number | damage |
//! | anything else | a torn tail |
//!
//! A log start frame, the first after a recovery, says where that recovery found the end: what an
//! older segment holds beyond it is dead for ever, even if it reads well today.

use super::commit::Used;
use super::image::{Image, Limit};
use super::segment::{FRAMES_AT, Segment};
use crate::error::{Error, Result};
use crate::record::StoredRecord;

/// What [`replay`] found.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// The last sequence number of the log.
    pub(crate) last_seq: u64,
    /// The ordinal of the segment it is in; 0 if there is none.
    pub(crate) last_segment: u64,
    /// The segments that hold a part of the log.
    pub(crate) used: Vec<Used>,
    /// Those that hold nothing of it: ready ones never begun, and a torn start.
    pub(crate) unused: Vec<Segment>,
}

/// What the catalog knows of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Everything up to here is in runs and may be gone from the log.
    pub(crate) released: u64,
    /// The log reached at least here.
    pub(crate) durable: u64,
}

/// Gives every record of the log to `visit`, in order, with its sequence number.
pub(crate) fn replay(
    segments: Vec<Segment>,
    known: Known,
    visit: &mut dyn FnMut(u64, StoredRecord<'_>, &[u8]),
) -> Result<Replayed> {
    let mut found =
        Replayed { last_seq: known.released, last_segment: 0, used: Vec::new(), unused: Vec::new() };
    let mut images = segments.into_iter().map(Image::read).collect::<Result<Vec<_>>>()?;
    images.sort_by_key(|image| image.segment.ordinal);
    let limits = limits(&images);
    let mut end: Option<(usize, usize)> = None;
    let mut next: Option<u64> = None;
    for (index, image) in images.iter().enumerate() {
        let limit = limits[index];
        let Some(first) = image.frame(FRAMES_AT).filter(|_| limit != Limit::Unused) else {
            continue;
        };
        let expected = next.unwrap_or(first.seq);
        let starts_late = next.is_none() && first.seq > known.released.saturating_add(1);
        if first.seq != expected || starts_late {
            let (at, offset) = end.unwrap_or((index, FRAMES_AT));
            return Err(images[at].corrupt(offset, "frames are missing here that a later segment continues"));
        }
        let (stop, after) = image.visit(expected, limit, visit)?;
        next = Some(after);
        end = Some((index, stop));
        found.last_segment = image.segment.ordinal;
    }
    if let Some(next) = next {
        found.last_seq = next - 1;
        if let Some((index, offset)) = end
            && limits[index] == Limit::None
        {
            images[index].check_tail(offset, next)?;
        }
    }
    // A segment whose first frame is torn was never promised to anyone, so it must hold no promise.
    for (index, image) in images.iter().enumerate() {
        let untouched = image.frame(FRAMES_AT).is_none() && limits[index] == Limit::None;
        if untouched && image.segment.ordinal > found.last_segment {
            image.check_tail(FRAMES_AT, found.last_seq.saturating_add(1))?;
        }
    }
    if found.last_seq < known.durable {
        let Some((index, offset)) = end.or_else(|| images.len().checked_sub(1).map(|last| (last, 0))) else {
            let what = "the catalog lists no journal segment, but part of the journal is not in runs yet";
            return Err(Error::corrupt(std::path::Path::new("catalog.redb"), 0, what));
        };
        return Err(images[index].corrupt(offset, "the journal ends before what was known to be durable"));
    }
    for (index, image) in images.into_iter().enumerate() {
        match image.last_seq(limits[index]) {
            Some(last_seq) if image.segment.ordinal <= found.last_segment => {
                found.used.push(Used { segment: image.segment, last_seq });
            }
            _ => found.unused.push(image.segment),
        }
    }
    drop_idle_starts(&mut found, known);
    Ok(found)
}

/// Gives up trailing segments with nothing but their log start: opening again and again after
/// crashes must not pile them up.
fn drop_idle_starts(found: &mut Replayed, known: Known) {
    while let [.., before, last] = found.used.as_slice()
        && last.last_seq == before.last_seq + 1
        && before.last_seq >= known.durable
        && Image::read(last.segment.clone()).is_ok_and(|image| image.log_start().is_some())
    {
        found.last_seq = before.last_seq;
        found.last_segment = before.segment.ordinal;
        found.unused.extend(found.used.pop().map(|used| used.segment));
    }
}

/// Where the log ends in a segment, for [`Break::AppendToReplayed`].
pub(crate) fn end_of(used: &Used) -> u64 {
    let image = Image::read(used.segment.clone());
    let end = image.iter().flat_map(Image::frames).filter(|(_, frame)| frame.seq <= used.last_seq).last();
    end.map_or(FRAMES_AT, |(offset, frame)| offset + frame.len) as u64
}

/// What the log start frames say of the segments before them.
pub(super) fn limits(images: &[Image]) -> Vec<Limit> {
    let mut limits = vec![Limit::None; images.len()];
    for (index, image) in images.iter().enumerate() {
        let Some((segment, last_seq)) = image.log_start() else { continue };
        for (limit, earlier) in limits[..index].iter_mut().zip(images) {
            if earlier.segment.ordinal == segment {
                *limit = Limit::Until(last_seq);
            } else if earlier.segment.ordinal > segment {
                *limit = Limit::Unused;
            }
        }
    }
    limits
}
