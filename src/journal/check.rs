//! Reading the segments of a journal in use, up to the frame that was durable when it began.

use super::commit::Used;
use super::image::Image;
use super::segment::{FRAMES_AT, Segment};
use crate::error::{Error, Result};
use crate::record::StoredRecord;

/// A journal's segments at one moment.
#[derive(Debug)]
pub(crate) struct Extent {
    /// Those with frames, in the order of the log, each with its last durable frame.
    pub(crate) begun: Vec<Used>,
    /// Those that stand ready.
    pub(crate) ready: Vec<Segment>,
    /// The last durable frame.
    pub(crate) durable: u64,
}

/// What one segment holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checked {
    pub(crate) records: u64,
    /// The last frame that was found, of those that count.
    pub(crate) last_seq: u64,
}

/// Reads a begun segment: its header, and each frame up to the one it must reach. `first` is the
/// number it must begin with, where that is known. `check` says what is wrong with a record.
pub(crate) fn check_begun(
    used: &Used,
    first: Option<u64>,
    check: impl Fn(&StoredRecord<'_>) -> Option<&'static str>,
) -> Result<Checked> {
    check_header(&used.segment)?;
    let image = Image::read(used.segment.clone())?;
    let mut checked = Checked::default();
    let mut end = FRAMES_AT;
    for (offset, frame) in image.frames() {
        if frame.seq > used.last_seq {
            break;
        }
        if offset == FRAMES_AT && first.is_some_and(|first| first != frame.seq) {
            return Err(image.corrupt(offset, "the segment does not go on where the one before ends"));
        }
        for record in frame.records() {
            let what = match record.and_then(StoredRecord::decode) {
                None => Some("a frame with a good checksum holds no record"),
                Some(record) => check(&record),
            };
            if let Some(what) = what {
                return Err(image.corrupt(offset, what));
            }
            checked.records += 1;
        }
        checked.last_seq = frame.seq;
        end = offset + frame.len;
    }
    let reached = if end == FRAMES_AT { first.map_or(0, |first| first - 1) } else { checked.last_seq };
    if reached < used.last_seq {
        return Err(image.corrupt(end, "a frame is damaged that was durable"));
    }
    Ok(checked)
}

/// Reads the header of a segment.
pub(crate) fn check_header(segment: &Segment) -> Result<()> {
    match segment.header_stands() {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(Error::corrupt(&segment.path, 0, "the segment header is not the one it was prepared with"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(Error::corrupt(&segment.path, 0, "the file is cut short"))
        }
        Err(error) => Err(Error::io(&segment.path, error)),
    }
}
